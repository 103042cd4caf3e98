package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/store/localcluster"
)

// The tests share one real cluster, started by the first that needs it.
var shared struct {
	sync.Mutex
	cluster *localcluster.Cluster
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "closing the cluster:", err)
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// clusterVars are the variables of a gateway on the shared cluster, which is emptied first.
func clusterVars(t *testing.T) []string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil && shared.err == nil {
		shared.cluster, shared.err = localcluster.Start(context.Background(), localcluster.Options{})
	}
	if errors.Is(shared.err, localcluster.ErrNoServer) {
		t.Skip("NOT TESTED: ", shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	err := redisClient(t).ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return node.FlushAll(ctx).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"SLOTGATE_CLUSTERS_DEFAULT_ADDRS=" + strings.Join(shared.cluster.Addrs(), ","),
		"SLOTGATE_SECRET_FILE=testdata/secret",
		"SLOTGATE_LISTEN=127.0.0.1:0",
		"SLOTGATE_ADMIN_LISTEN=127.0.0.1:0",
		"SLOTGATE_HTTP_DRAIN_DELAY_MS=0",
	}
}

// redisClient speaks to the shared cluster beside the gateway.
func redisClient(t *testing.T) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: shared.cluster.Addrs(), DisableIdentity: true})
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
