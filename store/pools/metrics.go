package pools

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/definitions"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/pool"
)

// The results of allocations beside the reasons why there was nobody, and what becomes of leases, as the metrics name them.
const (
	resultAllocated = "allocated"
	resultReplayed  = "replayed"
	resultFailed    = "failed"

	leaseRenewed   = "renewed"
	leaseCompleted = "completed"
	leaseLate      = "late"
	leaseLost      = "lost"
	leaseAbandoned = "abandoned"
)

var results = []string{
	resultAllocated, resultReplayed, resultFailed,
	string(pool.Empty), string(pool.Excluded), string(pool.NoWeight), string(pool.Cooling), string(pool.Saturated),
}

// metrics count what is done with pools. What apps call their pools is a label for the first of them only; members have series of their own, see
// series.
type metrics struct {
	allocations *prometheus.CounterVec // app, pool, result
	duration    map[string]*metric.Histogram
	reports     *prometheus.CounterVec // app, pool, outcome
	leases      *prometheus.CounterVec // app, pool, result
	ejections   *prometheus.CounterVec // app, pool
	names       *metric.Named
	members     *series
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		allocations: metric.PoolAllocations.NewCounterVec(), duration: map[string]*metric.Histogram{},
		reports: metric.PoolReports.NewCounterVec(), leases: metric.PoolLeases.NewCounterVec(), ejections: metric.PoolEjections.NewCounterVec(),
		names: metric.NewNamed(metric.MaxPools, metric.MaxPoolsOfApp), members: newSeries(),
	}
	durations := metric.PoolAllocateDuration.NewDurations()
	for _, result := range results {
		m.duration[result] = durations.With(result)
	}
	if registry != nil {
		registry.MustRegister(m.allocations, durations, m.reports, m.leases, m.ejections, m.members)
	}
	return m
}

// allocated counts a request to a pool that is there, unless the request was wrong.
func (m *metrics) allocated(id *acl.Identity, name string, res pool.Result, replayed bool, err error, took time.Duration) {
	result := resultAllocated
	switch {
	case definitions.Unanswered(err):
		result = resultFailed
	case err != nil:
		return
	case replayed:
		result = resultReplayed
	case res.Reason != "":
		result = string(res.Reason)
	}
	app, label := m.names.Labels(id.App.ID, name)
	m.allocations.WithLabelValues(app, label, result).Inc()
	m.duration[result].Observe(took.Seconds())
}

func (m *metrics) reported(id *acl.Identity, name string, list []pool.Report, after []pool.Health) {
	app, label := m.names.Labels(id.App.ID, name)
	for i := range list {
		outcome := string(list[i].Outcome)
		if after[i].Condition == pool.Unknown {
			outcome = string(pool.Unknown)
		}
		m.reports.WithLabelValues(app, label, outcome).Inc()
		if after[i].Changed && after[i].Condition == pool.Unhealthy {
			m.ejections.WithLabelValues(app, label).Inc()
		}
	}
}

// settled counts what a holder has done with its lease, or has found that it has lost it.
func (m *metrics) settled(id *acl.Identity, name, result string, err error) {
	switch {
	case errors.Is(err, pool.ErrLost), errors.Is(err, pool.ErrNoLease):
		result = leaseLost
	case err != nil:
		return
	}
	app, label := m.names.Labels(id.App.ID, name)
	m.leases.WithLabelValues(app, label, result).Inc()
}

// reaped counts leases that were abandoned.
func (m *metrics) reaped(id *acl.Identity, name string, r pool.Reaped) {
	if r.Abandoned == 0 {
		return
	}
	app, label := m.names.Labels(id.App.ID, name)
	m.leases.WithLabelValues(app, label, leaseAbandoned).Add(float64(r.Abandoned))
	if r.Ejected > 0 {
		m.ejections.WithLabelValues(app, label).Add(float64(r.Ejected))
	}
}
