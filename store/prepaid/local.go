package prepaid

// unasked decides without Redis. a.mu is held.
func (a *Allowance) unasked(t *terms, now, n int64) Decision {
	switch t.OnError {
	case "open":
		return Decision{Verdict: Allowed, Unasked: true, Remaining: t.most}
	case "closed":
		return Decision{Verdict: Unavailable, Unasked: true, RetryAfter: int64(oneSecond)}
	}
	d := a.decide(t, now, n)
	d.Unasked = true
	if d.RetryAfter == Never {
		d.RetryAfter = oneSecond // more than this gateway's part; the whole limit has it
	}
	return d
}

const oneSecond = int64(1e9)

// decideAlone is all of mode Alone. a.mu is held.
func (a *Allowance) decideAlone(t *terms, now, n int64) Decision {
	if owed := -a.position.Load(); owed > 0 {
		a.keepLocally(t)
		g := a.local.Take(now/1000, owed, 1)
		if a.position.Add(g.Granted) < 0 {
			return Decision{Verdict: Denied, Next: t.perToken, RetryAfter: (owed - g.Granted + n) * t.perToken}
		}
	}
	return a.decide(t, now, n)
}

// keepLocally sets local for the gateways that there are. a.mu is held.
func (a *Allowance) keepLocally(t *terms) {
	n := int64(1)
	if t.Mode != Alone {
		n = a.peers.number()
	}
	if n != a.localOf {
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
