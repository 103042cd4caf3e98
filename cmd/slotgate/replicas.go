package main

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/slotgate/slotgate/store"
)

// shownNode is a node that reads are balanced over, as GET /replicas shows it.
type shownNode struct {
	Cluster   string  `json:"cluster"`
	Shard     string  `json:"shard"` // the primary's id in CLUSTER NODES
	ID        string  `json:"id"`
	Node      string  `json:"node"` // its address, as metrics name it
	Role      string  `json:"role"`
	State     string  `json:"state"`
	Weight    float64 `json:"weight"`
	Share     float64 `json:"share"`
	Reads     uint64  `json:"reads"`
	InFlight  int64   `json:"in_flight"`
	LatencyMS float64 `json:"latency_ms"`
	Errors    float64 `json:"error_rate"`
	Ejections uint64  `json:"ejections"`
	// StalenessMS is how old what the node holds may be; absent = not known, so it is not read from.
	StalenessMS *int64 `json:"staleness_ms,omitempty"`
}

func shown(n store.ReadNode) shownNode {
	s := shownNode{
		Cluster: n.Cluster, Shard: n.Shard, ID: n.ID, Node: n.Label, Role: n.Role(), State: n.State.String(), Weight: n.Weight, Share: n.Share, Reads: n.Picks,
		InFlight: n.InFlight, LatencyMS: float64(n.Latency) / float64(time.Millisecond), Errors: n.Errors, Ejections: n.Ejections,
	}
	if n.Held >= 0 {
		held := n.Held.Milliseconds()
		s.StalenessMS = &held
	}
	return s
}

// replicaReads answers GET /replicas: what this gateway knows of the nodes that it balances reads over.
func replicaReads(nodes func() []store.ReadNode) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		list := []shownNode{}
		for _, n := range nodes() {
			list = append(list, shown(n))
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"nodes": list}) // the client may be gone; nothing to do about it
	}
}
