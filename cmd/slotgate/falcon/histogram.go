package falcon

import (
	"maps"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// bucket is how many observations lie in (lower, upper].
type bucket struct {
	lower, upper, count float64
}

// between are the buckets of what a histogram has observed since before, which may be nil for "nothing": the native ones when both
// have them, otherwise the classic ones. Both are of one series, so after holds at least what before does; if it does not, the
// result is nil.
func between(before, after *dto.Histogram) []bucket {
	if b := nativeBetween(before, after); b != nil {
		return b
	}
	return classicBetween(before, after)
}

// classicBetween ends with the bucket that has no upper bound, if something lies in it.
func classicBetween(before, after *dto.Histogram) []bucket {
	var list []bucket
	was := before.GetBucket()
	lower, below := 0.0, 0.0
	for i, b := range after.GetBucket() {
		cumulative := float64(b.GetCumulativeCount())
		switch {
		case math.IsInf(b.GetUpperBound(), 1): // added by prometheus for an exemplar, so perhaps new
			cumulative -= float64(before.GetSampleCount())
		case before == nil:
		case i >= len(was) || was[i].GetUpperBound() != b.GetUpperBound():
			return nil
		default:
			cumulative -= float64(was[i].GetCumulativeCount())
		}
		if cumulative < below {
			return nil
		}
		list = append(list, bucket{lower, b.GetUpperBound(), cumulative - below})
		lower, below = b.GetUpperBound(), cumulative
	}
	if all := float64(after.GetSampleCount()) - float64(before.GetSampleCount()); !math.IsInf(lower, 1) && all > below {
		list = append(list, bucket{lower, math.Inf(1), all - below})
	}
	return list
}

// native is a native histogram of observations that are not negative.
type native struct {
	schema int32
	zero   float64 // upper bound of the zero bucket
	zeros  int64
	counts map[int]int64 // by index
}

// nativeBetween is nil when there are no native buckets, or some of negative observations, which durations never are.
func nativeBetween(before, after *dto.Histogram) []bucket {
	now, ok := nativeOf(after)
	if !ok {
		return nil
	}
	then := native{schema: now.schema, zero: now.zero}
	if before != nil {
		if then, ok = nativeOf(before); !ok || then.schema < now.schema || then.zero > now.zero {
			return nil
		}
		then.coarsen(now.schema, now.zero)
	}
	for i, n := range then.counts {
		now.counts[i] -= n
	}
	list := make([]bucket, 0, len(now.counts)+1)
	if n := now.zeros - then.zeros; n > 0 {
		list = append(list, bucket{0, now.zero, float64(n)})
	}
	for _, i := range slices.Sorted(maps.Keys(now.counts)) {
		if now.counts[i] < 0 {
			return nil
		}
		list = append(list, bucket{bound(now.schema, i-1), bound(now.schema, i), float64(now.counts[i])})
	}
	return list
}

// bound is the upper bound of bucket i: the base is 2 to the power of 2^-schema.
func bound(schema int32, i int) float64 { return math.Exp2(math.Ldexp(float64(i), -int(schema))) }

// nativeOf reads the spans: runs of buckets whose counts are told as differences to the one before.
func nativeOf(h *dto.Histogram) (native, bool) {
	if h == nil || h.Schema == nil || h.GetSchema() < -4 || h.GetSchema() > 8 || len(h.GetNegativeSpan()) > 0 {
		return native{}, false
	}
	n := native{schema: h.GetSchema(), zero: h.GetZeroThreshold(), zeros: int64(h.GetZeroCount()), counts: map[int]int64{}}
	i, read, count := 0, 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		i += int(span.GetOffset())
		for range span.GetLength() {
			if read >= len(h.GetPositiveDelta()) {
				return native{}, false
			}
			count += h.GetPositiveDelta()[read]
			n.counts[i] = count
			i, read = i+1, read+1
		}
	}
	return n, true
}

// coarsen merges buckets as prometheus does when a histogram gets too many: pairs of neighbours become one for each step that the
// schema goes down, and those near zero go to the zero bucket.
func (n *native) coarsen(schema int32, zero float64) {
	merged := make(map[int]int64, len(n.counts))
	for i, c := range n.counts {
		i = (i-1)>>(n.schema-schema) + 1
		if bound(schema, i) <= zero {
			n.zeros += c
			continue
		}
		merged[i] += c
	}
	n.schema, n.zero, n.counts = schema, zero, merged
}

// quantile is the value below which the share q of the observations lies, from 0 to 1; NaN when there are none. Inside a bucket it is
// interpolated: on a logarithmic scale, as the bounds are spread, or from 0 on a straight line. What lies above the last bound is said to be at it.
func quantile(q float64, buckets []bucket) float64 {
	all := 0.0
	for _, b := range buckets {
		all += b.count
	}
	rank, below := q*all, 0.0
	for _, b := range buckets {
		if b.count == 0 || below+b.count < rank {
			below += b.count
			continue
		}
		share := (rank - below) / b.count
		switch {
		case math.IsInf(b.upper, 1):
			return b.lower
		case b.lower <= 0:
			return b.upper * share
		}
		return b.lower * math.Pow(b.upper/b.lower, share)
	}
	return math.NaN()
}
