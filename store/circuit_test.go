package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
)

// paths are the ways that requests take to a node.
func paths(s *store.Store, id *acl.Identity) map[string]func(ctx context.Context, key string) error {
	low := store.Int(0)
	beside := func(key string) string { return key + "{" + id.Prefix + key + "}" } // in the same slot
	return map[string]func(context.Context, string) error{
		"a read": func(ctx context.Context, key string) error {
			_, err := s.Get(ctx, id, key, store.GetOptions{})
			return err
		},
		"a write": func(ctx context.Context, key string) error {
			_, err := s.Set(ctx, id, key, []byte("1"), store.SetOptions{})
			return err
		},
		"a durable write": func(ctx context.Context, key string) error {
			_, err := s.Set(ctx, id, key, []byte("1"), store.SetOptions{Delivery: store.Delivery{Durability: store.Replica}})
			return err
		},
		"a script": func(ctx context.Context, key string) error {
			_, err := s.CounterAdd(ctx, id, key, store.AddOptions{Delta: store.Int(1), Min: &low})
			return err
		},
		"a large value": func(ctx context.Context, key string) error {
			_, err := s.Set(ctx, id, beside(key)+"large", make([]byte, 64<<10), store.SetOptions{})
			return err
		},
		"mget": func(ctx context.Context, key string) error {
			items, err := s.MGet(ctx, id, []string{key, beside(key)}, store.Reading{})
			if err == nil && items[0].Err != nil {
				return items[0].Err
			}
			return err
		},
		"mset": func(ctx context.Context, key string) error {
			_, err := s.MSet(ctx, id, []store.SetItem{{Key: key, Data: []byte("1")}, {Key: beside(key), Data: []byte("1")}})
			return itemError(err)
		},
		"key information": func(ctx context.Context, key string) error {
			_, err := s.KeyInfo(ctx, id, key, false, store.Reading{})
			return err
		},
		"a listing": func(ctx context.Context, _ string) error {
			_, err := s.List(ctx, id, store.ListOptions{Limit: 1000})
			return err
		},
	}
}

// itemError is the error of the first item of a batch that failed.
func itemError(err error) error {
	var e *store.Error
	if errors.As(err, &e) {
		for _, it := range e.Items {
			if it.Outcome != store.Applied {
				return &store.Error{Code: e.Code, Outcome: it.Outcome}
			}
		}
	}
	return err
}

// proxied is a Store whose connections go through proxies, and the key of a node.
func proxied(t *testing.T, off bool, change ...func(*store.Config)) (*store.Store, *acl.Identity, *faultproxy.Proxy, string) {
	t.Helper()
	c, ctx := clustertest.Shared(t), testContext(t)
	network := clustertest.Proxied(t, c)
	s := newStore(t, c, append(change, func(cfg *store.Config) {
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: network.Dial}
		cfg.Coalesce.Off = off
	})...)
	id := newApp(t)
	node := must[[]*localcluster.Node](t)(c.Primaries(ctx))[0]
	key := keyAt(t, c, id, node)
	must[store.SetResult](t)(s.Set(ctx, id, key, []byte("1"), store.SetOptions{}))
	for name, do := range paths(s, id) {
		if err := do(ctx, key); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return s, id, network.Proxy(node.Addr), key
}

// Every request is answered by its deadline, whatever a node does and however it is asked. 50 ms are promised; a machine that does other
// things as well is given more here, but less than redis.read_timeout_ms (1 s), after which one without a deadline would return.
func TestNoRequestOutlivesItsDeadlineOnABlackHole(t *testing.T) {
	const limit, hard = 300 * time.Millisecond, 900 * time.Millisecond
	for _, off := range []bool{false, true} {
		for _, c := range []struct {
			name string
			hole func(p *faultproxy.Proxy)
		}{
			{"on connections that stand", func(p *faultproxy.Proxy) { p.BlackHole() }},
			{"on new connections", func(p *faultproxy.Proxy) { p.BlackHole(); p.ResetAll() }},
		} {
			t.Run(fmt.Sprintf("coalesce off %v, %s", off, c.name), func(t *testing.T) {
				s, id, p, key := proxied(t, off, noCircuit)
				c.hole(p)
				for name, do := range paths(s, id) {
					var wg sync.WaitGroup
					var worst, overdue, answered atomic.Int64
					for range 40 { // more than there are connections
						wg.Go(func() {
							start := time.Now()
							err := within(t, limit, func(ctx context.Context) error { return do(ctx, key) })
							if err == nil && name != "a listing" { // half a page is an answer
								answered.Add(1)
							}
							took := time.Since(start)
							worst.Store(max(worst.Load(), int64(took)))
							if took > hard {
								overdue.Add(1)
							}
						})
					}
					wg.Wait()
					t.Logf("%s: the worst took %v of %v", name, time.Duration(worst.Load()), limit)
					if overdue.Load() > 0 || answered.Load() > 0 {
						t.Errorf("%s: %d overdue, %d answered", name, overdue.Load(), answered.Load())
					}
				}
			})
		}
	}
}

// A dial that hangs is one that a proxy cannot make, so it is done in the dialer.
func TestNoRequestOutlivesItsDeadlineOnADialThatHangs(t *testing.T) {
	const limit, hard = 100 * time.Millisecond, 300 * time.Millisecond
	c := clustertest.Shared(t)
	var dials atomic.Int64
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials.Add(1)
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
	for _, off := range []bool{false, true} {
		s := newStore(t, c, func(cfg *store.Config) {
			cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs()[:3], Dialer: hang}
			cfg.Coalesce.Off = off
		})
		for name, do := range paths(s, newApp(t)) {
			start := time.Now()
			err := within(t, limit, func(ctx context.Context) error { return do(ctx, "k") })
			took := time.Since(start)
			t.Logf("%s: %v of %v: %v", name, took, limit, err)
			if err == nil || took > hard {
				t.Errorf("%s took %v: %v", name, took, err)
			}
		}
	}
}

// TestADeadNodeIsCutOffAndFoundAgain: whatever the fault, commands are soon refused at once, other nodes serve, few dials are made, and
// the node is found when it is back.
func TestADeadNodeIsCutOffAndFoundAgain(t *testing.T) {
	for _, off := range []bool{false, true} {
		for _, c := range []struct {
			name  string
			fault func(p *faultproxy.Proxy)
		}{
			{"refuses", func(p *faultproxy.Proxy) { p.Refuse(); p.ResetAll() }},
			{"is silent", func(p *faultproxy.Proxy) { p.BlackHole() }},
		} {
			t.Run(fmt.Sprintf("coalesce off %v, it %s", off, c.name), func(t *testing.T) {
				s, id, p, key := proxied(t, off)
				c.fault(p)
				start := time.Now()
				all := paths(s, id)
				delete(all, "a listing")
				var late []time.Duration
				var cutOff time.Duration
				eventually(t, func() string {
					asked := time.Now()
					err := within(t, time.Second, func(ctx context.Context) error { return all["a write"](ctx, key) })
					if err == nil || time.Since(asked) > 20*time.Millisecond {
						return fmt.Sprintf("a write took %v: %v", time.Since(asked), err)
					}
					cutOff = time.Since(start)
					return ""
				})
				before := p.Accepted()
				for range 500 {
					for name, do := range all {
						asked := time.Now()
						err := within(t, time.Second, func(ctx context.Context) error { return do(ctx, key) })
						late = append(late, time.Since(asked))
						var e *store.Error
						if !errors.As(err, &e) || e.Code != store.CodeClusterDown && e.Code != store.CodeBatchIncomplete || e.Outcome == store.Unknown {
							t.Fatalf("%s: %v", name, err)
						}
					}
				}
				slices.Sort(late)
				t.Logf("cut off after %v; %d refusals: p50 %v, p99 %v, worst %v; %d connections",
					cutOff, len(late), late[len(late)/2], late[len(late)*99/100], late[len(late)-1], p.Accepted()-before)
				p.Pass()
				back := time.Now()
				eventually(t, func() string {
					err := within(t, time.Second, func(ctx context.Context) error { return all["a write"](ctx, key) })
					if err != nil {
						return err.Error()
					}
					return ""
				})
				t.Logf("found again %v after it was back", time.Since(back))
			})
		}
	}
}

// TestADeadNodeGetsNextToNoCommands: retries of many callers do not multiply what is sent.
func TestADeadNodeGetsNextToNoCommands(t *testing.T) {
	s, id, p, key := proxied(t, false)
	p.Refuse()
	p.ResetAll()
	before := p.Accepted()
	const requests = 20_000
	var wg sync.WaitGroup
	start := time.Now()
	for range 50 {
		wg.Go(func() {
			for range requests / 50 {
				_ = within(t, time.Second, func(ctx context.Context) error { _, err := s.Get(ctx, id, key, store.GetOptions{}); return err })
			}
		})
	}
	wg.Wait()
	t.Logf("%d requests in %v: %d connections", requests, time.Since(start), p.Accepted()-before)
	if p.Accepted()-before > requests/100 {
		t.Errorf("%d connections to a dead node", p.Accepted()-before)
	}
}

// TestOneLongScriptCutsNobodyOff: a node that is busy for a moment is waited for.
func TestOneLongScriptCutsNobodyOff(t *testing.T) {
	if *coalesceOff {
		t.Skip("each of the 200 needs a connection of its own then, and a node that is busy for longer than redis.dial_timeout_ms makes none")
	}
	c := clustertest.Shared(t)
	s, ctx, id := newStore(t, c), testContext(t), newApp(t)
	node := must[[]*localcluster.Node](t)(c.Primaries(ctx))[0]
	key := keyAt(t, c, id, node)
	must[store.SetResult](t)(s.Set(ctx, id, key, []byte("v"), store.SetOptions{}))
	var wg sync.WaitGroup
	wg.Go(func() {
		const busy = `local n = 0; for i = 1, 4e7 do n = n + 1 end; return n` // some 0.15 s; from Redis 7.2 on TIME stands still in a script
		if err := node.Client().Do(ctx, "EVAL", busy, "0").Err(); err != nil {
			t.Error(err)
		}
	})
	for range 200 {
		wg.Go(func() {
			for range 5 {
				if err := within(t, 2*time.Second, func(ctx context.Context) error { _, err := s.Get(ctx, id, key, store.GetOptions{}); return err }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestAllPrimariesDown: with nobody to ask, every request is refused at once, few connections are tried, and all is well soon after the
// nodes are back.
func TestAllPrimariesDown(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3, Replicas: 1, NodeTimeout: 30 * time.Second}) // no failover meanwhile
	s, ctx, id := newStore(t, c), testContext(t), newApp(t)
	primaries := must[[]*localcluster.Node](t)(c.Primaries(ctx))
	var keys []string
	for _, p := range primaries {
		keys = append(keys, keyAt(t, c, id, p))
	}
	all := paths(s, id)
	delete(all, "a durable write") // its replicas are asked for first, and answer
	write := func(key string) error {
		return within(t, time.Second, func(ctx context.Context) error { return all["a write"](ctx, key) })
	}
	for _, key := range keys {
		if err := write(key); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range primaries {
		p.Kill()
	}
	for _, key := range keys {
		eventually(t, func() string {
			start := time.Now()
			err := write(key)
			if took := time.Since(start); err == nil || took > 20*time.Millisecond {
				return fmt.Sprintf("a write took %v: %v", took, err)
			}
			return ""
		})
	}
	var times []time.Duration
	for i := range 300 {
		for name, do := range all {
			if name == "a listing" { // a replica may still tell the slots, and then each shard is asked
				continue
			}
			start := time.Now()
			err := within(t, time.Second, func(ctx context.Context) error { return do(ctx, keys[i%3]) })
			times = append(times, time.Since(start))
			var e *store.Error
			if !errors.As(err, &e) || e.Status() != 503 || e.Outcome == store.Unknown {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	slices.Sort(times)
	t.Logf("%d refusals: p50 %v, p99 %v, worst %v", len(times), times[len(times)/2], times[len(times)*99/100], times[len(times)-1])
	for _, p := range primaries {
		if err := p.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var redisAt, gatewayAt time.Time
	var wg sync.WaitGroup
	wg.Go(func() {
		eventually(t, func() string {
			for _, p := range primaries {
				if info, err := p.Client().ClusterInfo(ctx).Result(); err != nil || !strings.Contains(info, "cluster_state:ok") {
					return fmt.Sprint("Redis is not back: ", err)
				}
			}
			redisAt = time.Now()
			return ""
		})
	})
	wg.Go(func() {
		for _, key := range keys {
			eventually(t, func() string {
				if err := write(key); err != nil {
					return "the gateway is not back: " + err.Error()
				}
				gatewayAt = time.Now()
				return ""
			})
		}
	})
	wg.Wait()
	t.Logf("the gateway is back %v after Redis", gatewayAt.Sub(redisAt))
}
