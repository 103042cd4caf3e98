package store

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/info"
	"github.com/slotgate/slotgate/store/metric"
)

func TestNodesBeyondTheBoundShareALabel(t *testing.T) {
	l := newLabels(2)
	for name, want := range map[string]string{"a:1": "a:1", "b:1": "b:1"} {
		if got := l.of(name); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
	if got := l.of("c:1"); got != metric.Other {
		t.Errorf("the third is %s", got)
	}
	if gone := l.free("c:1"); gone != nil {
		t.Errorf("%v of a node without a label of its own is given back", gone)
	}
	if gone := l.free("a:1"); !slices.Equal(gone, []string{"a:1"}) {
		t.Errorf("%v is given back", gone)
	}
	if got := l.of("c:1"); got != "c:1" {
		t.Errorf("where one has left, the next is %s", got)
	}
}

func TestNamesThatLookAlikeAsLabelsAreNotMixedUp(t *testing.T) {
	l := newLabels(10)
	if a, b := l.of("\xff:1"), l.of("\xfe:1"); a != "\uFFFD:1" || b != metric.Other {
		t.Errorf("%q, %q", a, b)
	}
}

// hostile are addresses that a broken or hostile Redis might announce.
var hostile = []string{"a\"b:1", "a\nslotgate_cluster_up{cluster=\"x\"} 1\n:1", `a\:1`, "\xff\xfe:1", "\xfe\xff:1", "", strings.Repeat("h", 1000) + ":1", "[::1]:6379", "a:1"}

// The exposition of nodes with hostile addresses is read back as what it was, and nothing is injected.
func TestHostileAddressesInTheExposition(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := newPoller(nil, time.Minute)
	registry.MustRegister(p)
	poll := newClusterPoll(nil, ClusterConfig{})
	byAddr := map[string]nodeView{}
	for _, addr := range hostile {
		byAddr[addr] = nodeView{addr: addr, up: true, fields: info.Parse("used_memory:1\r\nrole:master\r\n")}
	}
	p.seen["default"] = clusterView{up: 1, known: true, nodes: poll.label(byAddr)}
	labels := map[string]bool{}
	for _, n := range p.seen["default"].nodes {
		labels[n.label] = true
	}
	if len(labels) < len(hostile)-1 { // two are not UTF-8 and look alike
		t.Errorf("only %d labels", len(labels))
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	read, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		t.Fatal(err)
	}
	if up := read["slotgate_cluster_up"].GetMetric(); len(up) != 1 {
		t.Errorf("a node's name has made a series: %v", up)
	}
	for _, m := range read["slotgate_redis_node_up"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "node" && !labels[l.GetValue()] {
				t.Errorf("%q was read back", l.GetValue())
			}
		}
	}
}

// Ten thousand nodes in one cluster: a scrape has no more than the bound.
func TestThousandsOfNodesAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := newPoller(nil, time.Minute)
	registry.MustRegister(p)
	poll := newClusterPoll(nil, ClusterConfig{})
	for range 3 {
		byAddr := map[string]nodeView{}
		for i := range 10_000 {
			addr := fmt.Sprint("10.0.0.1:", i)
			byAddr[addr] = nodeView{addr: addr, up: true, fields: info.Fields{}}
		}
		before := p.seen["default"].nodes
		p.seen["default"] = clusterView{nodes: poll.label(byAddr)}
		for _, n := range before {
			if !slices.ContainsFunc(p.seen["default"].nodes, func(m nodeView) bool { return m.label == n.label }) {
				t.Fatalf("%s had a label and lost it", n.label)
			}
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := len(f.GetMetric()); n > metric.MaxNodes {
			t.Errorf("%s has %d series", f.GetName(), n)
		}
	}
}

// benchmarked is a cluster that is never dialled, and a way in it.
func benchmarked() (*cluster, *way) {
	s := &Store{}
	c := newCluster("default", ClusterConfig{Addrs: []string{"127.0.0.1:1"}}, &Config{}, newMetrics(prometheus.NewRegistry(), s))
	return c, c.way(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
}

func TestItemsAreCountedByTheirResult(t *testing.T) {
	c, w := benchmarked()
	defer func() { _ = c.client.Close(); _ = w.node.Close() }()
	b := &batch{cluster: c, items: make([]item, 3)}
	b.items[1].err = NewError(CodeClusterDown, "")
	b.items[2].got.Err = NewError(CodeResponseTooLarge, "")
	b.counted([]int{0, 1, 2})
	b.count(b.items[1].err) // one with the same key
	for result, want := range map[string]float64{"cluster_down": 2, "response_too_large": 1, "ok": 1} {
		var m dto.Metric
		if err := c.metrics.items.WithLabelValues("default", result).Write(&m); err != nil || m.GetCounter().GetValue() != want {
			t.Errorf("%s: %v, want %v", result, m.GetCounter().GetValue(), want)
		}
	}
}

func TestObservingACommandAllocatesNothing(t *testing.T) {
	c, w := benchmarked()
	defer func() { _ = c.client.Close(); _ = w.node.Close() }()
	start := time.Now()
	if n := testing.AllocsPerRun(1000, func() { c.observe(rowGet, w, start) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// With middleware's BenchmarkMetricsOfARequest this is what the metrics of a GET cost: the two readings of the clock, too.
func BenchmarkMetricsOfACommand(b *testing.B) {
	c, w := benchmarked()
	defer func() { _ = c.client.Close(); _ = w.node.Close() }()
	b.ReportAllocs()
	for b.Loop() {
		c.observe(rowGet, w, time.Now())
	}
}
