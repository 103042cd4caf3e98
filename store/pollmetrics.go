package store

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/store/metric"
)

// nodeFigure is a metric that is the sum of some fields of INFO.
type nodeFigure struct {
	metric.Metric
	desc   *prometheus.Desc
	fields []string
}

func figureOf(m metric.Metric, fields ...string) nodeFigure { return nodeFigure{m, m.Desc(), fields} }

var nodeFigures = []nodeFigure{
	figureOf(metric.NodeUptime, "uptime_in_seconds"),
	figureOf(metric.NodeMemoryUsed, "used_memory"),
	figureOf(metric.NodeMemoryMax, "maxmemory"),
	figureOf(metric.NodeFragmentation, "mem_fragmentation_ratio"),
	figureOf(metric.NodeCPU, "used_cpu_user", "used_cpu_sys"),
	figureOf(metric.NodeClients, "connected_clients"),
	figureOf(metric.NodeOps, "instantaneous_ops_per_sec"),
	figureOf(metric.NodeCommands, "total_commands_processed"),
	figureOf(metric.NodeHits, "keyspace_hits"),
	figureOf(metric.NodeMisses, "keyspace_misses"),
	figureOf(metric.NodeEvicted, "evicted_keys"),
	figureOf(metric.NodeExpired, "expired_keys"),
	figureOf(metric.NodeNetworkIn, "total_net_input_bytes"),
	figureOf(metric.NodeNetworkOut, "total_net_output_bytes"),
}

var (
	clusterUp    = figureOf(metric.ClusterUp)
	clusterSlots = figureOf(metric.ClusterSlotsOK)
	clusterNodes = figureOf(metric.ClusterNodes)
	nodeUp       = figureOf(metric.NodeUp)
	nodeKeys     = figureOf(metric.NodeKeys)
	nodeLinkUp   = figureOf(metric.NodeMasterLinkUp)
	nodeLag      = figureOf(metric.NodeLag)
)

func (f nodeFigure) send(ch chan<- prometheus.Metric, value float64, labels ...string) {
	ch <- f.Const(f.desc, value, labels...)
}

// Describe implements prometheus.Collector.
func (p *poller) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range append([]nodeFigure{clusterUp, clusterSlots, clusterNodes, nodeUp, nodeKeys, nodeLinkUp, nodeLag}, nodeFigures...) {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector. It tells what the last poll has heard and asks nobody.
func (p *poller) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, v := range p.seen {
		clusterUp.send(ch, v.up, name)
		clusterSlots.send(ch, v.slotsOK, name)
		if v.known {
			clusterNodes.send(ch, v.primaries, name, "primary")
			clusterNodes.send(ch, v.replicas, name, "replica")
		}
		for i := range v.nodes {
			v.nodes[i].collect(ch, name)
		}
	}
}

func (n *nodeView) collect(ch chan<- prometheus.Metric, cluster string) {
	role := "primary"
	if n.replica {
		role = "replica"
	}
	nodeUp.send(ch, number(n.up), cluster, n.label, role)
	for _, f := range nodeFigures {
		if value, ok := n.fields.Sum(f.fields...); ok {
			f.send(ch, value, cluster, n.label, role)
		}
	}
	if _, tells := n.fields["used_memory"]; tells { // an empty node has no line for its keys
		nodeKeys.send(ch, n.fields.Keys(), cluster, n.label, role)
	}
	if link, ok := n.fields["master_link_status"]; ok {
		nodeLinkUp.send(ch, number(link == "up"), cluster, n.label, role)
	}
	if n.behind {
		nodeLag.send(ch, n.lag, cluster, n.label, role)
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
