package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// slowPut begins a PUT and sends its body when the test says so.
type slowPut struct {
	conn net.Conn
	rest string
}

func beginPut(t *testing.T, g *running, token, key, body string) *slowPut {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.api, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "PUT /v1/strings/%s HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		key, token, len(body), body[:1])
	if err != nil {
		t.Fatal(err)
	}
	return &slowPut{conn, body[1:]}
}

func (p *slowPut) end(t *testing.T) answer {
	t.Helper()
	defer p.conn.Close()
	if _, err := io.WriteString(p.conn, p.rest); err != nil {
		t.Error(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(p.conn), nil)
	if err != nil {
		t.Error(err)
		return answer{Response: &http.Response{Header: http.Header{}}}
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	return answer{resp, string(data)}
}

// inFlight waits until so many requests run.
func (g *running) inFlight(t *testing.T, n int) {
	t.Helper()
	want := fmt.Sprintf("slotgate_http_in_flight_requests{app=\"shop\"} %d\n", n)
	eventually(t, func() bool { return strings.Contains(call(t, "GET", g.admin+"/metrics", "", "").body, want) })
}

func TestDrain(t *testing.T) {
	vars := append(clusterVars(t), "SLOTGATE_HTTP_DRAIN_DELAY_MS=3000")
	token := newToken(t, vars, "shop")
	g := startGateway(t, vars, "--set", "readyz_on_api=true")
	g.waitReady(t)

	// A client with one connection for all its requests, from before the signal until the gateway says not ready, as a
	// load balancer would; then it goes elsewhere.
	transport := &http.Transport{MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var balanced sync.WaitGroup
	closes := 0
	balanced.Go(func() {
		for {
			req, _ := http.NewRequest("GET", g.api+"/v1/whoami", nil)
			req.Header.Set("Authorization", "Bearer "+token)
			got := do(t, client, req)
			if got.StatusCode != 200 {
				t.Errorf("a request while draining: %d %s", got.StatusCode, got.body)
				return
			}
			if got.Close {
				if closes++; closes == 5 {
					return
				}
			}
		}
	})

	const running = 20
	puts := make([]*slowPut, running)
	for i := range puts {
		puts[i] = beginPut(t, g, token, fmt.Sprint("k", i), `{"value":"kept"}`)
	}
	g.inFlight(t, running)
	g.stop()
	eventually(t, func() bool { return call(t, "GET", g.admin+"/readyz", "", "").StatusCode == 503 })
	expect(t, call(t, "GET", g.admin+"/readyz", "", ""), 503, "[-]drain failed: the gateway is shutting down")
	expect(t, call(t, "GET", g.admin+"/livez", "", ""), 200)
	expect(t, call(t, "GET", g.api+"/readyz", "", ""), 503, `"draining"`)
	balanced.Wait() // it was served all the while, and asked to close
	eventually(t, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.api, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if len(g.code) > 0 {
		t.Error("the gateway ended while requests ran")
	}
	for i, p := range puts {
		got := p.end(t)
		expect(t, got, 200, "etag")
		if !got.Close {
			t.Error("a last answer does not say Connection: close")
		}
		if v := redisClient(t).Get(t.Context(), fmt.Sprint("shop:k", i)).Val(); v != "kept" {
			t.Errorf("Redis holds %q", v)
		}
	}
	if code := g.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
}

func TestShutdownIsBounded(t *testing.T) {
	vars := append(clusterVars(t), "SLOTGATE_HTTP_SHUTDOWN_TIMEOUT_MS=50")
	token := newToken(t, vars, "shop")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := load(sources{Environ: vars}).Config
	var log lockedBuffer
	g := &running{}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- serve(ctx, cfg, newLogger(cfg.Log, &log), nil, func(api, admin net.Addr) {
			g.api, g.admin = "http://"+api.String(), "http://"+admin.String()
			close(ready)
		})
	}()
	<-ready
	g.waitReady(t)
	put := beginPut(t, g, token, "k", `{"value":"cut off"}`)
	defer put.conn.Close()
	g.inFlight(t, 1)
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "requests were cut off") {
		t.Errorf("got %v", err)
	}
}
