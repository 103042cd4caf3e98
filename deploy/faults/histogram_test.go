package faults

import (
	"math"
	"time"
)

// histogram counts times in buckets that are 5 % wide, from 10 µs to 60 s.
type histogram struct {
	buckets [321]int
	n       int
	max     time.Duration
}

const (
	histogramFrom = 10 * time.Microsecond
	histogramStep = 1.05
)

func (h *histogram) add(d time.Duration) {
	i := 0
	if d > histogramFrom {
		i = min(len(h.buckets)-1, int(math.Log(float64(d)/float64(histogramFrom))/math.Log(histogramStep)))
	}
	h.buckets[i]++
	h.n++
	h.max = max(h.max, d)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// quantile returns the time below which a share of all lie; 0 if there are none.
func (h *histogram) quantile(q float64) time.Duration {
	want, seen := int(math.Ceil(q*float64(h.n))), 0
	for i, n := range h.buckets {
		if seen += n; seen >= want && n > 0 {
			return min(h.max, time.Duration(float64(histogramFrom)*math.Pow(histogramStep, float64(i+1))))
		}
	}
	return 0
}
