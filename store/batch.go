package store

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/pipe"
	"github.com/slotgate/slotgate/store/slot"
)

// item is one command of a batch and what became of it.
type item struct {
	key    string   // the caller's
	expiry []string // words behind the value
	value  []byte   // to be encoded before it is sent; nil = none
	slot   int
	call   *call   // nil = not made yet, or left to a pipe
	got    GetItem // what was read, decoded
	n      int64   // an integer reply
	err    *Error  // nil = done
	last   fault   // of the latest try
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
// The items are grouped by the node of their slot, cut into chunks, and sent by lanes: goroutines that each work for
// one node only, so that a node that hangs holds up nothing but its own lanes. A chunk also takes one of the node's
// places, which all requests share.
func (b *batch) run(ctx context.Context) {
	todo := make([]int, len(b.items))
	for i := range todo {
		todo[i] = i
	}
	if !b.knowsTopology(ctx) {
		return
	}
	groups := b.groupByNode(ctx, todo)
	if len(groups) == 0 {
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
	err := b.cluster.try(ctx, b.row, b.store.retries(b.id, false), func() error {
		_, err := b.cluster.client.MasterForKey(ctx, slot.Sample(b.items[0].slot))
		return err
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
	node  *redis.Client
	items []int
}

// groupByNode finds the primary of each item of todo. Items without one are settled.
func (b *batch) groupByNode(ctx context.Context, todo []int) []nodeItems {
	byNode := map[*redis.Client]int{}
	var groups []nodeItems
	for _, i := range todo {
		node, err := b.cluster.client.MasterForKey(ctx, slot.Sample(b.items[i].slot))
		if err != nil {
			b.settle(i, newFault(err))
			continue
		}
		g, ok := byNode[node]
		if !ok {
			g = len(groups)
			byNode[node] = g
			groups = append(groups, nodeItems{node: node})
		}
		groups[g].items = append(groups[g].items, i)
	}
	return groups
}

// split cuts a node's items into chunks and deals them to at most lanes lanes.
func split(g nodeItems, lanes, chunk int) [][]nodeItems {
	var chunks []nodeItems
	for len(g.items) > 0 {
		n := min(chunk, len(g.items))
		chunks = append(chunks, nodeItems{g.node, g.items[:n:n]})
		g.items = g.items[n:]
	}
	dealt := make([][]nodeItems, min(lanes, len(chunks)))
	for i, c := range chunks {
		dealt[i%len(dealt)] = append(dealt[i%len(dealt)], c)
	}
	return dealt
}

// lane sends its chunks one after the other. A panic in it fails its items and nothing else.
func (b *batch) lane(ctx context.Context, chunks []nodeItems) {
	defer func() {
		if p := recover(); p != nil {
			b.store.log.Error("panic in a batch", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			for _, c := range chunks {
				b.settleAll(c.items, fault{verdict: verdict{code: CodeInternal}, err: errPanic})
			}
		}
	}()
	for i, c := range chunks {
		dead, gone := b.chunk(ctx, c)
		b.read(c.items)
		if !gone {
			continue
		}
		// The node cannot be reached, which the chunks behind would find out one by one until the deadline.
		for _, rest := range chunks[i+1:] {
			b.settleAll(rest.items, dead)
		}
		return
	}
}

var errPanic = errors.New("store: panic in a batch")

// chunk runs one pipeline and what must be repeated of it. gone says that the node could not be reached for any item.
func (b *batch) chunk(ctx context.Context, c nodeItems) (dead fault, gone bool) {
	start := time.Now()
	defer func() { b.cluster.observe(b.row, start) }()
	groups, write := []nodeItems{c}, b.row.writes()
	for attempt := 0; ; attempt++ {
		var failed []int
		var last fault
		for _, g := range groups {
			for n, f := range b.send(ctx, g) {
				if f.err != nil && f.mayRepeat(write) {
					failed, last = append(failed, g.items[n]), f
					b.items[g.items[n]].last = f
					continue
				}
				b.settle(g.items[n], f)
			}
		}
		if len(failed) == 0 {
			return fault{}, false
		}
		b.cluster.failed(ctx, last.verdict)
		failed = b.worthwhile(failed, attempt)
		if len(failed) == 0 || !backoff(ctx, attempt) {
			b.settleLast(failed)
			return last, last.unreachable && b.unreachable(c.items)
		}
		b.cluster.metrics.retried(b.cluster.name)
		groups = b.groupByNode(ctx, failed)
	}
}

// worthwhile keeps what may be tried once more after this attempt, and settles the rest.
func (b *batch) worthwhile(failed []int, attempt int) []int {
	retries := b.store.retries(b.id, b.row.writes())
	again := failed[:0]
	for _, i := range failed {
		if last := b.items[i].last; attempt < last.tries(retries) {
			again = append(again, i)
		} else {
			b.settle(i, last)
		}
	}
	return again
}

func (b *batch) settleLast(items []int) {
	for _, i := range items {
		b.settle(i, b.items[i].last)
	}
}

// unreachable says whether no connection could be made for any of the items.
func (b *batch) unreachable(items []int) bool {
	for _, i := range items {
		if b.items[i].err == nil || !b.items[i].last.unreachable {
			return false
		}
	}
	return true
}

// fault is a failed try of one item; the zero value is success.
type fault struct {
	verdict
	err error
}

func newFault(err error) fault {
	if err == nil || errors.Is(err, redis.Nil) {
		return fault{}
	}
	return fault{classify(err), err}
}

// settle gives an item its final answer.
func (b *batch) settle(i int, f fault) {
	it := &b.items[i]
	it.err = nil
	if it.call != nil {
		it.n = it.call.out.n
	}
	if f.err != nil {
		it.err = f.problem(b.row.writes(), f.err)
	}
}

func (b *batch) settleAll(items []int, f fault) {
	for _, i := range items {
		b.settle(i, f)
	}
}

// send sends the items to a node once and returns a fault for each.
func (b *batch) send(ctx context.Context, g nodeItems) []fault {
	faults := make([]fault, len(g.items))
	small, large := b.prepare(g, faults)
	w := b.cluster.way(g.node)
	b.sendPart(ctx, w, g, small, true, faults)
	b.sendPart(ctx, w, g, large, false, faults)
	var moved []int // positions in g.items
	for n, i := range g.items {
		if it := &b.items[i]; it.call != nil && redirected(faults[n].err) {
			b.cluster.metrics.redirected(b.cluster.name, faults[n].err)
			moved = append(moved, n)
		}
	}
	if len(moved) > 0 {
		b.cluster.reload(ctx)
		b.sendMoved(ctx, g, moved, faults)
	}
	return faults
}

// prepare makes the calls of a first try, and those of another one ready. What is large goes by itself: it would be in
// the way of others. Values are encoded here and not where the batch is made: compression is spread over the lanes, and
// so over the cores.
func (b *batch) prepare(g nodeItems, faults []fault) (small, large []int) {
	in := &arena{}
	bytes := 0
	small = make([]int, 0, len(g.items))
	for n, i := range g.items {
		it := &b.items[i]
		if it.call == nil {
			cl, err := b.call(it)
			if err != nil {
				faults[n] = newFault(err)
				continue
			}
			it.call = cl
		}
		it.call.out.reset(b.budget, in)
		size := it.call.size()
		if bytes += size; bytes > pipedBatchBytes || !b.cluster.shares(it.call) {
			bytes -= size
			large = append(large, n)
			continue
		}
		small = append(small, n)
	}
	return small, large
}

// pipedBatchBytes is how much of one chunk shares a pipe, in bytes: 100 values of the size that usual values have.
const pipedBatchBytes = 64 << 10

// call makes the call of an item.
func (b *batch) call(it *item) (*call, error) {
	words := append(make([]string, 0, maxWords), it.key)
	if it.value != nil {
		words = append(words, text(encodeValue(it.value, b.id.CompressMinBytes)))
	}
	cl, err := newCall(b.id, b.row, append(words, it.expiry...)...)
	if err != nil {
		return nil, err
	}
	return cl, nil
}

// sendPart sends some of the items, by their positions, in one pipeline.
func (b *batch) sendPart(ctx context.Context, w *way, g nodeItems, part []int, share bool, faults []fault) {
	if len(part) == 0 {
		return
	}
	e := entryPool.Get().(*pipe.Entry)
	e.Cmds = e.Cmds[:0]
	for _, n := range part {
		e.Cmds = append(e.Cmds, b.items[g.items[n]].call.command())
	}
	err := b.cluster.exec(ctx, w, e, share)
	if err != nil && !errors.Is(err, pipe.ErrSaturated) {
		// The pipe still holds the entry and the calls, and may write to them.
		for _, n := range part {
			b.items[g.items[n]].call = nil
			faults[n] = newFault(err)
		}
		return
	}
	for c, n := range part {
		it := &b.items[g.items[n]]
		if err != nil {
			faults[n] = newFault(err)
		} else if r := it.call.out.result(e.Cmds[c].Err()); !errors.Is(r, errOverCap) {
			faults[n] = newFault(r)
			b.cluster.large.note(it.call)
		}
	}
	clear(e.Cmds)
	entryPool.Put(e)
}

// sendMoved sends the items whose slot has moved through the client that follows redirects, one by one. Its pipelines
// follow too, but are not honest (go-redis v9.23.0, setCmdsErr): a command whose second try broke keeps the MOVED of the
// first, as if it had not been executed, and a context that ends between the two is written over what was answered.
// After a connection that fails, the others stay as redirected, and so not sent.
func (b *batch) sendMoved(ctx context.Context, g nodeItems, moved []int, faults []fault) {
	for _, n := range moved {
		faults[n] = newFault(b.cluster.follow(ctx, b.items[g.items[n]].call))
		if faults[n].err != nil && faults[n].prefix == "" {
			return
		}
	}
}

// release gives the calls back, when everything was taken out of them.
func (b *batch) release() {
	for i := range b.items {
		if cl := b.items[i].call; cl != nil {
			b.items[i].call = nil
			cl.release()
		}
	}
}

// exec sends an entry to a node. What does not share a pipe waits for one of the node's places, which bound the
// connections that batches hold.
func (c *cluster) exec(ctx context.Context, w *way, e *pipe.Entry, share bool) error {
	if share && w.pipe != nil {
		return w.do(ctx, e, true)
	}
	select {
	case w.places <- struct{}{}:
		defer func() { <-w.places }()
		return w.do(ctx, e, false)
	case <-ctx.Done():
		return pipe.ErrWithdrawn
	}
}
