package faults

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster/certtest"
)

// stranger is another peer than the flood's: Linux has all of 127.0.0.0/8 on loopback.
const stranger = "127.0.0.2"

// TestO05Connections floods a gateway of few descriptors with connections: closed at once, kept without a word, and after a handshake of
// TLS. Somebody else must get in all the while.
func TestO05Connections(t *testing.T) {
	scenario(t)
	in := floodCluster(t)
	storeEcho(t, in.redis(t))
	in.descriptors = times(1024, 4096)
	lasts := time.Duration(times(4, 15)) * time.Second

	plain := in.serve(t)
	in.connections(t, plain, "connections, closed at once", lasts, func(ctx context.Context) bool {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", plain.api)
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
		return err == nil
	})
	kept := keeper{}
	defer kept.close()
	in.connections(t, plain, "connections, kept without a word", lasts, func(ctx context.Context) bool {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", plain.api)
		if err == nil {
			kept.keep(conn)
		}
		return err == nil
	})
	kept.close()

	ca := certtest.New(t)
	pair := ca.Issue(t, certtest.Options{Hosts: []string{"127.0.0.1"}})
	secure := in.serve(t, "tls.cert_file="+pair.CertFile, "tls.key_file="+pair.KeyFile)
	trusting := &tls.Config{RootCAs: ca.Pool()}
	in.connections(t, secure, "handshakes of TLS without a request", lasts, func(ctx context.Context) bool {
		conn, err := (&tls.Dialer{Config: trusting}).DialContext(ctx, "tcp", secure.api)
		if err == nil {
			kept.keep(conn)
		}
		return err == nil
	})
	kept.close()
}

// connections lets eight goroutines do open as fast as they can for a while, and a stranger knock on the same door.
func (in *installation) connections(t *testing.T, g *gateway, what string, lasts time.Duration, open func(context.Context) bool) {
	t.Helper()
	in.knock(t, g)
	before := g.size(t)
	refusedBefore := g.metric(t, "slotgate_http_connections_refused_total")
	w := g.watch(t)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var opened, failed, knocks, turnedAway atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	for range 8 {
		group.Go(func() {
			for ctx.Err() == nil {
				if open(ctx) {
					opened.Add(1)
				} else {
					failed.Add(1)
				}
			}
		})
	}
	var slowest time.Duration
	group.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if knocks.Add(1); !in.knock(t, g) {
				turnedAway.Add(1)
			}
			slowest = max(slowest, time.Since(began))
			sleep(ctx, 20*time.Millisecond)
		}
	})
	group.Wait()
	rate := float64(opened.Load()) / time.Since(begun).Seconds()

	if turnedAway.Load() > 0 || knocks.Load() < 5 {
		t.Errorf("%s: a stranger got in %d of %d times", what, knocks.Load()-turnedAway.Load(), knocks.Load())
	}
	admin := w.answered(t)
	if w.peak.descriptors >= in.descriptors {
		t.Errorf("%s: %d of %d descriptors were in use", what, w.peak.descriptors, in.descriptors)
	}
	for _, line := range g.log.lines() {
		if strings.Contains(line, "too many open files") {
			t.Errorf("%s: %s", what, line)
			break
		}
	}
	refused := g.metric(t, "slotgate_http_connections_refused_total") - refusedBefore
	eventually(t, "the flood's connections have ended", func() bool { return g.size(t).descriptors <= before.descriptors+slack })
	results.add(row{id: "O-05", done: fmt.Sprintf("%s, %.0f a second for %v; %d descriptors", what, rate, lasts, in.descriptors),
		counted: fmt.Sprintf("a stranger got in %d of %d times, in at most %v; %s; %.0f refused, at most %d descriptors; %s", knocks.Load()-turnedAway.Load(), knocks.Load(),
			ms(slowest), admin, refused, w.peak.descriptors, g.flat(t, before)),
		target: "0 turned away, no EMFILE, the admin listener ≤ 100 ms", verdict: met(!t.Failed())})
}

// knock asks for a key over a connection of its own, from another address than the flood's.
func (in *installation) knock(t *testing.T, g *gateway) bool {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(stranger)}}).DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // whom it speaks to is not the question
	client := &http.Client{Transport: transport, Timeout: clientTimeout}
	for _, scheme := range []string{"http://", "https://"} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", scheme+g.api+"/v1/strings/e1", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+in.token)
		resp, err := client.Do(req)
		if err != nil {
			if scheme == "https://" {
				t.Log(err)
			}
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == 200 {
			return true
		}
	}
	return false
}

// keeper keeps connections open, as many as a client has descriptors to spare.
type keeper struct {
	mu    sync.Mutex
	conns []net.Conn
}

// kept is how many, so that these tests do not run out of descriptors before the gateway does.
const keptMost = 8000

func (k *keeper) keep(c net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.conns) == keptMost {
		k.conns[0].Close()
		k.conns = k.conns[1:]
	}
	k.conns = append(k.conns, c)
}

func (k *keeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		c.Close()
	}
	k.conns = nil
}
