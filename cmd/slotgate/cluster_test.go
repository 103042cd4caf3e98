package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	clustertest.Main(m)
}

// clusterVars are the variables of a gateway on the shared cluster, which is emptied first.
func clusterVars(t *testing.T) []string {
	t.Helper()
	err := redisClient(t).ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return node.FlushAll(ctx).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"SLOTGATE_CLUSTERS_DEFAULT_ADDRS=" + strings.Join(clustertest.Shared(t).Addrs(), ","),
		"SLOTGATE_SECRET_FILE=testdata/secret",
		"SLOTGATE_LISTEN=127.0.0.1:0",
		"SLOTGATE_ADMIN_LISTEN=127.0.0.1:0",
		"SLOTGATE_HTTP_DRAIN_DELAY_MS=0",
	}
}

// redisClient speaks to the shared cluster beside the gateway.
func redisClient(t *testing.T) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: clustertest.Shared(t).Addrs(), DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// fileVars are the variables of a gateway whose apps are in a file with this content; nothing of it needs a cluster.
func fileVars(t *testing.T, apps string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "apps.yaml")
	if err := os.WriteFile(file, []byte(apps), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"SLOTGATE_CLUSTERS_DEFAULT_ADDRS=127.0.0.1:1",
		"SLOTGATE_CONTROL_FILE=" + file,
		"SLOTGATE_SECRET_FILE=testdata/secret",
		"SLOTGATE_LISTEN=127.0.0.1:0",
		"SLOTGATE_ADMIN_LISTEN=127.0.0.1:0",
		"SLOTGATE_HTTP_DRAIN_DELAY_MS=0",
	}
}
