//go:build linux

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// hello runs the hello server for one test.
func hello(t *testing.T) (addr string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	addr = loopback(ports[0])
	ended := make(chan error, 1)
	go func() { ended <- serveHello(ctx, []string{addr, "100"}) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	waitFor(t, addr)
	return addr
}

// The load generator and the hello server, over real connections and both protocols.
func TestLoadOnHello(t *testing.T) {
	addr := hello(t)
	d := helloDoor(addr, 100)
	for streams, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		load := func(req []byte, expect expectation) report {
			o := order{Addrs: []string{addr}, Conns: 3, Streams: streams * 2, Requests: [][]byte{req, req}, Expect: expect}
			return converse(t, o, order{Do: "run", Duration: 30 * time.Millisecond})
		}
		for name, good := range map[string]report{
			"get": load(d.get(0, "a"), expectation{MinLength: 100}),
			"put": load(d.put(0, "a", "value"), expectation{}),
		} {
			if good.Requests == 0 || good.Errors != 0 || good.Latency.quantile(0.5) == 0 || good.Total == 0 {
				t.Errorf("%s, %s: %d requests, %d errors (%s)", protocol, name, good.Requests, good.Errors, good.FirstError)
			}
		}
		for name, bad := range map[string]report{
			"another path": load(request("GET", "/nothing", "", ""), expectation{}),
			"a short body": load(d.get(0, "a"), expectation{MinLength: 1000}),
			"another body": load(d.get(0, "a"), expectation{Contains: "OK"}),
		} {
			if bad.Errors == 0 || bad.FirstError == "" {
				t.Errorf("%s, %s: %d requests and no error", protocol, name, bad.Requests)
			}
		}
	}
	for name, req := range map[string][]byte{
		"a closing server":  request("GET", "/hello/100/a", "Connection: close\r\n", ""),
		"a broken protocol": []byte("nonsense, longer than the preface of HTTP/2\r\n\r\n"),
	} {
		o := order{Addrs: []string{addr}, Conns: 3, Requests: [][]byte{req}}
		if bad := converse(t, o, order{Do: "run", Duration: 30 * time.Millisecond}); bad.Errors == 0 {
			t.Errorf("%s: %d requests and no error", name, bad.Requests)
		}
	}
}

func TestOnceAsksOnEveryConnection(t *testing.T) {
	addr := hello(t)
	o := order{Addrs: []string{addr, addr}, Conns: 150, Requests: [][]byte{helloDoor(addr, 100).get(0, "a")}}
	if r := converse(t, o, order{Do: "once"}); r.Requests != 150 || r.Errors != 0 {
		t.Errorf("%d requests, %d errors (%s)", r.Requests, r.Errors, r.FirstError)
	}
}

func TestScheduleIsConstant(t *testing.T) {
	for i, want := range map[int]time.Duration{0: 0, 1: 50 * time.Microsecond, 3: 150 * time.Microsecond, 20_000: time.Second} {
		if got := schedule(i, 20_000); got != want {
			t.Errorf("request %d is due at %v, want %v", i, got, want)
		}
	}
}

func TestOpenLoopKeepsItsRate(t *testing.T) {
	addr := hello(t)
	o := order{Addrs: []string{addr}, Conns: 4, Requests: [][]byte{helloDoor(addr, 100).get(0, "a")}}
	r := converse(t, o, order{Do: "pace", Rate: 1000, Duration: 200 * time.Millisecond})
	if r.Requests != 200 || r.Errors != 0 || r.Elapsed < 199*time.Millisecond {
		t.Errorf("%d requests in %v, %d errors (%s)", r.Requests, r.Elapsed, r.Errors, r.FirstError)
	}
}

// A server that stalls once for 300 ms on its only connection is charged for everyone who came meanwhile.
func TestOpenLoopDoesNotOmitWhoWaits(t *testing.T) {
	stalls := make(chan time.Duration, 1)
	stalls <- 300 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case d := <-stalls:
			time.Sleep(d)
		default:
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	o := order{Addrs: []string{server.Listener.Addr().String()}, Conns: 1, Requests: [][]byte{request("GET", "/", "", "")}}
	r := converse(t, o, order{Do: "pace", Rate: 200, Duration: 400 * time.Millisecond})
	// 60 of 80 requests were due during the stall, on average in its middle. A closed loop would have seen one slow request.
	if median := r.Latency.quantile(0.5); r.Requests != 80 || r.Errors != 0 || median < 50*time.Millisecond {
		t.Errorf("%d requests, %d errors, median %v", r.Requests, r.Errors, median)
	}
}

func TestOpenLoopCountsWhoGotNoAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	o := order{Addrs: []string{l.Addr().String()}, Conns: 2, Requests: [][]byte{request("GET", "/", "", "")}}
	r := converse(t, o, order{Do: "pace", Rate: 500, Duration: 100 * time.Millisecond})
	if r.Requests != 50 || r.Errors < 40 {
		t.Errorf("%d requests, %d errors", r.Requests, r.Errors)
	}
}

// converse plays the parent process: open, then do, then close, over the generator's two streams.
func converse(t *testing.T, open, do order) report {
	t.Helper()
	open.Do, open.Row, do.Row = "open", "r", "r"
	var in, out strings.Builder
	encoder := json.NewEncoder(&in)
	for _, o := range []order{open, do, {Do: "close", Row: "r"}} {
		if err := encoder.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := serveLoad(strings.NewReader(in.String()), &out); err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(strings.NewReader(out.String()))
	var reports [3]report
	for i := range reports {
		if err := decoder.Decode(&reports[i]); err != nil || reports[i].Failed != "" {
			t.Fatalf("order %d: %v %s", i, err, reports[i].Failed)
		}
	}
	return reports[1]
}

func waitFor(t *testing.T, addr string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
