package pools_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/definitions"
	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/pools"
	"github.com/slotgate/slotgate/store/purge"
	"github.com/slotgate/slotgate/store/storetest"
)

func TestADefinitionIsStoredWithItsVersion(t *testing.T) {
	g, id := newGateway(t), newApp(t)
	_, err := g.Show(t.Context(), id, "p")
	wantCode(t, err, store.CodePoolNotFound)
	first := g.define(id, pool.Definition{Policy: pool.LeastUsed})
	if first.Restore != pool.CatchUp || first.Version == 0 || first.ETag == "" {
		t.Errorf("defined %+v", first)
	}
	if got, err := g.Show(t.Context(), id, "p"); err != nil || *got != *first {
		t.Errorf("shown %+v, %v", got, err)
	}
	second := g.define(id, pool.Definition{Policy: pool.RoundRobin})
	if second.Version <= first.Version || second.ETag == first.ETag {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if a := g.allocate(id, pool.Request{}); a.Version != second.Version || a.Policy != pool.RoundRobin {
		t.Errorf("allocated by %+v", a)
	}
}

func TestConditionsOfDefinitions(t *testing.T) {
	g, id := newGateway(t), newApp(t)
	def := func(cond store.Condition) error {
		return second(g.Define(t.Context(), id, "p", pool.Definition{Policy: pool.LeastUsed}, cond))
	}
	wantCode(t, def(store.Condition{IfMatch: []string{"*"}}), store.CodePreconditionFailed)
	if keys := storetest.KeysOf(t, rawClient(t), id); len(keys) > 0 {
		t.Errorf("written: %q", keys)
	}
	if err := def(store.Condition{IfNoneMatch: true}); err != nil {
		t.Fatal(err)
	}
	d, err := g.Show(t.Context(), id, "p")
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a first one when there is one": def(store.Condition{IfNoneMatch: true}),
		"over another one":              def(store.Condition{IfMatch: []string{`"x"`}}),
		"an edit of another one": second(g.Edit(t.Context(), id, "p", store.Condition{IfMatch: []string{`"x"`}}, func(*pool.Definition) error {
			t.Error("it was begun")
			return nil
		})),
		"a deletion of another one": g.Delete(t.Context(), id, "p", store.Condition{IfMatch: []string{`"x"`}}),
	} {
		if e := wantCode(t, err, store.CodePreconditionFailed); e.ETag != d.ETag {
			t.Errorf("%s: the ETag is %q, want %q", what, e.ETag, d.ETag)
		}
	}
	if err := def(store.Condition{IfMatch: []string{d.ETag}}); err != nil {
		t.Error(err)
	}
	if err := g.Delete(t.Context(), id, "p", store.Condition{IfMatch: []string{d.ETag}}); err != nil {
		t.Error(err)
	}
	wantCode(t, g.Delete(t.Context(), id, "p", store.Condition{}), store.CodePoolNotFound)
}

func TestBadDefinitions(t *testing.T) {
	g, id := newGateway(t), newApp(t)
	if got := pointers(second(g.Define(t.Context(), id, "p", pool.Definition{Policy: "fair", StickyMS: -1}, store.Condition{}))); got != "/policy /sticky_ms" {
		t.Errorf("wrong is %q", got)
	}
	if got := pointers(second(g.Define(t.Context(), id, "a/b", pool.Definition{Policy: pool.LeastUsed}, store.Condition{}))); got != "path:pool" {
		t.Errorf("wrong is %q", got)
	}
	if keys := storetest.KeysOf(t, rawClient(t), id); len(keys) > 0 {
		t.Errorf("written: %q", keys)
	}
}

// What belongs to the old policy alone goes with it, unless the edit itself says otherwise: then that is wrong.
func TestAnEditOfThePolicyDropsWhatBelongedToTheOldOne(t *testing.T) {
	lease := pool.Lease{MaxMS: 60_000}
	adaptive := pool.Definition{Policy: pool.AdaptivePolicy, Lease: pool.Lease{MaxMS: 60_000, MaxPerMember: 3, Abandoned: pool.Fails}}
	for name, row := range map[string]struct {
		was    pool.Definition
		change func(*pool.Definition)
		want   string
	}{
		"smooth to least used": {
			pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic, Lease: lease},
			func(d *pool.Definition) { d.Policy = pool.LeastUsed }, "least_used  0 "},
		"to the other variant": {
			pool.Definition{Policy: pool.WeightedRoundRobin, Lease: lease},
			func(d *pool.Definition) { d.Variant = pool.Classic }, "weighted_round_robin classic 0 "},
		"adaptive to round robin": {adaptive,
			func(d *pool.Definition) { d.Policy = pool.RoundRobin }, "round_robin  0 "},
		"adaptive to least in flight": {adaptive,
			func(d *pool.Definition) { d.Policy = pool.LeastInflight }, "least_inflight  3 "},
		"least in flight to adaptive": {
			pool.Definition{Policy: pool.LeastInflight, Lease: pool.Lease{MaxMS: 60_000, MaxPerMember: 5}},
			func(d *pool.Definition) { d.Policy = pool.AdaptivePolicy }, "adaptive  5 ignore"},
		"to least used with a variant": {
			pool.Definition{Policy: pool.LeastUsed},
			func(d *pool.Definition) { d.Variant = pool.Classic }, "/variant"},
		"to least used with leases of a member": {adaptive,
			func(d *pool.Definition) { d.Policy, d.Lease.MaxPerMember = pool.LeastUsed, 9 }, "/lease/max_per_member"},
	} {
		t.Run(name, func(t *testing.T) {
			g, id := newGateway(t), newApp(t)
			g.define(id, row.was)
			d, err := g.Edit(t.Context(), id, "p", store.Condition{}, func(d *pool.Definition) error { row.change(d); return nil })
			got := pointers(err)
			if err == nil {
				got = fmt.Sprint(d.Policy, " ", d.Variant, " ", d.Lease.MaxPerMember, " ", d.Lease.Abandoned)
				if d.Lease.MaxMS != 60_000 || (d.Adaptive == pool.Adaptive{}) != (d.Policy != pool.AdaptivePolicy) {
					t.Errorf("edited: %+v", d)
				}
			}
			if got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
	g, id := newGateway(t), newApp(t)
	wantCode(t, second(g.Edit(t.Context(), id, "p", store.Condition{}, func(*pool.Definition) error { return nil })), store.CodePoolNotFound)
}

func TestAnEditBeginsAnewAfterAnother(t *testing.T) {
	g, other := newGateway(t), newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.LeastUsed})
	tries := 0
	d, err := g.Edit(t.Context(), id, "p", store.Condition{}, func(d *pool.Definition) error {
		if tries++; tries == 1 {
			other.define(id, pool.Definition{Policy: pool.RoundRobin})
		}
		d.StickyMS = 5
		return nil
	})
	if err != nil || tries != 2 || d.Policy != pool.RoundRobin || d.StickyMS != 5 {
		t.Errorf("%d tries: %+v, %v", tries, d, err)
	}
}

func TestEveryGatewayFollowsAChange(t *testing.T) {
	one, two := newGateway(t), newGateway(t)
	id := one.defined(pool.Definition{Policy: pool.LeastUsed}, "a", "b")
	for range 3 {
		two.allocate(id, pool.Request{}) // a b a
	}
	asked := two.store.asked.Load()
	one.define(id, pool.Definition{Policy: pool.RoundRobin})
	two.pass(definitions.Fresh)
	if a := two.allocate(id, pool.Request{}); a.Policy != pool.RoundRobin {
		t.Errorf("the other gateway allocates by %s", a.Policy)
	}
	if n := two.store.asked.Load() - asked; n != 2 { // the definition, and the allocation
		t.Errorf("it has asked %d times", n)
	}
	if err := one.Delete(t.Context(), id, "p", store.Condition{}); err != nil {
		t.Fatal(err)
	}
	_, err := two.Allocate(t.Context(), id, "p", &pool.Request{}, store.Idempotency{}) // it believes the old one, and is told
	wantCode(t, err, store.CodePoolNotFound)
}

func TestAKnownPoolIsServedWhileItsDefinitionCannotBeRead(t *testing.T) {
	g := newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.LeastUsed}, "a")
	for code, row := range map[store.Code]store.Outcome{store.CodeClusterDown: store.NotApplied, store.CodeBackendTimeout: store.Unknown} {
		fails := store.NewError(code, "")
		fails.Outcome = row
		g.store.fails.Store(fails)
		g.pass(10 * definitions.Fresh)
		if e := wantCode(t, second(g.Allocate(t.Context(), id, "p", &pool.Request{}, store.Idempotency{})), code); e.Outcome != row {
			t.Errorf("known: outcome %s, want %s", e.Outcome, row)
		}
		// Of one that is not known here nothing was asked but what it is.
		if e := wantCode(t, second(g.Allocate(t.Context(), id, "q", &pool.Request{}, store.Idempotency{})), code); e.Outcome != store.NotApplied {
			t.Errorf("not known: outcome %s", e.Outcome)
		}
	}
	g.store.fails.Store(nil)
	g.pass(definitions.Fresh)
	if got := g.picks(id, 1); got != "a" {
		t.Errorf("afterwards: %s", got)
	}
}

func TestPoolsAreListedByName(t *testing.T) {
	g, id := newGateway(t), newApp(t)
	if page, err := g.List(t.Context(), id, "", 10); err != nil || len(page.Pools) > 0 || page.After != "" {
		t.Errorf("of none: %+v, %v", page, err)
	}
	for _, name := range strings.Fields("d b a c e") {
		if _, err := g.Define(t.Context(), id, name, pool.Definition{Policy: pool.LeastUsed}, store.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Delete(t.Context(), id, "c", store.Condition{}); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		after string
		limit int
		want  string
	}{{"", 10, "a b d e, "}, {"", 2, "a b, b"}, {"b", 2, "d e, "}, {"c", 1, "d, d"}, {"e", 1, ", "}} {
		page, err := g.List(t.Context(), id, row.after, row.limit)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range page.Pools {
			if p.Policy != pool.LeastUsed || p.Version == 0 {
				t.Errorf("%s: %+v", p.Name, p.Defined)
			}
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " ") + ", " + page.After; got != row.want {
			t.Errorf("%d after %q: %q, want %q", row.limit, row.after, got, row.want)
		}
	}
	for _, bad := range []int{-1, 0, 101} {
		if got := pointers(second(g.List(t.Context(), id, "", bad))); got != "query:limit" {
			t.Errorf("%d: wrong is %q", bad, got)
		}
	}
	if page, err := g.List(t.Context(), newApp(t), "", 10); err != nil || len(page.Pools) > 0 {
		t.Errorf("of another app: %+v, %v", page, err)
	}
}

// A name whose pool is not there, because a request was cut off between the two, is not listed, and goes when no request can be under way.
func TestANameWithoutItsPoolGoes(t *testing.T) {
	g, id, client := newGateway(t), newApp(t), rawClient(t)
	names := "slotgate:p:{" + id.App.Namespace + "/}:names"
	now := float64(time.Now().UnixMicro())
	for name, since := range map[string]float64{"fresh": now, "old": now - 2*3600e6} {
		if err := client.ZAdd(t.Context(), names, zed(name, since)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if page, err := g.List(t.Context(), id, "", 10); err != nil || len(page.Pools) > 0 {
		t.Errorf("%+v, %v", page, err)
	}
	if left := client.ZRange(t.Context(), names, 0, -1).Val(); !slices.Equal(left, []string{"fresh"}) {
		t.Errorf("left: %q", left)
	}
}

func TestAnAppHas1000PoolsAtMost(t *testing.T) {
	g, id, client := newGateway(t), newApp(t), rawClient(t)
	g.define(id, pool.Definition{Policy: pool.LeastUsed})
	pipe := client.Pipeline()
	for i := range pools.MaxPools - 1 {
		pipe.ZAdd(t.Context(), "slotgate:p:{"+id.App.Namespace+"/}:names", zed(fmt.Sprint("q", i), 1))
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := pointers(second(g.Define(t.Context(), id, "one-more", pool.Definition{Policy: pool.LeastUsed}, store.Condition{}))); got != "path:pool" {
		t.Errorf("wrong is %q", got)
	}
	g.define(id, pool.Definition{Policy: pool.RoundRobin}) // of one that is there
}

func TestEachOperationNeedsItsPermission(t *testing.T) {
	g := newGateway(t)
	all := g.defined(pool.Definition{Policy: pool.LeastInflight}, "a")
	ctx, d, none := t.Context(), pool.Definition{Policy: pool.LeastInflight}, store.Condition{}
	claim := pool.Claim{ID: strings.Repeat("A", 22), Fence: 1}
	// not looks away where nobody holds the lease: that is known after the permission.
	not := func(err error) error {
		if err != nil && strings.HasPrefix(err.Error(), string(store.CodeLeaseNotFound)) {
			return nil
		}
		return err
	}
	operations := map[string]func(*acl.Identity) error{
		"POOL|SHOW":           func(id *acl.Identity) error { return second(g.Show(ctx, id, "p")) },
		"POOL|SHOW, the list": func(id *acl.Identity) error { return second(g.List(ctx, id, "", 1)) },
		"POOL|SHOW, members":  func(id *acl.Identity) error { return second(g.Overview(ctx, id, "p")) },
		"POOL|SHOW, a member": func(id *acl.Identity) error { return second(g.Member(ctx, id, "p", "a")) },
		"POOL|SHOW, leases":   func(id *acl.Identity) error { return second(g.Leases(ctx, id, "p", pools.Which{})) },
		"POOL|ALLOCATE": func(id *acl.Identity) error {
			return second(g.Allocate(ctx, id, "p", &pool.Request{}, store.Idempotency{}))
		},
		"POOL|LEASE": func(id *acl.Identity) error { return not(second(g.Renew(ctx, id, "p", claim, 1))) },
		"POOL|LEASE, its end": func(id *acl.Identity) error {
			return not(second(g.Complete(ctx, id, "p", claim, nil, store.Idempotency{})))
		},
		"POOL|REPORT": func(id *acl.Identity) error {
			return second(g.Report(ctx, id, "p", []pool.Report{{Member: "a", Outcome: pool.Success}}))
		},
		"POOL|DEFINE": func(id *acl.Identity) error { return second(g.Define(ctx, id, "p", d, none)) },
		"POOL|DEFINE, an edit": func(id *acl.Identity) error {
			return second(g.Edit(ctx, id, "p", none, func(*pool.Definition) error { return nil }))
		},
		"POOL|DEFINE, members": func(id *acl.Identity) error {
			return second(g.PutMembers(ctx, id, "p", []pool.Member{{Member: "a"}}, pool.Bulk{Replace: true, DryRun: true}))
		},
		"POOL|DEFINE, one":        func(id *acl.Identity) error { return second(g.PutMember(ctx, id, "p", pool.Member{Member: "a"})) },
		"POOL|DEFINE, a change":   func(id *acl.Identity) error { return second(g.PatchMember(ctx, id, "p", pool.Member{Member: "a"})) },
		"POOL|DEFINE, a rebasing": func(id *acl.Identity) error { return second(g.Rebase(ctx, id, "p")) },
		"POOL|DEFINE, an end": func(id *acl.Identity) error {
			if err := g.RemoveMember(ctx, id, "p", "a", false); err != nil {
				return err
			}
			return second(g.PutMember(ctx, id, "p", pool.Member{Member: "a"}))
		},
	}
	for name, do := range operations {
		command, _, _ := strings.Cut(name, ",")
		t.Run(name, func(t *testing.T) {
			for _, other := range strings.Fields("POOL|SHOW POOL|ALLOCATE POOL|LEASE POOL|REPORT POOL|DEFINE") {
				id := *all
				p, err := acl.CompilePermissions([]string{"commands:" + other})
				if err != nil {
					t.Fatal(err)
				}
				id.Permissions = p
				if err := do(&id); other == command && err != nil {
					t.Errorf("with %s: %v", other, err)
				} else if other != command {
					wantCode(t, err, store.CodeForbidden)
				}
			}
		})
	}
	reporter := *all
	p, err := acl.CompilePermissions([]string{"commands:POOL|LEASE"})
	if err != nil {
		t.Fatal(err)
	}
	reporter.Permissions = p
	wantCode(t, second(g.Complete(ctx, &reporter, "p", claim, &pool.Report{Outcome: pool.Success}, store.Idempotency{})), store.CodeForbidden)
}

// TestAPurgeTakesThePoolsOfAnAppAndNoOthers: definitions, members, leases, what sticky keys have and what Idempotency-Keys remember.
func TestAPurgeTakesThePoolsOfAnAppAndNoOthers(t *testing.T) {
	g, client := newGateway(t), rawClient(t)
	one, other := newApp(t), newApp(t)
	for _, id := range []*acl.Identity{one, other} {
		for i, d := range []pool.Definition{{Policy: pool.LeastUsed}, {Policy: pool.AdaptivePolicy}, {Policy: pool.WeightedRandom}, {Policy: pool.LeastInflight}} {
			name := fmt.Sprint("pool", i)
			if _, err := g.Define(t.Context(), id, name, d, store.Condition{}); err != nil {
				t.Fatal(err)
			}
			list := []pool.Member{{Member: "{}:%"}, {Member: "\x00\xff"}, {Member: "off", Available: ptr(false)}, {Member: "cool", CooldownMS: ptr(int64(60_000))}, {Member: "gone"}}
			if _, err := g.PutMembers(t.Context(), id, name, list, pool.Bulk{}); err != nil {
				t.Fatal(err)
			}
			if err := g.RemoveMember(t.Context(), id, name, "gone", false); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Allocate(t.Context(), id, name, &pool.Request{LeaseMS: 60_000, Sticky: "s"}, store.Idempotency{Key: "k"}); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Report(t.Context(), id, name, []pool.Report{{Member: "{}:%", Outcome: pool.Success}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := storetest.KeysOf(t, client, other)
	if n := len(storetest.KeysOf(t, client, one)); n != len(before) || n < 40 {
		t.Fatalf("%d keys, the other app has %d", n, len(before))
	}
	gone := *one.App
	gone.State = acl.Deleted
	if _, err := purge.Run(t.Context(), client, &gone, nil); err != nil {
		t.Fatal(err)
	}
	if left := storetest.KeysOf(t, client, one); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if after := storetest.KeysOf(t, client, other); !slices.Equal(after, before) {
		t.Errorf("the other app had %q and has %q", before, after)
	}
}

// A gateway that was told that a pool is gone does not believe in it until Fresh has passed: it follows who defines it anew.
func TestAPoolIsGoneForWhoWasTold(t *testing.T) {
	g, other := newGateway(t), newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.LeastUsed}, "a")
	if err := other.Delete(t.Context(), id, "p", store.Condition{}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, second(g.Allocate(t.Context(), id, "p", &pool.Request{}, store.Idempotency{})), store.CodePoolNotFound)
	other.define(id, pool.Definition{Policy: pool.RoundRobin})
	if a := g.allocate(id, pool.Request{}); a.Policy != pool.RoundRobin || a.Reason != pool.Empty {
		t.Errorf("%+v", a)
	}
}

// A pool is deleted while another gateway defines it anew: whoever is last, it is in the list if it is there.
func TestANameIsNotTakenFromWhoHasDefinedThePoolAnew(t *testing.T) {
	g, other := newGateway(t), newGateway(t)
	id := g.defined(pool.Definition{Policy: pool.LeastUsed})
	g.store.before = func(n int64) { // behind its question for the name and the deletion itself
		if n == 3 {
			other.define(id, pool.Definition{Policy: pool.RoundRobin})
		}
	}
	g.store.asked.Store(0)
	if err := g.Delete(t.Context(), id, "p", store.Condition{}); err != nil {
		t.Fatal(err)
	}
	if page, err := g.List(t.Context(), id, "", 10); err != nil || len(page.Pools) != 1 || page.Pools[0].Policy != pool.RoundRobin {
		t.Errorf("%+v, %v", page, err)
	}
}
