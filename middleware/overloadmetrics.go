package middleware

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/store/adaptive"
	"github.com/slotgate/slotgate/store/metric"
)

// refusals are the counters of requests that Shed refused. All of them are there from the start: one that appears with its first refusal has
// no rate until the second.
type refusals map[refusal]prometheus.Counter

type refusal struct {
	reason shedReason
	class  adaptive.Class
}

func newRefusals(reg prometheus.Registerer) refusals {
	vec, all := metric.OverloadShed.NewCounterVec(), refusals{}
	for reason := range shedReasons {
		for _, class := range adaptive.Classes() {
			all[refusal{reason, class}] = vec.WithLabelValues(reason.String(), class.String())
		}
	}
	reg.MustRegister(vec)
	return all
}

func (m *Metrics) shed(reason shedReason, class adaptive.Class) {
	m.refusals[refusal{reason, class}].Inc()
}

// register adds the gauges that say what the guard goes by.
func (o *Overload) register(reg prometheus.Registerer) {
	reg.MustRegister(
		metric.OverloadLimit.NewGaugeFunc(o.places.Limit),
		metric.OverloadInFlight.NewGaugeFunc(func() float64 { return float64(o.places.InFlight()) }),
		metric.OverloadWaiting.NewGaugeFunc(func() float64 { return float64(o.places.Waiting()) }),
		metric.OverloadCPUWait.NewGaugeFunc(func() float64 { return float64(o.cpuWait.Load()) / 1e9 }),
		metric.OverloadMemory.NewGaugeFunc(func() float64 { return float64(o.memory.Load()) }),
		metric.OverloadMemoryMax.NewGaugeFunc(func() float64 { return float64(o.memoryMax) }),
	)
}
