package acl_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
)

func refresh(t testing.TB, d *acl.Directory) {
	t.Helper()
	if err := d.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// run runs the directory until the test ends, or the function it returns is called.
func run(t *testing.T, d *acl.Directory) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

func TestWhoCallsIsWorkedOutBeforehand(t *testing.T) {
	for _, row := range []struct {
		name     string
		app      func(*acl.App)
		key      []string
		prefix   string
		compress int
		valueMax int64
		allowed  string
		denied   string
	}{
		{"plain", nil, nil, "shop:", 512, 1 << 20, "SET", "HGET"},
		{"together", func(a *acl.App) { a.Layout = acl.Together }, nil, "{shop}:", 512, 1 << 20, "GET", "HGET"},
		{"with sizes", func(a *acl.App) { a.Sizes.ValueMaxBytes, a.CompressMinBytes = 5, 99 }, nil, "shop:", 99, 5, "GET", "HGET"},
		{"uncompressed", func(a *acl.App) { a.Compression, a.CompressMinBytes = acl.NoCompression, 99 }, nil, "shop:", 0, 1 << 20, "GET", "HGET"},
		{"with scripts", func(a *acl.App) { a.Permissions = []string{"*"} }, []string{"strings:read"}, "shop:", 0, 1 << 20, "GET", "SET"},
		{"narrowed", nil, []string{"strings:read"}, "shop:", 512, 1 << 20, "GET", "SET"},
		{"asking for more", nil, []string{"hashes:read", "commands:SET"}, "shop:", 512, 1 << 20, "SET", "HGET"},
		{"a newer version's permission", func(a *acl.App) { a.Permissions = []string{"graphs:*", "strings:read"} }, nil, "shop:", 512, 1 << 20, "GET", "SET"},
	} {
		token, k := key(t, "shop", func(k *acl.Key) { k.Permissions = row.key })
		d := newDirectory(t, &fake{set: setOf("1", []*acl.App{app("shop", row.app)}, k)}, newClock(), nil)
		refresh(t, d)
		id, err := d.Authenticate(token)
		if err != nil {
			t.Fatal(err)
		}
		if id.Prefix != row.prefix || id.CompressMinBytes != row.compress || id.Sizes.ValueMaxBytes != row.valueMax || id.Sizes.KeyMaxBytes != 1024 {
			t.Errorf("%s: %+v", row.name, id)
		}
		if !allows(id.Permissions, row.allowed) || allows(id.Permissions, row.denied) {
			t.Errorf("%s: %v, want %s and not %s", row.name, id.Permissions.Entries(table), row.allowed, row.denied)
		}
		if d.Lookup("shop") != id.App || d.Lookup("nobody") != nil {
			t.Errorf("%s: the app is not found", row.name)
		}
		if got := acl.FromContext(acl.NewContext(t.Context(), id)); got != id || acl.FromContext(t.Context()) != nil {
			t.Errorf("%s: the context holds %v", row.name, got)
		}
	}
}

func TestDefaultsCanChange(t *testing.T) {
	token, k := key(t, "shop", nil)
	small, sk := key(t, "small", nil)
	set := setOf("1", []*acl.App{app("shop", nil), app("small", func(a *acl.App) { a.Sizes.ValueMaxBytes = 5 })}, k, sk)
	d := newDirectory(t, &fake{set: set}, newClock(), nil)
	other := acl.Defaults{Sizes: acl.Sizes{ValueMaxBytes: 77, KeyMaxBytes: 7}, CompressMinBytes: 9}
	d.SetDefaults(t.Context(), acl.Defaults{}) // before anything is loaded
	d.SetDefaults(t.Context(), other)
	refresh(t, d)
	authenticate := func(token string) *acl.Identity {
		id, err := d.Authenticate(token)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	before := authenticate(token)
	if before.Sizes.ValueMaxBytes != 77 || before.CompressMinBytes != 9 || authenticate(small).Sizes.ValueMaxBytes != 5 {
		t.Errorf("what was set before loading gives %+v", before)
	}
	other.Sizes.ValueMaxBytes = 88
	d.SetDefaults(t.Context(), other)
	after := authenticate(token)
	if after.Sizes.ValueMaxBytes != 88 || before.Sizes.ValueMaxBytes != 77 || authenticate(small).Sizes.ValueMaxBytes != 5 {
		t.Errorf("changed defaults give %+v", after)
	}
	if after.App != before.App {
		t.Error("the app has another pointer, so its buckets would be looked for anew")
	}
	refresh(t, d)
	if again := authenticate(token); again != after {
		t.Error("a load that brings nothing new made another identity")
	}
}

// A directory remembers the token that has opened a key; it must not take anything else for it, nor remember it too long.
func TestAKnownTokenOpensOnlyItsOwnKey(t *testing.T) {
	token, k := key(t, "shop", nil)
	other, ok := key(t, "shop", nil)
	storage := &fake{set: setOf("1", []*acl.App{app("shop", nil)}, k, ok)}
	d := newDirectory(t, storage, newClock(), nil)
	refresh(t, d)
	for range 3 {
		if _, err := d.Authenticate(token); err != nil {
			t.Fatal(err)
		}
		for i := range len(token) {
			for _, b := range []byte{token[i] ^ 1, token[i] ^ 0x20, 0} {
				bad := token[:i] + string(rune(b)) + token[i+1:]
				if _, err := d.Authenticate(bad); err != acl.ErrUnauthenticated {
					t.Fatalf("byte %d as %q gives %v", i, b, err)
				}
			}
		}
		if _, err := d.Authenticate(token[:15] + other[15:]); err != acl.ErrUnauthenticated {
			t.Fatalf("the id of one key and the secret of another give %v", err)
		}
	}
	if _, err := d.Authenticate(other); err != nil {
		t.Fatal(err)
	}
	changed := *k
	changed.Hash = ok.Hash
	storage.set = setOf("2", []*acl.App{app("shop", nil)}, &changed, ok)
	refresh(t, d)
	if _, err := d.Authenticate(token); err != acl.ErrUnauthenticated {
		t.Errorf("after its hash has changed: %v", err)
	}
}

func TestTimeRunsOut(t *testing.T) {
	c := newClock()
	keyEnds, appEnds := acltest.Start.Add(time.Hour), acltest.Start.Add(2*time.Hour)
	short, sk := key(t, "shop", func(k *acl.Key) { k.ExpiresAt = &keyEnds })
	long, lk := key(t, "shop", nil)
	d := newDirectory(t, &fake{set: setOf("1", []*acl.App{app("shop", func(a *acl.App) { a.ExpiresAt = &appEnds })}, sk, lk)}, c, nil)
	refresh(t, d)
	for _, row := range []struct {
		at          time.Time
		short, long error
	}{
		{acltest.Start, nil, nil},
		{keyEnds.Add(-1), nil, nil},
		{keyEnds, acl.ErrUnauthenticated, nil},
		{appEnds.Add(-1), acl.ErrUnauthenticated, nil},
		{appEnds, acl.ErrUnauthenticated, acl.ErrAppExpired},
		{acltest.Start, nil, nil}, // a clock put right: nothing was forgotten
	} {
		c.set(row.at)
		if _, err := d.Authenticate(short); err != row.short {
			t.Errorf("at %v the short-lived key gives %v, want %v", row.at, err, row.short)
		}
		if _, err := d.Authenticate(long); err != row.long {
			t.Errorf("at %v the long-lived key gives %v, want %v", row.at, err, row.long)
		}
	}
}

func TestStatesOfAnApp(t *testing.T) {
	token, k := key(t, "shop", nil)
	wrong := withChecksum(swapCase(token[:59], 30))
	for state, want := range map[acl.State]error{
		acl.Active: nil, acl.Suspended: acl.ErrAppSuspended, acl.Deleted: acl.ErrUnauthenticated,
		"quarantined": acl.ErrAppSuspended, // of a newer version
	} {
		d := newDirectory(t, &fake{set: setOf("1", []*acl.App{app("shop", func(a *acl.App) { a.State = state })}, k)}, newClock(), nil)
		refresh(t, d)
		if _, err := d.Authenticate(token); err != want {
			t.Errorf("%s: %v, want %v", state, err, want)
		}
		if _, err := d.Authenticate(wrong); err != acl.ErrUnauthenticated {
			t.Errorf("%s: a wrong key learns %v", state, err)
		}
		if found := d.Lookup("shop") != nil; found != (state != acl.Deleted) {
			t.Errorf("%s: found %v", state, found)
		}
	}
}

func TestNobodyIsKnownBeforeTheFirstLoad(t *testing.T) {
	token, k := key(t, "shop", nil)
	s := &fake{err: errors.New("away")}
	d := newDirectory(t, s, newClock(), nil)
	if _, err := d.Authenticate(token); err != acl.ErrNotReady || d.Ready() || d.Lookup("shop") != nil {
		t.Errorf("before loading: %v, ready %v", err, d.Ready())
	}
	run(t, d)
	acltest.Eventually(t, "loading is tried again", func() bool { return s.loaded() > 2 })
	if d.Ready() {
		t.Error("ready without ever having loaded")
	}
	s.put(setOf("1", []*acl.App{app("shop", nil)}, k), nil)
	acltest.Eventually(t, "the key opens", func() bool { _, err := d.Authenticate(token); return err == nil })
}

func TestTheLastGoodSetStays(t *testing.T) {
	token, k := key(t, "shop", nil)
	s := &fake{set: setOf("1", []*acl.App{app("shop", nil)}, k)}
	log := &logText{}
	d := newDirectory(t, s, newClock(), slog.New(slog.NewTextHandler(log, nil)))
	refresh(t, d)
	s.put(nil, errors.New("line 7: it is bad"))
	for range 5 {
		if d.Refresh(t.Context()) == nil {
			t.Fatal("a fault was not reported")
		}
	}
	if _, err := d.Authenticate(token); err != nil || !d.Ready() {
		t.Errorf("after a fault: %v, ready %v", err, d.Ready())
	}
	if n := log.count("line 7: it is bad"); n != 1 {
		t.Errorf("the fault was logged %d times, want once", n)
	}
	s.put(nil, errors.New("line 8: it is bad"))
	_ = d.Refresh(t.Context())
	if n := log.count("line 8: it is bad"); n != 1 {
		t.Errorf("another fault was logged %d times, want once", n)
	}
	s.put(setOf("2", nil), nil)
	refresh(t, d)
	if _, err := d.Authenticate(token); err != acl.ErrUnauthenticated {
		t.Errorf("after a good set without the key: %v", err)
	}
	if log.count("can be loaded again") != 1 {
		t.Error("the end of the fault was not logged")
	}
	s.put(nil, errors.New("line 8: it is bad"))
	_ = d.Refresh(t.Context())
	if n := log.count("line 8: it is bad"); n != 2 {
		t.Errorf("a fault that came back was logged %d times, want twice", n)
	}
}

func TestAChangeIsFollowed(t *testing.T) {
	token, k := key(t, "shop", nil)
	announce := make(chan struct{})
	s := &fake{set: setOf("1", []*acl.App{app("shop", nil)}, k)}
	s.watch = func(ctx context.Context, changed func()) error {
		select {
		case <-announce:
			changed()
			return errors.New("watching broke") // and must be taken up again
		case <-ctx.Done():
			return nil
		}
	}
	log := &logText{}
	d := newDirectory(t, s, newClock(), slog.New(slog.NewTextHandler(log, nil)))
	stop := run(t, d)
	acltest.Eventually(t, "the key opens", func() bool { _, err := d.Authenticate(token); return err == nil })
	for i, want := range []error{acl.ErrAppSuspended, nil} {
		state := []acl.State{acl.Suspended, acl.Active}[i]
		s.put(setOf(string(state), []*acl.App{app("shop", func(a *acl.App) { a.State = state })}, k), nil)
		announce <- struct{}{}
		acltest.Eventually(t, "the change is seen", func() bool { _, err := d.Authenticate(token); return err == want })
	}
	acltest.Eventually(t, "the broken watch is logged", func() bool { return log.count("watching broke") > 0 })
	stop()
}

// A token that was used is remembered by its key; not beyond the key's revocation.
func TestARevokedKeyOpensNothingFromTheNextSetOn(t *testing.T) {
	token, k := key(t, "shop", nil)
	s := &fake{set: setOf("1", []*acl.App{app("shop", nil)}, k)}
	d := newDirectory(t, s, newClock(), slog.New(slog.DiscardHandler))
	revoked := *k
	revoked.RevokedAt = &acltest.Start
	for _, step := range []struct {
		version string
		key     *acl.Key
		want    error
	}{{"1", k, nil}, {"2", &revoked, acl.ErrUnauthenticated}} {
		s.put(setOf(step.version, []*acl.App{app("shop", nil)}, step.key), nil)
		if err := d.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Authenticate(token); !errors.Is(err, step.want) {
			t.Errorf("with set %s: %v, want %v", step.version, err, step.want)
		}
	}
}

// What is kept of callers elsewhere goes by this.
func TestWhoLives(t *testing.T) {
	_, shopKey := key(t, "shop", nil)
	_, revoked := key(t, "shop", func(k *acl.Key) { at := acltest.Start; k.RevokedAt = &at })
	_, ofDeleted := key(t, "old", nil)
	d := newDirectory(t, &fake{set: setOf("1", []*acl.App{
		app("shop", nil), app("asleep", func(a *acl.App) { a.State = acl.Suspended }), app("old", func(a *acl.App) { a.State = acl.Deleted }),
	}, shopKey, revoked, ofDeleted)}, newClock(), nil)
	if !d.Lives("anything", "") {
		t.Error("before the first load something is said to be no more")
	}
	refresh(t, d)
	for _, row := range []struct {
		what, app, key string
		want           bool
	}{
		{"an app", "shop", "", true},
		{"a suspended app", "asleep", "", true},
		{"a deleted app", "old", "", false},
		{"an unknown app", "nobody", "", false},
		{"a key", "shop", shopKey.ID, true},
		{"a revoked key", "shop", revoked.ID, false},
		{"a key of another app", "asleep", shopKey.ID, false},
		{"a key of a deleted app", "old", ofDeleted.ID, false},
		{"an unknown key", "shop", "000000000000", false},
	} {
		if got := d.Lives(row.app, row.key); got != row.want {
			t.Errorf("%s lives: %v", row.what, got)
		}
	}
}

func TestWhatDidNotChangeKeepsItsIdentity(t *testing.T) {
	make := func(version, name string) *acl.Set { // everything new, as a file gives it
		set := setOf(version, []*acl.App{app("shop", nil), app("other", func(a *acl.App) { a.Name = name })})
		return set
	}
	token, k := key(t, "shop", nil)
	otherToken, ok := key(t, "other", nil)
	with := func(set *acl.Set, used time.Time) *acl.Set {
		a, b := *k, *ok
		a.LastUsedAt = &used
		set.Keys[a.ID], set.Keys[b.ID] = &a, &b
		return set
	}
	s := &fake{set: with(make("1", "Other"), acltest.Start)}
	d := newDirectory(t, s, newClock(), nil)
	refresh(t, d)
	who := func(token string) *acl.Identity { id, _ := d.Authenticate(token); return id }
	shop, other := who(token), who(otherToken)
	s.put(with(make("2", "Renamed"), acltest.Start.Add(time.Hour)), nil)
	refresh(t, d)
	if who(token) != shop {
		t.Error("an identity was replaced though nothing of it changed")
	}
	if who(otherToken) == other || who(otherToken).App.Name != "Renamed" {
		t.Error("an identity was kept though its app changed")
	}
	if d.Lookup("shop") != shop.App {
		t.Error("the app and its identity's app are two")
	}
}

func TestOneBadAppHarmsNobodyElse(t *testing.T) {
	token, k := key(t, "shop", nil)
	s := &fake{set: setOf("1", []*acl.App{
		app("shop", nil),
		app("thief", func(a *acl.App) { a.Namespace = "shop" }), // after shop in order
		app("above", func(a *acl.App) { a.Namespace = "slotgate" }),
		app("brace", func(a *acl.App) { a.Namespace = "{shop}" }),
		app("shape", func(a *acl.App) { a.Layout = "wide" }),
	}, k)}
	s.set.Apps["alias"] = app("other", nil)
	alias, ak := key(t, "shop", nil)
	s.set.Keys["000000000000"], s.set.Keys[alias[3:15]] = ak, k // each under an id that is not its own
	log := &logText{}
	d := newDirectory(t, s, newClock(), slog.New(slog.NewTextHandler(log, nil)))
	refresh(t, d)
	if _, err := d.Authenticate(token); err != nil {
		t.Error(err)
	}
	if _, err := d.Authenticate(withChecksum("sg_000000000000" + alias[15:59])); err != acl.ErrUnauthenticated {
		t.Errorf("a key under another id: %v", err)
	}
	if log.count("key=000000000000") != 1 || log.count("key="+alias[3:15]) != 1 {
		t.Error("the keys under other ids were not logged")
	}
	for _, id := range []string{"thief", "above", "brace", "shape", "alias"} {
		if d.Lookup(id) != nil || log.count("app="+id) != 1 {
			t.Errorf("%s was not left out and logged", id)
		}
	}
}

func TestUseOfKeysIsStoredByTheMinute(t *testing.T) {
	c := newClock()
	token, k := key(t, "shop", nil)
	_, idle := key(t, "shop", nil)
	s := &fake{set: setOf("1", []*acl.App{app("shop", nil)}, k, idle)}
	d := newDirectory(t, s, c, nil)
	refresh(t, d)
	use := func(after time.Duration) {
		c.set(acltest.Start.Add(after))
		_, _ = d.Authenticate(token)
		d.Flush(t.Context())
	}
	use(61 * time.Second)
	use(119 * time.Second) // the same minute
	s.put(s.set, errors.New("away"))
	use(125 * time.Second)
	s.put(setOf("2", []*acl.App{app("shop", func(a *acl.App) { a.Name = "Renamed" })}, k, idle), nil)
	refresh(t, d) // a reload forgets nothing
	d.Flush(t.Context())
	s.put(setOf("3", []*acl.App{app("shop", nil)}, k, idle), nil)
	refresh(t, d)
	d.Flush(t.Context())
	want := []time.Duration{time.Minute, 2 * time.Minute, 2 * time.Minute} // the second was lost and given again
	if len(s.touched) != len(want) {
		t.Fatalf("stored %v, want %v", s.touched, want)
	}
	for i, used := range s.touched {
		if len(used) != 1 || !used[k.ID].Equal(acltest.Start.Add(want[i])) {
			t.Errorf("stored %v, want %v after the start", used, want[i])
		}
	}
}

func TestTheLastUseIsStoredWhenRunEnds(t *testing.T) {
	token, k := key(t, "shop", nil)
	s := &fake{set: setOf("1", []*acl.App{app("shop", nil)}, k)}
	d := newDirectory(t, s, newClock(), nil)
	stop := run(t, d)
	acltest.Eventually(t, "the key opens", func() bool { _, err := d.Authenticate(token); return err == nil })
	stop()
	if len(s.touched) != 1 {
		t.Errorf("stored %v", s.touched)
	}
}

func TestCallersAndReloadsAtOnce(t *testing.T) {
	token, k := key(t, "shop", nil)
	s := &fake{set: setOf("0", []*acl.App{app("shop", nil)}, k)}
	d := newDirectory(t, s, newClock(), nil)
	refresh(t, d)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				if _, err := d.Authenticate(token); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 100 {
			s.put(setOf(strings.Repeat("x", i+1), []*acl.App{app("shop", func(a *acl.App) { a.MaxTTLMS = int64(i) })}, k), nil)
			_ = d.Refresh(t.Context())
			d.Flush(t.Context())
		}
	})
	wg.Wait()
}
