package middleware

import "github.com/slotgate/slotgate/acl"

// caller is what the guards work out from an app and keep beside its identity (acl.Memo), for the limiter and the metrics of one chain.
type caller struct {
	limiter *Limiter
	limits  *callerLimits
	metrics *Metrics
	series  *appSeries
}

// caller returns what is kept for the request's caller, with the part of limiter and of m worked out, if they are not nil.
func (r *request) caller(limiter *Limiter, m *Metrics) *caller {
	id := r.event.Identity
	if id.Memo == nil {
		return (*caller)(nil).with(limiter, m, id)
	}
	c, _ := id.Memo.Load().(*caller)
	if c != nil && (limiter == nil || c.limiter == limiter && c.limits.settings == limiter.settings.Load()) && (m == nil || c.metrics == m) {
		return c
	}
	c = c.with(limiter, m, id)
	if c.limits == nil || c.limits.app == id.App { // else it came with the app of before an edit
		id.Memo.Store(c)
	}
	return c
}

// with returns a copy of c, which may be nil, that knows the parts of limiter and m, too.
func (c *caller) with(limiter *Limiter, m *Metrics, id *acl.Identity) *caller {
	var known caller
	if c != nil {
		known = *c
	}
	if limiter != nil {
		known.limiter, known.limits = limiter, limiter.forCaller(id.App, id.Key.ID)
	}
	if m != nil && known.metrics != m {
		known.metrics, known.series = m, m.app(id.App.ID)
	}
	return &known
}
