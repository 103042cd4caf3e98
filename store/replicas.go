package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/balance"
	"github.com/slotgate/slotgate/store/slot"
)

// replicas are the nodes that may answer reads of a cluster whose callers let replicas do so. There are none until the first such read; while
// there are such reads, each node is looked at every second (looks.go).
type replicas struct {
	cluster *cluster
	table   atomic.Pointer[replicaTable] // nil = nothing is known yet
	// lastRead is in unix seconds, nextLook in unix nanoseconds.
	lastRead, nextLook atomic.Int64
	asking             atomic.Bool // somebody reads the topology

	mu     sync.Mutex
	nodes  map[string]*replicaNode // by the address that is dialled
	shown  topology                // what table was made of; zero = of something that go-redis did not know all of
	closed bool
	fault  string // what INFO was refused for, as logged
}

// replicaTable is who may be asked, by slot. It does not change.
type replicaTable struct {
	shards []*replicaShard
	bySlot [slot.Count]*replicaShard // nil = no node has the slot
}

// replicaShard is a primary and its replicas. It lives on when they change their roles.
type replicaShard struct {
	set     *balance.Set
	nodes   []shardNode // the primary first
	looking *atomic.Bool
}

type shardNode struct {
	id   string
	node *replicaNode
}

// replicaReads are the cluster's, made now if there are none.
func (c *cluster) replicaReads() *replicas {
	rs := c.replicas.Load()
	if rs == nil {
		rs = &replicas{cluster: c, nodes: map[string]*replicaNode{}}
		if !c.replicas.CompareAndSwap(nil, rs) {
			rs = c.replicas.Load()
		}
	}
	if now := time.Now().Unix(); rs.lastRead.Load() != now {
		rs.lastRead.Store(now)
	}
	return rs
}

// shard is that of a slot; nil = none is known.
func (rs *replicas) shard(number int) *replicaShard {
	if t := rs.table.Load(); t != nil {
		return t.bySlot[number]
	}
	return nil
}

// update makes a new table of what the cluster says now, if it says anything new.
func (rs *replicas) update(t topology) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed || rs.shown.shards != nil && t.same(rs.shown) {
		return
	}
	next, now, complete := &replicaTable{}, time.Now(), true
	used := map[string]bool{}
	left := rs.shardsByNode()
	for _, s := range t.shards {
		own := &replicaShard{}
		var members []balance.Node
		for i, m := range append([]member{{s.id, s.addr}}, s.replicas...) {
			addr, ok := rs.cluster.nodes.dialled(m.addr)
			if !ok { // go-redis has not heard of it
				complete = false
				continue
			}
			n := rs.node(addr)
			used[addr] = true
			own.nodes = append(own.nodes, shardNode{m.id, n})
			members = append(members, balance.Node{ID: m.id, Primary: i == 0, Via: n})
		}
		own.adopt(left)
		if own.set == nil {
			own.set, own.looking = balance.New(now, nil), new(atomic.Bool)
		}
		own.set.Update(now, members)
		for _, m := range own.nodes {
			m.node.plays.Store(&roleOf{own.set, m.id})
		}
		next.shards = append(next.shards, own)
		for _, r := range s.slots {
			for number := r[0]; number <= r[1]; number++ {
				next.bySlot[number] = own
			}
		}
	}
	rs.table.Store(next)
	for _, s := range left {
		s.set.Update(now, nil) // what its nodes say is told to others
	}
	if rs.shown = (topology{}); complete {
		rs.shown = t
	}
	rs.forget(used)
}

// shardsByNode are the shards of the table by the ids of their nodes.
func (rs *replicas) shardsByNode() map[string]*replicaShard {
	shards := map[string]*replicaShard{}
	if t := rs.table.Load(); t != nil {
		for _, s := range t.shards {
			for _, m := range s.nodes {
				shards[m.id] = s
			}
		}
	}
	return shards
}

// adopt takes what was learnt of the shard that one of the nodes was of before, the primary's first. Nobody else gets it then.
func (s *replicaShard) adopt(before map[string]*replicaShard) {
	for _, m := range s.nodes {
		if old := before[m.id]; old != nil {
			s.set, s.looking = old.set, old.looking
			for _, m := range old.nodes {
				delete(before, m.id)
			}
			return
		}
	}
}

// node is that at an address. rs.mu is held.
func (rs *replicas) node(addr string) *replicaNode {
	n := rs.nodes[addr]
	if n == nil {
		n = newReplicaNode(rs.cluster, addr)
		rs.nodes[addr] = n
	}
	n.gone = time.Time{}
	return n
}

// forget closes the connections to nodes that are not used any more, when reads under way have had their time. rs.mu is held.
func (rs *replicas) forget(used map[string]bool) {
	for addr, n := range rs.nodes {
		if used[addr] {
			continue
		}
		if n.gone.IsZero() {
			n.gone = time.Now()
			n.plays.Store(nil)
		}
	}
	rs.closeGone(time.Now().Add(-retireAfter))
}

// closeGone closes the nodes that have left before a time. rs.mu is held.
func (rs *replicas) closeGone(before time.Time) {
	for addr, n := range rs.nodes {
		if !n.gone.IsZero() && n.gone.Before(before) {
			n.close()
			delete(rs.nodes, addr)
		}
	}
}

// rest forgets who may be asked, because nobody has asked for long: nodes that nobody reads from get no better and no worse, and connections to them
// serve nobody.
func (rs *replicas) rest(now time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if t := rs.table.Load(); t != nil {
		for _, s := range t.shards {
			s.set.Update(now, nil)
		}
		rs.table.Store(nil)
		rs.shown = topology{}
		rs.forget(nil)
	}
	rs.closeGone(now.Add(-retireAfter))
}

// close ends all connections. There are none afterwards.
func (rs *replicas) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = true
	rs.table.Store(nil)
	for addr, n := range rs.nodes {
		n.close()
		delete(rs.nodes, addr)
	}
}

// replicaNode is a node that is looked at, and read from while it is a replica.
type replicaNode struct {
	cluster *cluster
	addr    string
	looker  *redis.Client          // one connection, for looks
	way     *way                   // of reads, on connections of their own: with READONLY
	plays   atomic.Pointer[roleOf] // nil = none
	gone    time.Time              // since when it is not used; guarded by replicas.mu
}

// roleOf is the place of a node in its shard.
type roleOf struct {
	set *balance.Set
	id  string
}

func newReplicaNode(c *cluster, addr string) *replicaNode {
	n := &replicaNode{cluster: c, addr: addr}
	h := c.nodes.health(addr)
	hook := nodeHook{c.metrics, c.name, c.nodes.label(addr), h}

	looks := c.nodeOptions(addr)
	looks.PoolSize, looks.MaxActiveConns, looks.PipelinePoolSize = 1, 1, 1
	n.looker = redis.NewClient(looks)
	n.looker.AddHook(hook)

	reads := c.nodeOptions(addr)
	reads.OnConnect = n.greet
	client := redis.NewClient(reads)
	client.AddHook(hook)
	n.way = c.newWay(client)
	n.way.replica = true
	c.ways.Store(client, n.way)
	return n
}

// greet is said first on each connection that reads: without READONLY a replica sends its readers away. And who answers may be another than
// who was looked at, or the same after a restart with an old file, so it is looked at before it is read from.
func (n *replicaNode) greet(ctx context.Context, conn *redis.Conn) error {
	asked := time.Now()
	p := conn.Pipeline()
	p.ReadOnly(ctx)
	said := p.Info(ctx, "replication")
	if _, err := p.Exec(ctx); err != nil {
		return err // nobody reads from this connection, and a caller who has left says nothing about the node
	}
	n.looked(lookOf(asked, said.Val(), nil))
	return nil
}

// looked tells the node's shard what it has said.
func (n *replicaNode) looked(l balance.Look) {
	if p := n.plays.Load(); p != nil {
		p.set.Look(p.id, l)
	}
}

// close ends the node's connections. Reads under way fail.
func (n *replicaNode) close() {
	n.plays.Store(nil)
	n.cluster.ways.Delete(n.way.node)
	_ = n.looker.Close()
	_ = n.way.node.Close()
}

// nodeOptions are those that go-redis gives its own clients of nodes, with the same bounds.
func (c *cluster) nodeOptions(addr string) *redis.Options {
	o := clusterOptions(c.reach, c.cfg.Redis, &c.replies)
	return &redis.Options{
		Addr: addr, Username: o.Username, Password: o.Password, CredentialsProviderContext: o.CredentialsProviderContext,
		Dialer: o.Dialer, Protocol: o.Protocol,
		MaxRetries: o.MaxRetries, ContextTimeoutEnabled: o.ContextTimeoutEnabled,
		DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolSize: o.PoolSize, MaxActiveConns: o.MaxActiveConns, PoolTimeout: o.PoolTimeout, PipelinePoolSize: o.PipelinePoolSize,
		ReadBufferSize: o.ReadBufferSize, WriteBufferSize: o.WriteBufferSize,
		PipelineReadBufferSize: o.PipelineReadBufferSize, PipelineWriteBufferSize: o.PipelineWriteBufferSize,
		ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		DisableIdentity: o.DisableIdentity, MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
}
