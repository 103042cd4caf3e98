package acl

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotgate/slotgate/acl/alive"
)

const (
	loadTimeout  = 5 * time.Second
	touchEvery   = time.Minute // the granularity of last-used moments
	firstRetry   = 100 * time.Millisecond
	longestRetry = time.Second // so that a change made while loading failed is seen within a second of the storage's return
	lastTouch    = 2 * time.Second
)

// Defaults are the gateway's settings that an app may override.
type Defaults struct {
	Sizes            Sizes
	CompressMinBytes int // 0 or less never compresses, unless the app asks for it
}

// A Directory answers who calls, from memory alone. It follows a storage while Run runs; whatever happens to the storage, the last
// good set stays in use, so an outage logs nobody out. Expiry is judged by the clock at every call, not when loading.
type Directory struct {
	storage  Storage
	macs     []*tokenMAC // one, but while the secret is changed
	defaults Defaults    // guarded by loading
	log      *slog.Logger
	now      func() time.Time
	clusters func(map[string]*Cluster) // told of the stored clusters; may be nil

	current   atomic.Pointer[table]
	loading   sync.Mutex // one load at a time, so that an older set never replaces a newer one
	lastFault string     // guarded by loading: a fault is logged when it comes, not at every try
}

// NewDirectory makes a directory that knows nobody until Refresh or Run has loaded it. It starts nothing.
func NewDirectory(storage Storage, secret Secret, defaults Defaults, log *slog.Logger, clock func() time.Time) *Directory {
	return &Directory{storage: storage, macs: newTokenMACs(secret), defaults: defaults, log: log, now: clock}
}

// OnClusters has f called with the stored clusters of every set that is loaded, before its apps are in use, so that a new app finds its
// cluster. f is called by one goroutine at a time and must not wait for a connection. Call it before Refresh and Run.
func (d *Directory) OnClusters(f func(map[string]*Cluster)) { d.clusters = f }

// Ready says whether a set was ever loaded. It never becomes false again.
func (d *Directory) Ready() bool { return d.current.Load() != nil }

// Lookup finds an app that is not deleted, suspended ones included; nil when there is none.
func (d *Directory) Lookup(appID string) *App {
	t := d.current.Load()
	if t == nil {
		return nil
	}
	app := t.apps[appID]
	if app == nil || app.State == Deleted {
		return nil
	}
	return app
}

// Lives says whether there is such an app, and, unless keyID is empty, such a key of it that is not revoked. Before a set was loaded
// everything lives.
func (d *Directory) Lives(appID, keyID string) bool {
	t := d.current.Load()
	if t == nil {
		return true
	}
	if app := t.apps[appID]; app == nil || app.State == Deleted {
		return false
	}
	if keyID == "" {
		return true
	}
	e := t.entries[keyID]
	return e != nil && !e.dead && e.identity.App.ID == appID
}

// Authenticate finds whose token this is. A token that opens nothing is ErrUnauthenticated, whatever the reason; a good key of an app
// that may not be used now is ErrAppSuspended or ErrAppExpired; ErrNotReady says that the key may be one that is not known yet.
func (d *Directory) Authenticate(token string) (*Identity, error) {
	t := d.current.Load()
	if t == nil {
		return nil, ErrNotReady
	}
	if len(token) != tokenLen {
		return nil, ErrUnauthenticated
	}
	// An unknown id does the same work as a known one: it is compared with the token and the hash of nobody.
	e := t.entries[token[idStart:idStart+idLen]]
	if e == nil {
		e = nobody
	}
	if !e.knows(token) && !d.opens(token, e) {
		if e == nobody && wellFormed(token) {
			return nil, d.stranger()
		}
		return nil, ErrUnauthenticated
	}
	return e.admit(d.now())
}

// stranger is the answer to a key that is not known: out of contact with the storage it may have been made since, and a 401 would tell its
// owner to throw it away.
func (d *Directory) stranger() error {
	if d.Contact().Err != nil {
		return ErrNotReady
	}
	return ErrUnauthenticated
}

// opens says whether the token is the entry's, whatever its state, and remembers one that is.
func (d *Directory) opens(token string, e *entry) bool {
	if !wellFormed(token) {
		return false
	}
	for _, mac := range d.macs {
		if hash := mac.of(token); sameHash(&hash, &e.hash) {
			e.opened.Store((*[tokenLen]byte)([]byte(token)))
			return true
		}
	}
	return false
}

// Refresh loads the set once, now. On a fault the last good set stays.
func (d *Directory) Refresh(ctx context.Context) error {
	d.loading.Lock()
	defer d.loading.Unlock()
	bounded, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	set, err := d.storage.Load(bounded)
	if err != nil {
		d.fault(ctx, err)
		return err
	}
	if d.lastFault != "" {
		d.lastFault = ""
		d.log.InfoContext(ctx, "apps and keys can be loaded again")
	}
	old := d.current.Load()
	if old != nil && set.Version != "" && old.version == set.Version {
		return nil
	}
	next := d.build(ctx, set, old)
	if d.clusters != nil {
		d.clusters(set.Clusters)
	}
	d.current.Store(next)
	d.log.InfoContext(ctx, "apps and keys loaded", "version", set.Version, "apps", len(set.Apps), "keys", len(set.Keys))
	return nil
}

// SetDefaults changes what apps get that say nothing of their own, from the next Authenticate on.
func (d *Directory) SetDefaults(ctx context.Context, defaults Defaults) {
	d.loading.Lock()
	defer d.loading.Unlock()
	if defaults == d.defaults {
		return
	}
	d.defaults = defaults
	if old := d.current.Load(); old != nil {
		d.current.Store(d.build(ctx, old.set, old))
	}
}

func (d *Directory) fault(ctx context.Context, err error) {
	if text := err.Error(); text != d.lastFault && ctx.Err() == nil {
		d.lastFault = text
		d.log.ErrorContext(ctx, "apps and keys cannot be loaded; the last good ones stay in use", "error", err, "ready", d.Ready())
	}
}

// Run loads the set, retrying until it succeeds, and follows every change until ctx ends. It returns nil when everything it started
// has ended.
func (d *Directory) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		alive.Loop(ctx, d.log, "watching apps and keys", func(ctx context.Context) { d.watch(ctx, changed) })
	})
	wg.Go(func() { alive.Loop(ctx, d.log, "noting the use of keys", d.flushUsed) })
	signal(changed)
	for {
		select {
		case <-ctx.Done():
			wg.Wait()
			return nil
		case <-changed:
			alive.Once(d.log, "loading apps and keys", func() { d.load(ctx) })
		}
	}
}

// load tries until it succeeds: a change that was announced must not be forgotten because the storage stumbled just then.
func (d *Directory) load(ctx context.Context) {
	for wait := firstRetry; d.Refresh(ctx) != nil; wait = min(2*wait, longestRetry) {
		if !sleep(ctx, wait) {
			return
		}
	}
}

func (d *Directory) watch(ctx context.Context, changed chan<- struct{}) {
	for {
		err := d.storage.Watch(ctx, func() { signal(changed) })
		if ctx.Err() != nil {
			return
		}
		d.log.ErrorContext(ctx, "watching apps and keys ended; trying again", "error", err)
		if !sleep(ctx, longestRetry) {
			return
		}
	}
}

func (d *Directory) flushUsed(ctx context.Context) {
	tick := time.NewTicker(touchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.Flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTouch)
			defer cancel()
			d.Flush(last)
			return
		}
	}
}

// Flush gives the storage the moments at which keys were last used. What it could not give is given the next time.
func (d *Directory) Flush(ctx context.Context) {
	t := d.current.Load()
	if t == nil {
		return
	}
	used, entries := t.unflushed()
	if len(used) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if err := d.storage.Touch(ctx, used); err != nil {
		d.log.WarnContext(ctx, "the last use of keys could not be stored; it will be tried again", "error", err, "keys", len(used))
		return
	}
	for id, e := range entries {
		e.flushed.Store(used[id].Unix())
	}
}

// signal wakes the receiver once, however many changes are announced before it looks.
func signal(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// sleep waits and says whether ctx still lives.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
