package store

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/store/balance"
	"github.com/slotgate/slotgate/store/info"
)

const (
	// lookEvery is how often nodes are asked how far they are, more or less by lookJitter so that gateways do not all ask at once: what
	// balance.LeastWithin is made for.
	lookEvery  = time.Second
	lookJitter = .1
	// lookTimeout lets a look at a node that hangs end before the next one is due, its primary's before it.
	lookTimeout = 450 * time.Millisecond
	// lookFor is how long after the last read nodes are looked at.
	lookFor = time.Minute
	// lookAgain is how soon nodes are looked at again when the topology is in doubt.
	lookAgain = 200 * time.Millisecond
)

// lookIfDue looks at the cluster's nodes, each shard by itself, if replicas are read from and it is time.
func (s *Store) lookIfDue(ctx context.Context, c *cluster, now time.Time) {
	rs := c.replicas.Load()
	if rs == nil || !rs.lookDue(now) {
		return
	}
	jitter := 1 - lookJitter + 2*lookJitter*rand.Float64()
	rs.nextLook.Store(now.Add(time.Duration(float64(lookEvery) * jitter)).UnixNano())
	if now.Unix()-rs.lastRead.Load() > int64(lookFor/time.Second) {
		rs.rest(now)
		return
	}
	if rs.asking.CompareAndSwap(false, true) {
		s.done.Go(func() {
			defer rs.asking.Store(false)
			alive.Once(s.log, "reading which replicas there are", func() { s.findReplicas(ctx, rs) })
		})
	}
	if t := rs.table.Load(); t != nil {
		s.lookAt(ctx, rs, t.shards)
	}
}

// lookDue says whether it is time to look. A clock that was set back makes it time, not nobody look until it has caught up.
func (rs *replicas) lookDue(now time.Time) bool {
	wait := rs.nextLook.Load() - now.UnixNano()
	return wait <= 0 || wait > int64(2*lookEvery)
}

// findReplicas reads the topology. Shards that are new are looked at at once.
func (s *Store) findReplicas(ctx context.Context, rs *replicas) {
	read, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	t, err := rs.cluster.topo.read(read, rs.cluster.client)
	if err != nil {
		return // what is known holds until the looks say otherwise
	}
	before := rs.table.Load()
	rs.update(t)
	if now := rs.table.Load(); now != nil && now != before {
		s.lookAt(ctx, rs, now.shards)
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closeGone(time.Now().Add(-retireAfter))
}

// lookAt looks at the nodes of shards, each by itself: one that hangs makes no other's figures old.
func (s *Store) lookAt(ctx context.Context, rs *replicas, shards []*replicaShard) {
	for _, sh := range shards {
		if !sh.looking.CompareAndSwap(false, true) {
			continue
		}
		s.done.Go(func() {
			defer sh.looking.Store(false)
			alive.Once(s.log, "looking at a shard", func() { s.refusedInfo(rs, sh.look(ctx, s.log)) })
		})
	}
}

// look asks the primary, and then the replicas at the same time: in this order one that is well has all that the primary was seen to have.
// refused is why a node would not tell; nil = none refused.
func (sh *replicaShard) look(ctx context.Context, log *slog.Logger) (refused error) {
	if len(sh.nodes) < 2 { // nobody to compare
		return nil
	}
	refused = sh.nodes[0].node.look(ctx)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, m := range sh.nodes[1:] {
		wg.Go(func() {
			err := errPanic
			alive.Once(log, "looking at a replica", func() { err = m.node.look(ctx) })
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				refused = err
			}
		})
	}
	wg.Wait()
	return refused
}

// look asks the node, and tells its shard what it said, or that it said nothing. refused is an error reply.
func (n *replicaNode) look(ctx context.Context) (refused error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	asked := time.Now()
	answer, err := n.looker.Info(ctx, "replication").Result()
	l := lookOf(asked, answer, err)
	if l.Linked {
		n.connect(ctx)
	}
	n.looked(l)
	var reply redis.Error
	if errors.As(err, &reply) && answered(err) {
		return err
	}
	return nil
}

// connect makes the connections that the first reads need, if there are none: what it takes to connect says nothing about how fast a node
// answers, and the one time of one read would be all that is known of it.
func (n *replicaNode) connect(ctx context.Context) {
	st := n.way.node.PoolStats()
	if st.TotalConns > 0 && (st.PipelineStats == nil || st.PipelineStats.TotalConns > 0) {
		return
	}
	_ = n.way.node.Ping(ctx).Err()
	p := n.way.node.Pipeline()
	p.Ping(ctx)
	p.Ping(ctx)
	_, _ = p.Exec(ctx) // whether it went well the look will tell
}

// lookOf is what a node has said; err = nothing.
func lookOf(asked time.Time, answer string, err error) balance.Look {
	l := balance.Look{Asked: asked}
	if err != nil {
		return l
	}
	f := info.Parse(answer)
	offset := "master_repl_offset"
	if l.Primary = f["role"] == "master"; !l.Primary {
		offset = "slave_repl_offset"
	}
	if l.Offset, err = strconv.ParseInt(f[offset], 10, 64); err != nil || l.Offset < 0 {
		return balance.Look{Asked: asked}
	}
	l.History, l.Linked = f["master_replid"], f["master_link_status"] == "up"
	return l
}

// refusedInfo logs that nodes refuse INFO, when that begins.
func (s *Store) refusedInfo(rs *replicas, err error) {
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if fault != "" && fault != rs.fault {
		s.log.Warn("nodes refuse INFO, so primaries answer what replicas could; allow the gateway's Redis user +info and +readonly", "cluster", rs.cluster.name, "error", fault)
	}
	rs.fault = fault
}

// lookSoon reads the topology anew soon: a node has sent a read away.
func (rs *replicas) lookSoon(now time.Time) {
	soon := now.Add(lookAgain).UnixNano()
	if next := rs.nextLook.Load(); next > soon && rs.nextLook.CompareAndSwap(next, soon) {
		rs.cluster.topo.forget()
	}
}
