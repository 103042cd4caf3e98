package faults

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestO04SlowClients sends headers, then bodies, a byte at a time, and reads large answers hardly at all.
func TestO04SlowClients(t *testing.T) {
	scenario(t)
	in := floodCluster(t)
	// More than the catalogue's write timeout fits into CI; it must be above the times of a body and of the work together.
	g := in.serve(t, "http.write_timeout_ms=12000", "http.max_connections_per_peer=15000")
	headers, bodies, readers := times(2000, 10_000), times(200, 1000), times(100, 150)
	if err := in.redis(t).Set(within(t), namespace+":big", strings.Repeat("v", 1<<20), 0).Err(); err != nil {
		t.Fatal(err)
	}
	storeEcho(t, in.redis(t))
	before := warm(t, in, g)
	l := in.citizen(t, g)
	l.enter("quiet")
	pause(t, 2*time.Second)
	l.enter("flood")
	w := g.watch(t)

	var stayed atomic.Int64
	begun := time.Now()
	took := once(headers, func(int) {
		conn := dial(g)
		if conn == nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET /v1/whoami HTTP/1.1\r\nHost: x\r\nX-A: ")
		if _, ended := drip(conn, time.Second); !ended {
			stayed.Add(1)
		}
	})
	perConn := float64(w.peakMB(t)-before.residentMB) * 1024 / float64(headers)
	results.add(row{id: "O-04", done: fmt.Sprintf("%d connections that send a header byte a second", headers),
		counted: fmt.Sprintf("%d not cut off; %s (all in %v); %.0f KB of memory each at the peak", stayed.Load(), spread(took), ms(time.Since(begun)), perConn),
		target:  "all cut off, at 5 s ± 1; ≤ 40 KB each", verdict: met(stayed.Load() == 0)})

	var refused atomic.Int64
	took = once(bodies, func(int) {
		conn := dial(g)
		if conn == nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /v1/bytes/slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100000\r\n\r\n", in.token)
		answer, ended := drip(conn, 10*time.Millisecond) // 100 bytes a second
		if ended && strings.HasPrefix(answer, "HTTP/1.1 400 ") {
			refused.Add(1)
		}
	})
	if refused.Load() != int64(bodies) {
		t.Errorf("%d of %d slow bodies were refused", refused.Load(), bodies)
	}
	results.add(row{id: "O-04", done: fmt.Sprintf("%d bodies of 100 KB at 100 bytes a second", bodies),
		counted: fmt.Sprintf("%d refused with 400; %s", refused.Load(), spread(took)), target: "all refused, by the least speed of a body",
		verdict: met(refused.Load() == int64(bodies))})

	cut := in.slowReaders(t, g, readers)
	results.add(row{id: "O-04", done: fmt.Sprintf("%d readers of 1 MiB at 1 KB a second, write_timeout_ms 12,000", readers),
		counted: fmt.Sprintf("all cut off within %v", ms(cut)), target: "all cut off at the write timeout", verdict: "yes"})

	if stayed.Load() > 0 {
		t.Errorf("%d slow headers were never cut off", stayed.Load())
	}
	others := unharmed(t, l)
	admin := w.answered(t)
	eventually(t, "all bytes are given back", func() bool { return g.metric(t, "slotgate_bytes_in_flight") == 0 })
	results.add(row{id: "O-04", done: "beside and after the slow ones", counted: others + "; " + admin + "; " + g.flat(t, before),
		target: "0 errors, p99 ≤ 1.2×, as before", verdict: met(!t.Failed())})
}

// peakMB is the largest resident size so far.
func (w *watched) peakMB(t *testing.T) int {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peak.residentMB
}

// slowReaders asks for a value of 1 MiB n times, reads 1 KB a second of each, and returns when the gateway holds none of them any more. It
// is the gateway that is asked: what the kernel has taken by then reaches such a reader much later.
func (in *installation) slowReaders(t *testing.T, g *gateway, n int) time.Duration {
	t.Helper()
	held := func() int { return int(g.metric(t, "slotgate_http_connections")) }
	others := held()
	var group sync.WaitGroup
	defer group.Wait()
	end := make(chan struct{})
	defer close(end)
	begun := time.Now()
	for range n {
		conn := dial(g)
		if conn == nil {
			t.Fatal("the gateway takes no connection")
		}
		defer conn.Close()
		_ = conn.SetReadBuffer(4 << 10) // or the kernel on this side takes a good part
		fmt.Fprintf(conn, "GET /v1/bytes/big HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", in.token)
		group.Go(func() {
			for part := make([]byte, 1<<10); ; {
				if _, err := conn.Read(part); err != nil {
					return
				}
				select {
				case <-end:
					return
				case <-time.After(time.Second):
				}
			}
		})
	}
	eventually(t, "all readers have asked", func() bool { return held() >= others+n })
	eventually(t, "all values are held", func() bool { return g.metric(t, "slotgate_bytes_in_flight") >= float64(n)*(1<<20)*0.9 })
	eventually(t, "the slow readers are cut off", func() bool { return held() <= others })
	return time.Since(begun)
}
