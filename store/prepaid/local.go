package prepaid

import "github.com/slotgate/slotgate/store/ratelimit"

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

// keepLocally sets local for the gateways that there are. a.mu is held.
func (a *Allowance) keepLocally(t *terms) {
	if n := a.peers.number(); n != a.localOf {
		a.localOf = n
		a.local.Set(t.part(n))
	}
}

// decide asks the rule in memory. a.mu is held.
func (a *Allowance) decide(t *terms, now, n int64) Decision {
	a.keepLocally(t)
	g := a.local.Take(now/1000, n, n)
	d := Decision{Verdict: Allowed, Remaining: g.Remaining, Next: int64(g.Reset)}
	if t.bucket && d.Next > 0 {
		d.Next = min(d.Next, t.perToken)
	}
	if g.Granted == 0 {
		d.Verdict = Denied
		if d.RetryAfter = int64(g.Retry); g.Retry < 0 {
			d.RetryAfter = Never
		}
	}
	return d
}
