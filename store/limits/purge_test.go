package limits_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/purge"
	"github.com/slotgate/slotgate/store/ratelimit"

	"github.com/slotgate/slotgate/store"
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
	before := keysOf(t, client, other)
	if n := len(keysOf(t, client, id)); n != len(before) || n < 24 { // 2 definitions, 2 totals, 10 states, 10 records or more
		t.Fatalf("%d keys, the other app has %d", n, len(before))
	}
	gone := *id.App
	gone.State = acl.Deleted
	if _, err := purge.Run(t.Context(), client, &gone, nil); err != nil {
		t.Fatal(err)
	}
	if left := keysOf(t, client, id); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if after := keysOf(t, client, other); len(after) != len(before) {
		t.Errorf("the other app had %d keys and has %q", len(before), after)
	}
}

// keysOf are all keys that have the namespace of an app anywhere in their names.
func keysOf(t *testing.T, client *redis.ClusterClient, id *acl.Identity) (found []string) {
	t.Helper()
	var mu sync.Mutex
	err := client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, "*"+id.App.Namespace+"/*").Result()
		mu.Lock()
		defer mu.Unlock()
		found = append(found, keys...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
