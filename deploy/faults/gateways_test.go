package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// balancer sends requests to gateways in turn: to those whose /readyz said so when it was last asked, as any load balancer does.
type balancer struct {
	mu       sync.Mutex
	gateways []*gateway
	ready    map[*gateway]bool
	turn     atomic.Uint64
}

// balancerPeriod is how often gateways are asked; those of F-14 drain for five times as long.
const balancerPeriod = 100 * time.Millisecond

// balance starts a balancer that ends with the test.
func balance(t *testing.T, gateways ...*gateway) *balancer {
	t.Helper()
	b := &balancer{gateways: gateways, ready: map[*gateway]bool{}}
	for _, g := range gateways {
		b.ready[g] = true
	}
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		for sleep(ctx, balancerPeriod) {
			b.ask()
		}
	})
	t.Cleanup(func() { cancel(); asking.Wait() })
	return b
}

func (b *balancer) ask() {
	b.mu.Lock()
	gateways := append([]*gateway(nil), b.gateways...)
	b.mu.Unlock()
	for _, g := range gateways {
		ready := status("http://"+g.admin+"/readyz") == 200
		b.mu.Lock()
		b.ready[g] = ready
		b.mu.Unlock()
	}
}

// target is the next gateway's address.
func (b *balancer) target() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.gateways {
		if g := b.gateways[b.turn.Add(1)%uint64(len(b.gateways))]; b.ready[g] {
			return g.api
		}
	}
	return b.gateways[0].api
}

// gone takes a gateway out that takes no connections, until it is found ready again.
func (b *balancer) gone(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.gateways {
		if g.api == target {
			b.ready[g] = false
		}
	}
}

// replace puts a gateway in the place of one that has ended.
func (b *balancer) replace(i int, g *gateway) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ready, b.gateways[i])
	b.gateways[i] = g
	b.ready[g] = true
}

// TestF14TwoGateways restarts two gateways in turn, in order, and then kills one.
func TestF14TwoGateways(t *testing.T) {
	scenario(t)
	c := startCluster(t)
	in := install(t, c)
	const drain = "http.drain_delay_ms=500"
	gateways := []*gateway{in.serve(t, drain), in.serve(t, drain)}
	storeEcho(t, in.redis(t))
	b := balance(t, gateways...)
	l := in.load(nil, 16)
	l.target, l.gone = b.target, b.gone
	l.start(t)
	l.enter("rolling")
	rounds := times(2, 10)
	for range rounds {
		for i := range gateways {
			pause(t, 500*time.Millisecond)
			gateways[i].stop()
			gateways[i] = in.serveOn(t, gateways[i].api, drain)
			b.replace(i, gateways[i])
		}
	}
	l.enter("steady")
	kills := times(5, 50)
	for i := range kills {
		pause(t, 300*time.Millisecond)
		l.enter("killed")
		gateways[i%2].kill()
		pause(t, 300*time.Millisecond)
		l.enter("steady")
		gateways[i%2] = in.serveOn(t, gateways[i%2].api, drain)
		b.replace(i%2, gateways[i%2])
	}
	l.stop()

	v := l.compare(t, in.redis(t))
	v.mustBeExact(t)
	rolling, killed := l.sum("rolling", "*", "*"), l.sum("*", "*", "*")
	if rolling.failures() > 0 {
		t.Errorf("while gateways are restarted in order: %v", rolling.failed)
	}
	lost := killed.failed["no answer"]
	if lost > kills*l.clients || lost != killed.failures() {
		t.Errorf("%d kills with %d clients: %v", kills, l.clients, killed.failed)
	}
	results.add(row{
		id: "F-14", done: fmt.Sprintf("rolling restart of two gateways × %d, each drained, %d requests", rounds, rolling.times.n),
		counted: fmt.Sprintf("%d failed %v", rolling.failures(), words(rolling.failed)),
		target:  "0 failed", verdict: met(rolling.failures() == 0),
	})
	results.add(row{
		id: "F-14", done: fmt.Sprintf("kill -9 of one of two gateways × %d, %d clients", kills, l.clients),
		counted: fmt.Sprintf("%d requests in flight had no answer, %d others failed; %s", lost, killed.failures()-lost, v.counted()),
		target:  "only what was in flight is unknown; 0 lost, 0 double", verdict: met(!t.Failed()),
	})
}
