package store_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// coalesceOff runs the whole suite with each command on a connection of its own: go test ./store -args -coalesce-off.
var coalesceOff = flag.Bool("coalesce-off", false, "send each command by itself")

func TestMain(m *testing.M) {
	store.LogDriver(slog.New(slog.DiscardHandler))
	clustertest.Main(m,
		// Cools down for 200 ms after a reload and cannot be stopped (go-redis v9.23.0, clusterStateHolder.LazyReload).
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*clusterStateHolder).LazyReload.func1"),
		// Dials a dead address once a second and looks only then whether its pool was closed (go-redis v9.23.0, ConnPool.tryDial).
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
	)
}

// newStore makes a Store on the cluster c; change may alter its configuration.
func newStore(t testing.TB, c *localcluster.Cluster, change ...func(*store.Config)) *store.Store {
	t.Helper()
	cfg := store.Config{
		Clusters:  map[string]store.ClusterConfig{"default": {Addrs: c.Addrs()}},
		CursorKey: []byte(strings.Repeat("k", 32)),
		Coalesce:  store.CoalesceConfig{Off: *coalesceOff},
	}
	for _, f := range change {
		f(&cfg)
	}
	return openStore(t, cfg)
}

// openStore makes a Store that is closed when the test ends.
func openStore(t testing.TB, cfg store.Config) *store.Store {
	t.Helper()
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

var appCount atomic.Int64

// newApp makes the identity of an app of its own, so that tests on a shared cluster never meet. change may alter the app.
func newApp(t testing.TB, change ...func(*acl.App)) *acl.Identity {
	t.Helper()
	app := &acl.App{
		ID: fmt.Sprintf("app%d", appCount.Add(1)), Layout: acl.Spread, Cluster: "default", State: acl.Active,
		Permissions: []string{"strings:*", "keys:*"}, Sizes: acl.Sizes{KeyMaxBytes: 1 << 10, ValueMaxBytes: 1 << 20, ResponseMaxBytes: 16 << 20},
		CompressMinBytes: 512,
	}
	app.Namespace = app.ID
	for _, f := range change {
		f(app)
	}
	p, err := acl.CompilePermissions(app.Permissions)
	if err != nil {
		t.Fatal(err)
	}
	id := &acl.Identity{App: app, Key: &acl.Key{ID: "k", App: app.ID}, Permissions: p, Prefix: app.Namespace + ":", Sizes: app.Sizes, CompressMinBytes: app.CompressMinBytes}
	if app.Layout == acl.Together {
		id.Prefix = "{" + app.Namespace + "}:"
	}
	return id
}

// deadline is the time that every test waits at most for something to come true.
const deadline = 20 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// foreign is a client that knows nothing of the gateway.
func foreign(t testing.TB, c *localcluster.Cluster) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// wantCode fails unless err is a *store.Error of the code.
func wantCode(t testing.TB, err error, code store.Code) *store.Error {
	t.Helper()
	var e *store.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got the error %v, want %s", err, code)
	}
	return e
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually polls until ok, which returns what is still missing, returns "".
func eventually(t testing.TB, ok func() string) {
	t.Helper()
	end := time.Now().Add(deadline)
	for {
		missing := ok()
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal(missing)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
