package limits

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/definitions"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// always has one limit.
type always struct{ definition string }

func (a always) RunScript(context.Context, *acl.Identity, string, *store.Script, []string, ...any) ([]any, error) {
	return []any{int64(1), "v", "1", "d", a.definition}, nil
}

// What was kept of an outage and of refusals goes with time, not only with the next of them.
func TestWhatIsOverDoesNotStayInMemory(t *testing.T) {
	now := noon
	id := &acl.Identity{App: &acl.App{Namespace: "ns", Cluster: "default"}}
	d := &ratelimit.Definition{Rules: []ratelimit.Rule{{ID: "r", Algorithm: ratelimit.TokenBucket, Limit: 1, PeriodMS: 1000}}}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	l := New(Config{Redis: always{string(text)}, Blocked: MostBlocked, Now: func() time.Time { return now }})
	if _, err := l.defined.Lookup(t.Context(), id, commandTake, "api"); err != nil {
		t.Fatal(err)
	}
	r := &ratelimit.Request{Subject: "u"}
	lim := limit{Limit: ratelimit.Limit{Name: "api", Definition: d}, key: definitions.CacheKey(id, "api"), version: 1}
	if _, err := l.local.Take(now, ratelimit.Share{App: "ns"}, lim.Limit, r); err != nil {
		t.Fatal(err)
	}
	l.blocked.keep(now, now, lim, r, refusalOf(time.Minute))
	for _, c := range []struct {
		after         time.Duration
		local, refuse int
	}{{Fresh, 2, 1}, {time.Minute, 0, 0}} { // of the subject, and of the total
		now = noon.Add(c.after)
		if _, err := l.defined.Lookup(t.Context(), id, commandTake, "api"); err != nil {
			t.Fatal(err)
		}
		if n := l.local.Forget(noon); n != c.local || len(l.blocked.entries) != c.refuse {
			t.Errorf("after %v there are %d, and %d refusals", c.after, n, len(l.blocked.entries))
		}
	}
}
