package pool_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/pool"
)

// keysIn are the stored keys of an app's pools.
func keysIn(t testing.TB, namespace string) (found []string) {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: clustertest.Shared(t).Addrs()})
	defer func() { _ = c.Close() }()
	ctx := testContext(t)
	node, err := c.MasterForKey(ctx, "slotgate:p:{"+namespace+"/p}:st")
	if err != nil {
		t.Fatal(err)
	}
	scan := node.Scan(ctx, 0, "slotgate:p:{"+namespace+"/*", 1000).Iterator()
	for scan.Next(ctx) {
		found = append(found, scan.Val())
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestCatchUpDoesNotTakeAwayWhatAMemberHad(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.LeastUsed}).with("a9 b1", count)
	b.available("a", false)
	b.available("a", true)
	b.want("counts", b.counts(), "a9 b1")
	b.define(pool.Definition{Policy: pool.LeastUsed, Restore: pool.Min})
	b.available("a", false)
	b.available("a", true)
	b.want("min", b.counts(), "a1 b1")
}

func TestANewMemberBeginsWithTheFewest(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.LeastUsed}).with("a7 b9", count)
	b.put(pool.Member{Member: "c"}, pool.Member{Member: "d", InitialCount: ptr(int64(3))}, pool.Member{Member: "e", Available: ptr(false)},
		pool.Member{Member: "f", Available: ptr(false), InitialCount: ptr(int64(8))})
	b.want("counts", b.counts(), "a7 b9 c7 d3 e0 f8")
	b.available("e f", true)
	b.want("when they come", b.counts(), "a7 b9 c7 d3 e3 f8")
}

func TestHistoryOfWhoWasRemoved(t *testing.T) {
	for _, row := range []struct {
		drop bool
		want string
	}{{false, "b3 a5"}, {true, "b3 a3"}} {
		b := newBench(t, pool.Definition{Policy: pool.LeastUsed}).with("a5 b3", count)
		ctx := testContext(t)
		for i, want := range []pool.Outcome{pool.Removed, pool.Absent} {
			if got, err := b.TakeAway(ctx, b.id, b.pool, "a", row.drop); err != nil || got != want {
				t.Errorf("removal %d: %v, %v", i, got, err)
			}
		}
		b.want("without a", b.counts(), "b3")
		b.put(pool.Member{Member: "a"})
		b.want("added again", b.counts(), row.want)
	}
	b := newBench(t, pool.Definition{Policy: pool.LeastUsed}).with("a5", count)
	if _, err := b.TakeAway(testContext(t), b.id, b.pool, "a", false); err != nil {
		t.Fatal(err)
	}
	b.with("a2", count)
	b.want("with a count that was said", b.counts(), "a2")
}

func TestOutcomes(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.LeastUsed})
	a := pool.Member{Member: "a"}
	for _, row := range []struct {
		what string
		set  func(m *pool.Member)
		want pool.Outcome
	}{
		{"a new one", func(*pool.Member) {}, pool.Added},
		{"the same", func(*pool.Member) {}, pool.Unchanged},
		{"its weight", func(m *pool.Member) { m.Weight = ptr(int64(5)) }, pool.Changed},
		{"the same weight", func(m *pool.Member) { m.Weight = ptr(int64(5)) }, pool.Unchanged},
		{"its meta", func(m *pool.Member) { m.Meta = []byte(`{"x":1}`) }, pool.Changed},
		{"nothing", func(*pool.Member) {}, pool.Unchanged},
		{"unavailable", func(m *pool.Member) { m.Available = ptr(false) }, pool.Changed},
		{"unavailable again", func(m *pool.Member) { m.Available = ptr(false) }, pool.Unchanged},
	} {
		m := a
		row.set(&m)
		dry, err := b.PutAll(testContext(t), b.id, b.pool, []pool.Member{m}, pool.Bulk{DryRun: true})
		if err != nil || dry[0].Outcome != row.want {
			t.Errorf("%s, not done: %v, %v", row.what, dry, err)
		}
		if got := b.put(m); got[0] != row.want {
			t.Errorf("%s: %v, want %v", row.what, got, row.want)
		}
	}
	m := b.show().Members[0]
	if m.Weight != 5 || m.Available || string(m.Meta) != `{"x":1}` {
		t.Errorf("at last: %+v", m)
	}
	if got, err := b.Patch(testContext(t), b.id, b.pool, pool.Member{Member: "nobody"}); err != nil || got != pool.Absent {
		t.Errorf("a patch of nobody: %v, %v", got, err)
	}
	b.want("members", b.counts(), "a0")
}

func TestAListReplacesAnother(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.LeastUsed}).with("a1 b2 c3", count)
	list := []pool.Member{{Member: "c"}, {Member: "d"}}
	for _, how := range []pool.Bulk{{Replace: true, DryRun: true}, {Replace: true}} {
		got, err := b.PutAll(testContext(t), b.id, b.pool, list, how)
		if err != nil {
			t.Fatal(err)
		}
		b.want("outcomes", fmt.Sprint(got), "[{c unchanged} {d added} {a removed} {b removed}]")
		if how.DryRun {
			b.want("nothing is done", b.counts(), "a1 b2 c3")
		}
	}
	b.want("then", b.counts(), "c3 d1")
	if got, err := b.PutAll(testContext(t), b.id, b.pool, nil, pool.Bulk{Replace: true}); err != nil || len(got) != 2 {
		t.Errorf("an empty list: %v, %v", got, err)
	}
	b.want("nobody is left", b.picks(1), "empty")
}

func numbered(prefix string, n int) []pool.Member {
	list := make([]pool.Member, n)
	for i := range list {
		list[i].Member = fmt.Sprintf("%s%04d", prefix, i)
	}
	return list
}

func TestTheLargestPool(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.WeightedRoundRobin})
	b.put(numbered("a", pool.MaxMembers)...)
	b.put(numbered("b", pool.MaxMembers)...)
	if got := b.put(pool.Member{Member: "one more"}, pool.Member{Member: "a0007", Weight: ptr(int64(1000))}); !slices.Equal(got, []pool.Outcome{pool.Full, pool.Changed}) {
		t.Errorf("got %v", got)
	}
	b.want("smooth", b.picks(3), "a0007 a0000 a0001")
	b.define(pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic})
	b.want("classic", b.picks(2), "a0007 a0007")
	for _, policy := range []pool.Policy{pool.WeightedRandom, pool.AdaptivePolicy} { // of 1,999 + 1,000
		b.define(pool.Definition{Policy: policy})
		got := ""
		for _, b.draw = range []float64{0, 7.5 / 2999, 1006.5 / 2999, 1007.5 / 2999, 2998.5 / 2999} {
			got += b.picks(1) + " "
		}
		b.want(string(policy), got, "a0000 a0007 a0007 a0008 b0999 ")
	}
	b.define(pool.Definition{Policy: pool.RoundRobin})
	b.want("round robin", b.picks(2), "a0000 a0001")
	got, err := b.PutAll(testContext(t), b.id, b.pool, numbered("b", 10), pool.Bulk{Replace: true})
	if err != nil || len(got) != 10+2*pool.MaxMembers-10 || len(b.show().Members) != 10 {
		t.Errorf("replaced: %d, %v, then %d", len(got), err, len(b.show().Members))
	}
	b.want("then", b.picks(2), "b0000 b0001")
}

func TestAMemberCools(t *testing.T) {
	for _, policy := range []pool.Policy{pool.LeastUsed, pool.RoundRobin, pool.WeightedRoundRobin, pool.WeightedRandom, pool.LeastInflight, pool.AdaptivePolicy} {
		t.Run(string(policy), func(t *testing.T) {
			b := newBench(t, pool.Definition{Policy: policy}).with("a b", nil)
			cool := func(m string, ms int64) {
				t.Helper()
				if got, err := b.Patch(testContext(t), b.id, b.pool, pool.Member{Member: m, CooldownMS: &ms}); err != nil || got != pool.Changed {
					t.Fatal(got, err)
				}
			}
			cool("a", 5000)
			b.want("a cools", b.picks(2), "b b")
			cool("b", 1500)
			if res, _ := b.allocate(pool.Request{}); res.Reason != pool.Cooling || res.RetryAfterMS != 1500 {
				t.Errorf("both cool: %+v", res)
			}
			b.now += 1500*1000 - 1
			if res, _ := b.allocate(pool.Request{}); res.Reason != pool.Cooling || res.RetryAfterMS != 1 {
				t.Errorf("almost: %+v", res)
			}
			b.now++
			b.want("b has cooled", b.picks(1), "b")
			if s := b.show().Members[0]; s.CoolsAtMS != T0/1000+5000 || !s.Available {
				t.Errorf("a: %+v", s)
			}
			b.now += 10 * second
			b.want("a is excluded", b.picks(1, "b"), "a")
			cool("a", 5000)
			cool("a", 0)
			b.want("it was enough", b.picks(1, "b"), "a")
			cool("a", 5000)
			b.available("a", false)
			b.now += 10 * second
			b.want("away meanwhile", b.picks(1, "b"), "excluded")
			b.available("a", true)
			b.want("back", b.picks(1, "b"), "a")
		})
	}
}

// The counts of members that were removed are kept, as many as there may be: those that were removed first are forgotten.
func TestHistoryIsBounded(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.LeastUsed, Restore: pool.Keep})
	all := make([]pool.Member, pool.MaxHistory)
	for i := range all {
		all[i] = pool.Member{Member: fmt.Sprint("m", i), InitialCount: ptr(int64(5))}
	}
	replace := func(list ...pool.Member) {
		t.Helper()
		b.now++
		if _, err := b.PutAll(testContext(t), b.id, b.pool, list, pool.Bulk{Replace: true}); err != nil {
			t.Fatal(err)
		}
	}
	replace(all...)
	replace(pool.Member{Member: "last", InitialCount: ptr(int64(7))}) // in its place, so 1,000 have gone
	replace(pool.Member{Member: "m0"})                                // has come back, and last goes
	replace(pool.Member{Member: "z", InitialCount: ptr(int64(0))})    // m0 goes: 1,001 have, of which m1 was the first
	b.put(pool.Member{Member: "m0"}, pool.Member{Member: "m1"}, pool.Member{Member: "m2"}, pool.Member{Member: "last"})
	b.want("counts", b.counts(), "z0 m05 m10 m25 last7")
}

func TestCountsAreRebased(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.LeastUsed, Restore: pool.Keep}).with("a9 b5 c7 d2", count)
	b.available("c d", false)
	for _, want := range []int64{5, 0} {
		if least, err := b.Rebase(testContext(t), b.id, b.pool.Name); err != nil || least != want {
			t.Errorf("taken: %d, %v, want %d", least, err, want)
		}
	}
	b.want("counts", b.counts(), "a4 b0 c2 d0")
	b.want("and then", b.picks(5), "b b b b a")
}
