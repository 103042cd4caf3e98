package limits

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/ratelimit"
)

func TestWhatIsKnownIsBoundedAndNeverGoesBack(t *testing.T) {
	l := New(Config{Now: func() time.Time { return noon }})
	for i := range maxKnown + 10 {
		l.remember(fmt.Sprint(i), &Defined{Version: 2}, &question{})
	}
	if len(l.known) != maxKnown {
		t.Errorf("%d definitions are kept", len(l.known))
	}
	l.remember("api", &Defined{Version: 2}, &question{})
	l.remember("api", &Defined{Version: 1}, &question{}) // an answer that comes late
	if l.known["api"].Version != 2 || len(l.known) != maxKnown {
		t.Errorf("version %d", l.known["api"].Version)
	}
	l.remember("api", &Defined{Version: 3}, &question{})
	if l.known["api"].Version != 3 {
		t.Error("it does not follow")
	}
}

// unchanged knows of no change.
type unchanged struct{}

func (unchanged) RunScript(context.Context, *acl.Identity, string, *store.Script, []string, ...any) ([]any, error) {
	return []any{int64(2)}, nil
}

// What was kept of an outage and of refusals goes with time, not only with the next of them.
func TestWhatIsOverDoesNotStayInMemory(t *testing.T) {
	now := noon
	l := New(Config{Redis: unchanged{}, Blocked: MostBlocked, Now: func() time.Time { return now }})
	id := &acl.Identity{App: &acl.App{Namespace: "ns", Cluster: "default"}}
	key := cacheKey(id, "api")
	d := &Defined{Version: 1, Definition: ratelimit.Definition{Rules: []ratelimit.Rule{{ID: "r", Algorithm: ratelimit.TokenBucket, Limit: 1, PeriodMS: 1000}}}}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	l.remember(key, d, &question{})
	r := &ratelimit.Request{Subject: "u"}
	lim := limit{Limit: ratelimit.Limit{Name: "api", Definition: &d.Definition}, key: key, version: 1}
	if _, err := l.local.Take(now, ratelimit.Share{App: "ns"}, lim.Limit, r); err != nil {
		t.Fatal(err)
	}
	l.blocked.keep(now, now, lim, r, refusalOf(time.Minute))
	for _, c := range []struct {
		after         time.Duration
		local, refuse int
	}{{Fresh, 2, 1}, {time.Minute, 0, 0}} { // of the subject, and of the total
		now = noon.Add(c.after)
		if _, err := l.lookup(t.Context(), id, commandTake, "api"); err != nil {
			t.Fatal(err)
		}
		if n := l.local.Forget(noon); n != c.local || len(l.blocked.entries) != c.refuse {
			t.Errorf("after %v there are %d, and %d refusals", c.after, n, len(l.blocked.entries))
		}
	}
}
