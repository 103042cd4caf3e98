package prepaid

import (
	"context"
	"math"
	"time"

	"github.com/slotgate/slotgate/store/ratelimit"
)

const (
	// drawing is how long a draw may last: as long as a command may, and tokens live. Takes that wait have left long before; what comes late pays
	// for what was let through meanwhile.
	drawing = time.Second
	// longestPause is the longest wait of a gateway whose draws are refused, by which it saves Redis questions without an answer.
	longestPause = int64(20 * time.Millisecond)
	// lagging is the part of a limit, one in so many, that may be let through beyond it for a while when answers are late.
	lagging = 20
	// payAfter is how long a debt may wait for company.
	payAfter = int64(time.Second)
)

// refill draws more, in the background.
func (a *Allowance) refill(now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = now
	a.begin()
}

// begin has a goroutine do what is to be done at Redis. a.mu is held.
func (a *Allowance) begin() {
	if a.drawing {
		return
	}
	if a.drawing = a.pool.start(a.draw); !a.drawing {
		a.fail(a.pool.Now())
	}
	a.low.Store(math.MinInt64)
}

// draw asks Redis until nothing is left to do.
func (a *Allowance) draw() {
	sound := false
	defer func() {
		if !sound {
			a.mu.Lock()
			a.drawing = false
			a.fail(a.pool.Now())
			a.mu.Unlock()
		}
	}()
	for first := true; a.step(first); first = false {
	}
	sound = true
}

// step does one thing at Redis. It is false when there is none.
func (a *Allowance) step(first bool) bool {
	a.mu.Lock()
	t, asked := a.terms.Load(), a.pool.Now()
	cost, least, need := a.plan(t, asked, first)
	back := int64(0)
	if cost == 0 {
		back, a.dead = a.refundable(t, asked), 0
	}
	if cost == 0 && back == 0 {
		a.drawing = false
		a.open(t)
		a.mu.Unlock()
		return false
	}
	a.asked = asked
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(a.pool.ctx, drawing)
	defer cancel()
	var g ratelimit.Grant
	var err error
	if cost == 0 {
		err = a.pool.cfg.Redis.Refund(ctx, &t.Limit, back)
	} else {
		g, err = a.pool.cfg.Redis.Take(ctx, &t.Limit, cost, least)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked = 0; cost == 0 { // what is lost on its way back is as if it was used
		if err == nil && t.bucket {
			a.refused = 0 // there are some again
		}
		if now := a.pool.Now(); err == nil && t.local() && (t.bucket || now < a.windowEnds.Load()) {
			a.part(t).giveBack(t, now, back)
		}
		return true
	}
	if err != nil {
		a.fail(a.pool.Now())
		return true
	}
	a.settle(a.terms.Load(), asked, cost, need, g)
	return true
}

// refundable is how many of the dead tokens may be given back: none of a window that is over. A bucket that has filled up meanwhile has
// them again, and would have them twice; that is within the slack up to the share. a.mu is held.
func (a *Allowance) refundable(t *terms, now int64) int64 {
	if !t.bucket {
		if now+a.took >= a.windowEnds.Load() { // it would come too late
			return 0
		}
		return a.dead
	}
	used := t.most - a.remained.Load() - int64(float64(now-a.saidAt.Load())*t.rate) - 1
	return min(a.dead, max(used, a.hold+a.credit))
}

// plan says how much is to be drawn: what is owed, what waits, and what will soon be used. 0 = nothing. a.mu is held.
func (a *Allowance) plan(t *terms, now int64, first bool) (cost, least, need int64) {
	a.expire(now)
	a.bound(t)
	a.trim()
	a.forgive(t, now)
	p := a.position.Load()
	a.demand.measure(now, p)
	owed := max(-p, 0)
	a.unpaidThen = a.unpaid
	need = a.needed(owed)
	target := a.demand.target(a.hold)
	room := max(min(target, a.hold-a.dead)-max(p, 0), 0)
	believed := a.refused > 0 && now < a.refusedUntil
	switch {
	case len(a.waiting) > 0:
	case first && a.failing && a.probe > 0: // to learn whether Redis is there again
		room = max(room, a.probe)
	case a.failing, believed:
		return 0, 0, 0
	case !first && p >= a.credit/2-a.credit && p >= target/2:
		return 0, 0, 0
	}
	cost, least = owed+room, 1
	if need > 0 {
		cost, least = cost+need, owed+need
	}
	return min(cost, ratelimit.MaxCount), min(least, cost, ratelimit.MaxCount), need
}

// needed is what those need who wait. It is granted to all together or to none, so that no more is asked for than is used; and a debt that is
// more than credit is paid first, as far as that goes. a.mu is held.
func (a *Allowance) needed(owed int64) (need int64) {
	a.together = len(a.waiting)
	switch {
	case owed > a.credit:
		a.together = 0
	case a.most > 0:
		a.together = min(a.together, a.most)
	}
	for _, w := range a.waiting[:a.together] {
		need += w.n
	}
	return need
}

// settle puts what was granted to its use: first for those who wait, then for what is owed, then to be held. A debt that is more than credit
// goes before those who wait: whoever passed ahead of it could leave another. a.mu is held.
func (a *Allowance) settle(t *terms, asked, cost, need int64, g ratelimit.Grant) {
	now := a.pool.Now()
	a.heard(t, asked, now, g)
	left, charged := g.Granted, a.unpaid-a.overdue
	pays := a.payable(t, now-asked, now, left)
	if worth := t.worth(left, now-asked); left > pays && worth < left {
		left = max(pays, worth)
	}
	if a.position.Load() < -a.credit {
		if pays, left = a.repay(pays, left); a.position.Load() < -a.credit { // what is left came too late to pay
			a.dead, left = a.dead+left, 0
		}
	}
	kept := a.waiting[:0]
	for _, w := range a.waiting {
		if w.n > left {
			kept = append(kept, w)
			continue
		}
		left -= w.n
		a.demand.spent += w.n
		w.decision <- a.allowed(now, 0)
	}
	clear(a.waiting[len(kept):])
	a.waiting = kept
	_, left = a.repay(min(pays, left), left)
	if t.local() {
		a.tell(t, asked, now, g, charged-(a.unpaid-a.overdue))
	}
	if a.probe > 0 { // the rest was used by the take that was not answered
		a.probe, left = 0, min(left, max(a.hold-a.position.Load(), 0))
	}
	switch {
	case left > 0 && a.position.Load() < 0:
		a.dead += left
	case left > 0:
		a.keep(left, asked)
		a.trim()
	}
	switch {
	case g.Granted == 0 && a.together > 1: // fewer may pass
		a.most = a.together / 2
	case g.Granted < cost:
		a.most = 0
		a.refuse(t, now, max(need, 1), g)
	case t.bucket && g.Remaining <= 0 && a.position.Load() <= 0: // it was the last one, so the next one need not be asked for before it is due
		a.most = 0
		a.deny(t, now, 1, t.untilNext(g))
	default:
		if len(a.waiting) == 0 {
			a.most = 0
		}
		a.refused, a.pause = 0, 0
		a.open(t)
	}
}

// untilNext is when a bucket that has just become empty has a token again: when it is full, less what the others take.
func (t *terms) untilNext(g ratelimit.Grant) int64 {
	return min(max(int64(g.Reset)-(t.most-1)*t.perToken, 1), t.perToken)
}

// payable is how many of the tokens may pay. They were taken at any time since they were asked for, and what a gateway has let through by
// itself since then may be later: then a bucket has grown meanwhile, and a window may be another. a.mu is held.
func (a *Allowance) payable(t *terms, took, now, tokens int64) int64 {
	later := max(a.unpaid-a.unpaidThen, 0)
	sooner := max(-a.position.Load(), 0) - later
	switch {
	case tokens <= sooner, later == 0:
		return tokens
	case t.bucket:
		return max(sooner, t.worth(tokens, took))
	case now < a.windowEnds.Load():
		return tokens
	}
	return sooner
}

// worth is how many of the tokens of an answer that took so long may be used for what came later. Those that a bucket has got again meanwhile
// would be used twice; that is left alone where they are few.
func (t *terms) worth(tokens, took int64) int64 {
	if !t.bucket || took <= min(rest, t.period/lagging) {
		return tokens
	}
	return max(tokens-int64(float64(took)*t.rate)-1, 0)
}

// repay pays what is owed with up to pays of the tokens, and says how many are left of both. a.mu is held.
func (a *Allowance) repay(pays, tokens int64) (more, left int64) {
	n := min(pays, max(-a.position.Load(), 0))
	a.give(n)
	a.unpaid -= min(n, a.unpaid)
	a.overdue = min(a.overdue, a.unpaid)
	return pays - n, tokens - n
}

// give raises position. a.mu is held.
func (a *Allowance) give(n int64) {
	a.position.Add(n)
	a.demand.moved(n)
}

// heard notes how the limit stands. Redis that has not answered is there again, but who waits longer than a request may is not helped by it. a.mu
// is held.
func (a *Allowance) heard(t *terms, asked, now int64, g ratelimit.Grant) {
	a.failing, a.lateUntil = false, 0
	if a.took = now - asked; a.took > int64(a.pool.cfg.Timeout) {
		a.lateUntil = now + min(2*a.took, rest)
	}
	a.remained.Store(g.Remaining)
	a.saidAt.Store(now)
	if t.bucket || g.Reset <= 0 {
		return
	}
	ends := asked + int64(g.Reset) // or later, by the time the question took
	if t.Rule.Algorithm == ratelimit.SlidingWindow && int64(g.Reset) > t.period {
		ends -= t.period // it is reset when the next window is over too
	}
	if ends-a.windowEnds.Load() > t.period/2 { // another one
		a.dead = 0
	}
	a.windowEnds.Store(ends)
}

// refuse remembers what Redis has not granted. a.mu is held.
func (a *Allowance) refuse(t *terms, now, least int64, g ratelimit.Grant) {
	retry := int64(g.Retry)
	if g.Granted > 0 {
		least, retry = 1, (max(-a.position.Load(), 0)+1)*t.perToken // what is owed is paid first
		if t.Rule.Algorithm == ratelimit.FixedWindow {
			retry = max(a.windowEnds.Load()-now, 1)
		}
	}
	if retry <= 0 {
		retry = t.perToken
	}
	a.deny(t, now, least, retry)
}

// deny remembers that the limit has fewer than least tokens for so long, and tells those who wait. a.mu is held.
func (a *Allowance) deny(t *terms, now, least, retry int64) {
	a.refused = least
	chunk := max((a.hold+a.credit)*t.perToken, 1)
	a.pause = min(max(chunk, 2*a.pause), chunk*a.peers.number(), longestPause)
	if t.Mode != Prepaid {
		a.pause = 0
	}
	a.retryAt = now + retry
	a.refusedUntil = now + min(max(retry, a.pause), remembered)
	kept := a.waiting[:0]
	for _, w := range a.waiting {
		if w.n < a.refused {
			kept = append(kept, w)
			continue
		}
		w.decision <- a.denied(t, now, retry+a.longer(t, w.n))
	}
	clear(a.waiting[len(kept):])
	a.waiting = kept
	a.shut()
}

// longer is how much longer than for the least that is refused a take of n has to wait. A window has all of it again at once. a.mu is held.
func (a *Allowance) longer(t *terms, n int64) int64 {
	if !t.bucket {
		return 0
	}
	return min(n-a.refused, math.MaxInt64/2/t.perToken) * t.perToken
}

// fail has nobody wait for Redis for a while. a.mu is held.
func (a *Allowance) fail(now int64) {
	a.failing, a.askAt = true, now+rest
	t := a.terms.Load()
	for _, w := range a.waiting {
		w.decision <- a.unasked(t, now, w.n)
	}
	clear(a.waiting)
	a.waiting = a.waiting[:0]
	a.shut()
}

// sweep does what time alone makes necessary.
func (a *Allowance) sweep(now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.forgotten {
		return
	}
	t := a.terms.Load()
	a.expire(now)
	p := a.position.Load()
	if p >= 0 {
		a.owes = 0
	} else if a.owes == 0 {
		a.owes = now
	}
	may := !a.failing && (a.refused == 0 || now >= a.retryAt) || a.failing && now >= a.askAt
	switch {
	case a.drawing:
	case a.owes != 0 && now-a.owes >= payAfter && may:
		if a.failing {
			a.probe = 1
		}
		a.begin()
	case a.dead > 0 && !a.failing:
		a.begin()
	}
	quiet := now - a.used
	if quiet < int64(forgetAfter) || a.drawing || len(a.waiting) > 0 || p > 0 {
		return
	}
	// A Redis that has not answered for as long as the limit's period is owed nothing any more.
	if a.failing && quiet >= t.period || !a.failing && p == 0 && a.dead == 0 {
		a.position.Store(0)
		a.demand, a.chunks, a.dead = demand{}, chunks{}, 0
		a.unpaid, a.overdue = 0, 0
		a.forgotten = true
		a.shut()
		a.dies.Store(0)
		a.pool.forget(a)
	}
}
