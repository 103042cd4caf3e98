package pool_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/pool"
)

// counts is "a5 b0": each member with its allocations.
func (b *bench) counts() string {
	b.t.Helper()
	return b.play().Counts()
}

func TestA7WorkersShareEvenly(t *testing.T) {
	const workers, each, members = 50, 20, 7
	b := newBench(t, pool.Definition{Policy: pool.LeastUsed}).with("a b c d e f g", nil)
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				res, _, err := b.Allocate(testContext(t), b.id, b.pool, &pool.Request{}, keyed())
				if err != nil {
					t.Error(err)
					return
				}
				a := res.Allocated[0]
				mu.Lock()
				if one := fmt.Sprint(a.Member, a.Allocations); seen[one] {
					t.Errorf("%s was given twice", one)
				} else {
					seen[one] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	var all, least, most int64
	for i, m := range b.show().Members {
		if all += m.Allocations; i == 0 {
			least = m.Allocations
		}
		least, most = min(least, m.Allocations), max(most, m.Allocations)
	}
	if all != workers*each || most-least > 1 || len(seen) != workers*each {
		t.Errorf("%d allocations, %d different, from %d to %d", all, len(seen), least, most)
	}
}

func TestARepetitionAllocatesNothing(t *testing.T) {
	for _, d := range []pool.Definition{{Policy: pool.LeastUsed}, {Policy: pool.RoundRobin}, {Policy: pool.WeightedRoundRobin}, {Policy: pool.WeightedRandom}, {Policy: pool.AdaptivePolicy}} {
		t.Run(string(d.Policy), func(t *testing.T) {
			b := newBench(t, d).with("a b", nil)
			first, replayed := b.allocate(pool.Request{}, "k")
			if replayed || first.Allocated[0] != (pool.Allocated{Member: "a", Allocations: 1}) {
				t.Errorf("first: %+v, replayed %v", first, replayed)
			}
			if again, replayed := b.allocate(pool.Request{}, "k"); !replayed || again.Allocated[0].Member != first.Allocated[0].Member {
				t.Errorf("again: %+v, replayed %v", again, replayed)
			}
			_, _, err := b.Allocate(testContext(t), b.id, b.pool, &pool.Request{}, keyed("k", "another body"))
			var e *store.Error
			if !errors.As(err, &e) || e.Code != store.CodeIdempotencyMismatch {
				t.Errorf("another request: %v", err)
			}
			b.want("counts", b.counts(), "a1 b0")
		})
	}
}

func TestARepetitionUnderAnotherPolicyHasTheFirstAnswer(t *testing.T) {
	all := []pool.Definition{{Policy: pool.LeastUsed}, {Policy: pool.LeastInflight}, {Policy: pool.AdaptivePolicy}}
	for _, d := range all {
		b := newBench(t, d).with("a", nil)
		first, _ := b.allocate(pool.Request{}, "k")
		for _, other := range all {
			b.define(other)
			b.pool.Version++
			again, replayed := b.allocate(pool.Request{}, "k")
			if !replayed || !reflect.DeepEqual(first, again) {
				t.Errorf("%s, then %s: %+v, then %+v, replayed %v", d.Policy, other.Policy, first, again, replayed)
			}
		}
	}
}

func TestThatNobodyIsThereIsNotKept(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.LeastUsed})
	if res, _ := b.allocate(pool.Request{}, "k"); res.Reason != pool.Empty {
		t.Errorf("empty: %+v", res)
	}
	b.with("a", nil)
	if res, replayed := b.allocate(pool.Request{}, "k"); replayed || res.Reason != "" {
		t.Errorf("with a: %+v, replayed %v", res, replayed)
	}
}

func TestAPolicyOfALaterGateway(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.LeastUsed}).with("a", nil)
	b.pool.Definition.Policy = "fastest"
	_, _, err := b.Allocate(testContext(t), b.id, b.pool, &pool.Request{}, keyed())
	var e *store.Error
	if !errors.As(err, &e) || e.Code != store.CodeCorruptValue {
		t.Errorf("got %v", err)
	}
}

func TestAnEmptyPoolWritesNothing(t *testing.T) {
	b := newBench(t, inflight(0))
	b.want("picks", b.picks(1), "empty")
	if keys := keysIn(t, b.id.App.Namespace); len(keys) != 1 { // the state, which was there before
		t.Errorf("keys: %v", keys)
	}
}

func TestSeveralAreAsOneAfterTheOther(t *testing.T) {
	for _, d := range []pool.Definition{
		{Policy: pool.LeastUsed}, {Policy: pool.RoundRobin}, {Policy: pool.WeightedRoundRobin},
		{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, {Policy: pool.WeightedRandom}, {Policy: pool.LeastInflight}, {Policy: pool.AdaptivePolicy},
	} {
		t.Run(string(d.Policy+" "+pool.Policy(d.Variant)), func(t *testing.T) {
			one, many := newBench(t, d).with("a2 b3 c4", weight), newBench(t, d).with("a2 b3 c4", weight)
			got := ""
			for _, n := range []int{7, 1, 12} {
				res, _ := many.allocate(pool.Request{Count: n, Exclude: []string{"c"}[:n%2]})
				for _, a := range res.Allocated {
					got += " " + a.Member
				}
				got += "/"
			}
			many.want("members", got, " "+one.picks(7, "c")+"/ "+one.picks(1, "c")+"/ "+one.picks(12)+"/")
			many.want("counts", many.counts(), one.counts())
		})
	}
}

func TestFewerThanAskedFor(t *testing.T) {
	b := newBench(t, inflight(2)).with("a b", nil)
	if res, _ := b.allocate(pool.Request{Count: 16}); len(res.Allocated) != 4 || res.Reason != "" {
		t.Errorf("got %+v", res)
	}
	b.want("leases", b.held(), "a2 b2")
}

func TestWeightedRandomFollowsWhatIsDrawn(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.WeightedRandom}).with("a1 b0 c2 d1", weight)
	for _, row := range []struct {
		draw    float64
		exclude string
		want    string
	}{
		{0, "", "a"}, {0.249, "", "a"}, {0.25, "", "c"}, {0.749, "", "c"}, {0.75, "", "d"}, {0.9999999999999999, "", "d"},
		{0, "a", "c"}, {0.66, "a", "c"}, {0.67, "a", "d"}, {0.9999999999999999, "d", "c"},
	} {
		b.draw = row.draw
		b.want(fmt.Sprint(row.draw, " without ", row.exclude), b.picks(1, strings.Fields(row.exclude)...), row.want)
	}
	b.want("all with a weight excluded", b.picks(1, "a", "c", "d"), "no_weight")
	b.want("all excluded", b.picks(1, "a", "b", "c", "d"), "excluded")
}

func TestExcludedMembersKeepTheRestInOrder(t *testing.T) {
	for _, row := range []struct {
		d    pool.Definition
		want string
	}{
		{pool.Definition{Policy: pool.LeastUsed}, "a c a d c a c d"},
		{pool.Definition{Policy: pool.RoundRobin}, "a c d a c d a c"},
		{pool.Definition{Policy: pool.WeightedRoundRobin}, "a c d a c d a c"},
		{pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, "a c d a c d a c"},
		{pool.Definition{Policy: pool.LeastInflight}, "a c d a c d a c"},
	} {
		b := newBench(t, row.d).with("a b c d", nil)
		if row.d.Policy == pool.LeastUsed {
			b.put(pool.Member{Member: "d", Available: ptr(false)}, pool.Member{Member: "e", InitialCount: ptr(int64(1))})
			row.want = "a c a c e a c e"
		}
		b.want(string(row.d.Policy+pool.Policy(row.d.Variant)), b.picks(8, "b", "nobody"), row.want)
	}
}

func TestMembersOfAnyBytes(t *testing.T) {
	hostile := []string{"\x00", "\xff\xfe", "{x}", "a:b/c", "%d", "'; return 1", "\r\n*1\r\n", strings.Repeat("\x00", 256), "-inf", "(1"}
	for _, d := range []pool.Definition{{Policy: pool.RoundRobin}, {Policy: pool.WeightedRoundRobin}, {Policy: pool.LeastInflight}} {
		t.Run(string(d.Policy), func(t *testing.T) {
			b := newBench(t, d)
			for _, m := range hostile {
				b.put(pool.Member{Member: m})
			}
			var got []string
			for range hostile {
				res, _ := b.allocate(pool.Request{Exclude: []string{"{", "x"}, LeaseMS: 1000})
				a := res.Allocated[0]
				got = append(got, a.Member)
				if kept, _, err := b.complete(pool.Claim{ID: a.Lease.ID, Fence: a.Lease.Fence}); err != nil || kept.Member != a.Member {
					t.Errorf("%q: completed %+v, %v", a.Member, kept, err)
				}
				if d.Policy == pool.LeastInflight {
					if _, err := b.Patch(testContext(t), b.id, b.pool, pool.Member{Member: a.Member, Available: ptr(false)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			want := slices.Clone(hostile)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestAPoolIsRemovedUnderLoad(t *testing.T) {
	b := newBench(t, inflight(0)).with("a b", nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_, _, err := b.Allocate(testContext(t), b.id, b.pool, &pool.Request{Sticky: "s"}, keyed())
				if err != nil && !errors.Is(err, pool.ErrNoPool) {
					t.Error(err)
					return
				}
			}
		})
	}
	claims, _ := b.hold(20)
	b.allocate(pool.Request{}, "k")
	b.remove()
	for what, do := range map[string]func() error{
		"allocate": func() error {
			_, _, err := b.Allocate(testContext(t), b.id, b.pool, &pool.Request{}, keyed())
			return err
		},
		"what was allocated": func() error {
			_, _, err := b.Allocate(testContext(t), b.id, b.pool, &pool.Request{}, keyed("k"))
			return err
		},
		"complete": func() error { _, _, err := b.complete(claims[0]); return err },
		"renew":    func() error { _, err := b.Renew(testContext(t), b.id, b.pool, claims[0], 1000); return err },
		"put":      func() error { _, err := b.Put(testContext(t), b.id, b.pool, []pool.Member{{Member: "c"}}); return err },
		"patch":    func() error { _, err := b.Patch(testContext(t), b.id, b.pool, pool.Member{Member: "a"}); return err },
		"remove":   func() error { _, err := b.TakeAway(testContext(t), b.id, b.pool, "a", false); return err },
		"report": func() error {
			_, err := b.Report(testContext(t), b.id, b.pool, []pool.Report{{Member: "a", Outcome: pool.Failure}})
			return err
		},
		"health": func() error { _, err := b.Health(testContext(t), b.id, b.pool); return err },
		"show":   func() error { _, err := b.Show(testContext(t), b.id, b.pool.Name); return err },
		"leases": func() error { _, err := b.Leases(testContext(t), b.id, b.pool.Name); return err },
		"rebase": func() error { _, err := b.Rebase(testContext(t), b.id, b.pool.Name); return err },
		"reap":   func() error { _, err := b.Reap(testContext(t), b.id, b.pool, 1); return err },
	} {
		if err := do(); !errors.Is(err, pool.ErrNoPool) {
			t.Errorf("%s: %v", what, err)
		}
	}
	close(stop)
	wg.Wait()
	for _, key := range keysIn(t, b.id.App.Namespace) {
		if !strings.Contains(key, ":s:") && !strings.Contains(key, ":i:") { // which expire
			t.Errorf("%s is left", key)
		}
	}
}

func TestAStickyKeyKeepsItsMember(t *testing.T) {
	for _, d := range []pool.Definition{
		{Policy: pool.LeastUsed}, {Policy: pool.RoundRobin}, {Policy: pool.WeightedRoundRobin},
		{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, {Policy: pool.WeightedRandom}, {Policy: pool.LeastInflight}, {Policy: pool.AdaptivePolicy},
	} {
		t.Run(string(d.Policy+" "+pool.Policy(d.Variant)), func(t *testing.T) {
			b := newBench(t, d).with("a b c", nil)
			ask := func(key string, exclude ...string) string {
				t.Helper()
				b.draw = 0.99
				if key == "first" {
					b.draw = 0
				}
				res, _ := b.allocate(pool.Request{Sticky: key, Exclude: exclude})
				return res.Allocated[0].Member
			}
			b.want("the first time", ask("first"), "a")
			ask("second")
			b.want("again", ask("first")+ask("first")+ask("first"), "aaa")
			other := ask("first", "a")
			if other == "a" {
				t.Error("who is excluded was allocated")
			}
			b.want("then it is the other's", ask("first"), other)
			b.available(other, false)
			if ask("first") == other {
				t.Error("who is away was allocated")
			}
		})
	}
}

func TestAStickyKeyLeavesWhoIsNotToBeChosen(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.AdaptivePolicy}).with("a b c", nil)
	b.want("first", b.allocated(pool.Request{Sticky: "k"}), "a")
	b.draw = 0.5
	for range 5 {
		b.failure("a")
	}
	b.draw = 0
	b.want("when it is ejected", b.allocated(pool.Request{Sticky: "k"}), "b")
	b.put(pool.Member{Member: "b", Weight: ptr(int64(0))})
	b.want("when it has no weight", b.allocated(pool.Request{Sticky: "k"}), "c")

	b = newBench(t, inflight(2)).with("a b", nil)
	b.want("up to the limit", b.allocated(pool.Request{Sticky: "k", Count: 3}), "a a b")
}

func TestAStickyKeyIsNotTheIdempotencyKey(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.RoundRobin}).with("a b", nil)
	first, _ := b.allocate(pool.Request{Sticky: "k"}, "k")
	if again, replayed := b.allocate(pool.Request{Sticky: "k"}, "k"); !replayed || again.Allocated[0].Member != first.Allocated[0].Member {
		t.Errorf("first %+v, then %+v, replayed %v", first, again, replayed)
	}
	b.want("with another key", b.allocated(pool.Request{Sticky: "k"}), "a")
	b.want("another", b.allocated(pool.Request{Sticky: "other"}), "b")
	b.want("counts", b.counts(), "a2 b1")
}

// allocated is who an allocation gives.
func (b *bench) allocated(r pool.Request) string {
	b.t.Helper()
	res, _ := b.allocate(r)
	list := make([]string, len(res.Allocated))
	for i := range list {
		list[i] = res.Allocated[i].Member
	}
	return strings.Join(list, " ")
}
