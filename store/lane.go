package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/pipe"
)

// DurabilityConfig bounds durable writes. Zero fields mean the defaults beside them.
type DurabilityConfig struct {
	// Replicas must have a durable write before it is answered; 0 = all that the cluster lists for the shard, those that have failed
	// too, and at least one.
	Replicas int
	// ReplicaWait is how long replicas are waited for; 0 = 200 ms. One that is well is behind by a millisecond at the most.
	ReplicaWait time.Duration
	// FsyncWait is how long disks are waited for; 0 = 1.5 s. With appendfsync everysec one takes up to a second.
	FsyncWait time.Duration
}

// lane is how durable writes of one level reach one node: a pipe whose batches end with one WAIT or WAITAOF, so that all writes under
// way share the wait and a node whose replicas hang costs a few connections, and delays no other write. It also carries large values,
// which delay only those who wait anyway.
type lane struct {
	level    Durability
	client   *redis.Client // reads longer than others do
	pipe     *pipe.Pipe
	longest  time.Duration // of a wait
	replicas int           // that must confirm; 0 = all
	took     *metric.Histogram
	known    atomic.Pointer[shardCopies]
	asking   atomic.Bool // somebody finds out anew
}

// lane is the way's for a level other than Async.
func (w *way) lane(c *cluster, level Durability) *lane {
	place := &w.lanes[level-1]
	if l := place.Load(); l != nil {
		return l
	}
	cfg := c.cfg.Durability
	l := &lane{level: level, longest: cfg.ReplicaWait, replicas: cfg.Replicas, took: c.metrics.waits.With(c.name, level.String())}
	if level == Fsync {
		l.longest = cfg.FsyncWait
	}
	l.client = w.node.WithTimeout(l.longest + late + c.cfg.Redis.ReadTimeout)
	l.pipe = pipe.New(l.exec, pipe.Config{
		MaxBatch: c.cfg.Coalesce.MaxBatch, MaxQueued: c.cfg.Coalesce.MaxQueued, Timeout: l.longest + late + c.cfg.Redis.ReadTimeout,
	})
	if !place.CompareAndSwap(nil, l) {
		return place.Load()
	}
	return l
}

// late is how long after its time Redis may end a wait: it looks each 100 ms when it has nothing else to do (hz 10).
const late = 100 * time.Millisecond

// wait is how long copies are waited for: so that the answer comes by the deadline, or half of what is left if that is next to nothing.
func (l *lane) wait(ctx context.Context, now time.Time) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return l.longest
	}
	left := deadline.Sub(now)
	return max(min(l.longest, max(left-late-late/4, left/2)), time.Millisecond)
}

// exec is one pipeline: the writes, and the wait for all of them. It must be on one connection, since Redis waits for what the
// connection has written.
func (l *lane) exec(ctx context.Context, cmds []redis.Cmder) {
	start, need := time.Now(), 0
	for _, cmd := range cmds {
		if d, ok := cmd.(*durableCmd); ok {
			need = max(need, d.need)
		}
	}
	p := l.client.Pipeline()
	_ = p.BatchProcess(ctx, cmds...)
	var waits []onceCmd
	for _, step := range l.steps(l.wait(ctx, start)) {
		wait := onceCmd{redis.NewCmd(ctx, l.words(need, step)...)}
		waits = append(waits, wait)
		_ = p.Process(ctx, wait)
	}
	_, _ = p.Exec(ctx)
	l.took.Observe(time.Since(start).Seconds())
	got, err := l.confirmed(waits)
	for _, cmd := range cmds {
		if d, ok := cmd.(*durableCmd); ok {
			d.copies, d.fault = got, err
		}
	}
}

// steps are the waits that a wait is made of. Each asks the replicas anew. Once is enough for what they have in memory; but of their
// disks they tell what they know when they are asked, which is before the write is there, and then only once a second (Redis 8.2 and
// Valkey 9, whatever appendfsync says: 1.01 s for each write by one wait). All steps together end in time though
// each may end late.
func (l *lane) steps(whole time.Duration) []time.Duration {
	if l.level != Fsync {
		return []time.Duration{whole}
	}
	var steps []time.Duration
	for step := 5 * time.Millisecond; step+late < whole-late; step = min(4*step, late) {
		steps = append(steps, step)
		whole -= step + late
	}
	return append(steps, whole)
}

// words are those of the level's wait.
func (l *lane) words(need int, wait time.Duration) []any {
	if l.level == Fsync {
		return []any{"WAITAOF", 1, need, wait.Milliseconds()}
	}
	return []any{"WAIT", need, wait.Milliseconds()}
}

// confirmed reads the replies to the steps of a wait. What one of them has seen is so, whatever became of those behind it.
func (l *lane) confirmed(waits []onceCmd) (got copies, err error) {
	for _, wait := range waits {
		var n int64
		switch reply := wait.Val().(type) {
		case int64:
			n = reply
		case []any:
			said := scriptReply(reply)
			got.disk = got.disk || said.integer(0) > 0
			n = said.integer(1)
		}
		got.replicas = max(got.replicas, int(n))
		if err == nil {
			err = wait.Err()
		}
	}
	return got, err
}

// sweepLanes keeps the deadlines of those who wait for copies.
func (w *way) sweepLanes(now time.Time) {
	for i := range w.lanes {
		if l := w.lanes[i].Load(); l != nil {
			l.pipe.Sweep(now)
		}
	}
}

// lanesIdle says whether nobody waits for copies.
func (w *way) lanesIdle() bool {
	for i := range w.lanes {
		if l := w.lanes[i].Load(); l != nil && !l.pipe.Idle() {
			return false
		}
	}
	return true
}
