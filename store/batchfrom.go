package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/store/balance"
)

// runFrom is run of a batch that reads, for who lets replicas answer.
func (b *batch) runFrom(ctx context.Context, rd Reading, j *job) {
	if !rd.Replicas {
		b.run(ctx, j)
		return
	}
	left := sequence(len(j.slots))
	if !b.store.cfg.Replicas.Off {
		left = b.askSomebody(ctx, rd, j)
	}
	if len(left) == 0 {
		return
	}
	slots := make([]uint16, len(left))
	for n, i := range left {
		slots[n] = j.slots[i]
	}
	answered := make([]bool, len(left))
	b.run(ctx, &job{slots, func(n int, it *item) { j.fill(left[n], it) }, func(n int, from *item) {
		answered[n] = from.err == nil
		j.done(left[n], from)
	}})
	rd.Served.some(false, count(answered))
}

func count(flags []bool) (n int) {
	for _, is := range flags {
		if is {
			n++
		}
	}
	return n
}

// chunkOf is a part of a batch for one shard, by the items' numbers in the job. Those that are answered leave it.
type chunkOf struct {
	shard  *replicaShard
	items  []int
	none   []int  // of the items, those that a replica has not: the primary has the last word
	result string // why items are left
}

// askSomebody is Store.askSomebody of a batch: each chunk goes to the node that its shard chooses for it. It returns the items that the
// primaries have to be asked for in the ordinary way.
func (b *batch) askSomebody(ctx context.Context, rd Reading, j *job) []int {
	rs := b.cluster.replicaReads()
	byShard := map[*replicaShard][]int{}
	for i, number := range j.slots {
		sh := rs.shard(int(number))
		byShard[sh] = append(byShard[sh], i)
	}
	left := byShard[nil]
	delete(byShard, nil)
	b.cluster.metrics.readFrom(b.cluster.name, readUnknown, len(left))
	part := *b
	part.class, part.aside = classOf(ctx, b.id), true
	for _, items := range byShard {
		part.large = part.large || len(items) > b.store.cfg.Batch.Chunk
	}
	if part.large {
		part.class = part.class.Next()
	}
	lanes := max(b.store.cfg.Batch.PerRequest/max(len(byShard), 1), 1)
	var g errgroup.Group
	var mu sync.Mutex
	for sh, items := range byShard {
		for _, own := range split(nodeItems{items: items}, lanes, b.store.cfg.Batch.Chunk) {
			g.Go(func() error {
				rest := part.askInTurn(ctx, rd, rs, j, sh, own)
				mu.Lock()
				defer mu.Unlock()
				left = append(left, rest...)
				return nil
			})
		}
	}
	_ = g.Wait()
	slices.Sort(left)
	return left
}

// askInTurn asks a shard for its chunks, one after the other, and returns the items that were not answered. If nobody answers for one of them it
// asks for no more: what is behind would find that out again and again, until the primaries have no time left.
func (b *batch) askInTurn(ctx context.Context, rd Reading, rs *replicas, j *job, sh *replicaShard, chunks []nodeItems) (left []int) {
	for n, own := range chunks {
		c := &chunkOf{shard: sh, items: own.items, result: readUnknown}
		b.guard(nil, func() { b.askShard(ctx, rd, rs, j, c) })
		left = append(append(left, c.items...), c.none...)
		if len(c.items) < len(own.items) || c.result == readDoubted {
			continue
		}
		for _, rest := range chunks[n+1:] {
			left = append(left, rest.items...)
			b.cluster.metrics.readFrom(b.cluster.name, c.result, len(rest.items))
		}
		break
	}
	return left
}

// askShard is askSomebody of a chunk.
func (b *batch) askShard(ctx context.Context, rd Reading, rs *replicas, j *job, c *chunkOf) {
	var sent *sentChunk
	rs.askTwice(ctx, c.shard, b.store.within(rd, balance.Multi), int(j.slots[c.items[0]]), func(ctx context.Context, w *way) asked {
		sent = b.sendChunk(ctx, w, j, c.items)
		return asked{err: sent.failed()}
	}, func(node balance.Node, got asked, believed bool) {
		if sent == nil { // the primary is not known
			return
		}
		if c.result = readFailed; got.final() && !believed {
			c.result = readDoubted
		}
		n := sent.settle(ctx, j, c, node.Primary, believed)
		rd.Served.some(!node.Primary, n)
		by := readByReplica
		if node.Primary {
			by = readByPrimary
		}
		b.cluster.metrics.readFrom(b.cluster.name, by, n)
		sent = nil
	})
	b.cluster.metrics.readFrom(b.cluster.name, c.result, len(c.items))
	b.cluster.metrics.readFrom(b.cluster.name, readAbsent, len(c.none))
}

// sentChunk is a chunk that a node was asked for.
type sentChunk struct {
	batch
	way   *way
	start time.Time
}

// sendChunk asks a node for the items, once.
func (b *batch) sendChunk(ctx context.Context, w *way, j *job, items []int) *sentChunk {
	s := &sentChunk{*b, w, time.Now()}
	s.items, s.budget = newItems(len(items)), b.budget.lend()
	for n, i := range items {
		s.items[n].slot = int(j.slots[i])
		j.fill(i, &s.items[n])
	}
	var r round
	s.begin(&r, nodeItems{w, sequence(len(items))})
	r.do(ctx)
	r.collect()
	r.sendLarge(ctx)
	return s
}

// failed is the first fault for which another node may be asked; nil = there is none.
func (s *sentChunk) failed() error {
	for i := range s.items {
		if f := s.items[i].fault; f != nil && !f.noEffect {
			return f.err
		}
	}
	return nil
}

// settle answers the items that the node has answered, if it may be believed, and takes them out of the chunk. It returns how many it were.
func (s *sentChunk) settle(ctx context.Context, j *job, c *chunkOf, primary, believed bool) int {
	var settled, failed []int
	held := int64(0)
	for n, i := range c.items {
		switch it := &s.items[n]; {
		case it.fault != nil && !it.fault.noEffect, !believed:
			failed = append(failed, i)
		case !primary && it.absent():
			c.none = append(c.none, i)
		default:
			s.batch.settle(n)
			settled = append(settled, n)
		}
	}
	if len(settled) > 0 {
		s.cluster.retries.requests.Add(int64(len(settled)))
		s.cluster.observe(s.row, s.way, s.start)
		s.report(ctx, s.way, settled, s.start)
		s.read(settled)
		for _, n := range settled {
			held += int64(len(s.items[n].got.Data))
			j.done(c.items[n], &s.items[n])
		}
		s.counted(settled)
	}
	s.budget.keep(held)
	s.release()
	c.items = failed
	return len(settled)
}

// absent says whether there is no such key.
func (it *item) absent() bool {
	if it.fault != nil || it.call == nil {
		return false
	}
	switch it.call.row {
	case rowExists:
		return it.call.out.n == 0
	default:
		return errors.Is(it.call.out.result(nil), redis.Nil)
	}
}
