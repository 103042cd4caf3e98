package store

import (
	"time"

	"github.com/slotgate/slotgate/store/balance"
)

// ReadNode is what is known of a node that reads are balanced over.
type ReadNode struct {
	Cluster string
	Shard   string // the id of its primary; "" = not known now
	Label   string // of the node, in metrics
	// Share is its part of the reads of its shard since each node is known, in [0, 1].
	Share float64
	balance.Figures
}

// Role is "primary" or "replica".
func (n ReadNode) Role() string {
	if n.Primary {
		return "primary"
	}
	return "replica"
}

// ReadNodes are those of all clusters whose replicas are read from, or were within a minute; of a shard the primary comes first.
func (s *Store) ReadNodes() []ReadNode {
	var all []ReadNode
	now := time.Now()
	s.clusters.each(func(c *cluster) {
		rs := c.replicas.Load()
		if rs == nil {
			return
		}
		if t := rs.table.Load(); t != nil {
			for _, sh := range t.shards {
				all = append(all, sh.readNodes(c.name, now)...)
			}
		}
	})
	return all
}

func (sh *replicaShard) readNodes(cluster string, now time.Time) []ReadNode {
	labels := map[string]string{}
	for _, n := range sh.nodes {
		labels[n.id] = n.node.way.label
	}
	figures := sh.set.Figures(now)
	var primary string
	var reads uint64
	for _, f := range figures {
		reads += f.Picks
		if f.Primary {
			primary = f.ID
		}
	}
	all := make([]ReadNode, 0, len(figures))
	for _, f := range figures {
		n := ReadNode{Cluster: cluster, Shard: primary, Label: labels[f.ID], Figures: f}
		if reads > 0 {
			n.Share = float64(f.Picks) / float64(reads)
		}
		all = append(all, n)
	}
	return all
}
