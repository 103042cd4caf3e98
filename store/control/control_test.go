package control_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
	"github.com/slotgate/slotgate/store/control"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

const never = time.Hour

func TestMain(m *testing.M) { clustertest.Main(m) }

func TestStorageOnMiniredis(t *testing.T) {
	acltest.Suite{
		New: func(t *testing.T) acl.Storage {
			return open(newClient(t, miniredis.RunT(t).Addr()), 50*time.Millisecond)
		},
		KeepsRevisions: true,
		KeepsUse:       true,
	}.Run(t)
}

type dial = func(ctx context.Context, network, addr string) (net.Conn, error)

func newClient(t *testing.T, addrs ...string) *redis.ClusterClient {
	return newClientThrough(t, nil, addrs...)
}

func newClientThrough(t *testing.T, d dial, addrs ...string) *redis.ClusterClient {
	o := options(addrs...)
	o.Dialer = d
	c := redis.NewClusterClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func options(addrs ...string) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: addrs, Protocol: 2, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: 500 * time.Millisecond, DialerRetries: 1, ReadTimeout: time.Second, ClusterStateReloadInterval: 5 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func open(c redis.UniversalClient, poll time.Duration) *control.Redis {
	return control.New(control.Config{Client: c, Log: slog.New(slog.DiscardHandler), PollInterval: poll})
}

// created makes the app "shop" and a key for it.
func created(t *testing.T, s acl.Storage) (admin *acl.Admin, token string, key *acl.Key) {
	t.Helper()
	admin = acltest.Admin(t, s)
	if _, err := admin.CreateApp(t.Context(), acl.App{ID: "shop", Namespace: "shop", Permissions: []string{"strings:*"}}); err != nil {
		t.Fatal(err)
	}
	token, key, err := admin.CreateKey(t.Context(), "shop", acl.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return admin, token, key
}

// follow runs a directory over the storage until the test ends, as a gateway does.
func follow(t *testing.T, s acl.Storage) *acl.Directory {
	t.Helper()
	d := acl.NewDirectory(s, acltest.Secret(t), acl.Defaults{}, slog.New(slog.DiscardHandler), func() time.Time { return acltest.Start })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	acltest.Eventually(t, "the directory is loaded", d.Ready)
	return d
}

func opens(d *acl.Directory, token string) func() bool {
	return func() bool { _, err := d.Authenticate(token); return err == nil }
}

func refuses(d *acl.Directory, token string) func() bool {
	return func() bool { _, err := d.Authenticate(token); return err == acl.ErrUnauthenticated }
}
