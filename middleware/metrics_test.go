package middleware_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
)

func TestMetricsOfRequests(t *testing.T) {
	g := start(t, nil, keyRoutes)
	g.get(t, "/v1/strings/a")
	g.get(t, "/v1/strings/b")
	g.get(t, "/v1/nowhere/at/all")
	g.do(t, "PUT", "/v1/strings/a", strings.NewReader("12345"), "Authorization: Bearer "+goodKey)
	g.do(t, "GET", "/v1/strings/a", nil)
	g.do(t, "BREW", "/v1/strings/a", nil)
	eventually(t, "six are counted", func() bool { return g.metric(t, "slotgate_http_requests_total", nil) == 6 })
	type labels = map[string]string
	for _, c := range []struct {
		name   string
		labels labels
		want   float64
	}{
		{"slotgate_http_requests_total", labels{"route": "/v1/strings/:key", "method": "GET", "code": "200", "app": "shop"}, 2},
		{"slotgate_http_requests_total", labels{"route": "unmatched", "method": "GET", "code": "404", "app": "__none__"}, 1},
		{"slotgate_http_requests_total", labels{"route": "/v1/strings/:key", "method": "PUT", "code": "200", "app": "shop"}, 1},
		{"slotgate_http_requests_total", labels{"route": "/v1/strings/:key", "method": "GET", "code": "401", "app": "__none__"}, 1},
		{"slotgate_http_requests_total", labels{"route": "unmatched", "method": "OTHER", "code": "405", "app": "__none__"}, 1},
		{"slotgate_http_request_duration_seconds", labels{"route": "/v1/strings/:key", "method": "GET"}, 3},
		{"slotgate_app_request_duration_seconds", labels{"app": "shop"}, 3},
		{"slotgate_http_request_size_bytes", labels{"route": "/v1/strings/:key", "method": "PUT"}, 1},
		{"slotgate_http_response_size_bytes", labels{"route": "/v1/strings/:key", "method": "PUT"}, 1},
		{"slotgate_auth_failures_total", labels{"reason": "no_credentials"}, 1},
		{"slotgate_bytes_in_flight_limit", nil, 1 << 20},
	} {
		if got := g.metric(t, c.name, c.labels); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

func TestDurationBuckets(t *testing.T) {
	g := start(t, nil, keyRoutes)
	g.get(t, "/v1/strings/a")
	var bounds []float64
	eventually(t, "the histogram is there", func() bool {
		families, err := g.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "slotgate_http_request_duration_seconds" {
				h := f.GetMetric()[0].GetHistogram()
				for _, b := range h.GetBucket() {
					bounds = append(bounds, b.GetUpperBound())
				}
				return h.GetSchema() == 4 // 16 native buckets to a doubling
			}
		}
		return false
	})
	if want := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}; !slices.Equal(bounds, want) {
		t.Errorf("buckets %v", bounds)
	}
}

func TestAppsBeyondTheCapShareALabel(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := middleware.NewMetrics(reg, middleware.MetricsConfig{MaxApps: 2})
	for _, app := range []string{"a", "b", "c", "d", "a", "c"} {
		m.QuotaRejected(app, "policy-of-"+app)
	}
	g := &gateway{reg: reg}
	for labels, want := range map[string]float64{"a/policy-of-a": 2, "b/policy-of-b": 1, "__other__/__other__": 3} {
		app, policy, _ := strings.Cut(labels, "/")
		if got := g.metric(t, "slotgate_quota_rejections_total", map[string]string{"app": app, "policy": policy}); got != want {
			t.Errorf("%s: %v, want %v", labels, got, want)
		}
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	m := middleware.NewMetrics(prometheus.NewRegistry(), middleware.MetricsConfig{})
	e := &middleware.Event{Route: "/v1/strings/:key", Method: "GET", Status: 503, Code: store.CodeClusterDown, Duration: 800 * time.Microsecond, BytesOut: 100}
	m.Record(e)
	if n := testing.AllocsPerRun(1000, func() { m.Record(e) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Thousands of keys, paths, methods and apps make no more series than routes, methods, statuses and apps allow.
func TestSeriesAreBounded(t *testing.T) {
	g := start(t, nil, keyRoutes)
	g.auth[goodKey] = identity("shop")
	for i := range 300 {
		g.get(t, fmt.Sprintf("/v1/strings/k%d", i))
		g.get(t, fmt.Sprintf("/nowhere/%d", i))
		g.do(t, fmt.Sprintf("M%d", i), "/v1/strings/a", nil)
	}
	series := 0
	families, err := g.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		series += len(f.GetMetric())
	}
	if series > 40 {
		t.Errorf("%d series", series)
	}
}

func BenchmarkRecord(b *testing.B) {
	m := middleware.NewMetrics(prometheus.NewRegistry(), middleware.MetricsConfig{})
	e := &middleware.Event{Route: "/v1/strings/:key", Method: "GET", Status: 200, Duration: 800 * time.Microsecond, BytesOut: 100}
	b.ReportAllocs()
	for b.Loop() {
		m.Record(e)
	}
}
