package pool

import (
	"math"
	"slices"

	"github.com/slotgate/slotgate/store/packed"
)

// record is what is known of the health of a member, as scripts/health.lua has it. Times are in us.
type record struct {
	state, clean, row, first              float64
	failures, calls, latencies, latencied float64 // decayed
	last, ejections, back, good, trial    float64
	saturations, saturated                float64 // decayed
}

// ejected is the state of a member that gets trials alone.
const ejected = 2

// readRecord reads one as it is at now; "" is of a member on which there was no report.
func readRecord(text string, now, halfLife float64) (r record, err error) {
	if text != "" {
		q := packed.Reader{Rest: text}
		for _, x := range [...]*float64{&r.state, &r.clean, &r.row, &r.first, &r.failures, &r.calls, &r.latencies, &r.latencied,
			&r.last, &r.ejections, &r.back, &r.good, &r.trial, &r.saturations, &r.saturated} {
			*x = q.Fraction()
		}
		if err := whole(&q); err != nil {
			return r, err
		}
	}
	if r.last == 0 {
		r.clean, r.last = now, now
	}
	left := math.Exp2(-max(0, now-r.last) / halfLife)
	for _, x := range [...]*float64{&r.failures, &r.calls, &r.latencies, &r.latencied, &r.saturations, &r.saturated} {
		*x *= left
	}
	return r, nil
}

// usual is the latency in ms that others are measured by: the median of those that are not ejected.
func (a *Adaptive) usual(all []record) float64 {
	if a.BaselineMS > 0 {
		return float64(a.BaselineMS)
	}
	var list []float64
	for i := range all {
		if r := &all[i]; r.latencied > 0.05 && r.state < ejected {
			list = append(list, r.latencies/r.latencied)
		}
	}
	if len(list) == 0 {
		return 1
	}
	slices.Sort(list)
	return max(list[(len(list)-1)/2], 0.2)
}

// weigh is by what the weight of a member counts, Floor to 1, and its latency in ms.
func (a *Adaptive) weigh(r *record, usual, now float64) (factor, latency float64) {
	latency = (r.latencies + 5*usual) / (r.latencied + 5)
	loss := max(0, (latency-usual)/usual) + 10*r.failures/(r.calls+20)
	if r.saturated > 0.05 {
		loss += max(0, r.saturations/r.saturated-0.8) * 5
	}
	factor = max(a.Floor, 1-loss)
	switch r.state {
	case 1:
		factor = min(factor, a.Floor+(1-a.Floor)*min(1, (now-r.clean)/(float64(a.RecoverMS)*1000)))
	case ejected:
		factor = a.Floor
	}
	return factor, latency
}
