// Package storetest gives the tests of what is built on store a store on their shared cluster, and apps of their own.
package storetest

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// Main is clustertest.Main for a package whose tests use stores. Call it from TestMain.
func Main(m *testing.M) {
	store.LogDriver(slog.New(slog.DiscardHandler))
	clustertest.Main(m,
		// See store's own TestMain: both end by themselves and cannot be stopped (go-redis v9.23.0).
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*clusterStateHolder).LazyReload.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
	)
}

// New makes a store on the shared cluster, which ends with the test. change may set more of its configuration.
func New(t testing.TB, change ...func(*store.Config)) *store.Store {
	t.Helper()
	cfg := store.Config{
		Clusters:  map[string]store.ClusterConfig{"default": {Addrs: clustertest.Shared(t).Addrs()}},
		CursorKey: []byte(strings.Repeat("k", 32)),
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := store.New(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var apps atomic.Int64

// App is one that no other test has, with these permissions.
func App(t testing.TB, permissions ...string) *acl.Identity {
	t.Helper()
	name := fmt.Sprintf("app%d", apps.Add(1))
	p, err := acl.CompilePermissions(permissions)
	if err != nil {
		t.Fatal(err)
	}
	app := &acl.App{ID: name, Namespace: name, Cluster: "default", State: acl.Active}
	return &acl.Identity{App: app, Key: &acl.Key{ID: "k", App: name}, Permissions: p, Prefix: name + ":"}
}
