package middleware

import (
	"context"
	"testing"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/prepaid"
)

// pooled is a limiter whose gateways share limits in a Redis that gives whatever is asked.
func pooled(t *testing.T) *Limiter {
	t.Helper()
	l := NewLimiter(nil)
	pool := prepaid.New(prepaid.Config{Redis: endless{}, Now: l.Now, Gateways: 1})
	t.Cleanup(pool.Close)
	l.Set(LimiterSettings{Shared: pool})
	return l
}

func edition(revision int64, limits ...acl.Limit) *acl.App {
	return &acl.App{ID: "shop", Namespace: "shop", Revision: revision, Limits: limits}
}

func requests(id string, n int64) acl.Limit {
	return acl.Limit{ID: id, Per: acl.PerApp, Of: acl.OfRequests, Limit: n, PeriodMS: 1000}
}

// A request that was let in before an edit finds its app's limits first when the edit is in force already: one key of the app came after it.
func TestARequestFromBeforeAnEditDoesNotUndoIt(t *testing.T) {
	l := pooled(t)
	before, after := edition(1, requests("a", 1000)), edition(2, requests("a", 5))
	now := l.forCaller(after, "")
	late := l.forCaller(before, "")
	if n := late.rules[0].shared.Look(l.Now()).Remaining; n != 5 {
		t.Errorf("of the limit of 5 that both share %d remain", n)
	}
	if late != now {
		t.Error("what holds now was compiled anew")
	}
	l.Keep(func(string, string) bool { return true })
	l.forCaller(before, "")
	if n := late.rules[0].shared.Look(l.Now()).Remaining; n <= 5 {
		t.Errorf("when apps were brought back from a copy %d remain, want 1000", n)
	}
}

func TestNothingRemainsOfALimitThatIsNoMore(t *testing.T) {
	l := pooled(t)
	each := requests("each", 10)
	each.Per = acl.PerKey
	l.forCaller(edition(1, each), "key1")
	l.forCaller(edition(2, requests("all", 10)), "key1")
	var seen []string
	l.Remaining(func(_, policy string, _ float64) { seen = append(seen, policy) }, nil)
	if len(seen) != 1 || seen[0] != "all" {
		t.Errorf("told of %q, want all alone", seen)
	}
}

func TestPlaces(t *testing.T) {
	r := newRule(acl.Limit{ID: "a", Per: acl.PerApp, Of: acl.OfConcurrency, Limit: 2}, &ledger{}, nil, place{})
	for i, want := range []bool{true, true, false, false} {
		if d := r.take(context.Background(), 0, 1); d.ok != want {
			t.Fatalf("request %d: %+v", i+1, d)
		}
	}
	if n := r.flying.Load(); n != 2 {
		t.Errorf("with two under way and two refused %d are counted", n)
	}
	narrow := r
	narrow.depth = 1 // an edit
	if d := narrow.take(context.Background(), 0, 0); !d.ok || d.remaining != 0 {
		t.Errorf("the items of a batch that is under way already: %+v", d)
	}
	if d := narrow.take(context.Background(), 0, 1); d.ok {
		t.Errorf("with two of one: %+v", d)
	}
}
