package store

import (
	"context"
	"errors"

	"github.com/slotgate/slotgate/store/adaptive"
	"github.com/slotgate/slotgate/store/pipe"
)

// round is one sending of items to their node: what is small in one pipeline, which other callers may share, what is
// large by itself. What became of each item is in its fault.
type round struct {
	batch        *batch
	way          *way
	items        []int // all of them
	small, large []int
	entry        *pipe.Entry // of the small ones; nil = not sent, or left to the pipe
	err          error       // of the entry as a whole
	place        adaptive.Place
}

// pipedBatchBytes is how much of one chunk shares a pipe, in bytes: 100 values of the size that usual values have.
const pipedBatchBytes = 64 << 10

// begin makes the calls of the items, or makes them ready for another try. Values are encoded here and not where the
// batch is made: compression is spread over the lanes, and so over the cores.
func (b *batch) begin(r *round, g nodeItems) {
	*r = round{batch: b, way: g.way, items: g.items, small: g.items}
	var in *arena
	if b.budget != nil {
		in = &arena{expect: len(g.items) * expectedValue}
	}
	bytes := 0
	for n, i := range g.items {
		it := &b.items[i]
		it.fault = nil
		if it.call == nil {
			cl, err := b.call(it)
			if err != nil {
				it.fault = newFault(err)
				r.dropFrom(n)
				continue
			}
			it.call = cl
		}
		it.call.out.reset(b.budget, in)
		size := it.call.size()
		if bytes+size > pipedBatchBytes || !b.cluster.shares(it.call) {
			r.dropFrom(n)
			r.large = append(r.large, i)
			continue
		}
		bytes += size
		if len(r.small) != len(r.items) {
			r.small = append(r.small, i)
		}
	}
	if len(r.small) > 0 {
		r.entry = entryPool.Get().(*pipe.Entry)
		r.entry.Cmds = r.entry.Cmds[:0]
		for _, i := range r.small {
			r.entry.Cmds = append(r.entry.Cmds, b.items[i].call.command())
		}
	}
}

// dropFrom makes small a list of its own when item n of all is the first that is not in it.
func (r *round) dropFrom(n int) {
	if len(r.small) == len(r.items) {
		r.small = append(make([]int, 0, len(r.items)), r.items[:n]...)
	}
}

// call makes the call of an item.
func (b *batch) call(it *item) (*call, error) {
	words := append(make([]string, 0, maxWords), it.key)
	if it.value != nil {
		words = append(words, text(encodeValue(it.value, b.id.CompressMinBytes)))
	}
	cl, err := refill(it.spare, b.id, b.row, append(words, it.expiry...)...)
	it.spare = nil
	if err != nil {
		return nil, err
	}
	return cl, nil
}

// start sends the small ones without waiting. It is false if they are over already.
func (r *round) start(ctx context.Context, done chan<- *pipe.Entry) bool {
	if r.entry == nil {
		return false
	}
	if r.way.health.refuses() {
		refuse(r.entry.Cmds)
		return false
	}
	if r.place, r.err = r.way.admit(ctx, r.batch.id, r.batch.class, r.way.weight(len(r.entry.Cmds))); r.err != nil {
		return false
	}
	r.err = r.way.pipe.Start(ctx, r.entry, done)
	return r.err == nil
}

// leave gives back the node's places, once.
func (r *round) leave() {
	leave(r.place, r.entry, r.err)
	r.place = adaptive.Place{}
}

// do sends the small ones and waits.
func (r *round) do(ctx context.Context) {
	if r.entry != nil {
		r.err = r.batch.exec(ctx, r.way, r.entry, true)
	}
}

// collect notes what became of the small ones.
func (r *round) collect() {
	if r.entry == nil {
		return
	}
	if r.err == nil {
		r.err = r.entry.Err()
	}
	r.leave()
	r.batch.outcome(r.small, r.entry, r.err)
	r.entry = nil
}

// outcome notes what became of the items whose commands are the entry's.
func (b *batch) outcome(items []int, e *pipe.Entry, err error) {
	shed, _ := errors.AsType[*refusal](err)
	if err != nil && shed == nil && !errors.Is(err, pipe.ErrSaturated) {
		// The pipe still holds the entry and the calls, and may write to them.
		f := newFault(err)
		for _, i := range items {
			b.doubt(i)
			b.items[i].call, b.items[i].fault = nil, f
		}
		b.reload()
		return
	}
	var failed *fault
	for c, i := range items {
		it := &b.items[i]
		if err != nil {
			it.fault = newFault(err)
		} else if r := it.call.out.result(e.Cmds[c].Err()); r != nil && !errors.Is(r, errOverCap) {
			it.fault = newFault(r)
		}
		if it.fault != nil && shed == nil {
			b.doubt(i)
			failed = it.fault
		}
		b.cluster.large.note(it.call)
	}
	if failed != nil && failed.reload {
		b.reload()
	}
	clear(e.Cmds)
	entryPool.Put(e)
}

// doubt is the cluster's of an item's slot.
func (b *batch) doubt(i int) {
	if !b.aside {
		b.cluster.doubt(b.items[i].slot)
	}
}

func (b *batch) reload() {
	if !b.aside {
		b.cluster.reload(context.Background())
	}
}

// complete settles the items if nothing is left to do for any of them.
func (r *round) complete() bool {
	b := r.batch
	if len(r.large) > 0 {
		return false
	}
	for _, i := range r.items {
		if f := b.items[i].fault; f != nil && f.mayRepeat(b.row.writes()) {
			return false
		}
	}
	for _, i := range r.items {
		b.settle(i)
	}
	return true
}

// goOn does the rest of a round: it sends what is large, follows redirects, and repeats what may be repeated until every
// item is settled. It returns the fault of a node that could not be reached for any item, or nil.
func (b *batch) goOn(ctx context.Context, r *round) (dead *fault) {
	r.sendLarge(ctx)
	b.follow(ctx, r.way, r.items)
	items := r.items
	for attempt := 0; ; attempt++ {
		var last *fault
		if items, last = b.repeatable(items, attempt); len(items) == 0 && last == nil {
			return nil
		}
		if len(items) == 0 || !backoff(ctx, attempt) {
			for _, i := range items {
				b.settle(i)
			}
			return b.unreachable(r.items)
		}
		b.cluster.metrics.retried(b.cluster.name, r.way)
		for _, g := range b.regroup(ctx, items) {
			var again round
			b.begin(&again, g)
			again.do(ctx)
			again.collect()
			again.sendLarge(ctx)
			b.follow(ctx, g.way, g.items)
		}
	}
}

// regroup groups items that are sent again; what has no node now is settled.
func (b *batch) regroup(ctx context.Context, items []int) []nodeItems {
	return b.groupByNode(ctx, items, func(i int) int { return b.items[i].slot }, func(i int, f *fault) {
		b.items[i].fault = f
		b.settle(i)
	})
}

// repeatable keeps the items that may be tried once more after this attempt and settles the rest. last is a fault worth
// repeating, if there was one, even if its tries are used up.
func (b *batch) repeatable(items []int, attempt int) (again []int, last *fault) {
	retries, write := b.store.retries(b.id, b.row.writes()), b.row.writes()
	for _, i := range items {
		f := b.items[i].fault
		if f == nil || !f.mayRepeat(write) || b.items[i].err != nil {
			b.settle(i)
			continue
		}
		if last = f; attempt < f.tries(retries) && b.cluster.mayRetry(f.verdict) {
			again = append(again, i)
		} else {
			b.settle(i)
		}
	}
	if last != nil {
		b.cluster.failed(context.Background(), last.verdict)
	}
	return again, last
}

// unreachable is the fault of the items if no connection could be made for any of them.
func (b *batch) unreachable(items []int) *fault {
	for _, i := range items {
		if f := b.items[i].fault; f == nil || !f.unreachable {
			return nil
		}
	}
	return b.items[items[0]].fault
}

// sendLarge sends what does not share a pipe.
func (r *round) sendLarge(ctx context.Context) {
	if len(r.large) == 0 {
		return
	}
	e := pipe.NewEntry()
	for _, i := range r.large {
		e.Cmds = append(e.Cmds, r.batch.items[i].call.command())
	}
	r.batch.outcome(r.large, e, r.batch.exec(ctx, r.way, e, false))
	r.large = nil
}

// exec sends an entry to a node. What does not share a pipe waits for one of the node's places, which bound the
// connections that batches hold, and so do the chunks of large batches, which would fill the pipe for all others.
func (b *batch) exec(ctx context.Context, w *way, e *pipe.Entry, small bool) error {
	got, err := b.admit(ctx, w, len(e.Cmds), !small || b.large || w.pipe == nil)
	if err != nil {
		return err
	}
	var sent error
	defer func() { got.leave(e, sent) }()
	sent = w.do(ctx, e, small)
	return sent
}

// follow sends the items that the node w has redirected through the client that follows redirects, one by one. Its pipelines
// follow too, but are not honest (go-redis v9.23.0, setCmdsErr): a command whose second try broke keeps the MOVED of the
// first, as if it had not been executed, and a context that ends between the two is written over what was answered.
// After a connection that fails, the others stay as redirected, and so not sent.
func (b *batch) follow(ctx context.Context, w *way, items []int) {
	reloaded := false
	for _, i := range items {
		it := &b.items[i]
		if it.fault == nil || it.call == nil || !redirected(it.fault.err) {
			continue
		}
		b.cluster.metrics.redirected(b.cluster.name, w.label, it.fault.err)
		if !reloaded {
			b.cluster.reload(ctx)
			reloaded = true
		}
		it.fault = newFault(b.cluster.follow(ctx, b.id, it.call, it.fault.err))
		if it.fault != nil && it.fault.prefix == "" {
			return
		}
	}
}
