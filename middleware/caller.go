package middleware

// caller is what the guards work out from an app and keep beside its identity (acl.Memo), for the limiter and the metrics of one chain.
type caller struct {
	limiter *Limiter
	limits  *appLimits
	metrics *Metrics
	series  *appSeries
}

// caller returns what is kept for the request's caller, with the part of limiter and of m worked out, if they are not nil.
func (r *request) caller(limiter *Limiter, m *Metrics) *caller {
	id := r.event.Identity
	var known caller
	if id.Memo != nil {
		if c, ok := id.Memo.Load().(*caller); ok {
			if (limiter == nil || c.limiter == limiter) && (m == nil || c.metrics == m) {
				return c
			}
			known = *c
		}
	}
	if limiter != nil && known.limiter != limiter {
		known.limiter, known.limits = limiter, limiter.forApp(id.App)
	}
	if m != nil && known.metrics != m {
		known.metrics, known.series = m, m.app(id.App.ID)
	}
	if id.Memo != nil {
		id.Memo.Store(&known)
	}
	return &known
}
