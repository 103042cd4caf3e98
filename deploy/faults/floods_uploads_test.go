package faults

import (
	"bufio"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestO07Uploads sends 1,000 bodies of 10 MB at once: to a gateway that allows no such body, and to one that does but may hold six of them.
func TestO07Uploads(t *testing.T) {
	scenario(t)
	in := floodCluster(t)
	storeEcho(t, in.redis(t))
	const (
		uploads = 1000
		size    = 10 << 20
		budget  = 64 << 20
	)
	t.Run("over the limit", func(t *testing.T) {
		g := in.serve(t, "http.max_connections_per_peer=5000")
		codes, counted := in.uploads(t, g, uploads, size, budget)
		if codes[413] != uploads {
			t.Errorf("answers %v, want %d of 413", codes, uploads)
		}
		results.add(row{id: "O-07", done: fmt.Sprintf("%d uploads of 10 MB at once, 8 MiB allowed", uploads),
			counted: counted, target: "all 413 before they are read", verdict: met(!t.Failed())})
	})
	t.Run("over the budget", func(t *testing.T) {
		g := in.serve(t, "http.max_connections_per_peer=5000", "limits.request_max_bytes="+strconv.Itoa(16<<20), "limits.value_max_bytes="+strconv.Itoa(16<<20),
			"limits.bytes_in_flight="+strconv.Itoa(budget))
		codes, counted := in.uploads(t, g, uploads, size, budget)
		// 400 is a body that came too slowly, 504 a node that took too long for 10 MB: the machine's, as 413 is not.
		if codes[503] == 0 || codes[204]+codes[400]+codes[503]+codes[504] != uploads {
			t.Errorf("answers %v, want 204 for some, 503 for the rest", codes)
		}
		results.add(row{id: "O-07", done: fmt.Sprintf("%d uploads of 10 MB at once, 64 MiB in flight allowed", uploads),
			counted: counted, target: "memory bounded by the budget, the rest 503", verdict: met(!t.Failed())})
	})
}

// uploads sends n bodies at once and counts the answers. The gateway must not hold more than three times the budget (what its GOMEMLIMIT
// should be: a body is for moments request and value and command) and what 1,000 connections take.
func (in *installation) uploads(t *testing.T, g *gateway, n, size, budget int) (codes map[int]int, counted string) {
	t.Helper()
	before := warm(t, in, g)
	w := g.watch(t)
	var mu sync.Mutex
	codes = map[int]int{}
	took := once(n, func(i int) {
		code := in.upload(g, i, size)
		mu.Lock()
		defer mu.Unlock()
		codes[code]++
	})
	admin := w.answered(t)
	eventually(t, "all bytes are given back", func() bool { return g.metric(t, "slotgate_bytes_in_flight") == 0 })
	most := before.residentMB + 3*budget>>20 + 64
	if w.peak.residentMB > most {
		t.Errorf("the gateway held %d MB, want at most %d", w.peak.residentMB, most)
	}
	return codes, fmt.Sprintf("answers %v; %s; at most %d MB, before %d; %s; %s", codes, spread(took), w.peak.residentMB, before.residentMB, admin, g.flat(t, before))
}

// upload sends one body until it is sent or answered. 0 = no answer.
func (in *installation) upload(g *gateway, i, size int) int {
	conn := dial(g)
	if conn == nil {
		return 0
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT /v1/bytes/upload%d HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", i%8, in.token, size)
	answered := make(chan int, 1)
	go func() { answered <- answerOf(bufio.NewReader(conn)) }()
	part := make([]byte, 64<<10)
	for sent := 0; sent < size; sent += len(part) {
		select {
		case code := <-answered:
			return code
		default:
		}
		_ = conn.SetWriteDeadline(time.Now().Add(floodPatience))
		if _, err := conn.Write(part[:min(len(part), size-sent)]); err != nil {
			break
		}
	}
	return <-answered
}
