package falcon_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/cmd/slotgate/falcon"
	"github.com/slotgate/slotgate/store/metric"
)

// traffic is the gateway's metrics, filled by the test.
type traffic struct {
	requests, in, out *prometheus.CounterVec
	latency           prometheus.Collector
	took              func(app string) prometheus.Observer
}

var classicBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

// newTraffic makes them with histograms as the gateway's, as prometheus' own, or with classic buckets only.
func newTraffic(kind string) *traffic {
	tr := &traffic{
		requests: metric.HTTPRequests.NewCounterVec(), in: metric.HTTPRequestBytes.NewCounterVec(), out: metric.HTTPResponseBytes.NewCounterVec(),
	}
	if kind == "gateway" {
		v := metric.AppDuration.NewDurations()
		tr.latency, tr.took = v, func(app string) prometheus.Observer { return v.With(app) }
		return tr
	}
	o := prometheus.HistogramOpts{Name: metric.AppDuration.Name, Buckets: classicBuckets}
	if kind == "native" {
		o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber = 1.1, 160
	}
	v := prometheus.NewHistogramVec(o, []string{"app"})
	tr.latency, tr.took = v, func(app string) prometheus.Observer { return v.WithLabelValues(app) }
	return tr
}

func (tr *traffic) all() []prometheus.Collector {
	return []prometheus.Collector{tr.requests, tr.in, tr.out, tr.latency}
}

func (tr *traffic) request(app, route, code string, n int) {
	tr.requests.WithLabelValues(route, "GET", code, app).Add(float64(n))
}

func wantValues(t *testing.T, items map[string]map[string]any, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if got, ok := items[name]["value"].(float64); !ok || math.Abs(got-v) > 1e-9*math.Abs(v) {
			t.Errorf("%s is %v, want %v", name, items[name]["value"], v)
		}
	}
}

func TestAStepOfKnownTraffic(t *testing.T) {
	agent, tr := newReceiver(t), newTraffic("gateway")
	tr.request("shop", "/v1/strings/:key", "200", 1000) // before the pusher began: not of this step
	p := start(t, agent.config(), tr.all()...)
	if p.next != 53*time.Second {
		t.Errorf("the first step is in %v, want the next full minute", p.next)
	}
	tr.request("shop", "/v1/strings/:key", "200", 400)
	tr.request("shop", "/v1/mget", "200", 60)
	tr.request("shop", "/v1/mget", "503", 70)
	tr.request("blog", "/v1/mget", "200", 53)
	tr.in.WithLabelValues("/v1/mget", "shop").Add(530)
	tr.out.WithLabelValues("/v1/mget", "shop").Add(5300)
	tr.out.WithLabelValues("/v1/strings/:key", "shop").Add(53)
	p.step(t)

	items, _ := agent.take(t)
	wantValues(t, items, map[string]float64{
		"slotgate.app.qps{app=shop}":                                         10, // 530 in the 53 s since the start
		"slotgate.app.qps{app=blog}":                                         1,
		"slotgate.app.error_ratio{app=shop}":                                 70.0 / 530,
		"slotgate.app.error_ratio{app=blog}":                                 0,
		"slotgate.app.bytes_in_rate{app=shop}":                               10,
		"slotgate.app.bytes_out_rate{app=shop}":                              101,
		"slotgate.http.requests{code=200,method=GET,route=/v1/strings/:key}": 1400,
		"slotgate.http.requests{code=200,method=GET,route=/v1/mget}":         113,
		"slotgate.http.requests{code=503,method=GET,route=/v1/mget}":         70,
	})
	for name, item := range items {
		if item["endpoint"] != "gw-01" || item["timestamp"] != 1_800_000_060.0 || item["step"] != 60.0 {
			t.Errorf("%s: %v", name, item)
		}
	}

	p.step(t)
	items, _ = agent.take(t)
	wantValues(t, items, map[string]float64{"slotgate.app.qps{app=shop}": 0, "slotgate.http.requests{code=503,method=GET,route=/v1/mget}": 70})
	if items["slotgate.app.error_ratio{app=shop}"] != nil {
		t.Error("an error ratio of no requests")
	}
	if got := items["slotgate.app.qps{app=shop}"]["timestamp"]; got != 1_800_000_120.0 {
		t.Errorf("the second step is of %v", got)
	}
}

func TestFiguresThatArePassedOn(t *testing.T) {
	agent := newReceiver(t)
	used := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slotgate_redis_node_memory_used_bytes"}, []string{"cluster", "node", "role"})
	hits := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slotgate_redis_node_keyspace_hits_total"}, []string{"cluster", "node", "role"})
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slotgate_cluster_up"}, []string{"cluster"})
	cpu := prometheus.NewCounter(prometheus.CounterOpts{Name: "process_cpu_seconds_total"})
	memory := prometheus.NewGauge(prometheus.GaugeOpts{Name: "process_resident_memory_bytes"})
	goroutines := prometheus.NewGauge(prometheus.GaugeOpts{Name: "go_goroutines"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "slotgate_redis_node_command_duration_seconds", Buckets: classicBuckets}, []string{"cluster", "node"})
	nan := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slotgate_redis_node_memory_fragmentation_ratio"}, []string{"node"})
	other := prometheus.NewGauge(prometheus.GaugeOpts{Name: "slotgate_bytes_in_flight"})
	p := start(t, agent.config(), used, hits, up, cpu, memory, goroutines, took, nan, other)
	used.WithLabelValues("default", "10.0.0.1:6379", "primary").Set(1 << 20)
	hits.WithLabelValues("default", "10.0.0.1:6379", "primary").Add(7)
	up.WithLabelValues("default").Set(1)
	cpu.Add(1.5)
	memory.Set(1 << 25)
	goroutines.Set(12)
	nan.WithLabelValues("a").Set(math.NaN())
	nan.WithLabelValues("b").Set(math.Inf(1))
	for range 100 {
		took.WithLabelValues("default", "10.0.0.1:6379").Observe(.002)
	}
	p.step(t)
	items, _ := agent.take(t)
	const node = "{cluster=default,node=10.0.0.1:6379,role=primary}"
	wantValues(t, items, map[string]float64{
		"slotgate.redis.node.memory_used_bytes" + node: 1 << 20,
		"slotgate.redis.node.keyspace_hits" + node:     7,
		"slotgate.cluster.up{cluster=default}":         1,
		"slotgate.process.cpu_seconds{}":               1.5,
		"slotgate.process.resident_memory_bytes{}":     1 << 25,
		"slotgate.process.goroutines{}":                12,
	})
	if len(items) != 6+3 {
		t.Errorf("%d items", len(items))
	}
	if v, _ := items["slotgate.redis.node.command_p99_ms{cluster=default,node=10.0.0.1:6379}"]["value"].(float64); v <= 1 || v > 2.5 {
		t.Errorf("p99 of the node %v ms, want one in its bucket", v)
	}
	kinds := map[string]string{"slotgate.redis.node.keyspace_hits" + node: "COUNTER", "slotgate.process.cpu_seconds{}": "COUNTER", "slotgate.cluster.up{cluster=default}": "GAUGE"}
	for name, kind := range kinds {
		if items[name]["counterType"] != kind {
			t.Errorf("%s is a %v, want %s", name, items[name]["counterType"], kind)
		}
	}
}

// latencies are those of a service with a long tail: half below 1 ms, one in a thousand near 100 ms.
func latencies(n int) []float64 {
	r := rand.New(rand.NewPCG(1, 2))
	list := make([]float64, n)
	for i := range list {
		list[i] = .0008 * math.Exp(r.NormFloat64()*1.2)
	}
	return list
}

var quantiles = map[string]float64{"p50": .5, "p99": .99, "p999": .999}

func exact(list []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[int(math.Ceil(q*float64(len(sorted))))-1]
}

func TestPercentilesAreThoseOfTheStep(t *testing.T) {
	recorded := latencies(20_000)
	for _, kind := range []string{"gateway", "native", "classic"} {
		t.Run(kind, func(t *testing.T) {
			agent, tr := newReceiver(t), newTraffic(kind)
			h := tr.took("shop")
			for range 50_000 {
				h.Observe(.7) // an hour ago everything was slow
			}
			p := start(t, agent.config(), tr.all()...)
			for _, v := range recorded {
				h.Observe(v)
			}
			p.step(t)
			items, _ := agent.take(t)
			for name, q := range quantiles {
				want := exact(recorded, q) * 1000
				got, _ := items["slotgate.app.latency_"+name+"_ms{app=shop}"]["value"].(float64)
				t.Logf("%s: %.3f ms recorded, %.3f ms pushed (%+.1f %%)", name, want, got, 100*(got/want-1))
				if kind != "classic" && math.Abs(got/want-1) > .05 {
					t.Errorf("%s is %v ms, recorded were %v", name, got, want)
				}
				i, _ := slices.BinarySearch(classicBuckets, want/1000)
				if got/1000 > classicBuckets[i] || got/1000 < classicBuckets[i-1] {
					t.Errorf("%s is %v ms, not in the bucket of %v", name, got, want)
				}
			}
			p.step(t)
			if items, _ := agent.take(t); items["slotgate.app.latency_p50_ms{app=shop}"] != nil {
				t.Error("a percentile of no requests")
			}
		})
	}
}

// A histogram that gets too many buckets makes them wider, between two gatherings too.
func TestPercentilesWhenBucketsGetWider(t *testing.T) {
	agent := newReceiver(t)
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "slotgate_app_request_duration_seconds",
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 40}, []string{"app"})
	for range 1000 {
		h.WithLabelValues("shop").Observe(.0007)
	}
	p := start(t, agent.config(), h)
	recorded := latencies(5000)
	for _, v := range recorded {
		h.WithLabelValues("shop").Observe(v)
	}
	p.step(t)
	items, _ := agent.take(t)
	for name, q := range quantiles {
		want := exact(recorded, q) * 1000
		if got, _ := items["slotgate.app.latency_"+name+"_ms{app=shop}"]["value"].(float64); got < want/1.5 || got > want*1.5 {
			t.Errorf("%s is %v ms, recorded were %v", name, got, want)
		}
	}
}

func TestOddNamesDoNotBreakTags(t *testing.T) {
	agent, tr := newReceiver(t), newTraffic("gateway")
	p := start(t, agent.config(), tr.all()...)
	names := map[string]string{
		"a,b":              "a_b",
		"app=x":            "app_x",
		"two words":        "two_words",
		"tab\tand\nline":   "tab_and_line",
		`quote"back\slash`: `quote"back\slash`,
		"Лавка":            "Лавка",
		"zero\u200bwidth":  "zero_width",
		"__none__":         "__none__",
	}
	for name := range names {
		tr.request(name, "/v1/mget", "200", 53)
	}
	tr.request("", "/v1/mget", "200", 53)
	p.step(t)
	items, _ := agent.take(t)
	for name, tag := range names {
		if items["slotgate.app.qps{app="+tag+"}"]["value"] != 1.0 {
			t.Errorf("the app %q was not pushed as %s", name, tag)
		}
	}
}

func TestItemsGoInChunks(t *testing.T) {
	agent := newReceiver(t)
	keys := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slotgate_redis_node_keys"}, []string{"node"})
	for i := range 1201 {
		keys.WithLabelValues(fmt.Sprint("n", i)).Set(1)
	}
	for chunk, want := range map[int][]int{0: {500, 500, 201}, 1000: {1000, 201}, 1201: {1201}} {
		p := start(t, falcon.Config{URL: agent.URL + "/v1/push", Chunk: chunk}, keys)
		p.step(t)
		if items, sizes := agent.take(t); !slices.Equal(sizes, want) || len(items) != 1201 {
			t.Errorf("chunks of %d: %v, %d different items", chunk, sizes, len(items))
		}
		p.wantCounts(t, 1201, 0)
	}
}

func TestStepsAreAligned(t *testing.T) {
	agent := newReceiver(t)
	up := prometheus.NewGauge(prometheus.GaugeOpts{Name: "go_goroutines"})
	stamps := func() (list []float64) {
		items, _ := agent.take(t)
		for _, item := range items {
			list = append(list, item["timestamp"].(float64))
		}
		return list
	}
	p := start(t, falcon.Config{URL: agent.URL + "/v1/push", Step: 70 * time.Second}, up)
	first := float64(1_800_000_000 - 1_800_000_000%70 + 70)
	p.step(t)
	if got := stamps(); !slices.Equal(got, []float64{first}) {
		t.Errorf("the first step is of %v, want %v", got, first)
	}
	p.stepLate(t, 3*time.Second)
	if got := stamps(); !slices.Equal(got, []float64{first + 70}) {
		t.Errorf("a step that is late is of %v, want %v", got, first+70)
	}
	if p.next != 67*time.Second {
		t.Errorf("after a late step the next is in %v", p.next)
	}
	p.stepLate(t, 10*time.Minute) // the machine slept
	if got := stamps(); !slices.Equal(got, []float64{first + 140 + 560}) {
		t.Errorf("after a sleep: %v, want %v", got, first+140+560)
	}
	p.step(t)
	if got := stamps(); !slices.Equal(got, []float64{first + 140 + 630}) {
		t.Errorf("steps that were slept through are made up for: %v", got)
	}
}
