package pool_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slotgate/slotgate/store/pool"
)

func inflight(most int64) pool.Definition {
	return pool.Definition{Policy: pool.LeastInflight, Lease: pool.Lease{MaxPerMember: most}}
}

// hold allocates one by one and returns n leases.
func (b *bench) hold(n int) (claims []pool.Claim, members []string) {
	b.t.Helper()
	for range n {
		res, _ := b.allocate(pool.Request{})
		if res.Reason != "" {
			b.t.Fatal(res.Reason)
		}
		a := res.Allocated[0]
		claims = append(claims, pool.Claim{ID: a.Lease.ID, Fence: a.Lease.Fence})
		members = append(members, a.Member)
	}
	return claims, members
}

func (b *bench) complete(c pool.Claim, key ...string) (pool.Kept, bool, error) {
	b.t.Helper()
	return b.Complete(testContext(b.t), b.id, b.pool, c, keyed(key...))
}

func (b *bench) show() pool.Overview {
	b.t.Helper()
	o, err := b.Show(testContext(b.t), b.id, b.pool.Name)
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

// held is "a2 b0": each member with its leases.
func (b *bench) held() string {
	b.t.Helper()
	return b.play().Held()
}

func TestNobodyCompletesALeaseOfAnotherApp(t *testing.T) {
	b := newBench(t, inflight(2)).with("a", nil)
	claims, _ := b.hold(1)
	if _, _, err := b.Complete(testContext(t), newApp(t), b.pool, claims[0], keyed()); !errors.Is(err, pool.ErrNoPool) {
		t.Errorf("completed: %v", err)
	}
	b.want("leases", b.held(), "a1")
}

func TestBadClaims(t *testing.T) {
	b := newBench(t, inflight(0))
	good := pool.Claim{ID: strings.Repeat("A", 22), Fence: 1}
	for name, row := range map[string]struct {
		change func(*pool.Claim) int64
		want   string
	}{
		"a short id":        {func(c *pool.Claim) int64 { c.ID = "A"; return 1 }, "path:lease"},
		"an id of any byte": {func(c *pool.Claim) int64 { c.ID = strings.Repeat("\x00", 22); return 1 }, "path:lease"},
		"no fence":          {func(c *pool.Claim) int64 { c.Fence = 0; return 1 }, "/fence"},
		"a negative fence":  {func(c *pool.Claim) int64 { c.Fence = -5; return 1 }, "/fence"},
		"no time":           {func(*pool.Claim) int64 { return 0 }, "/lease_ms"},
		"more than 12 h":    {func(*pool.Claim) int64 { return pool.MaxLeaseMS + 1 }, "/lease_ms"},
	} {
		c := good
		ms := row.change(&c)
		_, err := b.Renew(testContext(t), b.id, b.pool, c, ms)
		b.want(name, strings.Join(pointers(err), " "), row.want)
		if row.want == "/lease_ms" {
			continue
		}
		_, _, err = b.complete(c)
		b.want("complete: "+name, strings.Join(pointers(err), " "), row.want)
	}
}

func TestALeaseThatIsMadeShorterIsNoticed(t *testing.T) {
	b := newBench(t, inflight(1)).with("a", nil)
	claims, _ := b.hold(1)
	if _, err := b.Renew(testContext(t), b.id, b.pool, claims[0], 1000); err != nil {
		t.Fatal(err)
	}
	b.now += second
	_, members := b.hold(1)
	b.want("after it", members[0], "a")
}

func TestAnAllocationNotices32AbandonedLeasesAtMost(t *testing.T) {
	b := newBench(t, inflight(0)).with("a", nil)
	b.hold(40)
	b.now += 30 * second
	b.hold(1)
	b.want("after one", b.held(), "a9")
	b.hold(1)
	b.want("after two", b.held(), "a2")
}

func TestWhoHoldsWhat(t *testing.T) {
	b := newBench(t, inflight(0))
	list := func() []pool.Leased {
		t.Helper()
		got, err := b.Leases(testContext(t), b.id, b.pool.Name)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := list(); got == nil || len(got) != 0 {
		t.Errorf("of nobody: %v", got)
	}
	b.with("a b", nil)
	claims, _ := b.hold(1)
	b.now += 20 * second
	more, _ := b.hold(1)
	b.now += 10 * second
	want := []pool.Leased{
		{claims[0].ID, "a", claims[0].Fence, T0 / 1000, T0/1000 + 30_000, true},
		{more[0].ID, "b", more[0].Fence, T0/1000 + 20_000, T0/1000 + 50_000, false},
	}
	if got := list(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := b.Leases(testContext(t), b.id, "a/b"); len(pointers(err)) != 1 {
		t.Errorf("of a bad name: %v", err)
	}
}

func TestLeasesByEveryPolicy(t *testing.T) {
	for _, d := range []pool.Definition{
		{Policy: pool.LeastUsed}, {Policy: pool.RoundRobin}, {Policy: pool.WeightedRoundRobin},
		{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, {Policy: pool.WeightedRandom}, {Policy: pool.AdaptivePolicy},
	} {
		t.Run(string(d.Policy+" "+pool.Policy(d.Variant)), func(t *testing.T) {
			b := newBench(t, d).with("a b", nil)
			res, _ := b.allocate(pool.Request{LeaseMS: 1000})
			lease := res.Allocated[0].Lease
			if lease == nil || lease.ExpiresAtMS != T0/1000+1000 {
				t.Fatalf("%+v", res.Allocated[0])
			}
			if res, _ := b.allocate(pool.Request{}); res.Allocated[0].Lease != nil {
				t.Error("a lease that nobody asked for")
			}
			if kept, _, err := b.complete(pool.Claim{ID: lease.ID, Fence: lease.Fence}); err != nil || kept.Member != res.Allocated[0].Member {
				t.Errorf("completed: %+v, %v", kept, err)
			}
			b.allocate(pool.Request{LeaseMS: 1000})
			b.now += second
			b.allocate(pool.Request{LeaseMS: 1000})
			if o := b.show(); o.Abandoned != 1 {
				t.Errorf("abandoned: %+v", o)
			}
		})
	}
}

func TestAPolicyMayChangeWhileLeasesAreOut(t *testing.T) {
	b := newBench(t, inflight(2)).with("a b", nil)
	claims, _ := b.hold(3)
	b.define(pool.Definition{Policy: pool.RoundRobin})
	b.want("round robin", b.picks(3), "a b a")
	if _, _, err := b.complete(claims[0]); err != nil {
		t.Error(err)
	}
	b.define(inflight(2))
	_, members := b.hold(2)
	b.want("least in flight again", strings.Join(members, " "), "a b")
	b.want("leases", b.held(), "a2 b2")
}

// Workers hold, complete, or die. A holder is counted when it knows, and no more before it lets go: never more than there are in Redis.
func TestWorkersNeverHoldMoreThanTheLimit(t *testing.T) {
	const workers, each, most = 50, 20, 3
	b := newBench(t, inflight(most)).with("a b c", nil)
	var mu sync.Mutex
	holders, fences, dead := map[string]int{}, map[int64]bool{}, 0
	hold := func(a pool.Allocated, by int) {
		mu.Lock()
		defer mu.Unlock()
		if holders[a.Member] += by; holders[a.Member] > most {
			t.Errorf("%s has %d holders", a.Member, holders[a.Member])
		}
		if by > 0 && fences[a.Lease.Fence] {
			t.Errorf("fence %d twice", a.Lease.Fence)
		}
		fences[a.Lease.Fence] = true
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i, last := 0, int64(0); i < each; i++ {
				res, _, err := b.Allocate(testContext(t), b.id, b.pool, &pool.Request{}, keyed())
				if err != nil {
					t.Error(err)
					return
				}
				if res.Reason != "" {
					continue
				}
				a := res.Allocated[0]
				if a.Lease.Fence <= last {
					t.Errorf("fence %d after %d", a.Lease.Fence, last)
				}
				last = a.Lease.Fence
				hold(a, 1)
				if w < 5 && i >= w {
					mu.Lock()
					dead++
					mu.Unlock()
					return
				}
				hold(a, -1)
				if _, _, err := b.Complete(testContext(t), b.id, b.pool, pool.Claim{ID: a.Lease.ID, Fence: a.Lease.Fence}, keyed()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.now += 31 * second
	b.hold(1)
	if o := b.show(); o.Abandoned != int64(dead) || dead == 0 {
		t.Errorf("%d were abandoned, want %d", o.Abandoned, dead)
	}
	b.want("at last", b.held(), "a1 b0 c0")
}

// A dead member shall not take one worker after the other before the first of them can say so.
func TestAdaptiveLeasesAMemberUpToTheLimit(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.AdaptivePolicy, Lease: pool.Lease{MaxPerMember: 2}}).with("a b c", nil)
	lease := pool.Request{LeaseMS: 10_000}
	b.want("draws are 0", b.allocated(lease)+b.allocated(lease)+b.allocated(lease)+b.allocated(lease), "aabb")
	b.want("without a lease", b.allocated(pool.Request{}), "a")
	b.want("several at once", b.allocated(pool.Request{LeaseMS: 10_000, Count: 3}), "c c")
	if res, _ := b.allocate(lease); res.Reason != pool.Saturated || res.RetryAfterMS != 10_000 {
		t.Errorf("all have two: %+v", res)
	}
	if res, _ := b.allocate(pool.Request{LeaseMS: 1, Exclude: []string{"a", "b", "c"}}); res.Reason != pool.Excluded {
		t.Errorf("all are excluded: %+v", res)
	}
	b.now += 10 * second
	b.want("when they have expired", b.allocated(lease)+" "+b.held(), "a a1 b0 c0")

	// Those that are ejected are no way out while the healthy are busy.
	b = newBench(t, pool.Definition{Policy: pool.AdaptivePolicy, Lease: pool.Lease{MaxPerMember: 1}}).with("a b c", nil)
	for range 5 {
		b.failure("c")
	}
	b.want("healthy", b.allocated(pool.Request{LeaseMS: 10_000, Count: 3}), "a b")

	b = newBench(t, pool.Definition{Policy: pool.AdaptivePolicy, Lease: pool.Lease{MaxPerMember: 1}}).with("a b", nil)
	b.want("a sticky key", b.allocated(pool.Request{LeaseMS: 10_000, Sticky: "s"})+b.allocated(pool.Request{LeaseMS: 10_000, Sticky: "s"}), "ab")
}

func TestALeaseIsNotShortenedByAShorterMaximum(t *testing.T) {
	b := newBench(t, inflight(0)).with("a", nil)
	claims, _ := b.hold(1)
	d := inflight(0)
	d.Lease.MaxMS = 5000
	b.define(d)
	b.now += 10 * second
	if kept, err := b.Renew(testContext(t), b.id, b.pool, claims[0], 5000); err != nil || kept.ExpiresAtMS != T0/1000+15_000 {
		t.Errorf("renewed: %+v, %v", kept, err)
	}
	if kept, err := b.Renew(testContext(t), b.id, b.pool, claims[0], 5000); err != nil || kept.ExpiresAtMS != T0/1000+15_000 {
		t.Errorf("renewed once more: %+v, %v", kept, err)
	}
}
