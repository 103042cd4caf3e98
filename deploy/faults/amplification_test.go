package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// persistent is clients as SDKs are: each repeats what failed and was not applied, five times, and is asked for the next thing at once. The
// pauses are shorter than an SDK's, which asks more of the gateway.
type persistent struct {
	caller        *caller
	logical, sent atomic.Int64
}

const (
	sdkRetries = 5
	sdkPause   = 10 * time.Millisecond // the first one; each is twice the one before
)

// do is one logical request.
func (p *persistent) do(ctx context.Context, method, path, body string) {
	p.logical.Add(1)
	for wait, try := sdkPause, 0; try <= sdkRetries; wait, try = 2*wait, try+1 {
		p.sent.Add(1)
		r := p.caller.call(context.WithoutCancel(ctx), method, path, body)
		if r.err == nil && r.status < 500 {
			return
		}
		if r.outcome == "unknown" || !sleep(ctx, wait) {
			return
		}
	}
}

// run has so many clients ask, half of the time for the one key and half for the other, writing and reading by turns.
func (p *persistent) run(t *testing.T, clients int, d time.Duration, dead, sound string) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := dead
				if i%2 == 1 {
					key = sound
				}
				if i/2%2 == 0 {
					p.do(ctx, "POST", "/v1/counters/"+key+"/add", `{"delta":1}`)
				} else {
					p.do(ctx, "GET", "/v1/counters/"+key, "")
				}
			}
		})
	}
	running.Wait()
}

// commandsOf is how many commands of callers a node has got, refused ones included.
func commandsOf(t *testing.T, n *localcluster.Node) (total int64) {
	t.Helper()
	for line := range strings.Lines(n.Client().Info(within(t), "commandstats").Val()) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		switch name {
		case "get", "set", "incr", "incrby", "eval", "evalsha":
			var calls, usec, rejected, failed int64
			var per float64
			if _, err := fmt.Sscanf(rest, "calls=%d,usec=%d,usec_per_call=%g,rejected_calls=%d,failed_calls=%d", &calls, &usec, &per, &rejected, &failed); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			total += calls + rejected
		}
	}
	return total
}

func commands(t *testing.T, c *localcluster.Cluster) (total int64) {
	t.Helper()
	for _, n := range c.Nodes() {
		if n.Running() {
			total += commandsOf(t, n)
		}
	}
	return total
}

// The retry budget of the gateway: a tenth of the requests, what may have been saved up, and some a second for gateways with nothing to do.
const (
	budgetShare     = 0.1
	budgetSaved     = 512
	budgetPerSecond = 10
)

// TestO10Amplification has clients repeat what fails on a shard that refuses, and on one that is dead.
func TestO10Amplification(t *testing.T) {
	scenario(t)
	d := time.Duration(times(8, 60)) * time.Second
	c := startCluster(t, partial, func(o *localcluster.Options) { o.Replicas = 0 })
	network := clustertest.Proxied(t, c)
	g := assemble(t, assembly{addrs: c.Addrs(), dial: network.Dial})
	node := must(c.Primaries(within(t)))(t)[0]
	dead, sound := keyOn(t, node, "amp"), keyOn(t, otherPrimary(t, c, node), "amp")
	app := g.caller(t)
	for _, key := range []string{dead, sound} {
		app.must(t, 200, "PUT", "/v1/counters/"+key, `{"value":0}`)
	}

	fill := beginHole(t, c, node, dead)
	before := commands(t, c)
	p := &persistent{caller: app}
	p.run(t, 48, d, dead, sound)
	got := commands(t, c) - before
	most := int64(float64(p.sent.Load())*(1+budgetShare)) + budgetSaved + int64(d.Seconds()*budgetPerSecond)
	if got > most {
		t.Errorf("%d commands for %d requests, at most %d may be", got, p.sent.Load(), most)
	}
	results.add(row{
		id: "O-10", done: "clients with five retries, half of their requests to a slot of nobody (CLUSTERDOWN)",
		counted: fmt.Sprintf("%d logical requests, %d over HTTP, %d commands to Redis: %.2f a request over HTTP, %.2f a logical one", p.logical.Load(), p.sent.Load(), got,
			float64(got)/float64(p.sent.Load()), float64(got)/float64(p.logical.Load())),
		target:  "1.1 commands a request, and the 512 that may be saved up",
		verdict: met(got <= most),
	})
	fill()
	app.eventually(t, 200, "GET", "/v1/counters/"+dead, "")

	before = commands(t, c) - commandsOf(t, node)
	dials := network.Proxy(node.Addr).Accepted()
	node.Kill()
	p = &persistent{caller: app}
	p.run(t, 48, d, dead, sound)
	got = commands(t, c) - before
	rate := float64(network.Proxy(node.Addr).Accepted()-dials) / d.Seconds()
	if float64(got) > (1+budgetShare)*float64(p.logical.Load()) {
		t.Errorf("%d commands for %d logical requests", got, p.logical.Load())
	}
	results.add(row{
		id: "O-10", done: "the same with a shard that is dead and has no replica",
		counted: fmt.Sprintf("%d logical requests, %d over HTTP, %d commands to Redis: %.2f a logical one; %.1f dials/s to the dead node", p.logical.Load(), p.sent.Load(),
			got, float64(got)/float64(p.logical.Load()), rate),
		target: "1.1 commands a logical request", verdict: met(float64(got) <= (1+budgetShare)*float64(p.logical.Load())),
	})
}
