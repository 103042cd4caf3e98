package middleware

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/store"
)

// counted counts a request of an app from its beginning to its end, as App and Events do.
func counted(m *Metrics, e *Event) {
	e.app = m.app("shop")
	e.app.inFlight.Inc()
	m.Record(e)
}

func events() map[string]*Event {
	return map[string]*Event{
		"fine":   {Route: "/v1/strings/:key", Method: "GET", Status: 200, Duration: 800 * time.Microsecond, BytesOut: 100},
		"failed": {Route: "/v1/strings/:key", Method: "PUT", Status: 503, Code: store.CodeClusterDown, Duration: 2 * time.Second, BytesIn: 5000, BytesOut: 300},
	}
}

func TestCountingARequestAllocatesNothing(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry(), MetricsConfig{})
	for name, e := range events() {
		counted(m, e)
		if n := testing.AllocsPerRun(1000, func() { counted(m, e) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// What all metrics of a request cost here; store's BenchmarkMetricsOfACommand is the rest. Together they may take 1 us.
func BenchmarkMetricsOfARequest(b *testing.B) {
	for name, e := range events() {
		b.Run(name, func(b *testing.B) {
			m := NewMetrics(prometheus.NewRegistry(), MetricsConfig{})
			b.ReportAllocs()
			for b.Loop() {
				counted(m, e)
			}
		})
	}
}
