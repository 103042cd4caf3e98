package adaptive

import (
	"sync/atomic"
	"time"
)

// pace is how long one command of several that go together keeps the other side busy. Limiter.service is of no use for that: without
// a queue it is the trip, mostly.
//
// What an answer to many takes longer than one to a few is the work of the others. The least of a window is taken, since what waits on the
// way only adds to it, and of two windows, so that a hiccup is not believed. Where nothing but few go together, nothing shows that the
// work has become slower, but that it has become faster is seen at once: no command takes longer than its answer. After a while of that
// what was known is stale: who has many commands had better send some first, and their answer is believed by itself.
type pace struct {
	each    atomic.Int64 // nanoseconds; 0 = not known
	trip    atomic.Int64 // shortest answer to a few that ever came; like those below, 0 = none came
	several atomic.Int64 // the least for one command of several in this window
	any     atomic.Int64 // the least for one command of any answer in this window
	most    atomic.Int64 // any of the last window that had one
	stale   atomic.Bool

	before int64     // several of the last window that had one; like shown for Tick alone
	shown  time.Time // when several was seen last
}

// severalFrom is how many commands that go together show what one of them takes: what they take beyond a trip is at least three quarters of it.
const severalFrom = 4

// staleAfter is how long what several have shown is believed.
const staleAfter = 2 * time.Second

func (p *pace) observe(took time.Duration, n int) {
	least(&p.any, int64(took)/int64(n))
	if n < severalFrom {
		least(&p.trip, int64(took))
		return
	}
	each := (int64(took) - p.trip.Load()) / int64(n-1)
	least(&p.several, each)
	if p.stale.Load() && p.stale.CompareAndSwap(true, false) {
		p.each.Store(max(each, 1))
	}
}

// tick looks whether what is known is stale.
func (p *pace) tick(now time.Time) {
	switch {
	case p.shown.IsZero() || p.several.Load() > 0:
		p.shown = now
	case now.Sub(p.shown) > staleAfter && !p.stale.Load():
		p.before = 0
		p.stale.Store(true)
	}
}

// turn begins another window.
func (p *pace) turn() {
	each, any := p.each.Load(), p.any.Swap(0)
	if several := p.several.Swap(0); several > 0 {
		if p.before > 0 {
			each = min(several, p.before)
		}
		p.before = several
	}
	if any > 0 {
		p.most.Store(any)
		each = min(each, any)
	}
	p.each.Store(each)
}

// least keeps the smallest value, no less than 1; 0 is none.
func least(kept *atomic.Int64, v int64) {
	v = max(v, 1)
	for old := kept.Load(); old == 0 || v < old; old = kept.Load() {
		if kept.CompareAndSwap(old, v) {
			return
		}
	}
}

// Each is how long one command of several that go together keeps the other side busy, as of late; 0 = not known.
func (l *Limiter) Each() time.Duration { return time.Duration(l.pace.each.Load()) }

// AtMost is how long it may take by all that is known, when several have not gone together for so long that Each says nothing any more; else 0.
func (l *Limiter) AtMost() time.Duration {
	if !l.pace.stale.Load() {
		return 0
	}
	return time.Duration(l.pace.most.Load())
}
