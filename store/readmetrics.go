package store

import (
	"time"

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
	now := time.Now()
	r.store.clusters.each(func(c *cluster) {
		rs := c.replicas.Load()
		if rs == nil {
			return
		}
		t := rs.table.Load()
		if t == nil {
			return
		}
		told := map[string]bool{metric.Other: true}
		for _, sh := range t.shards {
			sh.collect(ch, c.name, now, told)
		}
	})
}

// collect tells of the shard's nodes whose label is their own.
func (sh *replicaShard) collect(ch chan<- prometheus.Metric, cluster string, now time.Time, told map[string]bool) {
	labels := map[string]string{}
	for _, n := range sh.nodes {
		labels[n.id] = n.node.way.label
	}
	for _, f := range sh.set.Figures(now) {
		label := labels[f.ID]
		if label == "" || told[label] {
			continue
		}
		told[label] = true
		role := "replica"
		if f.Primary {
			role = "primary"
		}
		for _, m := range readFigures {
			if value, ok := m.value(f); ok {
				ch <- m.Const(m.desc, value, cluster, label, role)
			}
		}
	}
}
