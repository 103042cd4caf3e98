package metric

import (
	"math"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Histogram counts observations in classic and in native buckets. It exists because six of prometheus' own would take most of the
// microsecond that the metrics of a request may cost: they look each native bucket up in a sync.Map and cost three times as much
// (BenchmarkHistogram). These also never lower their resolution to save buckets. It is safe for concurrent use.
type Histogram struct {
	layout *layout
	labels []*dto.LabelPair
	desc   *prometheus.Desc

	zero    atomic.Uint64
	sum     atomic.Uint64           // bits of a float64
	octaves []atomic.Pointer[cells] // nil until something falls into it

	exemplars []atomic.Pointer[dto.Exemplar] // by classic bucket, the unbounded one included
}

// cells are the counters of an octave: of each native bucket the part up to the classic bound in it, and the part above.
type cells [perOctave][2]atomic.Uint64

// HistogramVec is the histograms of a metric, by the values of its labels.
type HistogramVec struct{ *prometheus.MetricVec }

// NewDurations makes histograms of seconds.
func (m Metric) NewDurations() HistogramVec { return m.newHistograms(durations) }

// NewSizes makes histograms of bytes.
func (m Metric) NewSizes() HistogramVec { return m.newHistograms(sizes) }

func (m Metric) newHistograms(l *layout) HistogramVec {
	desc := m.Desc()
	return HistogramVec{prometheus.NewMetricVec(desc, func(values ...string) prometheus.Metric {
		return &Histogram{
			layout: l, desc: desc, labels: prometheus.MakeLabelPairs(desc, values),
			octaves:   make([]atomic.Pointer[cells], l.octaves),
			exemplars: make([]atomic.Pointer[dto.Exemplar], len(l.bounds)+1),
		}
	})}
}

// With returns the histogram of these values of the labels, which is made if it is not there. It is slow: keep what it returns. It
// panics if there are too few or too many values, as prometheus' own does.
func (v HistogramVec) With(values ...string) *Histogram {
	h, err := v.GetMetricWithLabelValues(values...)
	if err != nil {
		panic(err)
	}
	return h.(*Histogram)
}

// Observe counts a value. What is negative or no number counts as 0.
func (h *Histogram) Observe(value float64) {
	if !(value > h.layout.zero()) {
		h.zero.Add(1)
		if !(value > 0) {
			return
		}
	} else {
		slot := h.layout.slot(value)
		part := 0
		if value > h.layout.splits[slot] {
			part = 1
		}
		h.octave(slot / perOctave)[slot%perOctave][part].Add(1)
	}
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+value)) {
			return
		}
	}
}

func (h *Histogram) octave(i int) *cells {
	if c := h.octaves[i].Load(); c != nil {
		return c
	}
	h.octaves[i].CompareAndSwap(nil, new(cells))
	return h.octaves[i].Load()
}

// Desc implements prometheus.Metric.
func (h *Histogram) Desc() *prometheus.Desc { return h.desc }

// Write implements prometheus.Metric. Every counter is read once, so count and buckets always agree.
func (h *Histogram) Write(out *dto.Metric) error {
	w := writer{layout: h.layout, classic: make([]*dto.Bucket, 0, len(h.layout.bounds))}
	zero := h.zero.Load()
	w.count = zero
	for i := range h.octaves {
		octave := h.octaves[i].Load()
		for j := range perOctave {
			var below, above uint64
			if octave != nil {
				below, above = octave[j][0].Load(), octave[j][1].Load()
			}
			w.slot(i*perOctave+j, below, above)
		}
	}
	out.Label = h.labels
	out.Histogram = &dto.Histogram{
		SampleCount: &w.count, SampleSum: new(math.Float64frombits(h.sum.Load())),
		Bucket: w.classic,
		Schema: new(int32(schema)), ZeroThreshold: new(h.layout.zero()), ZeroCount: &zero,
		PositiveSpan: w.spans, PositiveDelta: w.deltas,
	}
	h.exemplify(out.Histogram)
	return nil
}

// writer turns cells, in their order, into both kinds of buckets.
type writer struct {
	layout  *layout
	count   uint64 // so far
	classic []*dto.Bucket

	spans  []*dto.BucketSpan
	deltas []int64
	end    int   // the slot behind the last span
	last   int64 // the count of the last native bucket
}

func (w *writer) slot(slot int, below, above uint64) {
	w.count += below
	if split := w.layout.splits[slot]; !math.IsInf(split, 1) {
		w.classic = append(w.classic, &dto.Bucket{UpperBound: new(split), CumulativeCount: new(w.count)})
	}
	w.count += above
	if n := int64(below + above); n > 0 {
		w.native(slot, n)
	}
}

// native adds a bucket that is not empty. A gap of one or two is cheaper as empty buckets than as a new span.
func (w *writer) native(slot int, n int64) {
	switch gap := slot - w.end; {
	case len(w.spans) == 0:
		w.spans = append(w.spans, &dto.BucketSpan{Offset: new(int32(w.layout.key(slot))), Length: new(uint32(0))})
	case gap > 2:
		w.spans = append(w.spans, &dto.BucketSpan{Offset: new(int32(gap)), Length: new(uint32(0))})
	default:
		for range gap {
			w.add(0)
		}
	}
	w.add(n)
	w.end = slot + 1
}

func (w *writer) add(n int64) {
	*w.spans[len(w.spans)-1].Length++
	w.deltas = append(w.deltas, n-w.last)
	w.last = n
}
