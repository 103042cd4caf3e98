package acl

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A table is one loaded set, compiled: everything Authenticate needs, worked out beforehand. It is never changed, only replaced.
type table struct {
	version  string
	set      *Set     // what it was made of
	defaults Defaults // and for what apps leave open
	apps     map[string]*App
	entries  map[string]*entry // by key id
	keyless  sync.Map          // app id → *Identity of a caller without a key; made when the first one comes
}

type entry struct {
	identity *Identity
	hash     [sha256.Size]byte
	dead     bool                           // revoked, or of a deleted app
	opened   atomic.Pointer[[tokenLen]byte] // the token that was found to open this; nil = none yet

	lastUsed atomic.Int64 // unix seconds, whole minutes
	flushed  atomic.Int64
}

// nobody stands for every unknown key. Its hash is random, so no token has it; it is dead as well.
var nobody = newNobody()

func newNobody() *entry {
	e := &entry{identity: &Identity{App: &App{}, Key: &Key{}}, dead: true}
	rand.Read(e.hash[:])
	e.opened.Store(new([tokenLen]byte)) // no token has a zero byte; it makes the look at an unknown key as long as at another
	return e
}

func (e *entry) open(now time.Time) bool {
	expires := e.identity.Key.ExpiresAt
	return !e.dead && (expires == nil || now.Before(*expires))
}

// knows says, in constant time, whether this very token has opened the entry before: a good key takes 77 ns so, 225 by its
// hash (BenchmarkAuthenticate). The price is that tokens in use stay in memory, where every request brings them anyway.
func (e *entry) knows(token string) bool {
	known := e.opened.Load()
	return known != nil && subtle.ConstantTimeCompare(known[:], unsafe.Slice(unsafe.StringData(token), len(token))) == 1
}

// used writes at most once a minute, so that the callers of one key do not fight over a cache line.
func (e *entry) used(now time.Time) {
	if minute := now.Unix() / 60 * 60; e.lastUsed.Load() < minute {
		e.lastUsed.Store(minute)
	}
}

func (t *table) unflushed() (map[string]time.Time, map[string]*entry) {
	used, entries := map[string]time.Time{}, map[string]*entry{}
	for id, e := range t.entries {
		if at := e.lastUsed.Load(); at > e.flushed.Load() {
			used[id], entries[id] = time.Unix(at, 0).UTC(), e
		}
	}
	return used, entries
}

// build compiles a set. What cannot be used is left out and logged, so that one bad entry harms nobody else. Apps and identities that
// did not change keep their pointers, so whoever keeps state by them keeps it over a reload.
func (d *Directory) build(ctx context.Context, set *Set, old *table) *table {
	if old == nil {
		old = &table{}
	}
	t := &table{version: set.Version, set: set, defaults: d.defaults, apps: make(map[string]*App, len(set.Apps)), entries: make(map[string]*entry, len(set.Keys))}
	owner := map[string]string{}
	granted := make(map[string]Permissions, len(set.Apps))
	for _, id := range slices.Sorted(maps.Keys(set.Apps)) {
		app := set.Apps[id]
		err := app.usable(id)
		if other, taken := owner[app.Namespace]; err == nil && taken {
			err = fmt.Errorf("namespace %q belongs to app %q already", app.Namespace, other)
		}
		if err != nil {
			d.log.ErrorContext(ctx, "an app was left out", "app", id, "error", err)
			continue
		}
		owner[app.Namespace] = id
		if was := old.apps[id]; was != nil && reflect.DeepEqual(was, app) {
			app = was
		}
		t.apps[id] = app
		granted[id] = d.compile(ctx, "app", id, app.Permissions)
	}
	for id, key := range set.Keys {
		if app := t.apps[key.App]; app != nil {
			t.entries[id] = d.entry(ctx, id, app, key, granted[app.ID], old.entries[id], old.defaults == d.defaults)
		}
	}
	return t
}

// usable says whether the app's keys can be told from those of others, which everything rests on. Other faults only cost the app
// what they concern.
func (a *App) usable(id string) error {
	switch {
	case a.ID != id:
		return fmt.Errorf("it is stored under id %q but says it is %q", id, a.ID)
	case a.Layout != Spread && a.Layout != Together:
		return fmt.Errorf("layout %q is not known to this version", a.Layout)
	}
	var f faults
	a.validateNamespace(&f)
	return f.join()
}

// compile drops the entries it does not know: a newer gateway beside this one may have stored them, and less is granted, not more.
func (d *Directory) compile(ctx context.Context, kind, id string, list []string) Permissions {
	p, err := CompilePermissions(list)
	if err != nil {
		d.log.WarnContext(ctx, "permissions not known to this version are not granted", kind, id, "error", err)
	}
	return p
}

func (d *Directory) entry(ctx context.Context, id string, app *App, key *Key, granted Permissions, was *entry, sameDefaults bool) *entry {
	if was != nil && sameDefaults && was.identity.App == app && sameKey(was.identity.Key, key) {
		return was
	}
	e := &entry{dead: key.RevokedAt != nil || app.State == Deleted}
	if raw, err := hex.DecodeString(key.Hash); err == nil && len(raw) == sha256.Size && key.ID == id {
		copy(e.hash[:], raw)
	} else {
		e.dead = true
		d.log.ErrorContext(ctx, "a key was left out", "key", id, "error", "its hash or id is damaged")
	}
	if was != nil {
		e.lastUsed.Store(was.lastUsed.Load())
		e.flushed.Store(was.flushed.Load())
	}
	permissions := granted
	if key.Permissions != nil {
		permissions = granted.Intersect(d.compile(ctx, "key", id, key.Permissions))
	}
	e.identity = d.defaults.identity(app, key, granted, permissions)
	return e
}

// identity puts together what a caller of the app may do; granted are the app's permissions, permissions the caller's.
func (f Defaults) identity(app *App, key *Key, granted, permissions Permissions) *Identity {
	made := &struct { // one allocation, so that the memo is near
		Identity
		memo Memo
	}{Identity: Identity{
		App:              app,
		Key:              key,
		Permissions:      permissions,
		Prefix:           app.Prefix(),
		Sizes:            app.Sizes.Over(f.Sizes),
		CompressMinBytes: f.compressMinBytes(app, granted),
	}}
	made.Memo = &made.memo
	return &made.Identity
}

// compressMinBytes looks at what the app may do, not the key: a script run with one key sees the values written with another.
func (f Defaults) compressMinBytes(app *App, granted Permissions) int {
	if app.Compression == NoCompression || granted.MayRunScripts() {
		return 0
	}
	if app.CompressMinBytes > 0 {
		return app.CompressMinBytes
	}
	return max(f.CompressMinBytes, 0)
}

// Prefix is what every key of the app begins with in Redis.
func (a *App) Prefix() string {
	if a.Layout == Together {
		return "{" + a.Namespace + "}:"
	}
	return a.Namespace + ":"
}

func sameKey(a, b *Key) bool {
	x, y := *a, *b
	x.LastUsedAt, y.LastUsedAt = nil, nil
	return reflect.DeepEqual(x, y)
}
