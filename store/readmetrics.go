package store

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/store/balance"
	"github.com/slotgate/slotgate/store/metric"
)

// What becomes of reads that replicas may answer.
const (
	readByReplica = "replica"
	readByPrimary = "primary" // which was chosen as a replica would be
	readUnknown   = "unknown" // nobody may be asked
	readFailed    = "failed"
	readAbsent    = "absent"
	readDoubted   = "doubted"
)

// readFrom counts so many reads.
func (m *metrics) readFrom(cluster, result string, n int) {
	if n > 0 {
		m.reads.WithLabelValues(cluster, result).Add(float64(n))
	}
}

// readCollector tells, when it is scraped, what is known of the nodes that reads are balanced over.
type readCollector struct{ store *Store }

// readFigure is a metric that is made of what is known of a node; false = that is not known.
type readFigure struct {
	metric.Metric
	desc  *prometheus.Desc
	value func(balance.Figures) (float64, bool)
}

var readFigures = []readFigure{
	readFigureOf(metric.ReadNodeState, func(f balance.Figures) (float64, bool) { return float64(f.State), true }),
	readFigureOf(metric.ReadNodeWeight, func(f balance.Figures) (float64, bool) { return f.Weight, true }),
	readFigureOf(metric.ReadNodePicks, func(f balance.Figures) (float64, bool) { return float64(f.Picks), true }),
	readFigureOf(metric.ReadNodeEjections, func(f balance.Figures) (float64, bool) { return float64(f.Ejections), true }),
	readFigureOf(metric.ReadNodeInFlight, func(f balance.Figures) (float64, bool) { return float64(f.InFlight), true }),
	readFigureOf(metric.ReadNodeLatency, func(f balance.Figures) (float64, bool) { return f.Latency.Seconds(), f.Latency > 0 }),
	readFigureOf(metric.ReadNodeAge, func(f balance.Figures) (float64, bool) { return f.Held.Seconds(), f.Held >= 0 }),
}

func readFigureOf(m metric.Metric, value func(balance.Figures) (float64, bool)) readFigure {
	return readFigure{m, m.Desc(), value}
}

// Describe implements prometheus.Collector.
func (readCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range readFigures {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (r readCollector) Collect(ch chan<- prometheus.Metric) {
	type node struct{ cluster, label string }
	told := map[node]bool{}
	for _, n := range r.store.ReadNodes() {
		one := node{n.Cluster, n.Label}
		if n.Label == "" || n.Label == metric.Other || told[one] { // it shares its label with others
			continue
		}
		told[one] = true
		for _, m := range readFigures {
			if value, ok := m.value(n.Figures); ok {
				ch <- m.Const(m.desc, value, n.Cluster, n.Label, n.Role())
			}
		}
	}
}
