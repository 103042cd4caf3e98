package falcon

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/slotgate/slotgate/store/metric"
)

// passedOn are the families that are pushed as they are, by their name or its beginning, and what that becomes.
var passedOn = []struct{ name, pushed string }{
	{"slotgate_redis_node_", "slotgate.redis.node."},
	{"slotgate_cluster_", "slotgate.cluster."},
	{"slotgate_control_", "slotgate.control."},
	{"process_cpu_seconds_total", "slotgate.process.cpu_seconds"},
	{"process_resident_memory_bytes", "slotgate.process.resident_memory_bytes"},
	{"process_open_fds", "slotgate.process.open_fds"},
	{"go_goroutines", "slotgate.process.goroutines"},
}

const (
	gauge   = "GAUGE"
	counter = "COUNTER"
)

// snapshot is what one gathering told.
type snapshot struct {
	apps   map[string]*app           // by tags
	routes map[string]float64        // requests by tags, of all apps
	nodes  map[string]*dto.Histogram // time of commands, by tags
	others []Item
}

// app is the sums of one value of the app label since the process began.
type app struct {
	requests, errors float64
	in, out          float64
	latency          *dto.Histogram
}

func newSnapshot(families []*dto.MetricFamily) snapshot {
	s := snapshot{apps: map[string]*app{}, routes: map[string]float64{}, nodes: map[string]*dto.Histogram{}}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case metric.HTTPRequests.Name:
				s.request(m)
			case metric.AppDuration.Name:
				s.app(m).latency = m.GetHistogram()
			case metric.HTTPRequestBytes.Name:
				s.app(m).in += m.GetCounter().GetValue()
			case metric.HTTPResponseBytes.Name:
				s.app(m).out += m.GetCounter().GetValue()
			case metric.RedisNodeDuration.Name:
				s.nodes[tags(m.GetLabel())] = m.GetHistogram()
			default:
				s.passOn(f, m)
			}
		}
	}
	return s
}

// app finds the sums of the metric's app.
func (s *snapshot) app(m *dto.Metric) *app {
	t := tags(slices.DeleteFunc(slices.Clone(m.GetLabel()), func(l *dto.LabelPair) bool { return l.GetName() != "app" }))
	if s.apps[t] == nil {
		s.apps[t] = &app{}
	}
	return s.apps[t]
}

func value(m *dto.Metric, label string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == label {
			return l.GetValue()
		}
	}
	return ""
}

// request counts a series of requests for its app and, without the app, for its route: an item for each app, route and status would
// be thousands.
func (s *snapshot) request(m *dto.Metric) {
	a, n := s.app(m), m.GetCounter().GetValue()
	a.requests += n
	if code := value(m, "code"); len(code) == 3 && code[0] == '5' {
		a.errors += n
	}
	labels := slices.DeleteFunc(slices.Clone(m.GetLabel()), func(l *dto.LabelPair) bool { return l.GetName() == "app" })
	s.routes[tags(labels)] += n
}

func (s *snapshot) passOn(f *dto.MetricFamily, m *dto.Metric) {
	for _, p := range passedOn {
		rest, ok := strings.CutPrefix(f.GetName(), p.name)
		if !ok {
			continue
		}
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			s.others = add(s.others, p.pushed+strings.TrimSuffix(rest, "_total"), counter, tags(m.GetLabel()), m.GetCounter().GetValue())
		case dto.MetricType_GAUGE:
			s.others = add(s.others, p.pushed+rest, gauge, tags(m.GetLabel()), m.GetGauge().GetValue())
		default: // Open-Falcon has no histograms
		}
		return
	}
}

// add appends an item, unless its value is not a number: JSON has none for that, and nobody can draw it.
func add(items []Item, name, kind, tags string, v float64) []Item {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return items
	}
	return append(items, Item{Metric: name, Value: v, CounterType: kind, Tags: tags})
}

// items are the figures of s, those of the apps over the time since an earlier snapshot.
func (s snapshot) items(before snapshot, elapsed time.Duration) []Item {
	var items []Item
	for _, t := range slices.Sorted(maps.Keys(s.apps)) {
		was := before.apps[t]
		if was == nil {
			was = &app{}
		}
		items = s.apps[t].items(items, t, was, elapsed.Seconds())
	}
	for _, t := range slices.Sorted(maps.Keys(s.routes)) {
		items = add(items, "slotgate.http.requests", counter, t, s.routes[t])
	}
	for _, t := range slices.Sorted(maps.Keys(s.nodes)) {
		items = percentiles(items, "slotgate.redis.node.command", t, before.nodes[t], s.nodes[t])
	}
	return append(items, s.others...)
}

func (a *app) items(items []Item, tags string, was *app, seconds float64) []Item {
	n := a.requests - was.requests
	items = add(items, "slotgate.app.qps", gauge, tags, n/seconds)
	items = add(items, "slotgate.app.error_ratio", gauge, tags, (a.errors-was.errors)/n) // of no requests it is no number
	items = add(items, "slotgate.app.bytes_in_rate", gauge, tags, (a.in-was.in)/seconds)
	items = add(items, "slotgate.app.bytes_out_rate", gauge, tags, (a.out-was.out)/seconds)
	return percentiles(items, "slotgate.app.latency", tags, was.latency, a.latency)
}

// percentiles are those of what a histogram of seconds has observed since before.
func percentiles(items []Item, name, tags string, before, after *dto.Histogram) []Item {
	buckets := between(before, after)
	for _, p := range []struct {
		suffix string
		q      float64
	}{{"_p50_ms", .5}, {"_p99_ms", .99}, {"_p999_ms", .999}} {
		items = add(items, name+p.suffix, gauge, tags, 1000*quantile(p.q, buckets))
	}
	return items
}
