package limits

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// The results of takes, as the metrics name them.
const (
	resultAllowed     = "allowed"
	resultDenied      = "denied"
	resultShadow      = "shadow_denied"
	resultFailOpen    = "fail_open"
	resultFailClosed  = "fail_closed"
	resultLocal       = "local"
	resultLocalDenied = "local_denied"
	resultCached      = "cached"
	resultReplayed    = "replayed"
)

var results = []string{resultAllowed, resultDenied, resultShadow, resultFailOpen, resultFailClosed, resultLocal, resultLocalDenied, resultCached, resultReplayed}

// metrics count takes. What apps call their limits is a label for the first of them only, never a subject.
type metrics struct {
	takes    *prometheus.CounterVec // app, limit, result
	near     *prometheus.CounterVec // app, limit
	duration map[string]*metric.Histogram
	names    *metric.Named
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		takes: metric.RateLimitTakes.NewCounterVec(), near: metric.RateLimitNear.NewCounterVec(),
		duration: map[string]*metric.Histogram{}, names: metric.NewNamed(metric.MaxLimits, metric.MaxLimitsOfApp),
	}
	durations := metric.RateLimitDuration.NewDurations()
	for _, result := range results {
		m.duration[result] = durations.With(result)
	}
	if registry != nil {
		registry.MustRegister(m.takes, m.near, durations)
	}
	return m
}

// took counts a take of a limit that exists. One that is no take, because the request is wrong, is none.
func (m *metrics) took(id *acl.Identity, lim ratelimit.Limit, v Verdict, err error, took time.Duration) {
	result := resultOf(v, err)
	if result == "" {
		return
	}
	app, name := m.names.Labels(id.App.ID, lim.Name)
	m.takes.WithLabelValues(app, name, result).Inc()
	m.duration[result].Observe(took.Seconds())
	if result == resultAllowed && near(lim.Definition.RulesFor(lim.Override, time.Now()), v.Rules) {
		m.near.WithLabelValues(app, name).Inc()
	}
}

func resultOf(v Verdict, err error) string {
	if err != nil {
		if e, ok := errors.AsType[*store.Error](err); ok && e.Code == store.CodeLimiterUnavailable {
			return resultFailClosed
		}
		return ""
	}
	switch {
	case v.Replayed:
		return resultReplayed
	case v.Source == ratelimit.FailedOpen:
		return resultFailOpen
	case v.Source == ratelimit.FromCache:
		return resultCached
	case v.Shadowed:
		return resultShadow
	case v.Source == ratelimit.FromLocal && v.Allowed:
		return resultLocal
	case v.Source == ratelimit.FromLocal:
		return resultLocalDenied
	case v.Allowed:
		return resultAllowed
	}
	return resultDenied
}

// near says whether a rule has a fifth of its tokens left, or less.
func near(rules []ratelimit.Rule, left []ratelimit.RuleResult) bool {
	return slices.ContainsFunc(left, func(r ratelimit.RuleResult) bool {
		i := slices.IndexFunc(rules, func(rule ratelimit.Rule) bool { return rule.ID == r.ID })
		if i < 0 {
			return false
		}
		whole := rules[i].Limit
		if rules[i].Burst > 0 { // buckets are as large as their burst
			whole = rules[i].Burst
		}
		return r.Remaining <= whole/5
	})
}
