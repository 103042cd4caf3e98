package prepaid

// Look is how the limit stands as far as this gateway knows: Remaining and Next of a take that would take nothing. It is no use of the
// allowance, and asks nobody.
func (a *Allowance) Look(now int64) Decision {
	a.mu.Lock()
	defer a.mu.Unlock()
	position := a.position.Load()
	if a.refused > 0 && now < a.refusedUntil {
		return Decision{Verdict: Allowed, Remaining: min(max(position, 0), a.refused-1), Next: max(a.retryAt-now, 1)}
	}
	return a.allowed(now, position)
}
