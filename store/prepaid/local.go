package prepaid

import (
	"time"

	"github.com/slotgate/slotgate/store/ratelimit"
)

// own is this gateway's part of a limit, by which it decides while Redis does not answer in time. All that Redis grants is taken from it too, and
// it takes part in what others have used, as far as Redis tells: so what it gives never comes on top of what Redis gave in the same time.
// Together they give at most the larger of both, however often one takes the other's place.
type own struct {
	gateways int64 // rule is for so many; 0 = none yet
	rule     ratelimit.Rule
	one      ratelimit.One // but for fixed windows
	window   window        // of these
}

// set makes it the part of one of so many gateways. What was used stays used.
func (o *own) set(t *terms, gateways int64) {
	o.gateways, o.rule = gateways, t.part(gateways)
	if !o.fixed() {
		o.one.Set(o.rule)
	}
}

func (o *own) fixed() bool { return o.rule.Algorithm == ratelimit.FixedWindow }

// most is all that it ever has.
func (o *own) most(t *terms) int64 {
	if t.bucket {
		return o.rule.Burst
	}
	return o.rule.Limit
}

// take takes up to n, and at least so many or none.
func (o *own) take(t *terms, now, n, least int64) ratelimit.Grant {
	if !o.fixed() {
		return o.one.Take(now/1000, n, least)
	}
	w := &o.window
	w.roll(t, now)
	g := ratelimit.Grant{Granted: min(n, max(o.rule.Limit-w.used, 0)), Reset: time.Duration(w.later - now), Retry: -1}
	if g.Granted < least {
		g.Granted = 0
		if least <= o.rule.Limit {
			g.Retry = g.Reset
		}
	}
	w.take(now, g.Granted)
	g.Remaining = max(o.rule.Limit-w.used, 0)
	return g
}

// giveBack undoes a take.
func (o *own) giveBack(t *terms, now, n int64) {
	if !o.fixed() {
		o.one.Refund(now/1000, n)
		return
	}
	o.window.roll(t, now)
	o.window.giveBack(n)
}

// taken is how much is used.
func (o *own) taken(t *terms, now int64) int64 {
	if !o.fixed() {
		return o.most(t) - o.one.Peek(now/1000).Remaining
	}
	o.window.roll(t, now)
	return o.window.used
}

// charge takes in that so much was granted by Redis, and that so much of the whole limit is used.
func (o *own) charge(t *terms, now, granted, used int64) {
	if granted > 0 {
		o.take(t, now, granted, 1)
	}
	share := int64(float64(used) * float64(o.most(t)) / float64(t.most))
	if missing := share - o.taken(t, now); missing > 0 {
		o.take(t, now, missing, 1)
	}
}

// tell has the own part know what Redis said. Of what was granted some has paid for what was taken from it already. a.mu is held.
func (a *Allowance) tell(t *terms, asked, now int64, g ratelimit.Grant, paid int64) {
	part := a.part(t)
	if reset := int64(g.Reset); part.fixed() && reset > 0 {
		part.window.heard(t, now, asked+reset, now+reset)
	}
	part.charge(t, now, g.Granted-paid, t.most-g.Remaining)
}

// unasked decides without Redis. a.mu is held.
func (a *Allowance) unasked(t *terms, now, n int64) Decision {
	switch t.OnError {
	case ratelimit.Open:
		return Decision{Verdict: Allowed, Unasked: true, Remaining: t.most}
	case ratelimit.Closed:
		return Decision{Verdict: Unavailable, Unasked: true, RetryAfter: oneSecond}
	}
	d := a.decide(t, now, n)
	d.Unasked = true
	if d.RetryAfter == Never {
		d.RetryAfter = oneSecond // more than this gateway's part; the whole limit has it
	}
	return d
}

// oneSecond, in ns, is when Redis may be there again.
const oneSecond = int64(1e9)

// local says whether a gateway decides for its own part.
func (t *terms) local() bool { return t.OnError != ratelimit.Open && t.OnError != ratelimit.Closed }

// part is the gateway's own. a.mu is held.
func (a *Allowance) part(t *terms) *own {
	if n := a.peers.number(); n != a.own.gateways {
		a.own.set(t, n)
	}
	return &a.own
}

// decide asks the gateway's own part. What it gives is owed to Redis. a.mu is held.
func (a *Allowance) decide(t *terms, now, n int64) Decision {
	part := a.part(t)
	if a.overdue > 0 {
		a.overdue -= part.take(t, now, a.overdue, 1).Granted
	}
	if a.overdue > 0 {
		return Decision{Verdict: Denied, Next: t.perToken, RetryAfter: min(a.overdue*t.perToken*part.gateways, t.period)}
	}
	g := part.take(t, now, n, n)
	d := Decision{Verdict: Allowed, Remaining: g.Remaining, Next: int64(g.Reset)}
	if t.bucket && d.Next > 0 {
		d.Next = min(d.Next, t.perToken)
	}
	if g.Granted == 0 {
		d.Verdict = Denied
		if d.RetryAfter = int64(g.Retry); g.Retry < 0 {
			d.RetryAfter = Never
		}
		return d
	}
	a.owe(n)
	return d
}

// owe notes what was let through without Redis, which is told of it when it answers. a.mu is held.
func (a *Allowance) owe(n int64) {
	a.unpaid = min(a.unpaid+n, max(-a.position.Add(-n), 0))
}

// disown undoes owe, and the take from the own part. a.mu is held.
func (a *Allowance) disown(t *terms, now, n int64) {
	a.part(t).giveBack(t, now, n)
	a.give(n)
	a.unpaid = min(a.unpaid, max(-a.position.Load(), 0))
}

// forgive lets go of what was let through without Redis so long ago that the own part has it again: it would count no more had it been asked. a.mu
// is held.
func (a *Allowance) forgive(t *terms, now int64) {
	if a.unpaid == 0 {
		return
	}
	a.unpaid = min(a.unpaid, max(-a.position.Load(), 0))
	if over := a.unpaid - a.part(t).taken(t, now) - a.overdue; over > 0 {
		a.unpaid -= over
		a.give(over)
	}
}
