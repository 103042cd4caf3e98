package prepaid

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lives is how long tokens may be spent after they were asked for.
	lives = int64(time.Second)
	// remembered is the longest that a refusal of Redis is believed: then an edit has come through.
	remembered = int64(time.Second)
	// rest is how long nobody asks after Redis has not answered, and the longest that nobody waits after it has answered late.
	rest = int64(100 * time.Millisecond)
)

// Allowance is this gateway's part in one limit. It is safe for concurrent use.
type Allowance struct {
	pool  *Pool
	name  string
	peers *peers

	// What a take reads and changes. position is explained at the package; of the tokens that are held, all die at dies. A take may leave
	// floor at the least, and draws more below low.
	position atomic.Int64
	floor    atomic.Int64
	low      atomic.Int64
	dies     atomic.Int64
	terms    atomic.Pointer[terms]
	// What Redis said last: so many remained, when, and when a window ends.
	remained, saidAt, windowEnds atomic.Int64

	mu        sync.Mutex
	successor *Allowance // the pool has forgotten this one and made another
	forgotten bool
	used      int64 // when a take came by here
	waiting   []*waiter
	together  int   // how many of them the draw is for
	most      int   // of them at once, after so many were too many; 0 = all
	drawing   bool  // a goroutine draws, and goes on until nothing is left to do
	asked     int64 // when the question was sent that Redis has not answered; 0 = there is none
	took      int64 // how long the last answer did
	dead      int64 // tokens to be given back
	owes      int64 // since when position is negative; 0 = not

	credit, hold int64 // the bounds of position: -credit and hold
	demand       demand
	chunks       chunks

	refusedUntil int64 // how long a refusal is believed
	refused      int64 // the least that is refused until then; 0 = nothing is
	retryAt      int64 // when the refusal ends by itself, Redis says
	pause        int64 // the last wait between refusals

	failing    bool  // Redis did not answer
	askAt      int64 // when it is asked again
	probe      int64 // tokens to ask for then, if nothing else is needed
	lateUntil  int64 // how long nobody waits because it answered late
	own        own
	unpaid     int64 // of what position owes: let through, and taken from own, without Redis
	unpaidThen int64 // unpaid at the last question
	overdue    int64 // of that: not taken from own yet, which had no more
}

// waiter is a take that waits for Redis.
type waiter struct {
	n        int64
	decision chan Decision // has room for one
}

func newAllowance(p *Pool, name string, t *terms, g *peers) *Allowance {
	a := &Allowance{pool: p, name: name, peers: g}
	a.adapt(t, p.Now())
	return a
}

// adapt takes over terms. a.mu is held, or a is new.
func (a *Allowance) adapt(t *terms, now int64) {
	a.terms.Store(t)
	a.refused, a.pause = 0, 0
	a.own.gateways = 0 // it is the part of another limit
	a.remained.Store(t.most)
	a.saidAt.Store(now)
	a.windowEnds.Store(0)
	a.bound(t)
}

// change takes over what is new in l.
func (a *Allowance) change(l Limit) {
	if a.terms.Load().Limit == l {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adapt(newTerms(l), a.pool.Now())
}

// bound computes between what bounds position may be. a.mu is held.
func (a *Allowance) bound(t *terms) {
	share := t.share(a.peers.known.Load())
	a.credit = (share + 1) / 2
	a.hold = share - a.credit
	a.open(t)
}

// open lets takes use the credit and draw ahead. a.mu is held.
func (a *Allowance) open(t *terms) {
	if a.failing || a.refused != 0 || a.forgotten || t.Mode != Prepaid {
		a.shut()
		return
	}
	a.floor.Store(-a.credit)
	if a.drawing { // one is enough
		a.low.Store(math.MinInt64)
		return
	}
	a.low.Store(-a.credit + (a.demand.target(a.hold)+a.credit+1)/2)
}

// shut leaves takes what is held. a.mu is held.
func (a *Allowance) shut() {
	a.floor.Store(0)
	a.low.Store(math.MinInt64)
}

// Try takes n tokens, at least one, without waiting: the verdict may be Ask.
func (a *Allowance) Try(now, n int64) Decision {
	if now < a.dies.Load() {
		if left, ok := a.spend(n); ok {
			if left < a.low.Load() {
				a.refill(now)
			}
			return a.allowed(now, left)
		}
	}
	a.mu.Lock()
	d, other := a.try(now, n)
	a.mu.Unlock()
	if other != nil {
		return other.Try(now, n)
	}
	return d
}

// spend lowers position by n, if that leaves the floor.
func (a *Allowance) spend(n int64) (left int64, ok bool) {
	for {
		p := a.position.Load()
		if p-n < a.floor.Load() {
			return p, false
		}
		if a.position.CompareAndSwap(p, p-n) {
			return p - n, true
		}
	}
}

// allowed is the decision that leaves position.
func (a *Allowance) allowed(now, position int64) Decision {
	t := a.terms.Load()
	remaining, next := a.standing(t, now, position)
	return Decision{Verdict: Allowed, Remaining: remaining, Next: next}
}

// standing is what remains, and when it grows.
func (a *Allowance) standing(t *terms, now, position int64) (remaining, next int64) {
	remaining = a.remained.Load() + position
	if t.bucket {
		if since := now - a.saidAt.Load(); since > 0 {
			remaining += int64(min(float64(since)*t.rate, float64(t.most)))
		}
		next = t.perToken
	} else if next = a.windowEnds.Load() - now; next <= 0 {
		remaining, next = t.most+min(position, 0), t.period
	}
	if remaining >= t.most {
		return t.most, 0
	}
	return max(remaining, 0), next
}

// try is Try where nothing is held. other has taken a's place. a.mu is held.
func (a *Allowance) try(now, n int64) (d Decision, other *Allowance) {
	if other = a.revive(); other != nil {
		return d, other
	}
	t := a.terms.Load()
	a.used = now
	if n > t.capacity {
		return a.denied(t, now, Never), nil
	}
	a.expire(now)
	if left, ok := a.spend(n); ok {
		if left < a.low.Load() {
			a.begin()
		}
		return a.allowed(now, left), nil
	}
	switch {
	case a.refused > 0 && n >= a.refused && now < a.refusedUntil:
		return a.denied(t, now, max(a.retryAt-now, 1)+a.longer(t, n)), nil
	case a.failing && now < a.askAt:
		return a.unasked(t, now, n), nil
	case a.failing:
		a.askAt = now + rest
		a.probe = 1
		a.begin()
		return a.unasked(t, now, n), nil
	case a.late(now):
		d = a.unasked(t, now, n)
		if a.position.Load() < 0 { // nobody waits for it, but it is told
			a.begin()
		}
		return d, nil
	}
	return Decision{Verdict: Ask}, nil
}

// late says whether an answer of Redis would come too late for who waits now, as far as is known. a.mu is held.
func (a *Allowance) late(now int64) bool {
	return now < a.lateUntil || a.asked != 0 && now-a.asked >= int64(a.pool.cfg.Timeout)
}

// denied is a refusal with a wait in ns.
func (a *Allowance) denied(t *terms, now, wait int64) Decision {
	remaining, next := a.standing(t, now, min(a.position.Load(), 0))
	if a.refused > 0 {
		remaining = min(remaining, a.refused-1)
	}
	return Decision{Verdict: Denied, Remaining: remaining, Next: max(next, 1), RetryAfter: wait}
}

// revive puts an allowance that was forgotten back, or gives the one that is in its place. a.mu is held.
func (a *Allowance) revive() *Allowance {
	if !a.forgotten {
		return nil
	}
	if a.successor == nil {
		if a.successor = a.pool.adopt(a); a.successor == a {
			a.successor, a.forgotten = nil, false
			a.open(a.terms.Load())
			return nil
		}
	}
	return a.successor
}

// expire makes what is held die in time, and says when to look again. a.mu is held.
func (a *Allowance) expire(now int64) {
	if now < a.dies.Load() {
		return
	}
	for {
		p := a.position.Load()
		gone := a.chunks.dead(now, p, a.demand.taken(p))
		if gone == 0 {
			break
		}
		if a.position.CompareAndSwap(p, p-gone) {
			if ends := a.windowEnds.Load(); ends == 0 || now < ends {
				a.dead += gone
			}
			a.demand.moved(-gone)
			break
		}
	}
	a.bound(a.terms.Load())
	a.trim() // where there are more gateways now, or a smaller limit
	dies := now + lives
	if p := a.position.Load(); p > 0 {
		dies = min(dies, a.chunks.until(now, a.demand.taken(p)))
	}
	a.dies.Store(dies)
}

// keep takes in tokens that were asked for at a time, and says when they die. a.mu is held.
func (a *Allowance) keep(n, asked int64) {
	until := asked + lives
	if ends := a.windowEnds.Load(); ends > asked {
		until = min(until, ends)
	}
	for {
		p := a.position.Load()
		if !a.position.CompareAndSwap(p, p+n) {
			continue
		}
		a.chunks.drawn(until, p, a.demand.taken(p))
		a.demand.moved(n)
		a.dies.Store(min(until, a.chunks.until(asked, a.demand.taken(p+n))))
		return
	}
}

// Take takes n tokens, at least one. It is Try, and waits for Redis where that says Ask: no longer than Config.Timeout after now, so that takes
// of one request that are given the same now wait no longer together. If ctx ends the decision is that of OnError.
func (a *Allowance) Take(ctx context.Context, now, n int64) Decision {
	d := a.Try(now, n)
	if d.Verdict != Ask {
		return d
	}
	w, d, other := a.join(ctx, now, n)
	if other != nil {
		return other.Take(ctx, now, n)
	}
	if w == nil {
		return d
	}
	timer := time.NewTimer(a.pool.cfg.Timeout - time.Duration(a.pool.Now()-now))
	defer timer.Stop()
	select {
	case d = <-w.decision:
		return d
	case <-ctx.Done():
		return a.leave(w, false)
	case <-timer.C:
		return a.leave(w, true)
	}
}

// join lets a take wait for the next draw, unless it is decided at once.
func (a *Allowance) join(ctx context.Context, now, n int64) (w *waiter, d Decision, other *Allowance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d, other = a.try(now, n)
	if other != nil || d.Verdict != Ask {
		return nil, d, other
	}
	if a.pool.Now()-now >= int64(a.pool.cfg.Timeout) || ctx.Err() != nil {
		return nil, a.unasked(a.terms.Load(), now, n), nil
	}
	w = &waiter{n, make(chan Decision, 1)}
	a.waiting = append(a.waiting, w)
	a.begin()
	return w, d, nil
}

// leave ends the wait of a take that was not answered; late says that it was Redis' turn.
func (a *Allowance) leave(w *waiter, late bool) Decision {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case d := <-w.decision:
		return d
	default:
	}
	for i, other := range a.waiting {
		if other == w {
			a.waiting = append(a.waiting[:i], a.waiting[i+1:]...)
			break
		}
	}
	now := a.pool.Now()
	if late && a.asked != 0 && now-a.asked >= int64(a.pool.cfg.Timeout/2) { // and not this process, for the most part
		a.lateUntil = now + rest // until it answers
	}
	return a.unasked(a.terms.Load(), now, w.n)
}

// GiveBack undoes a take of n that had the decision d, which was Allowed.
func (a *Allowance) GiveBack(d Decision, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other := a.revive(); other != nil {
		other.GiveBack(d, n)
		return
	}
	t := a.terms.Load()
	switch {
	case !d.Unasked:
		a.give(n)
	case t.local():
		a.disown(t, a.pool.Now(), n)
	default:
		return
	}
	if a.trim(); a.dead > 0 {
		a.begin()
	}
}

// Spend takes n tokens that were used already, whatever is left: a limit of bytes learns how many an answer has when it was sent. What is
// missing is owed, and nobody else gets through before it is paid.
func (a *Allowance) Spend(now, n int64) {
	if n <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if other := a.revive(); other != nil {
		other.Spend(now, n)
		return
	}
	a.used = now
	a.expire(now)
	if a.failing && a.terms.Load().local() {
		a.owe(n)
		a.overdue = min(a.overdue+n, a.unpaid)
		return
	}
	if a.position.Add(-n) < 0 && !a.failing && a.refused == 0 {
		a.begin()
	}
}

// trim takes out what is held beyond hold, to be given back. a.mu is held.
func (a *Allowance) trim() {
	for {
		p := a.position.Load()
		over := p - a.hold
		if over <= 0 {
			return
		}
		if a.position.CompareAndSwap(p, p-over) {
			a.dead += over
			a.demand.moved(-over)
			return
		}
	}
}
