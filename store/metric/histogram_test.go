package metric_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/slotgate/slotgate/store/metric"
)

// read is what a scrape would see.
func read(t testing.TB, h *metric.Histogram) *dto.Histogram {
	t.Helper()
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram()
}

// theirs is a histogram of prometheus' own, with the same buckets.
func theirs(bounds []float64, zero float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "theirs", Buckets: bounds, NativeHistogramBucketFactor: 1.05, NativeHistogramZeroThreshold: zero,
	})
}

// expand lists the native buckets that are not empty, by their index.
func expand(h *dto.Histogram) map[int]int64 {
	buckets := map[int]int64{}
	index, d, count := 0, 0, int64(0)
	for i, span := range h.GetPositiveSpan() {
		if index += int(span.GetOffset()); i == 0 {
			index = int(span.GetOffset())
		}
		for range span.GetLength() {
			if count += h.GetPositiveDelta()[d]; count != 0 {
				buckets[index] = count
			}
			index++
			d++
		}
	}
	return buckets
}

func compare(t *testing.T, got, want *dto.Histogram) {
	t.Helper()
	if got.GetSampleCount() != want.GetSampleCount() || got.GetZeroCount() != want.GetZeroCount() || got.GetSchema() != want.GetSchema() ||
		got.GetZeroThreshold() != want.GetZeroThreshold() {
		t.Errorf("count %d, zero %d, schema %d, threshold %v; want %d, %d, %d, %v", got.GetSampleCount(), got.GetZeroCount(), got.GetSchema(), got.GetZeroThreshold(),
			want.GetSampleCount(), want.GetZeroCount(), want.GetSchema(), want.GetZeroThreshold())
	}
	if math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-9*want.GetSampleSum() {
		t.Errorf("sum %v, want %v", got.GetSampleSum(), want.GetSampleSum())
	}
	for i, b := range want.GetBucket() {
		if g := got.GetBucket()[i]; g.GetUpperBound() != b.GetUpperBound() || g.GetCumulativeCount() != b.GetCumulativeCount() {
			t.Errorf("up to %v: %d, want up to %v: %d", g.GetUpperBound(), g.GetCumulativeCount(), b.GetUpperBound(), b.GetCumulativeCount())
		}
	}
	g, w := expand(got), expand(want)
	for i := range w {
		if g[i] != w[i] {
			t.Errorf("native bucket %d: %d, want %d", i, g[i], w[i])
		}
	}
	if len(g) != len(w) {
		t.Errorf("%d native buckets, want %d", len(g), len(w))
	}
}

// bounds are the classic ones of a histogram.
func bounds(h *dto.Histogram) (list []float64) {
	for _, b := range h.GetBucket() {
		list = append(list, b.GetUpperBound())
	}
	return list
}

// Prometheus' own histogram is the judge: the same values, the same buckets.
func TestAHistogramIsWhatPrometheusWouldMake(t *testing.T) {
	for name, c := range map[string]struct {
		ours  *metric.Histogram
		value func() float64
	}{
		"durations": {metric.RedisDuration.NewDurations().With("c", "get"), func() float64 { return 0.001 * math.Exp(3*rand.NormFloat64()) }},
		"sizes":     {metric.HTTPRequestSize.NewSizes().With("r", "GET"), func() float64 { return math.Floor(1000 * math.Exp(4*rand.NormFloat64())) }},
	} {
		t.Run(name, func(t *testing.T) {
			empty := read(t, c.ours)
			want := theirs(bounds(empty), empty.GetZeroThreshold())
			observe := func(v float64) { c.ours.Observe(v); want.Observe(v) }
			for range 20_000 {
				observe(min(c.value(), 1000))
			}
			for _, b := range bounds(empty) {
				observe(b)
				observe(math.Nextafter(b, 0))
				observe(math.Nextafter(b, math.Inf(1)))
			}
			for e := -19; e < 12; e++ {
				observe(math.Ldexp(1, e))
				observe(math.Nextafter(math.Ldexp(1, e), math.Inf(1)))
			}
			observe(0)
			var m dto.Metric
			if err := want.Write(&m); err != nil {
				t.Fatal(err)
			}
			compare(t, read(t, c.ours), m.GetHistogram())
		})
	}
}

func TestOddValuesOfAHistogram(t *testing.T) {
	h := metric.AppDuration.NewDurations().With("a")
	for _, v := range []float64{math.NaN(), -1, 0, 1e-300, math.Inf(-1)} {
		h.Observe(v)
	}
	h.Observe(1e9)
	got := read(t, h)
	if got.GetSampleCount() != 6 || got.GetZeroCount() != 5 || got.GetSampleSum() != 1e9 {
		t.Errorf("%v", got)
	}
	if last := got.GetBucket()[14].GetCumulativeCount(); last != 5 {
		t.Errorf("%d up to 5 s, want 5: what is larger than all buckets belongs into none", last)
	}
	h.Observe(math.Inf(1))
	if got := read(t, h); got.GetSampleCount() != 7 || !math.IsInf(got.GetSampleSum(), 1) {
		t.Errorf("%v", got)
	}
}

// Prometheus refuses a native histogram whose buckets do not add up to its count.
func TestCountAndBucketsAgreeAtEveryMoment(t *testing.T) {
	h := metric.AppDuration.NewDurations().With("a")
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					h.Observe(rand.ExpFloat64() / 100)
				}
			}
		})
	}
	for range 300 {
		got := read(t, h)
		sum := got.GetZeroCount()
		for _, n := range expand(got) {
			sum += uint64(n)
		}
		if sum != got.GetSampleCount() {
			t.Errorf("the buckets have %d, the count is %d", sum, got.GetSampleCount())
		}
		before := uint64(0)
		for _, b := range got.GetBucket() {
			if b.GetCumulativeCount() < before || b.GetCumulativeCount() > got.GetSampleCount() {
				t.Errorf("%v", got)
			}
			before = b.GetCumulativeCount()
		}
	}
	close(stop)
	writers.Wait()
}

func TestObservingAllocatesNothing(t *testing.T) {
	h := metric.AppDuration.NewDurations().With("a")
	if n := testing.AllocsPerRun(1000, func() { h.Observe(0.0008) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The reason for a histogram of our own.
func BenchmarkHistogram(b *testing.B) {
	for name, h := range map[string]prometheus.Observer{
		"ours":       metric.AppDuration.NewDurations().With("a"),
		"prometheus": theirs(bounds(read(b, metric.AppDuration.NewDurations().With("a"))), 0),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.Observe(0.0008)
			}
		})
	}
}
