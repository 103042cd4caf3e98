package prepaid

import (
	"context"
	"crypto/rand"
	_ "embed" // the script
	"sync/atomic"
	"time"

	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/store"
)

// Gateways that share the limits of a cluster count each other: each adds its name to one sorted set there, with the time of the node, once a
// meetEvery, and drops those that have not come for three times as long.

const (
	meetEvery = time.Second
	meetFor   = 500 * time.Millisecond // the longest that one meeting lasts
	// probation is how long a gateway that has just come holds nothing: until all have met it and what they held for too few has died.
	probation = meetEvery + time.Duration(lives) + time.Second
	// missing is how long after its last meeting a gateway may be taken for gone by the others, who are then met anew one by one.
	missing = 2 * meetEvery
	// fewer is how long there must be fewer gateways before that is believed: one that is restarted is back by then.
	fewer = 10 * time.Second
)

//go:embed meet.lua
var meetSource string

var scriptMeet = store.NewScript(meetSource)

// meetKey is beside the tags of all namespaces, which have a slash.
const meetKey = "slotgate:g:{gateways}"

// Meet implements Place.
func (c clusters) Meet(ctx context.Context, cluster, name string, leave bool) (int64, error) {
	mode := "stay"
	if leave {
		mode = "leave"
	}
	reply, err := c.store.RunShared(ctx, cluster, scriptMeet, []string{meetKey}, []any{name, mode, (3 * meetEvery).Milliseconds()})
	if err != nil {
		return 0, err
	}
	n, _ := reply[0].(int64)
	return n, nil
}

// peers knows how many gateways share the limits of a cluster.
type peers struct {
	cluster string
	// known is how many there are, this one included; 0 = it is too early to say, and nothing may be held.
	known atomic.Int64

	// Of the goroutine that meets.
	joined, last int64 // when it met first, and last
	rejoined     int64 // when it met again after it was missing
	seen         []sighting
}

type sighting struct{ at, n int64 }

// met takes in that so many were there.
func (p *peers) met(now, n int64) {
	switch {
	case p.last == 0:
		p.joined = now
	case now-p.last > int64(missing):
		p.rejoined = now
	}
	p.last = now
	kept := p.seen[:0]
	most := max(n, 1)
	for _, s := range p.seen {
		if now-s.at < int64(fewer) {
			kept = append(kept, s)
			most = max(most, s.n)
		}
	}
	p.seen = append(kept, sighting{now, n})
	if p.rejoined != 0 && now-p.rejoined < int64(probation) {
		most = max(most, p.known.Load())
	}
	if now-p.joined >= int64(probation) {
		p.known.Store(most)
	}
}

// number is for what must be divided in any case.
func (p *peers) number() int64 { return max(p.known.Load(), 1) }

// newName is a name that no other gateway has.
func newName() string { return rand.Text() }

// of returns who shares the limits of a cluster; asked for the first time it begins to count them. p.mu is held.
func (p *Pool) of(cluster string) *peers {
	if g := p.peers[cluster]; g != nil {
		return g
	}
	g := &peers{cluster: cluster}
	p.peers[cluster] = g
	place, ok := p.cfg.Redis.(Place)
	switch {
	case p.cfg.Gateways > 0 || !ok:
		g.known.Store(int64(max(p.cfg.Gateways, 1)))
	case !p.closed:
		p.sweeper.done.Go(func() {
			alive.Loop(p.sweeper.ctx, p.cfg.Log, "counting gateways", func(ctx context.Context) { p.meeting(ctx, place, g) })
		})
	}
	return g
}

// Gateways is how many gateways share the limits of a cluster, as far as it is known, at least 1.
func (p *Pool) Gateways(cluster string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.of(cluster).number())
}

// meeting runs until ctx ends.
func (p *Pool) meeting(ctx context.Context, place Place, g *peers) {
	tick := time.NewTicker(meetEvery)
	defer tick.Stop()
	for {
		p.meet(ctx, place, g)
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(p.ctx, meetFor)
			defer cancel()
			_, _ = place.Meet(ctx, g.cluster, p.name, true)
			return
		case <-tick.C:
		}
	}
}

func (p *Pool) meet(ctx context.Context, place Place, g *peers) {
	ctx, cancel := context.WithTimeout(ctx, meetFor)
	defer cancel()
	if n, err := place.Meet(ctx, g.cluster, p.name, false); err == nil {
		g.met(p.Now(), n)
	}
}
