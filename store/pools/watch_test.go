package pools_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/storetest"
)

const noon = 1_800_000_000_000_000 // us

// Leases that nobody completes are noticed though nobody asks the pool any more; those of pools that this gateway has not served are not
// its business.
func TestAbandonedLeasesAreNoticed(t *testing.T) {
	g, other := newGateway(t), newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.LeastInflight}, "a")
	g.clock.Store(noon)
	other.clock.Store(noon)
	for range 3 {
		g.hold(id, 1000)
	}
	inflight := func() int64 {
		t.Helper()
		o, err := g.Overview(t.Context(), id, "p")
		if err != nil {
			t.Fatal(err)
		}
		return o.Members[0].Inflight
	}
	g.Tend(t.Context())
	g.clock.Add(1_000_000)
	other.clock.Add(1_000_000)
	other.Tend(t.Context())
	if n := inflight(); n != 3 {
		t.Errorf("%d are out before", n)
	}
	g.Tend(t.Context())
	if n := inflight(); n != 0 {
		t.Errorf("%d are out after", n)
	}
	if got, want := g.figures(metric.PoolLeases), (map[string]float64{id.App.ID + " p abandoned": 3}); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	asked := g.store.asked.Load()
	g.Tend(t.Context())
	if n := g.store.asked.Load() - asked; n != 0 {
		t.Errorf("it asks %d times for a pool without leases", n)
	}
}

func TestAnAbandonedLeaseMayBeAFailure(t *testing.T) {
	for abandoned, want := range map[pool.Abandoned]pool.Condition{pool.Ignores: pool.Healthy, pool.Fails: pool.Unhealthy} {
		for who, notice := range map[string]func(*gateway, *acl.Identity){
			"who tends":     func(g *gateway, _ *acl.Identity) { g.Tend(t.Context()) },
			"an allocation": func(g *gateway, id *acl.Identity) { g.hold(id, 1000) },
		} {
			g := newGateway(t)
			id := g.defined(pool.Definition{Policy: pool.AdaptivePolicy, Lease: pool.Lease{Abandoned: abandoned}}, "a", "b", "c")
			g.clock.Store(noon)
			for range 5 { // draws are 0: all of a
				if _, m := g.hold(id, 1000); m != "a" {
					t.Fatal(m)
				}
			}
			g.clock.Add(1_000_000)
			notice(g, id)
			m, err := g.Member(t.Context(), id, "p", "a")
			if err != nil || m.Health.Condition != want {
				t.Errorf("%s, noticed by %s: %+v, %v", abandoned, who, m.Health, err)
			}
			ejected := 0.0
			if want == pool.Unhealthy {
				ejected = 1
			}
			if got := g.figures(metric.PoolEjections)[id.App.ID+" p"]; got != ejected {
				t.Errorf("%s, noticed by %s: %v ejections", abandoned, who, got)
			}
			if got := g.figures(metric.PoolLeases)[id.App.ID+" p abandoned"]; got != 5 {
				t.Errorf("%s, noticed by %s: %v abandoned", abandoned, who, got)
			}
		}
	}
}

func TestAPoolThatWasDeletedIsTendedNoMore(t *testing.T) {
	g, other := newGateway(t), newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.LeastInflight}, "a")
	g.hold(id, 60_000)
	if err := other.Delete(t.Context(), id, "p", store.Condition{}); err != nil {
		t.Fatal(err)
	}
	g.Tend(t.Context())
	asked := g.store.asked.Load()
	g.Tend(t.Context())
	if n := g.store.asked.Load() - asked; n != 0 {
		t.Errorf("it asks %d times for a pool that is gone", n)
	}
	if keys := storetest.KeysOf(t, rawClient(t), id); len(keys) > 0 {
		t.Errorf("left are %q", keys)
	}
}

func TestMembersHaveMetricsOfTheirOwn(t *testing.T) {
	g := newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.AdaptivePolicy}, "a", "b", "c", "\xff")
	g.clock.Store(noon)
	g.picks(id, 2)
	g.hold(id, 1000)
	fault := pool.Report{Member: "b", Outcome: pool.Failure}
	if _, err := g.Report(t.Context(), id, "p", []pool.Report{fault, fault, fault, fault, fault}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.PatchMember(t.Context(), id, "p", pool.Member{Member: "c", Available: ptr(false)}); err != nil {
		t.Fatal(err)
	}
	if got := g.figures(metric.PoolMemberShare); len(got) > 0 {
		t.Errorf("before anybody has looked: %v", got)
	}
	g.Look(t.Context())
	of := func(values string) map[string]float64 {
		all := map[string]float64{}
		for i, m := range []string{"a", "b", "c", "\uFFFD"} {
			var list [4]float64
			if _, err := fmt.Sscan(values, &list[0], &list[1], &list[2], &list[3]); err != nil {
				t.Fatal(err)
			}
			if list[i] != 0 {
				all[id.App.ID+" "+m+" p"] = list[i] // labels are in the order of their names
			}
		}
		return all
	}
	for _, row := range []struct {
		m    metric.Metric
		want string
	}{
		{metric.PoolMemberState, "0 2 3 0"}, {metric.PoolMemberWeight, "1 0.1 1 1"}, {metric.PoolMemberShare, "0.5 0 0 0.5"},
		{metric.PoolMemberAllocations, "3 0 0 0"}, {metric.PoolMemberInflight, "1 0 0 0"},
	} {
		if got, want := g.figures(row.m), of(row.want); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", row.m.Name, got, want)
		}
	}
	if err := g.Delete(t.Context(), id, "p", store.Condition{}); err != nil {
		t.Fatal(err)
	}
	g.Look(t.Context())
	if got := g.figures(metric.PoolMemberState); len(got) > 0 {
		t.Errorf("of a pool that is gone: %v", got)
	}
}

// There are no more series than were asked for, and none of a pool with many members.
func TestMetricsOfMembersAreBounded(t *testing.T) {
	g := newGateway(t)
	g.Members = 100
	want := 0
	for i, n := range []int{65, 60, 50, 40} { // too many; 60; no room any more; 40
		list := make([]string, n)
		for m := range list {
			list[m] = fmt.Sprint("m", m)
		}
		g.picks(g.defined(pool.Definition{Policy: pool.LeastUsed}, list...), 1)
		if i == 1 || i == 3 {
			want += n
		}
	}
	g.Look(t.Context())
	if got := len(g.figures(metric.PoolMemberShare)); got != want {
		t.Errorf("%d series, want %d", got, want)
	}
	asked := g.store.asked.Load()
	g.Look(t.Context())
	if n := g.store.asked.Load() - asked; n != 6 {
		t.Errorf("it asks %d times for three pools that may have series, twice for each", n)
	}
	g.pass(2 * time.Minute)
	g.Look(t.Context()) // it sees that they were used
	g.pass(2 * time.Minute)
	g.Look(t.Context())
	if got := len(g.figures(metric.PoolMemberShare)); got != 0 {
		t.Errorf("%d series of pools that nobody uses", got)
	}
}
