package pools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/pools"
	"github.com/slotgate/slotgate/store/storetest"
)

// Everything that is done with a pool which is not defined says so, whether it never was, or was until a moment ago and is believed here.
func TestAPoolThatIsNotDefined(t *testing.T) {
	ctx, claim := t.Context(), pool.Claim{ID: strings.Repeat("A", 22), Fence: 1}
	operations := map[string]func(*gateway, *acl.Identity) error{
		"allocate": func(g *gateway, id *acl.Identity) error {
			return second(g.Allocate(ctx, id, "p", &pool.Request{LeaseMS: 1000, Sticky: "s"}, store.Idempotency{Key: "k"}))
		},
		"report": func(g *gateway, id *acl.Identity) error {
			return second(g.Report(ctx, id, "p", []pool.Report{{Member: "a", Outcome: pool.Success}}))
		},
		"renew": func(g *gateway, id *acl.Identity) error { return second(g.Renew(ctx, id, "p", claim, 1)) },
		"complete": func(g *gateway, id *acl.Identity) error {
			return second(g.Complete(ctx, id, "p", claim, nil, store.Idempotency{Key: "k"}))
		},
		"leases":   func(g *gateway, id *acl.Identity) error { return second(g.Leases(ctx, id, "p", pools.Which{})) },
		"overview": func(g *gateway, id *acl.Identity) error { return second(g.Overview(ctx, id, "p")) },
		"member":   func(g *gateway, id *acl.Identity) error { return second(g.Member(ctx, id, "p", "a")) },
		"put": func(g *gateway, id *acl.Identity) error {
			return second(g.PutMembers(ctx, id, "p", []pool.Member{{Member: "a"}}, pool.Bulk{}))
		},
		"replace": func(g *gateway, id *acl.Identity) error {
			return second(g.PutMembers(ctx, id, "p", []pool.Member{{Member: "a"}}, pool.Bulk{Replace: true}))
		},
		"put one": func(g *gateway, id *acl.Identity) error {
			return second(g.PutMember(ctx, id, "p", pool.Member{Member: "a"}))
		},
		"patch": func(g *gateway, id *acl.Identity) error {
			return second(g.PatchMember(ctx, id, "p", pool.Member{Member: "a"}))
		},
		"remove": func(g *gateway, id *acl.Identity) error { return g.RemoveMember(ctx, id, "p", "a", true) },
		"rebase": func(g *gateway, id *acl.Identity) error { return second(g.Rebase(ctx, id, "p")) },
		"delete": func(g *gateway, id *acl.Identity) error { return g.Delete(ctx, id, "p", store.Condition{}) },
	}
	g, other, never := newGateway(t), newGateway(t), newApp(t)
	for name, do := range operations {
		wantCode(t, do(g, never), store.CodePoolNotFound)
		id := g.defined(pool.Definition{Policy: pool.LeastInflight}, "a")
		g.picks(id, 1)
		if err := other.Delete(ctx, id, "p", store.Condition{}); err != nil {
			t.Fatal(err)
		}
		if e := wantCode(t, do(g, id), store.CodePoolNotFound); e.Outcome != store.NoOutcome {
			t.Errorf("%s: outcome %s", name, e.Outcome)
		}
		if keys := storetest.KeysOf(t, rawClient(t), id); len(keys) > 0 {
			t.Errorf("%s: left are %q", name, keys)
		}
	}
	if keys := storetest.KeysOf(t, rawClient(t), never); len(keys) > 0 {
		t.Errorf("left are %q", keys)
	}
}

// A pool is deleted while workers of two gateways use it in every way. None is told anything but that, and nothing is left.
func TestAPoolIsDeletedUnderLoad(t *testing.T) {
	one, two := newGateway(t), newGateway(t)
	id := one.defined(pool.Definition{Policy: pool.LeastInflight}, "a", "b", "c")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	fine := func(err error) bool {
		e, ok := errors.AsType[*store.Error](err)
		if err != nil && !(ok && (e.Code == store.CodePoolNotFound || e.Code == store.CodeLeaseNotFound)) {
			t.Error(err)
			return false
		}
		return true
	}
	for i := range 8 {
		g := one
		if i%2 == 1 {
			g = two
		}
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				a, err := g.Allocate(t.Context(), id, "p", &pool.Request{}, store.Idempotency{})
				if err == nil && len(a.Allocated) > 0 {
					c := pool.Claim{ID: a.Allocated[0].Lease.ID, Fence: a.Allocated[0].Lease.Fence}
					_, err = g.Complete(t.Context(), id, "p", c, &pool.Report{Outcome: pool.Failure}, store.Idempotency{})
				}
				ok := fine(err)
				_, err = g.PutMember(t.Context(), id, "p", pool.Member{Member: fmt.Sprint("m", n%5)})
				if !ok || !fine(err) {
					return
				}
			}
		})
	}
	for range 50 {
		one.picks(id, 1)
	}
	if err := two.Delete(t.Context(), id, "p", store.Condition{}); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*gateway{one, two} {
		wantCode(t, second(g.Allocate(t.Context(), id, "p", &pool.Request{}, store.Idempotency{})), store.CodePoolNotFound)
	}
	close(stop)
	wg.Wait()
	if keys := storetest.KeysOf(t, rawClient(t), id); len(keys) > 0 {
		t.Errorf("left are %q", keys)
	}
}

func TestMetaGoesWithItsMember(t *testing.T) {
	g := newGateway(t)
	for _, d := range []pool.Definition{
		{Policy: pool.LeastUsed}, {Policy: pool.RoundRobin}, {Policy: pool.WeightedRoundRobin}, {Policy: pool.WeightedRandom},
		{Policy: pool.LeastInflight}, {Policy: pool.AdaptivePolicy},
	} {
		id := g.defined(d, "bare")
		if a := g.allocate(id, pool.Request{}); a.Allocated[0].Meta != "" || a.Allocated[0].Member != "bare" {
			t.Errorf("%s, before any meta: %+v", d.Policy, a)
		}
		if _, err := g.PatchMember(t.Context(), id, "p", pool.Member{Member: "bare", Available: ptr(false)}); err != nil {
			t.Fatal(err)
		}
		long := strings.Repeat("m", 256)
		if _, err := g.PutMember(t.Context(), id, "p", pool.Member{Member: long, Meta: json.RawMessage(` { "url" : "http://x" } `)}); err != nil {
			t.Fatal(err)
		}
		for _, lease := range []int64{0, 1000} {
			key := fmt.Sprint("k", lease)
			first := g.allocate(id, pool.Request{Count: 2, LeaseMS: lease}, key)
			again := g.allocate(id, pool.Request{Count: 2, LeaseMS: lease}, key)
			for _, a := range append(first.Allocated, again.Allocated...) {
				if a.Meta != `{"url":"http://x"}` || a.Member != long {
					t.Errorf("%s, lease %d: %+v", d.Policy, lease, a)
				}
			}
			if len(first.Allocated) != 2 || !again.Replayed {
				t.Errorf("%s: %+v, then %+v", d.Policy, first, again)
			}
		}
		if m, err := g.Member(t.Context(), id, "p", long); err != nil || string(m.Meta) != `{"url":"http://x"}` {
			t.Errorf("%+v, %v", m, err)
		}
		if out, err := g.PatchMember(t.Context(), id, "p", pool.Member{Member: long, Meta: json.RawMessage("{}")}); err != nil || out != pool.Changed {
			t.Errorf("cleared: %s, %v", out, err)
		}
		if a := g.allocate(id, pool.Request{}); a.Allocated[0].Meta != "" {
			t.Errorf("%s, when it was cleared: %+v", d.Policy, a)
		}
	}
}

func TestLeasesAreSettled(t *testing.T) {
	g := newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.LeastInflight}, "a")
	g.clock.Store(1_800_000_000_000_000)
	c, _ := g.hold(id, 10_000)
	other, _ := g.hold(id, 10_000)
	g.clock.Add(5_000_000)
	if kept, err := g.Renew(t.Context(), id, "p", c, 20_000); err != nil || kept.Member != "a" {
		t.Errorf("renewed: %+v, %v", kept, err)
	}
	wantCode(t, second(g.Renew(t.Context(), id, "p", pool.Claim{ID: c.ID, Fence: other.Fence}, 1)), store.CodeFenceMismatch)
	g.clock.Add(5_000_000)
	wantCode(t, second(g.Renew(t.Context(), id, "p", other, 1)), store.CodeLeaseLost)
	if list, err := g.Leases(t.Context(), id, "p", pools.Which{Expired: ptr(true)}); err != nil || len(list) != 1 || list[0].ID != other.ID {
		t.Errorf("expired are %+v, %v", list, err)
	}
	if list, err := g.Leases(t.Context(), id, "p", pools.Which{Member: "b"}); err != nil || len(list) != 0 {
		t.Errorf("of b: %+v, %v", list, err)
	}
	if done, err := g.Complete(t.Context(), id, "p", other, nil, store.Idempotency{}); err != nil || !done.Late || done.Health != nil {
		t.Errorf("late: %+v, %v", done, err)
	}
	once := store.Idempotency{Key: "done"}
	for _, replayed := range []bool{false, true} {
		done, err := g.Complete(t.Context(), id, "p", c, &pool.Report{Outcome: pool.Success, LatencyMS: 5}, once)
		if err != nil || done.Replayed != replayed || (done.Health != nil) == replayed || done.HeldMS != 10_000 {
			t.Errorf("completed, replayed %v: %+v, %v", replayed, done, err)
		}
	}
	wantCode(t, second(g.Complete(t.Context(), id, "p", c, nil, store.Idempotency{})), store.CodeLeaseNotFound)
	for want, use := range map[string]pool.Report{"/outcome": {}, "/latency_ms": {Outcome: pool.Success, LatencyMS: -1}} {
		if got := pointers(second(g.Complete(t.Context(), id, "p", c, &use, store.Idempotency{}))); got != want {
			t.Errorf("wrong is %q, want %q", got, want)
		}
	}
	want := map[string]float64{"renewed": 1, "lost": 2, "late": 1, "completed": 1}
	for name := range maps.Clone(want) {
		want[id.App.ID+" p "+name] = want[name]
		delete(want, name)
	}
	if got := g.figures(metric.PoolLeases); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func TestAllocationsAndReportsAreCounted(t *testing.T) {
	g := newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.AdaptivePolicy})
	g.clock.Store(1_800_000_000_000_000)
	g.picks(id, 1)
	for _, m := range []string{"a", "b", "c"} {
		if _, err := g.PutMember(t.Context(), id, "p", pool.Member{Member: m}); err != nil {
			t.Fatal(err)
		}
	}
	g.picks(id, 2)
	g.allocate(id, pool.Request{}, "k")
	g.allocate(id, pool.Request{}, "k")
	g.allocate(id, pool.Request{Exclude: []string{"a", "b", "c"}})
	fault := pool.Report{Member: "a", Outcome: pool.Failure}
	if _, err := g.Report(t.Context(), id, "p", []pool.Report{fault, fault, fault, fault, fault, {Member: "gone", Outcome: pool.Success}}); err != nil {
		t.Fatal(err)
	}
	if got := pointers(second(g.Allocate(t.Context(), id, "p", &pool.Request{Count: 17}, store.Idempotency{}))); got != "/count" {
		t.Errorf("wrong is %q", got)
	}
	g.store.fails.Store(store.NewError(store.CodeClusterDown, ""))
	wantCode(t, second(g.Allocate(t.Context(), id, "p", &pool.Request{}, store.Idempotency{})), store.CodeClusterDown)
	of := func(counts map[string]float64) map[string]float64 {
		all := map[string]float64{}
		for name, n := range counts {
			all[id.App.ID+" "+name] = n
		}
		return all
	}
	for _, row := range []struct {
		m    metric.Metric
		want map[string]float64
	}{
		{metric.PoolAllocations, map[string]float64{"p allocated": 3, "p replayed": 1, "p empty": 1, "p excluded": 1, "p failed": 1}},
		{metric.PoolReports, map[string]float64{"failure p": 5, "unknown p": 1}},
		{metric.PoolEjections, map[string]float64{"p": 1}},
	} {
		if got, want := g.figures(row.m), of(row.want); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", row.m.Name, got, want)
		}
	}
	if got := g.figures(metric.PoolAllocateDuration); got["allocated"] != 3 || len(got) != 5 {
		t.Errorf("times %v", got)
	}
}

func TestNobodyAsAnError(t *testing.T) {
	g := newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.LeastInflight, Lease: pool.Lease{MaxPerMember: 1}})
	g.clock.Store(1_800_000_000_000_000)
	a := g.allocate(id, pool.Request{})
	wantCode(t, a.Refusal(), store.CodePoolEmpty)
	if _, err := g.PutMember(t.Context(), id, "p", pool.Member{Member: "a"}); err != nil {
		t.Fatal(err)
	}
	if a = g.allocate(id, pool.Request{LeaseMS: 7000}); a.Refusal() != nil {
		t.Error(a.Refusal())
	}
	a = g.allocate(id, pool.Request{})
	if e := wantCode(t, a.Refusal(), store.CodePoolSaturated); e.RetryAfter != 7*time.Second {
		t.Errorf("retry after %v", e.RetryAfter)
	}
}

func TestMembersByName(t *testing.T) {
	g := newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.WeightedRandom}, "a", "b")
	if out, err := g.PutMember(t.Context(), id, "p", pool.Member{Member: "a", Weight: ptr(int64(3))}); err != nil || out != pool.Changed {
		t.Errorf("%s, %v", out, err)
	}
	if m, err := g.Member(t.Context(), id, "p", "a"); err != nil || m.Weight != 3 || m.Share != 0.75 || m.Health != nil {
		t.Errorf("%+v, %v", m, err)
	}
	wantCode(t, second(g.Member(t.Context(), id, "p", "c")), store.CodeMemberNotFound)
	wantCode(t, second(g.PatchMember(t.Context(), id, "p", pool.Member{Member: "c"})), store.CodeMemberNotFound)
	wantCode(t, g.RemoveMember(t.Context(), id, "p", "c", false), store.CodeMemberNotFound)
	for _, bad := range []string{"", strings.Repeat("m", 257)} {
		for what, err := range map[string]error{
			"read":   second(g.Member(t.Context(), id, "p", bad)),
			"put":    second(g.PutMember(t.Context(), id, "p", pool.Member{Member: bad})),
			"patch":  second(g.PatchMember(t.Context(), id, "p", pool.Member{Member: bad})),
			"remove": g.RemoveMember(t.Context(), id, "p", bad, false),
		} {
			if got := pointers(err); got != "path:member" {
				t.Errorf("%s %.5q: wrong is %q", what, bad, got)
			}
		}
	}
	if got := pointers(second(g.PutMember(t.Context(), id, "p", pool.Member{Member: "a", Weight: ptr(int64(1001))}))); got != "/weight" {
		t.Errorf("wrong is %q", got)
	}
	items, err := g.PutMembers(t.Context(), id, "p", []pool.Member{{Member: "b"}, {Member: "d"}}, pool.Bulk{Replace: true})
	if got := fmt.Sprint(items, err); got != "[{b unchanged} {d added} {a removed}] <nil>" {
		t.Errorf("replaced: %s", got)
	}
	g.picks(id, 3)
	if least, err := g.Rebase(t.Context(), id, "p"); err != nil || least != 0 { // d has none
		t.Errorf("rebased by %d, %v", least, err)
	}
}

func TestAPoolIsFull(t *testing.T) {
	g := newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.LeastUsed})
	list := make([]pool.Member, pool.MaxMembers)
	for half := range 2 {
		for i := range list {
			list[i] = pool.Member{Member: fmt.Sprint(half, "-", i)}
		}
		if items, err := g.PutMembers(t.Context(), id, "p", list, pool.Bulk{}); err != nil || items[999].Outcome != pool.Added {
			t.Fatalf("%v", err)
		}
	}
	if got := pointers(second(g.PutMember(t.Context(), id, "p", pool.Member{Member: "more"}))); got != "path:member" {
		t.Errorf("wrong is %q", got)
	}
	for _, dry := range []bool{true, false} {
		items, err := g.PutMembers(t.Context(), id, "p", []pool.Member{{Member: "more"}}, pool.Bulk{DryRun: dry})
		if err != nil || items[0].Outcome != pool.Full {
			t.Errorf("dry run %v: %v, %v", dry, items, err)
		}
	}
	if o, err := g.Overview(t.Context(), id, "p"); err != nil || len(o.Members) != 2000 || math.Abs(o.Members[0].Share-1.0/2000) > 1e-9 {
		t.Errorf("%d members, %v", len(o.Members), err)
	}
	for i := range list {
		list[i] = pool.Member{Member: fmt.Sprint("new-", i)}
	}
	for _, dry := range []bool{true, false} { // room is made for a new list, however many there are
		items, err := g.PutMembers(t.Context(), id, "p", list, pool.Bulk{Replace: true, DryRun: dry})
		if err != nil || len(items) != 3000 {
			t.Fatalf("dry run %v: %d, %v", dry, len(items), err)
		}
		for i, item := range items {
			if i < 1000 && item != (pool.Item{Member: list[i].Member, Outcome: pool.Added}) || i >= 1000 && item.Outcome != pool.Removed {
				t.Fatalf("dry run %v: %d is %v", dry, i, item)
			}
		}
	}
	if o, err := g.Overview(t.Context(), id, "p"); err != nil || len(o.Members) != 1000 {
		t.Errorf("then %d members, %v", len(o.Members), err)
	}
}

// Nobody is invented while the shard does not answer, and the answer says what is known of the allocation.
func TestNobodyIsAllocatedWhileTheShardIsDown(t *testing.T) {
	for name, row := range map[string]struct {
		break_ func(*faultproxy.Proxy)
		want   store.Outcome
	}{
		"refuses": {func(p *faultproxy.Proxy) { p.Refuse(); p.ResetAll() }, store.NotApplied},
		"silent":  {(*faultproxy.Proxy).BlackHole, store.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.Shared(t)
			proxies := clustertest.Proxied(t, c)
			g := newGateway(t, func(cfg *store.Config) {
				cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: proxies.Dial}
				cfg.Circuit.OpenAfter = 100 * time.Millisecond
			})
			g.Timeout = 300 * time.Millisecond
			id := g.defined(pool.Definition{Policy: pool.LeastUsed}, "a")
			g.picks(id, 1)
			for _, addr := range c.Addrs() {
				row.break_(proxies.Proxy(addr))
			}
			e, ok := errors.AsType[*store.Error](second(g.Allocate(t.Context(), id, "p", &pool.Request{}, store.Idempotency{})))
			if !ok || e.Outcome != row.want || e.Status() != 503 && e.Status() != 504 {
				t.Errorf("%v, outcome %s, want %s", e, e.Outcome, row.want)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			e, ok = errors.AsType[*store.Error](second(g.Allocate(ctx, id, "never-seen", &pool.Request{}, store.Idempotency{})))
			if !ok || e.Outcome != store.NotApplied || e.Status() != 503 && e.Status() != 504 {
				t.Errorf("never seen: %v, outcome %s", e, e.Outcome)
			}
		})
	}
}
