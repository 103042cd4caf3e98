package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/store/adaptive"
	"github.com/slotgate/slotgate/store/pipe"
)

// item is one command of a batch and what became of it.
type item struct {
	key    string   // the caller's
	expiry []string // words behind the value
	value  []byte   // to be encoded before it is sent; nil = none
	slot   int
	call   *call   // nil = not made yet, or left to a pipe
	spare  *call   // memory for call, from an earlier batch; nil = none
	got    GetItem // what was read, decoded
	n      int64   // an integer reply
	fault  *fault  // of the latest try; nil = none
	err    *Error  // nil = done
}

// fault is a try that failed.
type fault struct {
	verdict
	err error
}

// newFault is nil for what is none.
func newFault(err error) *fault {
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	return &fault{classify(err), err}
}

// job is a batch as the operation sees it: what to send, in its order, and where to put what became of it. Result i belongs to item i.
type job struct {
	slots []uint16                // of each item; there is at least one
	fill  func(i int, it *item)   // sets key, value and expiry of an empty item
	done  func(i int, from *item) // takes the answer out of it; called once for each item, for different ones at the same time
}

// batch is many commands of one kind on keys anywhere in the cluster. It promises that a shard that is down or hangs fails only its own
// items, and that a write is sent again only if Redis certainly did not execute it. Its items are those of the whole job, or of a part.
type batch struct {
	store   *Store
	cluster *cluster
	id      *acl.Identity
	row     *row
	items   []item
	class   adaptive.Class
	large   bool    // more than one chunk for a node
	aside   bool    // it goes to nodes that the slot map need not name: their faults say nothing about it
	budget  *budget // of a read; nil for commands with small replies
}

// run executes all items of the job.
//
// The items are grouped by the node of their slot and cut into chunks. If there is one chunk for each node, they all
// go at once; otherwise lanes send them: goroutines that each work for one node only, so that a node that hangs holds
// up nothing but its own lanes.
func (b *batch) run(ctx context.Context, j *job) {
	if err := b.knowsTopology(ctx, int(j.slots[0])); err != nil {
		b.end(j, sequence(len(j.slots)), err)
		return
	}
	b.cluster.retries.requests.Add(int64(len(j.slots)))
	groups := b.groupByNode(ctx, sequence(len(j.slots)), func(i int) int { return int(j.slots[i]) }, func(i int, f *fault) {
		b.end(j, []int{i}, b.problem(f))
	})
	if len(groups) == 0 {
		return
	}
	b.class = classOf(ctx, b.id)
	if b.large = !b.fitsOneWave(groups); b.large {
		b.class = b.class.Next() // nobody waits for what is large as for what is small
	}
	if !b.store.cfg.Coalesce.Off && !b.large {
		b.whole(ctx, j, groups)
		return
	}
	lanes := max(b.store.cfg.Batch.PerRequest/len(groups), 1)
	var g errgroup.Group
	for _, group := range groups {
		for _, own := range split(group, lanes, b.store.cfg.Batch.Chunk) {
			g.Go(func() error { b.lane(ctx, j, own); return nil })
		}
	}
	_ = g.Wait()
}

// sequence is 0 to n-1.
func sequence(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// whole sends a small job in one piece: its items are the batch's.
func (b *batch) whole(ctx context.Context, j *job, groups []nodeItems) {
	b.items = newItems(len(j.slots))
	for _, g := range groups {
		for _, i := range g.items {
			b.items[i].slot = int(j.slots[i])
			j.fill(i, &b.items[i])
		}
	}
	b.wave(ctx, groups)
	for _, g := range groups {
		for _, i := range g.items {
			j.done(i, &b.items[i])
		}
		b.counted(g.items)
	}
	b.release() // not after a panic: then a pipe may still write to the calls
}

// end gives items of the job that were never sent their answer.
func (b *batch) end(j *job, items []int, err *Error) {
	never := item{err: err}
	for _, i := range items {
		j.done(i, &never)
		b.count(err)
	}
}

// knowsTopology makes sure that there is a slot map, once for all items; number is the slot of one of them. Without one every item has
// failed, and why is returned.
func (b *batch) knowsTopology(ctx context.Context, number int) *Error {
	if _, err := b.cluster.wayTo(ctx, number); err == nil {
		return nil
	}
	err := b.cluster.try(ctx, b.row, b.store.retries(b.id, false), func() (*way, error) {
		_, err := b.cluster.wayTo(ctx, number)
		return nil, err
	})
	if err == nil {
		return nil
	}
	e := *NewError(CodeInternal, "").WithCause(err)
	if known, ok := errors.AsType[*Error](err); ok {
		e = *known // it may be shared
	}
	if b.row.writes() {
		e.Outcome = NotApplied // only the slot map was asked for
	}
	return &e
}

// nodeItems are the items of one node, by index.
type nodeItems struct {
	way   *way
	items []int
}

// groupByNode finds the primary of each item of todo, by its slot. What has none is lost.
func (b *batch) groupByNode(ctx context.Context, todo []int, slot func(i int) int, lost func(i int, f *fault)) []nodeItems {
	groups := make([]nodeItems, 0, 4)
	for _, i := range todo {
		w, err := b.cluster.wayTo(ctx, slot(i))
		if err != nil {
			lost(i, newFault(err))
			continue
		}
		g := 0
		for g < len(groups) && groups[g].way != w { // a map costs more for the few nodes of a cluster
			g++
		}
		if g == len(groups) {
			groups = append(groups, nodeItems{way: w, items: make([]int, 0, len(todo)/max(g+1, 2)+1)})
		}
		groups[g].items = append(groups[g].items, i)
	}
	return groups
}

// fitsOneWave says whether each node gets one chunk only.
func (b *batch) fitsOneWave(groups []nodeItems) bool {
	for _, g := range groups {
		if len(g.items) > g.way.most(b.store.cfg.Batch.Chunk) {
			return false
		}
	}
	return true
}

// wave sends one chunk to each node, all at once and without a goroutine for each. What is not over with that goes on in
// a goroutine of its own as soon as its node has answered, whatever the other nodes do.
func (b *batch) wave(ctx context.Context, groups []nodeItems) {
	start := time.Now()
	done := make(chan *pipe.Entry, len(groups))
	rounds := make([]round, len(groups))
	var more errgroup.Group
	over := func(r *round) {
		b.cluster.observe(b.row, r.way, start)
		if r.collect(); r.complete() {
			b.report(ctx, r.way, r.items, start)
			b.read(r.items)
			return
		}
		more.Go(func() error {
			b.guard(r.items, func() { b.goOn(ctx, r); b.report(ctx, r.way, r.items, start); b.read(r.items) })
			return nil
		})
	}
	defer func() { // after a panic too
		for n := range rounds {
			rounds[n].leave()
		}
	}()
	waiting := 0
	for n := range groups {
		r := &rounds[n]
		b.begin(r, groups[n])
		if r.start(ctx, done) {
			waiting++
		} else {
			over(r)
		}
	}
	for range waiting {
		e := <-done
		for n := range rounds {
			if rounds[n].entry == e {
				over(&rounds[n])
			}
		}
	}
	_ = more.Wait()
}

// split cuts a node's items into chunks and deals them to at most lanes lanes.
func split(g nodeItems, lanes, chunk int) [][]nodeItems {
	var chunks []nodeItems
	for len(g.items) > 0 {
		n := min(chunk, len(g.items))
		chunks = append(chunks, nodeItems{g.way, g.items[:n:n]})
		g.items = g.items[n:]
	}
	dealt := make([][]nodeItems, min(lanes, len(chunks)))
	for i, c := range chunks {
		dealt[i%len(dealt)] = append(dealt[i%len(dealt)], c)
	}
	return dealt
}

// lane sends its chunks one after the other, in pieces if their node is slow.
func (b *batch) lane(ctx context.Context, j *job, chunks []nodeItems) {
	for n, c := range chunks {
		for len(c.items) > 0 {
			size := min(c.way.mostOfMany(b.store.cfg.Batch.Chunk), len(c.items))
			over := b.chunk(ctx, j, nodeItems{c.way, c.items[:size:size]})
			c.items = c.items[size:]
			if over == nil {
				continue
			}
			// The node cannot be reached, or not in time, which what is behind would find out piece by piece until the deadline.
			b.end(j, c.items, b.problem(over))
			for _, rest := range chunks[n+1:] {
				b.end(j, rest.items, b.problem(over))
			}
			return
		}
	}
}

// chunk sends one chunk and returns the fault of a node that could not be reached, or not in time. Its items live no longer than that: those of a
// lane's next chunk use their memory while it is still in the processor's cache (5,000 of them are 5 MB).
func (b *batch) chunk(ctx context.Context, j *job, c nodeItems) (over *fault) {
	part := *b
	part.items = newItems(len(c.items))
	own := nodeItems{c.way, sequence(len(c.items))}
	for n, i := range c.items {
		part.items[n].slot = int(j.slots[i])
		j.fill(i, &part.items[n])
	}
	part.guard(own.items, func() {
		start := time.Now()
		var r round
		part.begin(&r, own)
		r.do(ctx)
		r.collect()
		if over = part.goOn(ctx, &r); over == nil {
			over = part.hopeless(own.items)
		}
		part.cluster.observe(part.row, c.way, start)
		part.report(ctx, c.way, own.items, start)
		part.read(own.items)
	})
	for n, i := range c.items {
		j.done(i, &part.items[n])
	}
	part.counted(own.items)
	part.release()
	return over
}

// guard turns a panic of work into failed items; in a goroutine of ours it would end the process.
func (b *batch) guard(items []int, work func()) {
	if alive.Once(b.store.log, "a batch", work) {
		return
	}
	for _, i := range items {
		b.items[i].call = nil // nobody knows who still holds it
	}
	b.settleAll(items, &fault{verdict{code: CodeInternal}, errPanic})
}

var errPanic = errors.New("store: panic in a batch")

// settle gives an item its final answer.
func (b *batch) settle(i int) {
	it := &b.items[i]
	it.err = nil
	if it.call != nil {
		it.n = it.call.out.n
	}
	if it.fault != nil {
		it.err = b.problem(it.fault)
	}
}

// problem is what the caller is told of an item with this fault.
func (b *batch) problem(f *fault) *Error { return f.problem(b.row.writes(), f.err) }

func (b *batch) settleAll(items []int, f *fault) {
	for _, i := range items {
		b.items[i].fault = f
		b.settle(i)
	}
}

// release gives the items and their calls back together, when everything was taken out of them: getting and putting each
// call by itself was 5 % of an mset of 50.
func (b *batch) release() {
	if cap(b.items) > keepItems {
		b.items = nil
		return
	}
	for i := range b.items {
		spare := b.items[i].call
		if spare != nil {
			spare.forget()
		}
		b.items[i] = item{spare: spare}
	}
	items := b.items[:0]
	itemsPool.Put(&items)
	b.items = nil
}

// keepItems is the most items whose memory is kept for another batch: 1 KB each with their calls. A wave has no more than a chunk for
// each node.
const keepItems = 1000

var itemsPool = sync.Pool{New: func() any { return new([]item) }}

// newItems returns n empty items.
func newItems(n int) []item {
	items := *itemsPool.Get().(*[]item)
	if cap(items) < n {
		return make([]item, n)
	}
	return items[:n]
}
