package limits_test

import (
	"strings"
	"testing"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/purge"
	"github.com/slotgate/slotgate/store/ratelimit"
	"github.com/slotgate/slotgate/store/storetest"
)

// TestAPurgeTakesTheLimitsOfAnAppAndNoOthers: definitions, states of both isolations, totals and what Idempotency-Keys remember.
func TestAPurgeTakesTheLimitsOfAnAppAndNoOthers(t *testing.T) {
	g, client := newGateway(t), rawClient(t)
	id, other := g.defined(slow("hour", 3), total(50)), g.defined(slow("hour", 3), total(50))
	for _, who := range []*acl.Identity{id, other} {
		apart := ratelimit.Definition{Isolation: ratelimit.Partitioned, Rules: []ratelimit.Rule{slow("hour", 3), total(50)}}
		if _, err := g.Define(t.Context(), who, "apart", apart, store.Condition{}); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Override(t.Context(), who, "api", "u", ratelimit.Override{Rules: []ratelimit.Rule{slow("hour", 9)}}, store.Condition{}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"api", "apart"} {
			for _, subject := range []string{"u", "{}:%", "a}b{c", "\x00\xff", strings.Repeat("s", 256)} {
				if _, err := g.Take(t.Context(), who, name, of(subject), store.Idempotency{Key: "k" + subject}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	before := storetest.KeysOf(t, client, other)
	if n := len(storetest.KeysOf(t, client, id)); n != len(before) || n < 24 { // 2 definitions, 2 totals, 10 states, 10 records or more
		t.Fatalf("%d keys, the other app has %d", n, len(before))
	}
	gone := *id.App
	gone.State = acl.Deleted
	if _, err := purge.Run(t.Context(), client, &gone, nil); err != nil {
		t.Fatal(err)
	}
	if left := storetest.KeysOf(t, client, id); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if after := storetest.KeysOf(t, client, other); len(after) != len(before) {
		t.Errorf("the other app had %d keys and has %q", len(before), after)
	}
}
