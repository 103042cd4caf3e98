package purge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/purge"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

func cluster(t *testing.T) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: clustertest.Shared(t).Addrs(), DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func tombstone(namespace string, layout acl.Layout) *acl.App {
	return &acl.App{ID: namespace, Namespace: namespace, Layout: layout, State: acl.Deleted}
}

func fill(t *testing.T, client *redis.ClusterClient, keys ...string) {
	t.Helper()
	_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, k := range keys {
			p.Set(t.Context(), k, "x", 0)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func stored(t *testing.T, client *redis.ClusterClient) []string {
	t.Helper()
	found := make(chan []string, 16)
	err := client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, "*").Result()
		found <- keys
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	close(found)
	var all []string
	for keys := range found {
		all = append(all, keys...)
	}
	slices.Sort(all)
	return all
}

func TestPurge(t *testing.T) {
	client := cluster(t)
	others := []string{
		"shop", "shop-eu:a", "shop2:a", "slotgate:p:{other/pool}:ring", "slotgate:p:{other/pool}:{shop/x}",
		"slotgate:{acl}:apps", "xshop:a", "{shop-eu}:a",
	}
	var own []string
	for i := range 3000 {
		own = append(own, fmt.Sprintf("shop:key:%d", i))
	}
	own = append(own, "shop:\x00\r\n*", "shop:{tag}a", "slotgate:p:{shop/pool}:ring", "slotgate:r:{shop/limit}:t")

	t.Run("deletes an app's keys and nothing else, on every primary", func(t *testing.T) {
		fill(t, client, append(own, others...)...)
		var last purge.Progress
		got, err := purge.Run(t.Context(), client, tombstone("shop", acl.Spread), func(p purge.Progress) {
			if p.Deleted < last.Deleted || p.Pass < last.Pass {
				t.Errorf("progress went back from %+v to %+v", last, p)
			}
			last = p
		})
		if err != nil || got.Deleted != int64(len(own)) || got.Pass != 2 || got.Done != 3 || got.Primaries != 3 {
			t.Errorf("got %+v, %v, want %d deleted in 2 passes over 3 primaries", got, err, len(own))
		}
		if got != last {
			t.Errorf("the last report was %+v, the result %+v", last, got)
		}
		if left := stored(t, client); !slices.Equal(left, others) {
			t.Errorf("left: %q, want %q", left, others)
		}
	})

	t.Run("the layout together has its own prefix", func(t *testing.T) {
		fill(t, client, "{shop}:a", "{shop}:b", "shop:a")
		got, err := purge.Run(t.Context(), client, tombstone("shop", acl.Together), nil)
		if err != nil || got.Deleted != 2 {
			t.Errorf("got %+v, %v", got, err)
		}
		if left := stored(t, client); !slices.Contains(left, "shop:a") || slices.Contains(left, "{shop}:a") {
			t.Errorf("left: %q", left)
		}
	})

	t.Run("goes on after it was stopped", func(t *testing.T) {
		fill(t, client, own...)
		ctx, cancel := context.WithCancel(t.Context())
		stopped, err := purge.Run(ctx, client, tombstone("shop", acl.Spread), func(p purge.Progress) {
			if p.Deleted > 0 {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) || stopped.Deleted == 0 {
			t.Fatalf("got %+v, %v", stopped, err)
		}
		if _, err := purge.Run(t.Context(), client, tombstone("shop", acl.Spread), nil); err != nil {
			t.Fatal(err)
		}
		if left := stored(t, client); !slices.Equal(left, others) {
			t.Errorf("left: %q, want %q", left, others)
		}
	})

	t.Run("a second purge finds nothing and does nothing", func(t *testing.T) {
		got, err := purge.Run(t.Context(), client, tombstone("shop", acl.Spread), nil)
		if err != nil || got.Seen != 0 || got.Pass != 1 {
			t.Errorf("got %+v, %v", got, err)
		}
	})

	t.Run("refuses an app that is in use", func(t *testing.T) {
		app := tombstone("shop", acl.Spread)
		app.State = acl.Suspended
		if _, err := purge.Run(t.Context(), client, app, nil); !errors.Is(err, purge.ErrNotDeleted) {
			t.Error(err)
		}
	})
}

func TestUnreachableCluster(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, MaxRedirects: -1})
	defer client.Close()
	if got, err := purge.Run(t.Context(), client, tombstone("shop", acl.Spread), nil); err == nil {
		t.Errorf("a purge of nothing succeeded: %+v", got)
	}
}
