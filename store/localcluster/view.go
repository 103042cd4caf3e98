package localcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slotgate/slotgate/store/slot"
)

// peer is a line of CLUSTER NODES: what one node believes about another, or about itself.
type peer struct {
	id, primary string // primary is "-" for a primary
	flags       []string
	epoch       int64
	connected   bool
	slots       []string // "0-5460" or "17"; slots being moved are left out
}

func (p peer) is(flag string) bool { return slices.Contains(p.flags, flag) }

func (p peer) serves(s int) bool {
	for _, r := range p.slots {
		first, last, ok := strings.Cut(r, "-")
		if !ok {
			last = first
		}
		a, _ := strconv.Atoi(first)
		b, _ := strconv.Atoi(last)
		if a <= s && s <= b {
			return true
		}
	}
	return false
}

// view returns what the node believes, by node name.
func (n *Node) view(ctx context.Context) (map[string]peer, error) {
	text, err := n.Client().ClusterNodes(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("asking %s for the cluster: %w", n.Addr, err)
	}
	peers := map[string]peer{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		p := peer{id: f[0], flags: strings.Split(f[2], ","), primary: f[3], connected: f[7] == "connected"}
		p.epoch, _ = strconv.ParseInt(f[6], 10, 64)
		for _, s := range f[8:] {
			if !strings.HasPrefix(s, "[") {
				p.slots = append(p.slots, s)
			}
		}
		peers[p.id] = p
	}
	return peers, nil
}

// running returns the nodes that are neither ended nor paused.
func (c *Cluster) running() []*Node {
	return slices.DeleteFunc(c.Nodes(), func(n *Node) bool { return !n.Running() })
}

func (c *Cluster) byID(id string) *Node {
	for _, n := range c.nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// WaitOK waits until every running node (those killed or paused by their methods are left out) says that the cluster is well,
// knows every other one, and agrees about who serves what; every slot has a running primary; and every running replica is in
// step. When ctx ends first, the error says what was missing.
func (c *Cluster) WaitOK(ctx context.Context) error {
	for {
		err := c.check(ctx)
		if err == nil {
			return nil
		}
		if !wait(ctx) {
			return fmt.Errorf("waiting for the cluster: %w", err)
		}
	}
}

func (c *Cluster) check(ctx context.Context) error {
	running := c.running()
	if len(running) == 0 {
		return errors.New("no node runs")
	}
	var agreed string
	for _, n := range running {
		text, err := n.Client().ClusterInfo(ctx).Result()
		if err != nil {
			return fmt.Errorf("asking %s: %w", n.Addr, err)
		}
		if info := fields(text); info["cluster_state"] != "ok" || info["cluster_slots_assigned"] != strconv.Itoa(slot.Count) {
			return fmt.Errorf("%s says %s with %s slots", n.Addr, info["cluster_state"], info["cluster_slots_assigned"])
		}
		seen, err := n.view(ctx)
		if err != nil {
			return err
		}
		summary, err := summarize(n, seen, running)
		if err != nil {
			return err
		}
		if agreed == "" {
			agreed = summary
		}
		if summary != agreed {
			return fmt.Errorf("%s and %s disagree", running[0].Addr, n.Addr)
		}
	}
	return checkReplication(ctx, running)
}

// summarize checks one node's view and puts into words what all have to agree on.
func summarize(n *Node, seen map[string]peer, running []*Node) (string, error) {
	var b strings.Builder
	for _, other := range running {
		p, known := seen[other.ID]
		switch {
		case !known:
			return "", fmt.Errorf("%s does not know %s", n.Addr, other.Addr)
		case p.is("fail") || p.is("fail?") || p.is("handshake") || !p.connected:
			return "", fmt.Errorf("%s has no contact with %s", n.Addr, other.Addr)
		}
		fmt.Fprintln(&b, p.id, p.primary, p.slots, p.epoch)
		delete(seen, other.ID)
	}
	for id, p := range seen { // nodes that do not run
		if len(p.slots) > 0 {
			return "", fmt.Errorf("%s waits for a successor of %s", n.Addr, id)
		}
	}
	return b.String(), nil
}

// checkReplication checks both ends: a replica counts for WAIT only when its primary calls it online.
func checkReplication(ctx context.Context, running []*Node) error {
	replicas, online := 0, 0
	for _, n := range running {
		info, err := n.info(ctx, "replication")
		if err != nil {
			return err
		}
		if info["role"] == "slave" {
			replicas++
			if info["master_link_status"] != "up" {
				return fmt.Errorf("%s has no contact with its primary", n.Addr)
			}
		}
		for name, value := range info {
			if strings.HasPrefix(name, "slave") && strings.Contains(value, "state=online") {
				online++
			}
		}
	}
	if online < replicas {
		return fmt.Errorf("%d of %d replicas are online", online, replicas)
	}
	return nil
}

// PrimaryOf returns the node that serves a slot: of all that running nodes name, the one with the newest claim.
func (c *Cluster) PrimaryOf(ctx context.Context, s int) (*Node, error) {
	var owner *Node
	newest := int64(-1)
	for _, n := range c.running() {
		seen, err := n.view(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range seen {
			if p.serves(s) && p.epoch > newest {
				owner, newest = c.byID(p.id), p.epoch
			}
		}
	}
	if owner == nil {
		return nil, fmt.Errorf("nobody serves slot %d", s)
	}
	return owner, nil
}

// PrimaryOfKey returns the node that serves a stored key.
func (c *Cluster) PrimaryOfKey(ctx context.Context, key string) (*Node, error) {
	return c.PrimaryOf(ctx, slot.Of(key))
}

// Primaries returns the running nodes that serve slots, in the order of Nodes.
func (c *Cluster) Primaries(ctx context.Context) ([]*Node, error) {
	var primaries []*Node
	for _, n := range c.running() {
		seen, err := n.view(ctx)
		if err != nil {
			return nil, err
		}
		if len(seen[n.ID].slots) > 0 {
			primaries = append(primaries, n)
		}
	}
	return primaries, nil
}

// ReplicaOf returns the first running replica of a node, also of one that has ended.
func (c *Cluster) ReplicaOf(ctx context.Context, primary *Node) (*Node, error) {
	for _, n := range c.running() {
		seen, err := n.view(ctx)
		if err != nil {
			return nil, err
		}
		if seen[n.ID].primary == primary.ID {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%s has no running replica", primary.Addr)
}
