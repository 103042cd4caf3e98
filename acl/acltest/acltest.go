// Package acltest holds what every acl.Storage must do, as tests that each implementation runs. It refuses to know how one is made.
package acltest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
)

// Deadline is how long anything may take that should be quick. It is long because machines that run tests are slow, not gateways.
const Deadline = 10 * time.Second

// A Suite is one implementation under test.
type Suite struct {
	// New makes an empty storage that lives as long as the test.
	New func(t *testing.T) acl.Storage
	// KeepsRevisions says that lost updates are noticed, KeepsUse that the last use of keys is stored.
	KeepsRevisions, KeepsUse bool
}

// Run runs every test of the suite that applies.
func (s Suite) Run(t *testing.T) {
	t.Run("an app comes back as it was made", s.appComesBack)
	t.Run("ids and namespaces are given once and for ever", s.takenForEver)
	t.Run("an edit keeps what stored keys depend on", s.editKeeps)
	t.Run("an app is suspended, resumed and deleted", s.lifeOfApp)
	t.Run("a key belongs to a living app", s.keys)
	t.Run("a key is rotated with an overlap", s.rotation)
	t.Run("a rotation that cannot be is refused", s.refusedRotations)
	t.Run("a cluster is added, changed and removed when nobody is on it", s.clusters)
	t.Run("a bad cluster is refused", s.refusedClusters)
	t.Run("a directory follows the clusters", s.clustersFollow)
	t.Run("every change is told with who, before and after", s.audit)
	t.Run("an export is a file, and comes back by an import", s.transfer)
	if s.KeepsRevisions {
		t.Run("an import that cannot be is refused whole", s.refusedImports)
		t.Run("an import does not take back a rotation", s.importsOfRotatedKeys)
	}
	t.Run("the version says whether anything changed", s.version)
	t.Run("a change is announced, and watching ends with its context", s.watch)
	t.Run("a directory follows", s.directory)
	if s.KeepsRevisions {
		t.Run("an update from an old reading is refused", s.conflict)
		t.Run("edits at the same time are all kept", s.concurrentEdits)
	}
	if s.KeepsUse {
		t.Run("the last use of a key only goes forward", s.use)
	}
}

// Start is the moment at which tests begin.
var Start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// Secret is the secret of the tests.
func Secret(t testing.TB) acl.Secret {
	s, err := acl.NewSecret([]byte("a secret for tests, of enough bytes"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Admin makes changes to a storage, at Start.
func Admin(t testing.TB, s acl.Storage) *acl.Admin {
	return &acl.Admin{Storage: s, Secret: Secret(t), Clock: func() time.Time { return Start }}
}

// directoryAt is a directory over the storage, loaded once, whose clock stands still.
func directoryAt(t *testing.T, storage acl.Storage, now time.Time) *acl.Directory {
	t.Helper()
	d := acl.NewDirectory(storage, Secret(t), acl.Defaults{}, slog.New(slog.DiscardHandler), func() time.Time { return now })
	check(t, d.Refresh(t.Context()))
	return d
}

// Eventually polls until ok or the deadline.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Deadline); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Deadline, what)
		}
	}
}

func shop() acl.App {
	expires := Start.Add(365 * 24 * time.Hour)
	return acl.App{
		ID: "shop", Name: "The Shop", Namespace: "shop-ns", Layout: acl.Together, Cluster: "eu",
		Permissions: []string{"strings:*", "hashes:read", "commands:ZADD"},
		Limits:      []acl.Limit{{ID: "rps", Per: "app", Of: "requests", Limit: 1 << 53, PeriodMS: 1000, Burst: 20}},
		Compression: acl.NoCompression, CompressMinBytes: 100, Durability: acl.Replica, Read: acl.ReadReplica, MaxStalenessMS: 3000, Priority: acl.Bulk,
		DefaultTTLMS: 1000, MaxTTLMS: 1 << 53,
		Sizes: acl.Sizes{KeyMaxBytes: 64, ValueMaxBytes: 65}, Retries: &acl.Retries{Read: 1}, ExpiresAt: &expires,
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, want, err error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// create makes the app of shop and a key for it.
func create(t *testing.T, admin *acl.Admin) (token string, key *acl.Key) {
	t.Helper()
	_, err := admin.CreateApp(t.Context(), shop())
	check(t, err)
	token, key, err = admin.CreateKey(t.Context(), "shop", acl.KeyOptions{})
	check(t, err)
	return token, key
}

func (s Suite) appComesBack(t *testing.T) {
	admin := Admin(t, s.New(t))
	_, err := admin.CreateApp(t.Context(), shop())
	check(t, err)
	_, err = admin.CreateApp(t.Context(), acl.App{ID: "plain", Namespace: "plain"})
	check(t, err)

	got, err := admin.App(t.Context(), "shop")
	check(t, err)
	want := shop()
	want.State, want.CreatedAt, want.Revision = acl.Active, Start, got.Revision
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
	got, err = admin.App(t.Context(), "plain")
	check(t, err)
	if got.Layout != acl.Spread || got.Cluster != acl.DefaultCluster || got.State != acl.Active || got.Compression != acl.Snappy {
		t.Errorf("an app that says nothing got %+v", *got)
	}
}

func (s Suite) takenForEver(t *testing.T) {
	admin := Admin(t, s.New(t))
	create(t, admin)
	try := func(id, namespace string) {
		t.Helper()
		_, err := admin.CreateApp(t.Context(), acl.App{ID: id, Namespace: namespace})
		wantError(t, acl.ErrExists, err)
	}
	try("shop", "other")
	try("other", "shop-ns")
	_, err := admin.DeleteApp(t.Context(), "shop")
	check(t, err)
	try("shop", "other")
	try("other", "shop-ns")
}

func (s Suite) editKeeps(t *testing.T) {
	admin := Admin(t, s.New(t))
	create(t, admin)
	app, err := admin.EditApp(t.Context(), "shop", func(a *acl.App) { a.Name, a.Limits[0].Limit, a.Retries.Read = "Renamed", 7, 2 })
	check(t, err)
	stored, err := admin.App(t.Context(), "shop")
	check(t, err)
	if !s.KeepsRevisions {
		app.Revision = 0
	}
	if !reflect.DeepEqual(app, stored) || stored.Name != "Renamed" || stored.Limits[0].Limit != 7 || stored.Retries.Read != 2 {
		t.Errorf("edited %+v, stored %+v", *app, *stored)
	}
	_, err = admin.EditApp(t.Context(), "shop", func(a *acl.App) {
		a.ID, a.Namespace, a.Layout, a.Cluster, a.MaxTTLMS = "x1", "x2", acl.Spread, "x3", -1
	})
	for _, field := range []string{"id: ", "namespace: ", "layout: ", "cluster: ", "max_ttl_ms: "} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
	_, err = admin.EditApp(t.Context(), "nobody", func(*acl.App) {})
	wantError(t, acl.ErrNotFound, err)
}

func (s Suite) lifeOfApp(t *testing.T) {
	admin := Admin(t, s.New(t))
	create(t, admin)
	for _, step := range []struct {
		do   func(context.Context, string) (*acl.App, error)
		want acl.State
	}{
		{admin.SuspendApp, acl.Suspended},
		{admin.ResumeApp, acl.Active},
		{admin.DeleteApp, acl.Deleted},
	} {
		_, err := step.do(t.Context(), "shop")
		check(t, err)
		if app, err := admin.App(t.Context(), "shop"); err != nil || app.State != step.want {
			t.Fatalf("%+v, %v; want it %s", app, err, step.want)
		}
	}
	_, err := admin.ResumeApp(t.Context(), "shop")
	wantError(t, acl.ErrNotFound, err)
	_, err = admin.DeleteApp(t.Context(), "shop")
	wantError(t, acl.ErrNotFound, err)
}

func (s Suite) keys(t *testing.T) {
	admin := Admin(t, s.New(t))
	token, key := create(t, admin)
	expires := Start.Add(time.Hour)
	_, narrow, err := admin.CreateKey(t.Context(), "shop", acl.KeyOptions{ExpiresAt: &expires, Permissions: []string{"strings:read"}})
	check(t, err)
	set, err := admin.List(t.Context())
	check(t, err)
	for _, want := range []*acl.Key{key, narrow} {
		got := set.Keys[want.ID]
		if !s.KeepsRevisions {
			want.Revision = 0
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if text := fmt.Sprintf("%+v", key); strings.Contains(text, token[16:50]) {
		t.Errorf("the secret is in the key: %s", text)
	}
	_, err = admin.RevokeKey(t.Context(), key.ID)
	check(t, err)
	again, err := admin.RevokeKey(t.Context(), key.ID)
	check(t, err)
	if again.RevokedAt == nil || !again.RevokedAt.Equal(Start) {
		t.Errorf("revoked at %v", again.RevokedAt)
	}
	_, err = admin.RevokeKey(t.Context(), "000000000000")
	wantError(t, acl.ErrNotFound, err)
	_, _, err = admin.CreateKey(t.Context(), "nobody", acl.KeyOptions{})
	wantError(t, acl.ErrNotFound, err)
	_, err = admin.DeleteApp(t.Context(), "shop")
	check(t, err)
	_, _, err = admin.CreateKey(t.Context(), "shop", acl.KeyOptions{})
	wantError(t, acl.ErrNotFound, err)
}

func (s Suite) version(t *testing.T) {
	storage := s.New(t)
	admin := Admin(t, storage)
	last := ""
	for i, change := range []func(){
		func() { create(t, admin) },
		func() { _, err := admin.SuspendApp(t.Context(), "shop"); check(t, err) },
	} {
		change()
		one, err := storage.Load(t.Context())
		check(t, err)
		two, err := storage.Load(t.Context())
		check(t, err)
		if one.Version == "" || one.Version == last || one.Version != two.Version {
			t.Errorf("after change %d: versions %q and %q, before it %q", i+1, one.Version, two.Version, last)
		}
		last = one.Version
	}
}

func (s Suite) watch(t *testing.T) {
	storage := s.New(t)
	admin := Admin(t, storage)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := storage.Watch(ctx, func() { calls.Add(1) }); err != nil {
			t.Errorf("watching ended with %v", err)
		}
	})
	Eventually(t, "the first call", func() bool { return calls.Load() > 0 })
	for i := range 3 {
		before := calls.Load()
		_, err := admin.CreateApp(t.Context(), acl.App{ID: fmt.Sprintf("app%d", i), Namespace: fmt.Sprintf("ns%d", i)})
		check(t, err)
		Eventually(t, "a call after a change", func() bool { return calls.Load() > before })
	}
	cancel()
	wg.Wait()
}

func (s Suite) directory(t *testing.T) {
	storage := s.New(t)
	admin := Admin(t, storage)
	token, key := create(t, admin)
	d := acl.NewDirectory(storage, Secret(t), acl.Defaults{}, slog.New(slog.DiscardHandler), func() time.Time { return Start })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.Run(ctx) })
	answer := func(want error) func() bool {
		return func() bool { _, err := d.Authenticate(token); return errors.Is(err, want) || err == want }
	}
	Eventually(t, "the key opens", answer(nil))
	_, err := admin.SuspendApp(t.Context(), "shop")
	check(t, err)
	Eventually(t, "the app is suspended", answer(acl.ErrAppSuspended))
	_, err = admin.ResumeApp(t.Context(), "shop")
	check(t, err)
	Eventually(t, "the key opens again", answer(nil))
	_, err = admin.RevokeKey(t.Context(), key.ID)
	check(t, err)
	Eventually(t, "the key is refused", answer(acl.ErrUnauthenticated))
	cancel()
	wg.Wait()
}

func (s Suite) conflict(t *testing.T) {
	storage := s.New(t)
	admin := Admin(t, storage)
	_, key := create(t, admin)
	old, err := admin.App(t.Context(), "shop")
	check(t, err)
	_, err = admin.SuspendApp(t.Context(), "shop")
	check(t, err)
	stale := *old
	stale.Name = "lost update"
	wantError(t, acl.ErrConflict, storage.Apply(t.Context(), acl.Change{Op: acl.OpUpdateApp, App: &stale, At: Start}))
	stale.State = acl.Deleted
	wantError(t, acl.ErrConflict, storage.Apply(t.Context(), acl.Change{Op: acl.OpDeleteApp, App: &stale, At: Start}))
	_, err = admin.RevokeKey(t.Context(), key.ID)
	check(t, err)
	wantError(t, acl.ErrConflict, storage.Apply(t.Context(), acl.Change{Op: acl.OpUpdateKey, Key: key, At: Start}))
	if app, err := admin.App(t.Context(), "shop"); err != nil || app.State != acl.Suspended || app.Name != "The Shop" {
		t.Errorf("%+v, %v", app, err)
	}
}

func (s Suite) concurrentEdits(t *testing.T) {
	admin := Admin(t, s.New(t))
	create(t, admin)
	var wg sync.WaitGroup
	names := []string{"commands:GET", "commands:SET", "commands:DEL", "commands:TTL"}
	for _, name := range names {
		wg.Go(func() {
			if _, err := admin.EditApp(t.Context(), "shop", func(a *acl.App) { a.Permissions = append(a.Permissions, name) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	app, err := admin.App(t.Context(), "shop")
	check(t, err)
	for _, name := range names {
		if !slices.Contains(app.Permissions, name) {
			t.Errorf("%s was lost: %v", name, app.Permissions)
		}
	}
}

func (s Suite) use(t *testing.T) {
	storage := s.New(t)
	admin := Admin(t, storage)
	_, key := create(t, admin)
	before, err := storage.Load(t.Context())
	check(t, err)
	for _, at := range []time.Duration{time.Minute, 0, -time.Hour} {
		check(t, storage.Touch(t.Context(), map[string]time.Time{key.ID: Start.Add(at), "000000000000": Start}))
		set, err := storage.Load(t.Context())
		check(t, err)
		if got := set.Keys[key.ID].LastUsedAt; got == nil || !got.Equal(Start.Add(time.Minute)) {
			t.Errorf("last used %v, want a minute after the start", got)
		}
		if set.Version != before.Version {
			t.Errorf("using a key made version %s of %s", set.Version, before.Version)
		}
	}
	_, err = admin.RevokeKey(t.Context(), key.ID)
	check(t, err)
	set, err := storage.Load(t.Context())
	check(t, err)
	if set.Keys[key.ID].LastUsedAt == nil || set.Keys[key.ID].RevokedAt == nil {
		t.Errorf("after revoking: %+v", set.Keys[key.ID])
	}
}
