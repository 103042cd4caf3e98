package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/store/adaptive"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/pipe"
	"github.com/slotgate/slotgate/store/slot"
	"github.com/slotgate/slotgate/store/wire"
)

// CoalesceConfig says how callers of the same node share a pipeline. Zero fields mean the defaults beside them.
type CoalesceConfig struct {
	// Off sends each command on a connection of its own.
	Off bool
	// MaxBatch is the most commands in one pipeline, and so the most callers that one broken connection leaves with an unknown
	// outcome; 0 = 256.
	MaxBatch int
	// MaxQueued is the most commands that wait for one node; beyond it callers get backend_saturated. 0 = 4096.
	MaxQueued int
}

// sweepInterval is how far a caller may overstay its deadline in a pipe: well below the 50 ms that are promised.
const sweepInterval = 10 * time.Millisecond

// pipedBytes is the largest command and the largest value that go through a pipe, in bytes. What is larger takes longer
// to transfer than the callers behind it usually wait (16 KiB: 0.1 ms on a line of 1 Gbit/s).
const pipedBytes = 16 << 10

// way is how commands reach one node.
type way struct {
	node    *redis.Client
	pipe    *pipe.Pipe    // nil = each command on a connection of its own
	places  chan struct{} // of batch chunks that go by themselves
	turns   turns
	limiter *adaptive.Limiter
	// overload says whether the limiter is asked.
	overload *OverloadConfig
	cluster  string
	shed     *prometheus.CounterVec
	left     atomic.Bool // the node is no primary any more: its pipe is not swept
	replica  bool        // it is for reads of a replica, and kept by replicas
	health   *health
	label    string // the node's, in metrics
	took     *metric.Histogram
	lanes    [Fsync]atomic.Pointer[lane] // of durable writes, by level; made on first use
}

// way returns the way to a node of the cluster.
func (c *cluster) way(node *redis.Client) *way {
	if w, ok := c.ways.Load(node); ok {
		return w.(*way)
	}
	v, _ := c.ways.LoadOrStore(node, c.newWay(node))
	return v.(*way)
}

// newWay makes a way that nobody else knows of.
func (c *cluster) newWay(node *redis.Client) *way {
	w := &way{node: node, places: make(chan struct{}, c.cfg.Batch.PerNode), turns: newTurns(), label: c.nodes.label(node.Options().Addr)}
	w.health = c.nodes.health(node.Options().Addr)
	w.took = c.metrics.nodes.With(c.name, w.label)
	w.overload = &c.cfg.Overload
	w.limiter, w.cluster, w.shed = c.cfg.Overload.newLimiter(), c.name, c.metrics.shed
	if co := c.cfg.Coalesce; !co.Off {
		w.pipe = pipe.New(w.exec, pipe.Config{MaxBatch: co.MaxBatch, MaxQueued: co.MaxQueued, Timeout: c.cfg.Redis.ReadTimeout})
	}
	return w
}

// place waits for one of the node's places for batch chunks that go by themselves.
func (w *way) place(ctx context.Context) (release func(), err error) {
	deadline, _ := ctx.Deadline()
	if !take(ctx, w.places, deadline) {
		return nil, pipe.ErrWithdrawn
	}
	return func() { <-w.places }, nil
}

// take waits for room in places. It is false if ctx ends or the time comes before; zero = no time.
func take(ctx context.Context, places chan struct{}, until time.Time) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	var late <-chan time.Time // the context may know its deadline without having a timer for it
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-late:
	}
	return false
}

// exec is one pipeline; each command holds its own reply.
func (w *way) exec(ctx context.Context, cmds []redis.Cmder) {
	if w.overload.sendsAll() {
		w.send(ctx, cmds)
		return
	}
	start := time.Now()
	w.send(ctx, cmds)
	w.observe(start, cmds[len(cmds)-1].Err(), len(cmds))
}

// send is exec of what is no measure for the node.
func (w *way) send(ctx context.Context, cmds []redis.Cmder) {
	if len(cmds) == 1 {
		_ = w.node.Process(ctx, cmds[0])
		return
	}
	p := w.node.Pipeline()
	_ = p.BatchProcess(ctx, cmds...)
	_, _ = p.Exec(ctx)
}

// do sends the entry's commands, shared with other callers if they are small. Its error is one of pipe's. How long the node takes for
// large ones tells of their size, not of the node.
func (w *way) do(ctx context.Context, e *pipe.Entry, small bool) error {
	if w.health.refuses() { // without waiting behind those who were sent before
		refuse(e.Cmds)
		return nil
	}
	if w.pipe != nil && small {
		return w.pipe.Do(ctx, e)
	}
	if err := ctx.Err(); err != nil {
		return pipe.ErrWithdrawn
	}
	if small {
		w.exec(ctx, e.Cmds)
	} else {
		w.send(ctx, e.Cmds)
	}
	return nil
}

// sweep keeps the deadlines of everybody in the cluster's pipes, and the ways to slots from growing old.
func (c *cluster) sweep(now time.Time) {
	c.doubtInTime(now)
	c.ways.Range(func(_, v any) bool {
		w := v.(*way)
		if w.pipe != nil {
			w.pipe.Sweep(now)
		}
		if !w.overload.sendsAll() {
			w.limiter.Tick(time.Now()) // now is when this should have been
		}
		w.sweepLanes(now)
		return true
	})
}

// forgetNodes drops the ways to nodes that are primaries no more, and the figures of those that have left. One too many is made anew
// at its next command.
func (c *cluster) forgetNodes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Redis.ReadTimeout)
	defer cancel()
	primaries, err := members(ctx, c.client.ForEachMaster)
	if err != nil {
		return // another time
	}
	if all, err := members(ctx, c.client.ForEachShard); err == nil {
		c.keepNodes(all, forgetAfter)
	}
	c.ways.Range(func(node, v any) bool {
		w := v.(*way)
		if !w.replica && !primaries[w.node] && (w.pipe == nil || w.pipe.Idle()) && w.lanesIdle() {
			w.left.Store(true)
			c.ways.Delete(node)
		}
		return true
	})
}

// members are the clients that each walks over.
func members(ctx context.Context, each func(context.Context, func(context.Context, *redis.Client) error) error) (map[*redis.Client]bool, error) {
	var mu sync.Mutex
	found := map[*redis.Client]bool{}
	return found, each(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		found[node] = true
		return nil
	})
}

// keepNodes takes all nodes but those of these clients out of the metrics, those that have just left after a while.
func (c *cluster) keepNodes(alive map[*redis.Client]bool, while time.Duration) {
	for _, label := range c.nodes.keep(alive, time.Now(), while) {
		c.metrics.forgetNode(c.name, label)
	}
}

// sweepPipes runs until ctx ends.
func (s *Store) sweepPipes(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.clusters.each(func(c *cluster) {
				c.sweep(now)
				s.lookIfDue(ctx, c, now)
				c.nodes.watch(func(h *health) { s.watch(ctx, c, h, now) })
			})
		}
	}
}

// watch opens the circuit of a node, if it is time, and asks the node whether it lives, if that is in doubt.
func (s *Store) watch(ctx context.Context, c *cluster, h *health, now time.Time) {
	probe, opened := h.watch(now, s.cfg.Circuit)
	if opened {
		s.log.Warn("a Redis node does not answer; commands to it are refused until it does", "cluster", c.name, "node", h.addr)
	}
	if !probe {
		return
	}
	s.done.Go(func() {
		err := errPanic
		alive.Once(s.log, "asking whether a node lives", func() { err = h.probe(ctx, c.raw, s.cfg.Redis.DialTimeout) })
		if closed := h.probed(time.Now(), err, s.cfg.Circuit); closed {
			s.log.Info("a Redis node answers again", "cluster", c.name, "node", h.addr)
		}
	})
}

// entryPool holds entries of pipes.
var entryPool = sync.Pool{New: func() any { return pipe.NewEntry() }}

// once sends a call to the primary of its slot, once, and follows one redirect. kept says that the call was left to the
// pipe and must not be released.
func (c *cluster) once(ctx context.Context, id *acl.Identity, cl *call) (kept bool, err error) {
	number := slot.Of(cl.stored())
	w, err := c.wayTo(ctx, number)
	if err != nil {
		return false, err
	}
	cl.at = w
	place, err := w.admitOne(ctx, id)
	if err != nil {
		return false, err
	}
	kept, err = c.deliver(ctx, w, cl, place)
	if err == nil || errors.Is(err, redis.Nil) {
		return false, err
	}
	c.doubt(number)
	if kept || !redirected(err) {
		return kept, err
	}
	c.metrics.redirected(c.name, w.label, err)
	c.reload(ctx)
	return false, c.follow(ctx, id, cl, err)
}

// deliver sends a call to a node, once, and gives the place back. kept is as once has it.
func (c *cluster) deliver(ctx context.Context, w *way, cl *call, place adaptive.Place) (kept bool, err error) {
	small := c.shares(cl)
	cl.out.drain = small && w.pipe != nil // alone, nobody waits behind it
	e := entryPool.Get().(*pipe.Entry)
	e.Cmds = append(e.Cmds[:0], cl.command())
	var sent error
	defer func() { leave(place, e, sent) }()
	if err := w.do(ctx, e, small); err != nil {
		sent = err
		if errors.Is(err, pipe.ErrSaturated) {
			entryPool.Put(e)
		}
		return !errors.Is(err, pipe.ErrSaturated), err
	}
	err = cl.out.result(e.Cmds[0].Err())
	entryPool.Put(e)
	c.large.note(cl)
	return false, err
}

// follow runs the call, which err has redirected, through redirects. A string is loaded whole before its size is known, up to what any app of the cluster may read
// (package wire); slots move rarely.
func (c *cluster) follow(ctx context.Context, id *acl.Identity, cl *call, err error) error {
	place, err := c.admitRedirected(ctx, id, err)
	if err != nil {
		return err
	}
	defer place.Release(false)
	cmd := cl.generic(ctx)
	err = c.client.Process(ctx, cmd)
	cl.out.reset(cl.out.budget, cl.out.arena)
	cl.out.says = cl.row.says
	if err == nil {
		return cl.out.takeAny(cmd.Val())
	}
	if size, ok := wire.OverCap(err.Error()); ok {
		cl.out.notKept(size)
		return nil
	}
	return err
}
