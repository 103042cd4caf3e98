package pools

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/pool"
)

// maxSeriesOfPool is how many members a pool has at most to have series of its members: of more, nobody looks at each.
const maxSeriesOfPool = 64

// series are the metrics of members, as they were when Redis was asked last. Members that have left are in them no more.
type series struct {
	state, weight, share, allocations, inflight *prometheus.Desc
	now                                         atomic.Pointer[[]figures]
}

// figures are those of one member, with its labels.
type figures struct {
	app, pool, member                           string
	state, weight, share, allocations, inflight float64
}

func newSeries() *series {
	return &series{
		state: metric.PoolMemberState.Desc(), weight: metric.PoolMemberWeight.Desc(), share: metric.PoolMemberShare.Desc(),
		allocations: metric.PoolMemberAllocations.Desc(), inflight: metric.PoolMemberInflight.Desc(),
	}
}

// Describe implements prometheus.Collector.
func (s *series) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{s.state, s.weight, s.share, s.allocations, s.inflight} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *series) Collect(ch chan<- prometheus.Metric) {
	all := s.now.Load()
	if all == nil {
		return
	}
	for _, f := range *all {
		ch <- metric.PoolMemberState.Const(s.state, f.state, f.app, f.pool, f.member)
		ch <- metric.PoolMemberWeight.Const(s.weight, f.weight, f.app, f.pool, f.member)
		ch <- metric.PoolMemberShare.Const(s.share, f.share, f.app, f.pool, f.member)
		ch <- metric.PoolMemberAllocations.Const(s.allocations, f.allocations, f.app, f.pool, f.member)
		ch <- metric.PoolMemberInflight.Const(s.inflight, f.inflight, f.app, f.pool, f.member)
	}
}

// The states of members in the metrics.
const (
	stateHealthy = iota
	stateDegraded
	stateUnhealthy
	stateAway
)

// figuresOf are those of the members of a pool. Members whose names are the same as labels are one: the first of them.
func figuresOf(app, name string, o *Overview) []figures {
	all, seen := make([]figures, 0, len(o.Members)), map[string]bool{}
	for i := range o.Members {
		m := &o.Members[i]
		f := figures{
			app: app, pool: name, member: metric.Label(m.Member), state: stateHealthy, weight: float64(m.Weight), share: m.Share,
			allocations: float64(m.Allocations), inflight: float64(m.Inflight),
		}
		switch {
		case !m.eligible():
			f.state = stateAway
		case m.Health != nil && m.Health.Condition == pool.Degraded:
			f.state = stateDegraded
		case m.Health != nil && m.Health.Condition == pool.Unhealthy:
			f.state = stateUnhealthy
		}
		if m.Health != nil {
			f.weight *= m.Health.Factor
		}
		if !seen[f.member] {
			seen[f.member] = true
			all = append(all, f)
		}
	}
	return all
}
