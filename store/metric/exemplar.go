package metric

import (
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// exemplarLabel is what Grafana and others look for.
const exemplarLabel = "trace_id"

// ObserveTraced is Observe of something whose trace can be looked up: it becomes its classic bucket's exemplar, the example that a dashboard
// links to. at is when it was.
func (h *Histogram) ObserveTraced(value float64, traceID string, at time.Time) {
	h.Observe(value)
	i, _ := slices.BinarySearch(h.layout.bounds, value)
	h.exemplars[i].Store(&dto.Exemplar{
		Label:     []*dto.LabelPair{{Name: new(exemplarLabel), Value: &traceID}},
		Value:     &value,
		Timestamp: timestamppb.New(at),
	})
}

// exemplify adds the exemplars to the classic buckets. The one of the last, unbounded bucket needs that bucket, which is else left out.
func (h *Histogram) exemplify(out *dto.Histogram) {
	for i := range h.exemplars {
		e := h.exemplars[i].Load()
		if e == nil {
			continue
		}
		if i == len(out.Bucket) {
			out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: new(math.Inf(1)), CumulativeCount: out.SampleCount})
		}
		out.Bucket[i].Exemplar = e
	}
}
