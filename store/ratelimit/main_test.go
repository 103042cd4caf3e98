package ratelimit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

func TestMain(m *testing.M) {
	store.LogDriver(slog.New(slog.DiscardHandler))
	clustertest.Main(m,
		// See store's own TestMain: both end by themselves and cannot be stopped (go-redis v9.23.0).
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*clusterStateHolder).LazyReload.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
	)
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newStore makes a store on the shared cluster.
func newStore(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.New(store.Config{
		Clusters:  map[string]store.ClusterConfig{"default": {Addrs: clustertest.Shared(t).Addrs()}},
		CursorKey: []byte(strings.Repeat("k", 32)),
	}, nil, nil)
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

// newApp is an app that no other test has.
func newApp(t testing.TB, permissions ...string) *acl.Identity {
	t.Helper()
	name := fmt.Sprintf("app%d", apps.Add(1))
	p, err := acl.CompilePermissions(permissions)
	if err != nil {
		t.Fatal(err)
	}
	app := &acl.App{ID: name, Namespace: name, Cluster: "default", State: acl.Active}
	return &acl.Identity{App: app, Key: &acl.Key{ID: "k", App: name}, Permissions: p, Prefix: name + ":"}
}

func ptr(n int64) *int64 { return &n }

// valid fills in the defaults of rules.
func valid(t testing.TB, rules ...Rule) []Rule {
	t.Helper()
	d := Definition{Rules: rules}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	return d.Rules
}
