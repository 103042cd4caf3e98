package pools

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/definitions"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/pool"
)

const (
	// tendEvery is how often a gateway looks for abandoned leases. Allocations find them by themselves; this is for pools that nobody asks any
	// more, and for the reports that abandoned work is.
	tendEvery = 2 * time.Second
	// seriesEvery is how often it reads members for the metrics: as often as most scrape.
	seriesEvery = 10 * time.Second
	// forgetAfter is when a pool that nobody has used, and that has no leases, is looked after no longer.
	forgetAfter = time.Minute
	// maxWatched is how many pools a gateway looks after, a round trip each in two seconds. Of more, allocations find what was abandoned.
	maxWatched = 1000
	// maxWatchedOfApp of them are of one app, so that none takes the places of all.
	maxWatchedOfApp = 100
	// restOfLarge is in how many rounds a pool is left out that has too many members for the metrics: to read it costs some ms of Redis.
	restOfLarge = 11
)

// watch is the pools that this gateway has served lately.
type watch struct {
	permissions acl.Permissions

	mu    sync.Mutex
	pools map[string]*watched
	ofApp map[string]int // how many, by app; no 0
	last  int64
}

// watched is one of them. Who it is done for is the gateway itself, in the name of the app.
type watched struct {
	id   *acl.Identity
	name string

	number int64 // in the order in which they were seen first
	used   int64 // counts what was done with it
	leased int64 // the last of these that was about a lease, 0 = none is known to be out
	seen   int64 // of used, when it was looked at last
	idle   time.Time
	rest   int // rounds of Look alone
}

func newWatch() *watch {
	all, err := acl.CompilePermissions([]string{acl.Pools.String() + ":*"})
	if err != nil {
		panic("pools: " + err.Error())
	}
	return &watch{permissions: all, pools: map[string]*watched{}, ofApp: map[string]int{}}
}

// note remembers that a pool was used, and whether a lease of it is out.
func (w *watch) note(id *acl.Identity, name string, leased bool) {
	key := definitions.CacheKey(id, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.pools[key]
	if k == nil {
		if len(w.pools) >= maxWatched || w.ofApp[id.App.ID] >= maxWatchedOfApp {
			return
		}
		w.last++
		k = &watched{id: &acl.Identity{App: id.App, Key: &acl.Key{}, Permissions: w.permissions}, name: name, number: w.last}
		w.pools[key] = k
		w.ofApp[id.App.ID]++
	}
	if k.used++; leased {
		k.leased = k.used
	}
}

// visit is a pool that is to be looked at, as it was known when the round began.
type visit struct {
	*watched
	until int64 // of used
	due   bool  // leases of it may be out
}

// round are all pools, by the order in which they were seen first, without those that nobody uses any more.
func (w *watch) round(now time.Time) []visit {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]visit, 0, len(w.pools))
	for key, k := range w.pools {
		if k.used != k.seen {
			k.seen, k.idle = k.used, now
		} else if k.leased == 0 && now.Sub(k.idle) >= forgetAfter {
			w.remove(key)
			continue
		}
		all = append(all, visit{k, k.used, k.leased > 0})
	}
	slices.SortFunc(all, func(a, b visit) int { return cmp.Compare(a.number, b.number) })
	return all
}

// settled notes that no lease is out, unless one was given since the round began.
func (w *watch) settled(v visit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.leased <= v.until {
		v.leased = 0
	}
}

// drop forgets a pool that is gone.
func (w *watch) drop(v visit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(definitions.CacheKey(v.id, v.name))
}

// remove takes a pool out, if it is there; mu is held.
func (w *watch) remove(key string) {
	k := w.pools[key]
	if k == nil {
		return
	}
	delete(w.pools, key)
	if w.ofApp[k.id.App.ID]--; w.ofApp[k.id.App.ID] == 0 {
		delete(w.ofApp, k.id.App.ID)
	}
}

// Run looks after the pools that this gateway has served, until ctx ends.
func (p *Pools) Run(ctx context.Context) {
	leases, members := time.NewTicker(tendEvery), time.NewTicker(seriesEvery)
	defer leases.Stop()
	defer members.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-leases.C:
			p.Tend(ctx)
		case <-members.C:
			p.Look(ctx)
		}
	}
}

// Tend ends leases that have expired, as Run does every two seconds: up to pool.MaxReaped of each pool.
func (p *Pools) Tend(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tendEvery) // those that are not reached now are behind those that do not answer
	defer cancel()
	for _, v := range p.watch.round(p.Now()) {
		if v.due && ctx.Err() == nil {
			p.tend(ctx, v)
		}
	}
}

func (p *Pools) tend(ctx context.Context, v visit) {
	at, err := p.at(ctx, v.id, pool.CommandLease, v.name)
	if err == nil {
		asking, cancel := context.WithTimeout(ctx, p.Timeout)
		defer cancel()
		var r pool.Reaped
		if r, err = p.choose.Reap(asking, v.id, at, pool.MaxReaped); err == nil {
			p.metrics.reaped(v.id, v.name, r)
			if r.Held == 0 {
				p.watch.settled(v)
			}
			return
		}
		err = p.problem(v.id, v.name, err)
	}
	if e, ok := errors.AsType[*store.Error](err); ok && e.Code == store.CodePoolNotFound {
		p.watch.drop(v)
	}
}

// Look reads the members that have metrics of their own, as Run does every ten seconds: of the pools that were seen first, as long as they have
// room, and not more than 64 members.
func (p *Pools) Look(ctx context.Context) {
	if p.Members == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, seriesEvery/2)
	defer cancel()
	all := []figures{}
	for _, v := range p.watch.round(p.Now()) {
		app, label := p.metrics.names.Labels(v.id.App.ID, v.name)
		if label == metric.Other || ctx.Err() != nil || len(all) >= p.Members {
			continue
		}
		if v.rest > 0 {
			v.rest--
			continue
		}
		asking, stop := context.WithTimeout(ctx, time.Second)
		o, err := p.Overview(asking, v.id, v.name)
		stop()
		if err == nil && len(o.Members) > maxSeriesOfPool {
			v.rest = restOfLarge
		}
		if err != nil || len(o.Members) > min(maxSeriesOfPool, p.Members-len(all)) {
			continue
		}
		all = append(all, figuresOf(app, label, &o)...)
	}
	p.metrics.members.now.Store(&all)
}
