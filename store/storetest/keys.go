package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
)

// KeysOf are all keys that have the namespace of an app anywhere in their names, sorted.
func KeysOf(t testing.TB, client *redis.ClusterClient, id *acl.Identity) (found []string) {
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
	slices.Sort(found)
	return found
}
