package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/slot"
)

// topology is which primary holds which slots, at one moment.
type topology struct {
	shards []shard // by the node's id
	epoch  uint64  // changes when a slot or a primary does
	read   time.Time
}

// shard is one primary and its slots.
type shard struct {
	id, addr string
	slots    [][2]int // inclusive, ascending
	replicas []member // by id; those that have failed are left out
}

// member is a node as the cluster names it.
type member struct{ id, addr string }

func (s shard) holds(slot int) bool {
	for _, r := range s.slots {
		if r[0] <= slot && slot <= r[1] {
			return true
		}
	}
	return false
}

// topologyMaxAge: a listing asks the cluster for its slot map at most once a second, however many pages are read.
const topologyMaxAge = time.Second

// topologyCache shares one reading of the slot map.
type topologyCache struct {
	mu   sync.Mutex
	last topology
}

// read returns the topology, at most topologyMaxAge old.
func (tc *topologyCache) read(ctx context.Context, client *redis.ClusterClient) (topology, error) {
	tc.mu.Lock()
	last := tc.last
	tc.mu.Unlock()
	if time.Since(last.read) < topologyMaxAge {
		return last, nil
	}
	slots, err := client.ClusterSlots(ctx).Result()
	if errors.Is(err, redis.Nil) {
		err = errNoSlotMap
	}
	if err != nil {
		return topology{}, err
	}
	t := makeTopology(slots)
	tc.mu.Lock()
	tc.last = t
	tc.mu.Unlock()
	return t, nil
}

// forget makes the next reading ask the cluster.
func (tc *topologyCache) forget() {
	tc.mu.Lock()
	tc.last = topology{}
	tc.mu.Unlock()
}

func makeTopology(slots []redis.ClusterSlot) topology {
	byID := map[string]*shard{}
	for _, r := range slots {
		if len(r.Nodes) == 0 || r.Start < 0 || r.End >= slot.Count || r.Start > r.End {
			continue // a node that lies
		}
		primary := r.Nodes[0] // the first is the primary (CLUSTER SLOTS)
		id := cmp.Or(primary.ID, primary.Addr)
		if byID[id] == nil {
			byID[id] = &shard{id: id, addr: primary.Addr}
		}
		byID[id].slots = append(byID[id].slots, [2]int{r.Start, r.End})
		byID[id].addReplicas(r.Nodes[1:])
	}
	t := topology{read: time.Now()}
	for _, s := range byID {
		slices.SortFunc(s.slots, func(a, b [2]int) int { return cmp.Compare(a[0], b[0]) })
		slices.SortFunc(s.replicas, func(a, b member) int { return cmp.Compare(a.id, b.id) })
		t.shards = append(t.shards, *s)
	}
	slices.SortFunc(t.shards, func(a, b shard) int { return cmp.Compare(a.id, b.id) })
	t.epoch = t.hash()
	return t
}

// addReplicas adds those that it has not: each range of slots names them.
func (s *shard) addReplicas(nodes []redis.ClusterNode) {
	for _, n := range nodes {
		m := member{cmp.Or(n.ID, n.Addr), n.Addr}
		if !slices.Contains(s.replicas, m) {
			s.replicas = append(s.replicas, m)
		}
	}
}

// same says whether two readings show the same nodes with the same slots.
func (t topology) same(o topology) bool {
	return slices.EqualFunc(t.shards, o.shards, func(a, b shard) bool {
		return a.id == b.id && a.addr == b.addr && slices.Equal(a.slots, b.slots) && slices.Equal(a.replicas, b.replicas)
	})
}

// hash names a topology: two readings with the same primaries and slots have the same one, in every gateway.
func (t topology) hash() uint64 {
	h := fnv.New64a()
	for _, s := range t.shards {
		_, _ = h.Write([]byte(s.id))
		for _, r := range s.slots {
			_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(r[0])<<16|uint32(r[1])))
		}
	}
	return h.Sum64()
}
