package pool_test

import (
	"errors"
	"fmt"
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
	var list []string
	for _, m := range b.show().Members {
		list = append(list, fmt.Sprint(m.Member, m.Inflight))
	}
	return strings.Join(list, " ")
}

func TestL1LeasesAreSpreadUpToTheLimit(t *testing.T) {
	b := newBench(t, inflight(2)).with("a b c", nil)
	claims, members := b.hold(6)
	b.want("members", strings.Join(members, " "), "a b c a b c")
	for i := range claims {
		if i > 0 && claims[i].Fence <= claims[i-1].Fence {
			t.Errorf("fence %d after %d", claims[i].Fence, claims[i-1].Fence)
		}
	}
	if claims[0].Fence != T0 {
		t.Errorf("the first fence is %d, want the time", claims[0].Fence)
	}
	b.now += 2*second + 1
	res, _ := b.allocate(pool.Request{})
	if res.Reason != pool.Saturated || res.RetryAfterMS != 28_000 {
		t.Errorf("the seventh: %+v", res)
	}
	if res, _ := b.allocate(pool.Request{Exclude: []string{"a", "b", "c"}}); res.Reason != pool.Excluded {
		t.Errorf("all excluded: %+v", res)
	}
}

func TestL2ALeaseIsCompletedOnceByWhoHoldsIt(t *testing.T) {
	b := newBench(t, inflight(2)).with("a b c", nil)
	claims, _ := b.hold(6)
	b.now += 5 * second
	kept, _, err := b.complete(claims[1])
	if want := (pool.Kept{Member: "b", HeldMS: 5000, ExpiresAtMS: T0/1000 + 30_000}); err != nil || kept != want {
		t.Errorf("completed: %+v, %v, want %+v", kept, err, want)
	}
	for name, row := range map[string]struct {
		claim pool.Claim
		want  error
	}{
		"a second time":    {claims[1], pool.ErrNoLease},
		"another's fence":  {pool.Claim{ID: claims[2].ID, Fence: claims[3].Fence}, pool.ErrOtherFence},
		"an invented one":  {pool.Claim{ID: strings.Repeat("A", 22), Fence: 1}, pool.ErrNoLease},
		"of another's app": {pool.Claim{ID: claims[2].ID, Fence: claims[2].Fence}, pool.ErrNoLease},
	} {
		id := b.id
		if name == "of another's app" {
			id = newApp(t)
		}
		if _, _, err := b.Complete(testContext(t), id, b.pool, row.claim, keyed()); !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", name, err, row.want)
		}
	}
	_, members := b.hold(1)
	b.want("who is free again", members[0], "b")
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

func TestL3ALeaseIsRenewedUntilItExpires(t *testing.T) {
	d := inflight(0)
	d.Lease.MaxMS = 60_000
	b := newBench(t, d).with("a b", nil)
	claims, _ := b.hold(2)
	renew := func(c pool.Claim, ms int64) (pool.Kept, error) { return b.Renew(testContext(t), b.id, b.pool, c, ms) }
	b.now += 10 * second
	if kept, err := renew(claims[0], 40_000); err != nil || kept.ExpiresAtMS != T0/1000+50_000 || kept.Member != "a" {
		t.Errorf("renewed: %+v, %v", kept, err)
	}
	if kept, err := renew(claims[0], 60_000); err != nil || kept.ExpiresAtMS != T0/1000+60_000 {
		t.Errorf("renewed beyond the most: %+v, %v", kept, err)
	}
	if _, err := renew(pool.Claim{ID: claims[0].ID, Fence: claims[1].Fence}, 1000); !errors.Is(err, pool.ErrOtherFence) {
		t.Errorf("with another fence: %v", err)
	}
	b.now = T0 + 30*second
	if _, err := renew(claims[1], 1000); !errors.Is(err, pool.ErrLost) {
		t.Errorf("when it has expired: %v", err)
	}
	if kept, _, err := b.complete(claims[1]); err != nil || !kept.Late {
		t.Errorf("completed late: %+v, %v", kept, err)
	}
	if _, err := renew(claims[1], 1000); !errors.Is(err, pool.ErrNoLease) {
		t.Errorf("when it is completed: %v", err)
	}
	if kept, _, err := b.complete(claims[0]); err != nil || kept.Late {
		t.Errorf("completed in time: %+v, %v", kept, err)
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

func TestL4AbandonedLeasesComeBack(t *testing.T) {
	b := newBench(t, inflight(2)).with("a b c", nil)
	claims, _ := b.hold(5)
	b.want("before", b.held(), "a2 b2 c1")
	b.now += 30 * second
	_, members := b.hold(1)
	b.want("then", members[0]+", "+b.held(), "a, a1 b0 c0")
	if o := b.show(); o.Abandoned != 5 || o.Fence != b.now {
		t.Errorf("overview: %+v", o)
	}
	if _, _, err := b.complete(claims[0]); !errors.Is(err, pool.ErrNoLease) {
		t.Errorf("completed when it was given to another: %v", err)
	}
	b.want("at last", b.held(), "a1 b0 c0")
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

func TestL6ARepetitionHasTheSameLease(t *testing.T) {
	b := newBench(t, inflight(0)).with("a b", nil)
	first, _ := b.allocate(pool.Request{Count: 2}, "k")
	b.now += second
	again, replayed := b.allocate(pool.Request{Count: 2}, "k")
	if !replayed || *first.Allocated[1].Lease != *again.Allocated[1].Lease || first.Allocated[0].Member != again.Allocated[0].Member {
		t.Errorf("first %+v, then %+v, replayed %v", first, again, replayed)
	}
	b.want("leases", b.held(), "a1 b1")

	lease := first.Allocated[0].Lease
	c := pool.Claim{ID: lease.ID, Fence: lease.Fence}
	done, _, err := b.complete(c, "done")
	if err != nil {
		t.Fatal(err)
	}
	b.now += second
	if once, replayed, err := b.complete(c, "done"); err != nil || !replayed || once != done {
		t.Errorf("completed again: %+v, replayed %v, %v", once, replayed, err)
	}
	b.want("then", b.held(), "a0 b1")
}

func TestL7LeasesOutliveThatAMemberIsAway(t *testing.T) {
	b := newBench(t, inflight(2)).with("a b", nil)
	claims, _ := b.hold(4)
	b.available("a", false)
	b.want("off", b.held(), "a2 b2")
	if kept, _, err := b.complete(claims[0]); err != nil || kept.Member != "a" {
		t.Errorf("completed: %+v, %v", kept, err)
	}
	b.available("a", true)
	b.want("on", b.held(), "a1 b2")
	if _, err := b.TakeAway(testContext(t), b.id, b.pool, "a", true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.complete(claims[2]); err != nil {
		t.Errorf("completed when the member had left: %v", err)
	}
	b.put(pool.Member{Member: "a"})
	b.want("added again", b.held(), "b2 a0")
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
