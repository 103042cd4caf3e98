package store_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// echoes is how many requests TestNoReplyIsCrossed makes: go test ./store -run Crossed -args -echoes 1000000.
var echoes = flag.Int("echoes", 100_000, "requests of the test for crossed replies")

// noisy makes connection resets, lost replies and delays on every node until the returned function is called.
func noisy(t *testing.T, c *localcluster.Cluster) (dial func(*store.Config), quiet func()) {
	t.Helper()
	net := clustertest.Proxied(t, c)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		addrs := c.Addrs()
		for i := 0; ; i++ {
			p := net.Proxy(addrs[i%len(addrs)])
			switch i % 4 {
			case 0:
				p.ResetAll()
			case 1:
				p.ResetReplies(1)
			case 2:
				p.DropReplies(1)
			case 3:
				p.Delay(2 * time.Millisecond)
			}
			select {
			case <-stop:
				net.Pass()
				return
			case <-time.After(5 * time.Millisecond):
				p.Delay(0)
			}
		}
	})
	return func(cfg *store.Config) {
			cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: net.Dial}
		}, func() {
			close(stop)
			wg.Wait()
		}
}

// TestNoReplyIsCrossed reads keys that hold their own names, alone and in batches, while connections break and lag.
func TestNoReplyIsCrossed(t *testing.T) {
	c := clustertest.Shared(t)
	dial, quiet := noisy(t, c)
	s, id := newStore(t, c, dial), newApp(t)
	calm := newStore(t, c)
	keys, items := numbered(1000, func(i int) string { return fmt.Sprintf("key:%d", i) })
	must[int](t)(calm.MSet(testContext(t), id, items))
	var asked, crossed, failed atomic.Int64
	var workers sync.WaitGroup
	for w := range 64 {
		workers.Go(func() {
			for i := w; asked.Load() < int64(*echoes); i += 7 {
				err := within(t, time.Second, func(ctx context.Context) error {
					if i%50 == 0 {
						part := keys[i%900 : i%900+100]
						asked.Add(100)
						for n, it := range must[[]store.GetItem](t)(s.MGet(ctx, id, part, store.Reading{})) {
							if it.Err == nil && string(it.Data) != part[n] {
								crossed.Add(1)
							}
						}
						return nil
					}
					asked.Add(1)
					key := keys[i%1000]
					if i%3 == 0 {
						_, err := s.Set(ctx, id, key, []byte(key), store.SetOptions{})
						return err
					}
					v, err := s.Get(ctx, id, key, store.GetOptions{})
					if err == nil && string(v.Data) != key {
						crossed.Add(1)
					}
					return err
				})
				if err != nil {
					failed.Add(1)
				}
			}
		})
	}
	workers.Wait()
	quiet()
	t.Logf("%d asked, %d failed, %d crossed", asked.Load(), failed.Load(), crossed.Load())
	if crossed.Load() > 0 {
		t.Errorf("%d replies belonged to somebody else", crossed.Load())
	}
	if failed.Load() > asked.Load()/2 {
		t.Error("most requests failed: the test tests little")
	}
}

func TestSingleRequestsFollowAMigration(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3})
	s, ctx, id := newStore(t, c), testContext(t), newApp(t)
	const slots, perSlot = 10, 20
	var keys []string
	for i := range slots * perSlot {
		keys = append(keys, fmt.Sprintf("{%d}%d", i%slots, i))
		must[store.SetResult](t)(s.Set(ctx, id, keys[i], []byte("0"), store.SetOptions{}))
	}
	stop := make(chan struct{})
	var movers, workers sync.WaitGroup
	movers.Go(func() {
		defer close(stop)
		primaries := must[[]*localcluster.Node](t)(c.Primaries(ctx))
		for tag := range slots {
			n := slotOf(id, fmt.Sprintf("{%d}", tag))
			from := must[*localcluster.Node](t)(c.PrimaryOf(ctx, n))
			to := primaries[tag%2]
			if to == from {
				to = primaries[2]
			}
			if err := migrateSlowly(ctx, c, n, from, to); err != nil {
				t.Error(err)
			}
		}
	})
	var steps [slots * perSlot]atomic.Int64
	for w := range 16 {
		workers.Go(func() {
			for i := w; ; i += 16 {
				select {
				case <-stop:
					return
				default:
				}
				k := i % len(keys)
				if _, err := s.CounterAdd(ctx, id, keys[k], store.AddOptions{Delta: store.Int(1)}); err != nil {
					t.Errorf("%s: %v", keys[k], err)
					return
				}
				steps[k].Add(1)
			}
		})
	}
	workers.Wait()
	movers.Wait()
	total := int64(0)
	for k, key := range keys {
		if v := must[store.Number](t)(s.CounterGet(ctx, id, key, store.Reading{})); v.String() != fmt.Sprint(steps[k].Load()) {
			t.Errorf("%s: %d steps were acknowledged, %s are counted", key, steps[k].Load(), v)
		}
		total += steps[k].Load()
	}
	t.Logf("%d steps while %d slots moved", total, slots)
}

func TestALargeValueBesideSmallOnes(t *testing.T) {
	c := clustertest.Shared(t)
	s, ctx := newStore(t, c), testContext(t)
	id := newApp(t, func(a *acl.App) { a.Sizes.ValueMaxBytes, a.CompressMinBytes = 16<<20, 0 })
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	must[store.SetResult](t)(s.Set(ctx, id, "{t}large", large, store.SetOptions{}))
	for i := range 100 {
		must[store.SetResult](t)(s.Set(ctx, id, fmt.Sprintf("{t}%d", i), []byte(fmt.Sprint(i)), store.SetOptions{}))
	}
	var times []time.Duration
	var mu sync.Mutex
	for range 5 {
		var wg sync.WaitGroup
		wg.Go(func() {
			if v := must[store.Value](t)(s.Get(ctx, id, "{t}large", store.GetOptions{})); !bytes.Equal(v.Data, large) {
				t.Error("the large value is another one")
			}
		})
		for i := range 100 {
			wg.Go(func() {
				start := time.Now()
				if v := must[store.Value](t)(s.Get(ctx, id, fmt.Sprintf("{t}%d", i), store.GetOptions{})); string(v.Data) != fmt.Sprint(i) {
					t.Errorf("%d is %q", i, v.Data)
				}
				mu.Lock()
				times = append(times, time.Since(start))
				mu.Unlock()
			})
		}
		wg.Wait()
	}
	slices.Sort(times)
	t.Logf("small reads beside 16 MiB of the same slot: p50 %v, worst %v", times[len(times)/2], times[len(times)-1])
}

func TestANodeThatClosesAfterEachReply(t *testing.T) {
	c := clustertest.Shared(t)
	net := clustertest.Proxied(t, c)
	s := newStore(t, c, func(cfg *store.Config) {
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: net.Dial}
	})
	id, ctx := newApp(t), testContext(t)
	must[store.SetResult](t)(s.Set(ctx, id, "k", []byte("v"), store.SetOptions{}))
	node := must[*localcluster.Node](t)(c.PrimaryOf(ctx, slotOf(id, "k")))
	stop := make(chan struct{})
	var breaker, workers sync.WaitGroup
	breaker.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				net.Proxy(node.Addr).DropReplies(1)
				runtime.Gosched()
			}
		}
	})
	var got, failed atomic.Int64
	for range 8 {
		workers.Go(func() {
			for range 50 {
				err := within(t, time.Second, func(ctx context.Context) error {
					v, err := s.Get(ctx, id, "k", store.GetOptions{})
					if err == nil && string(v.Data) != "v" {
						t.Errorf("%q", v.Data)
					}
					return err
				})
				if err == nil {
					got.Add(1)
				} else {
					failed.Add(1)
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	breaker.Wait()
	net.Pass()
	t.Logf("%d answered, %d not", got.Load(), failed.Load())
	eventually(t, func() string {
		if err := within(t, time.Second, func(ctx context.Context) error { _, err := s.Get(ctx, id, "k", store.GetOptions{}); return err }); err != nil {
			return err.Error()
		}
		return ""
	})
}

// noCircuit is for tests of what holds until a circuit opens.
func noCircuit(cfg *store.Config) { cfg.Circuit.OpenAfter = -1 }

func TestTenThousandCallersOnAHungNode(t *testing.T) {
	if *coalesceOff {
		t.Skip("the queue is the pipe's")
	}
	c := clustertest.Run(t, localcluster.Options{Primaries: 3, Config: map[string]string{"cluster-require-full-coverage": "no"}})
	s := newStore(t, c, noCircuit, func(cfg *store.Config) { cfg.Overload.Off = true }) // so that only the queue is a bound
	ctx, id := testContext(t), newApp(t)
	primaries := must[[]*localcluster.Node](t)(c.Primaries(ctx))
	hung, sound := keyAt(t, c, id, primaries[0]), keyAt(t, c, id, primaries[1])
	for _, key := range []string{hung, sound} {
		must[store.SetResult](t)(s.Set(ctx, id, key, []byte("v"), store.SetOptions{}))
	}
	before := heap()
	if err := primaries[0].Pause(); err != nil {
		t.Fatal(err)
	}
	const callers, limit = 10_000, time.Second
	var refused, late, other atomic.Int64
	var slowest atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			start := time.Now()
			err := within(t, limit, func(ctx context.Context) error {
				_, err := s.Set(ctx, id, hung, []byte("w"), store.SetOptions{})
				return err
			})
			took := int64(time.Since(start))
			for old := slowest.Load(); took > old && !slowest.CompareAndSwap(old, took); old = slowest.Load() {
			}
			var e *store.Error
			switch errors.As(err, &e); {
			case e != nil && e.Code == store.CodeBackendSaturated && e.Outcome == store.NotApplied && e.Status() == 503:
				refused.Add(1)
			case e != nil && e.Code == store.CodeBackendTimeout && e.Outcome != store.Applied:
				late.Add(1)
			case e != nil && e.Code == store.CodeClusterDown && e.Outcome == store.NotApplied: // a connection that the node never greeted
				late.Add(1)
			default:
				other.Add(1)
			}
		})
	}
	var times []time.Duration
	for range 500 {
		start := time.Now()
		must[store.Value](t)(s.Get(ctx, id, sound, store.GetOptions{}))
		times = append(times, time.Since(start))
	}
	grown := heap()
	wg.Wait()
	slices.Sort(times)
	t.Logf("%d refused, %d late; the slowest took %v of %v; the other node's p50 %v, p99 %v; the heap grew by %d KiB",
		refused.Load(), late.Load(), time.Duration(slowest.Load()), limit, times[250], times[495], (int64(grown)-int64(before))>>10)
	if other.Load() > 0 || refused.Load() < callers/2 {
		t.Errorf("%d refused, %d late, %d something else", refused.Load(), late.Load(), other.Load())
	}
	if err := primaries[0].Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if err := within(t, limit, func(ctx context.Context) error { _, err := s.Get(ctx, id, hung, store.GetOptions{}); return err }); err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestWhatOneResetLeavesUnknown counts, for the setting that bounds it.
func TestWhatOneResetLeavesUnknown(t *testing.T) {
	if *coalesceOff {
		t.Skip("one caller, by nature")
	}
	const bound = 32
	c := clustertest.Shared(t)
	net := clustertest.Proxied(t, c)
	s := newStore(t, c, func(cfg *store.Config) {
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: net.Dial}
		cfg.Coalesce.MaxBatch = bound
	})
	id, ctx := newApp(t), testContext(t)
	must[store.Number](t)(s.CounterAdd(ctx, id, "n", store.AddOptions{Delta: store.Int(1)}))
	proxy := net.Proxy(must[*localcluster.Node](t)(c.PrimaryOf(ctx, slotOf(id, "n"))).Addr)
	most := int64(0)
	for range 5 {
		proxy.Delay(5 * time.Millisecond) // so that a batch forms
		var unknown atomic.Int64
		var wg sync.WaitGroup
		for i := range 200 {
			if i == 100 {
				proxy.ResetReplies(1)
			}
			wg.Go(func() {
				var e *store.Error
				if _, err := s.CounterAdd(ctx, id, "n", store.AddOptions{Delta: store.Int(1)}); errors.As(err, &e) && e.Outcome == store.Unknown {
					unknown.Add(1)
				}
			})
		}
		wg.Wait()
		proxy.Delay(0)
		most = max(most, unknown.Load())
	}
	t.Logf("one reset left up to %d callers unknown; a batch has up to %d", most, bound)
	if most > bound || most == 0 {
		t.Errorf("%d callers are unknown after one reset, the setting says %d", most, bound)
	}
}

// TestALoneCallerDoesNotWaitForADial has a dialer that hangs for as long as it may, which is longer than the test.
func TestALoneCallerDoesNotWaitForADial(t *testing.T) {
	c := clustertest.Shared(t)
	hang, release := make(chan struct{}), make(chan struct{})
	s := newStore(t, c, func(cfg *store.Config) {
		cfg.Redis.DialTimeout = 10 * deadline
		cfg.Redis.TopologyReload = time.Hour
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case <-hang:
				<-release
				return nil, errors.New("dialling hung")
			default:
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
		}}
	})
	defer close(release)
	if err := s.Routable(testContext(t), "default"); err != nil {
		t.Fatal(err)
	}
	id := newApp(t)
	_, _ = s.Get(testContext(t), id, "warm", store.GetOptions{}) // the slot map is known now
	close(hang)
	done := make(chan error, 4)
	for i := range 4 {
		go func() {
			done <- within(t, 20*time.Millisecond, func(ctx context.Context) error {
				_, err := s.Set(ctx, id, fmt.Sprint("cold", i*7), nil, store.SetOptions{})
				return err
			})
		}()
	}
	for range 4 {
		select {
		case <-done: // on a connection that was there, or late; not after the dial
		case <-time.After(deadline):
			t.Fatal("a caller waits for a dial beyond its deadline")
		}
	}
}
