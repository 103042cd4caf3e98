package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/pipe"
)

// item is one command of a batch and what became of it.
type item struct {
	key    string   // the caller's
	expiry []string // words behind the value
	value  []byte   // to be encoded before it is sent; nil = none
	slot   int
	twin   int     // position of a later item with the same key, which stands for this one; 0 = none
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

// batch is many commands of one kind on keys anywhere in the cluster. It promises that result i belongs to item i, that
// a shard that is down or hangs fails only its own items, and that a write is sent again only if Redis certainly did
// not execute it.
type batch struct {
	store   *Store
	cluster *cluster
	id      *acl.Identity
	row     *row
	items   []item
	budget  *budget // of a read; nil for commands with small replies
}

// run executes all items. Failures are in the items.
//
// The items are grouped by the node of their slot and cut into chunks. If there is one chunk for each node, they all
// go at once; otherwise lanes send them: goroutines that each work for one node only, so that a node that hangs holds
// up nothing but its own lanes.
func (b *batch) run(ctx context.Context) {
	defer b.counted()
	if !b.knowsTopology(ctx) {
		return
	}
	todo := make([]int, 0, len(b.items))
	for i := range b.items {
		if b.items[i].twin == 0 {
			todo = append(todo, i)
		}
	}
	groups := b.groupByNode(ctx, todo)
	if len(groups) == 0 {
		return
	}
	if !b.store.cfg.Coalesce.Off && b.fitsOneWave(groups) {
		b.wave(ctx, groups)
		return
	}
	lanes := max(b.store.cfg.Batch.PerRequest/len(groups), 1)
	var g errgroup.Group
	for _, group := range groups {
		for _, own := range split(group, lanes, b.store.cfg.Batch.Chunk) {
			g.Go(func() error { b.lane(ctx, own); return nil })
		}
	}
	_ = g.Wait()
}

// knowsTopology makes sure that there is a slot map, once for all items. Without one every item has failed.
func (b *batch) knowsTopology(ctx context.Context) bool {
	if _, err := b.cluster.wayTo(ctx, b.items[0].slot); err == nil {
		return true
	}
	err := b.cluster.try(ctx, b.row, b.store.retries(b.id, false), func() (*way, error) {
		_, err := b.cluster.wayTo(ctx, b.items[0].slot)
		return nil, err
	})
	if err == nil {
		return true
	}
	var e *Error
	if !errors.As(err, &e) {
		e = NewError(CodeInternal, "").WithCause(err)
	}
	if b.row.writes() {
		e.Outcome = NotApplied // only the slot map was asked for
	}
	for i := range b.items {
		b.items[i].err = e
	}
	return false
}

// nodeItems are the items of one node, by index.
type nodeItems struct {
	way   *way
	items []int
}

// groupByNode finds the primary of each item of todo. Items without one are settled.
func (b *batch) groupByNode(ctx context.Context, todo []int) []nodeItems {
	groups := make([]nodeItems, 0, 4)
	for _, i := range todo {
		w, err := b.cluster.wayTo(ctx, b.items[i].slot)
		if err != nil {
			b.items[i].fault = newFault(err)
			b.settle(i)
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
		if len(g.items) > b.store.cfg.Batch.Chunk {
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

// lane sends its chunks one after the other.
func (b *batch) lane(ctx context.Context, chunks []nodeItems) {
	for i, c := range chunks {
		var dead *fault
		b.guard(c.items, func() {
			start := time.Now()
			var r round
			b.begin(&r, c)
			r.do(ctx)
			r.collect()
			dead = b.goOn(ctx, &r)
			b.cluster.observe(b.row, c.way, start)
			b.report(ctx, c.way, c.items, start)
			b.read(c.items)
		})
		if dead == nil {
			continue
		}
		// The node cannot be reached, which the chunks behind would find out one by one until the deadline.
		for _, rest := range chunks[i+1:] {
			b.settleAll(rest.items, dead)
		}
		return
	}
}

// guard turns a panic of work into failed items; in a goroutine of ours it would end the process.
func (b *batch) guard(items []int, work func()) {
	defer func() {
		if p := recover(); p != nil {
			b.store.log.Error("panic in a batch", "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			for _, i := range items {
				b.items[i].call = nil // nobody knows who still holds it
			}
			b.settleAll(items, &fault{verdict{code: CodeInternal}, errPanic})
		}
	}()
	work()
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
		it.err = it.fault.problem(b.row.writes(), it.fault.err)
	}
}

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

// keepItems is the most items whose memory is kept for another batch: about 1 MB with their calls.
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
