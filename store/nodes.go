package store

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/metric"
)

// nodes are the nodes of a cluster that go-redis has clients of, by the address that is dialled.
type nodes struct {
	mu      sync.Mutex
	byAddr  map[string]knownNode
	labels  labels
	healths map[string]*health // by address: a node that comes back is known, whatever its client is
	dials   int                // most dials to a node at once
}

type knownNode struct {
	client *redis.Client
	label  string
	gone   time.Time // when it was first seen to have left; zero = it has not
}

// add notes a new client.
func (n *nodes) add(client *redis.Client) *health {
	n.mu.Lock()
	defer n.mu.Unlock()
	addr := client.Options().Addr
	label := n.labels.of(addr)
	n.byAddr[addr] = knownNode{client: client, label: label}
	h := n.healthOf(addr)
	h.name(label)
	return h
}

// health is that of the node at an address.
func (n *nodes) health(addr string) *health {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.healthOf(addr)
}

func (n *nodes) healthOf(addr string) *health {
	h := n.healths[addr]
	if h == nil {
		h = newHealth(addr, metric.Other, n.dials)
		n.healths[addr] = h
	}
	return h
}

// watch calls f for the health of each node. f must not call n.
func (n *nodes) watch(f func(*health)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.healths {
		f(h)
	}
}

// circuitFigures are the sums of all nodes that share a label.
type circuitFigures struct{ open, opens float64 }

func (n *nodes) circuits() map[string]circuitFigures {
	sums := map[string]circuitFigures{}
	n.watch(func(h *health) {
		label, isOpen, opens := h.circuit()
		sum := sums[label]
		if isOpen {
			sum.open++
		}
		sum.opens += float64(opens)
		sums[label] = sum
	})
	return sums
}

// label is the value of the label node of an address.
func (n *nodes) label(addr string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k, ok := n.byAddr[addr]; ok {
		return k.label
	}
	return metric.Other
}

// client is that of the node at an address; nil = none is known.
func (n *nodes) client(addr string) *redis.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byAddr[addr].client
}

// dialled is the address by which go-redis reaches the node that the cluster names so; false = it knows none yet.
func (n *nodes) dialled(named string) (addr string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for addr, k := range n.byAddr {
		if k.client.NodeAddress() == named {
			return addr, true
		}
	}
	for addr := range n.byAddr { // a seed is known by what it was dialled by
		if sameNode(addr, named) {
			return addr, true
		}
	}
	return "", false
}

// keep forgets all nodes but those of these clients, and returns the labels that nobody has any more. One that has left is kept for
// another while (0 = none): go-redis closes its client only a minute later (v9.23.0, newClusterState), and a node that is back before gets
// the same, of which nobody would hear.
func (n *nodes) keep(alive map[*redis.Client]bool, now time.Time, while time.Duration) (gone []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for addr, k := range n.byAddr {
		switch {
		case alive[k.client]:
			k.gone = time.Time{}
			n.byAddr[addr] = k
		case while > 0 && k.gone.IsZero():
			k.gone = now
			n.byAddr[addr] = k
		case now.Sub(k.gone) >= while:
			delete(n.byAddr, addr)
			gone = append(gone, n.labels.free(addr)...)
		}
	}
	for addr, h := range n.healths {
		if _, known := n.byAddr[addr]; !known {
			delete(n.healths, addr)
			h.recover() // nobody asks it any more; whoever still has its client finds out by himself
		}
	}
	return gone
}

// poolFigures are the sums of all pools that share a label; wait is in seconds.
type poolFigures struct{ idle, used, timeouts, wait float64 }

// pools are those of all nodes, and of the replicas that are read from.
func (c *cluster) pools() map[string]poolFigures {
	c.nodes.mu.Lock()
	known := slices.Collect(maps.Values(c.nodes.byAddr))
	c.nodes.mu.Unlock()
	sums := make(map[string]poolFigures, len(known))
	for _, k := range known {
		addPool(sums, k.label, k.client)
	}
	c.ways.Range(func(_, v any) bool {
		if w := v.(*way); w.replica {
			addPool(sums, w.label, w.node)
		}
		return true
	})
	return sums
}

func addPool(sums map[string]poolFigures, label string, client *redis.Client) {
	st := client.PoolStats()
	sum := sums[label]
	sum.add(st.TotalConns, st.IdleConns, st.Timeouts, st.WaitDurationNs)
	if p := st.PipelineStats; p != nil {
		sum.add(p.TotalConns, p.IdleConns, p.Timeouts, p.WaitDurationNs)
	}
	sums[label] = sum
}

func (f *poolFigures) add(total, idle, timeouts uint32, wait int64) {
	f.idle += float64(idle)
	f.used += float64(total - min(idle, total))
	f.timeouts += float64(timeouts)
	f.wait += time.Duration(wait).Seconds()
}

// labels gives each name a label value of its own, up to a number; the names beyond it share metric.Other.
type labels struct {
	most  int
	given map[string]string // by name
	taken map[string]bool   // labels: two odd names may look alike as labels
}

func newLabels(most int) labels {
	return labels{most: most, given: map[string]string{}, taken: map[string]bool{}}
}

func (l *labels) of(name string) string {
	if label, ok := l.given[name]; ok {
		return label
	}
	label := metric.Label(name)
	if len(l.given) >= l.most || l.taken[label] {
		return metric.Other
	}
	l.given[name], l.taken[label] = label, true
	return label
}

// free gives the value of a name back: none, if it had none of its own.
func (l *labels) free(name string) (gone []string) {
	if label, ok := l.given[name]; ok {
		delete(l.given, name)
		delete(l.taken, label)
		gone = append(gone, label)
	}
	return gone
}
