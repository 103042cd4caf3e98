package prepaid

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/ratelimit"
	"github.com/slotgate/slotgate/store/slot"
	"github.com/slotgate/slotgate/store/storetest"
)

func newStore(t testing.TB) *store.Store {
	t.Helper()
	return storetest.New(t)
}

// gateways are pools with stores of their own. A busy machine may let them wait longer than they would.
func newGateways(t testing.TB, n int, timeout time.Duration) []*Pool {
	t.Helper()
	var all []*Pool
	for range n {
		p := New(Config{Redis: NewRedis(newStore(t)), Gateways: n, Timeout: timeout})
		t.Cleanup(p.Close)
		all = append(all, p)
	}
	return all
}

var limitsMade atomic.Int64

// hourly is a limit that no other test has, in one window that lasts for the test.
func hourly(t testing.TB, n int64, mode Mode) Limit {
	name := fmt.Sprint("l", limitsMade.Add(1))
	return Limit{Cluster: "default", Key: Key("ns", name, "subject {}"), Mode: mode, OnError: ratelimit.Closed,
		Rule: rule(t, ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Align: ratelimit.AlignFirstHit, Limit: n, PeriodMS: 3_600_000})}
}

// flood has each gateway take until so many takes were decided, eight at once. It returns what was let through.
func flood(t testing.TB, pools []*Pool, l Limit, takes int) int64 {
	t.Helper()
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for _, p := range pools {
		a := p.Allowance(l)
		for range 8 {
			wg.Go(func() {
				for range takes / 8 {
					switch d := a.Take(t.Context(), p.Now(), 1); {
					case d.Unasked || d.Verdict == Ask || d.Verdict == Unavailable:
						t.Errorf("decided without Redis: %+v", d)
					case d.Verdict == Allowed:
						allowed.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	return allowed.Load()
}

// left is what Redis would still give.
func left(t testing.TB, l Limit) int64 {
	t.Helper()
	g, err := NewRedis(newStore(t)).Take(t.Context(), &l, ratelimit.MaxCount, 1)
	if err != nil {
		t.Fatal(err)
	}
	return g.Granted
}

func TestThreeGatewaysShareALimitOfACluster(t *testing.T) {
	const wait = 20 * time.Second
	t.Run("exactly, where it is exact", func(t *testing.T) {
		l := hourly(t, 300, Exact)
		if n := flood(t, newGateways(t, 3, wait), l, 400); n != 300 {
			t.Errorf("%d were let through", n)
		}
	})
	t.Run("exactly, where it is too small for chunks", func(t *testing.T) {
		l := hourly(t, 149, Prepaid)
		if n := flood(t, newGateways(t, 3, wait), l, 400); n != 149 {
			t.Errorf("%d were let through", n)
		}
	})
	t.Run("within two in a hundred where it is prepaid, and all but what was stranded", func(t *testing.T) {
		l := hourly(t, 3000, Prepaid)
		pools := newGateways(t, 3, wait)
		n := flood(t, pools, l, 2000)
		stranded, owed := int64(0), int64(0)
		for _, p := range pools {
			a := p.Allowance(l)
			held := a.position.Load()
			stranded += max(held, 0)
			owed += max(-held, 0)
			p.Close()
		}
		back := left(t, l)
		t.Logf("%d were let through, %d held, %d owed, Redis has %d", n, stranded, owed, back)
		if n > 3060 || n < 3000-60 {
			t.Errorf("%d were let through", n)
		}
		if n+back < 3000 || n+back > 3000+owed {
			t.Errorf("%d were let through and Redis would give %d more: tokens are lost", n, back)
		}
	})
}

func TestWhatIsNotUsedIsGivenBack(t *testing.T) {
	l := hourly(t, 10_000, Prepaid)
	pools := newGateways(t, 2, 20*time.Second)
	n := flood(t, pools, l, 400)
	deadline := time.Now().Add(20 * time.Second)
	for _, p := range pools {
		a := p.Allowance(l)
		for {
			a.mu.Lock()
			quiet := a.position.Load() == 0 && a.dead == 0 && !a.drawing
			a.mu.Unlock()
			if quiet {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("a gateway still holds %d", a.position.Load())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if back := left(t, l); back != 10_000-n {
		t.Errorf("%d were used of 10000, and Redis has %d", n, back)
	}
}

func TestAKilledShardOfTheLimitLeavesTheConfiguredMode(t *testing.T) {
	c := clustertest.Shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	pools := newGateways(t, 2, 500*time.Millisecond)
	l := hourly(t, 100, Exact)
	victim, err := c.PrimaryOfKey(ctx, l.Key)
	if err != nil {
		t.Fatal(err)
	}
	limits := map[ratelimit.OnError]Limit{}
	for _, mode := range []ratelimit.OnError{ratelimit.Open, ratelimit.Closed, ratelimit.Local} {
		o := l
		o.OnError = mode
		o.Key = fmt.Sprintf("slotgate:l:{%s}:%s", slot.Sample(slot.Of(l.Key)), mode)
		limits[mode] = o
		if d := pools[0].Allowance(o).Take(ctx, pools[0].Now(), 1); d.Verdict != Allowed || d.Unasked {
			t.Fatalf("while all is well: %+v", d)
		}
	}
	other := l
	for i := 0; ; i++ {
		other.Key = Key("ns", fmt.Sprint("other", i), "")
		if p, err := c.PrimaryOfKey(ctx, other.Key); err != nil {
			t.Fatal(err)
		} else if p != victim {
			break
		}
	}
	victim.Kill()
	for mode, o := range limits {
		allowed, denied, unavailable := 0, 0, 0
		a := pools[0].Allowance(o)
		for range 200 {
			d := a.Take(ctx, pools[0].Now(), 1)
			if !d.Unasked {
				continue // the shard has a new primary already
			}
			switch d.Verdict {
			case Allowed:
				allowed++
			case Denied:
				denied++
			case Unavailable:
				unavailable++
			default:
				t.Fatalf("%s: %+v", mode, d)
			}
		}
		t.Logf("%s: %d allowed, %d denied, %d unavailable", mode, allowed, denied, unavailable)
		switch {
		case allowed+denied+unavailable == 0:
			t.Errorf("%s: Redis was never missed", mode)
		case mode == ratelimit.Open && denied+unavailable > 0, mode == ratelimit.Closed && allowed+denied > 0:
			t.Errorf("%s: %d allowed, %d denied, %d unavailable", mode, allowed, denied, unavailable)
		case mode == ratelimit.Local && (unavailable > 0 || allowed > 50):
			t.Errorf("one of two gateways let %d through of 100 by itself", allowed)
		}
	}
	if d := pools[0].Allowance(other).Take(ctx, pools[0].Now(), 1); d.Verdict != Allowed || d.Unasked {
		t.Errorf("a limit of another shard: %+v", d)
	}
	for mode, o := range limits {
		for pools[1].Allowance(o).Take(ctx, pools[1].Now(), 1).Unasked {
			if ctx.Err() != nil {
				t.Fatalf("%s: Redis is never asked again", mode)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}
