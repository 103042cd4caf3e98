package faults

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// TestF13AllPrimariesDown kills all primaries at once: without a majority nobody is promoted. Then they come back with what they had on disk.
func TestF13AllPrimariesDown(t *testing.T) {
	scenario(t)
	dir := t.TempDir()
	c := startCluster(t, func(o *localcluster.Options) { o.Dir = dir })
	in := install(t, c)
	g := in.serve(t)
	storeEcho(t, in.redis(t))
	before := warm(t, in, g)
	primaries, err := c.Primaries(within(t))
	if err != nil {
		t.Fatal(err)
	}
	l := in.load(g, 16).start(t)
	pause(t, 500*time.Millisecond)
	for _, p := range primaries {
		p.Kill()
	}
	l.enter("first second")
	pause(t, time.Second)
	l.enter("down")
	lines, begun := len(g.log.lines()), time.Now()
	pause(t, time.Duration(times(5, 60))*time.Second)
	seconds := time.Since(begun).Seconds()
	logged := float64(len(g.log.lines())-lines) / seconds / float64(len(primaries))
	live, ready := status("http://"+g.admin+"/livez"), status("http://"+g.admin+"/readyz")
	if live != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("with all primaries down: live %d, ready %d", live, ready)
	}
	// Refused connections cannot be counted, so something that hangs up takes the nodes' places for a while.
	l.enter("hung up")
	dialled := countDials(t, primaries, 2*time.Second)
	l.enter("back")
	recovered := comeBack(t, in, g, c, primaries)
	eventually(t, "the gateway is ready again", func() bool { return status("http://"+g.admin+"/readyz") == http.StatusOK })
	l.stop()
	if err := c.WaitOK(within(t)); err != nil {
		t.Fatal(err)
	}

	v := l.compare(t, in.redis(t))
	v.mustBeExact(t)
	down := l.sum("down", "*", "*")
	results.add(row{
		id: "F-13", done: fmt.Sprintf("all primaries down for %.0f s, then up", seconds+1),
		counted: fmt.Sprintf("after the first second %d answers, %s, median %v, p99 %v; live %d, ready %d; %.1f log lines/s and at most %.1f connects/s for each node; %s",
			down.times.n, words(down.failed), ms(down.times.quantile(.5)), ms(down.times.quantile(.99)), live, ready, logged, dialled, v.counted()),
		target:  "503 in ≤ 20 ms; ≤ 10 lines/s and ≤ 10 connects/s for each node; 0 lost, 0 double",
		verdict: met(!t.Failed() && down.times.quantile(.99) <= 20*time.Millisecond && logged <= 10 && dialled <= 10),
	})
	results.add(row{
		id: "F-13", done: "from the first primary that takes writes to the gateway's success on each shard", counted: recovered.String(),
		target: "≤ 1 s", verdict: met(recovered.within(time.Second, time.Second)),
	})
	results.add(row{id: "F-13", done: "the gateway afterwards", counted: g.flat(t, before), target: "as before", verdict: met(!t.Failed())})
}

// comeBack restarts the nodes and measures, shard by shard, from when Redis takes writes to when the gateway does.
func comeBack(t *testing.T, in *installation, g *gateway, c *localcluster.Cluster, nodes []*localcluster.Node) durations {
	t.Helper()
	var restarting sync.WaitGroup
	for _, n := range nodes {
		restarting.Go(func() {
			if err := n.Restart(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
	restarting.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := httpClient(t)
	took := make(durations, len(nodes))
	var probing sync.WaitGroup
	for i, n := range nodes {
		key := keyOn(t, n, "probe")
		probing.Go(func() {
			var writable, through time.Time
			var both sync.WaitGroup
			both.Go(func() { writable = firstSuccess(ctx, setAt(n, key)) })
			both.Go(func() { through = firstSuccess(ctx, in.setThrough(g, client, key)) })
			both.Wait()
			if took[i] = after(writable, through); writable.IsZero() {
				t.Errorf("%s does not come back", n.Addr)
				took[i] = never
			}
		})
	}
	probing.Wait()
	return took
}

// countDials listens where nodes did, for so long, resets every connection, and returns how many a second the busiest got.
func countDials(t *testing.T, nodes []*localcluster.Node, d time.Duration) float64 {
	t.Helper()
	counts := make([]int, len(nodes))
	var closers []net.Listener
	var listening sync.WaitGroup
	for i, n := range nodes {
		listener, err := net.Listen("tcp", n.Addr)
		if err != nil {
			t.Fatal(err)
		}
		listening.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return // closed
				}
				counts[i]++
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
		})
		closers = append(closers, listener)
	}
	pause(t, d)
	for _, l := range closers {
		_ = l.Close()
	}
	listening.Wait()
	return float64(slices.Max(counts)) / d.Seconds()
}
