package store

import (
	"context"
	"errors"
	"time"

	"github.com/slotgate/slotgate/store/adaptive"
	"github.com/slotgate/slotgate/store/pipe"
)

// A chunk of a batch keeps its node from everybody else as long as it takes. With commands of 10 µs that is a millisecond for a hundred;
// with commands of 1.5 ms, as slow as those of the overload suite, it was 150 ms, and beside such batches a sixth of the small requests
// was refused. So to a node that is slow a batch goes in small chunks, one at a time for each class, and what is small comes between.

// chunkTime is how long a whole chunk may keep its node busy: as long as answers may take without being a sign of overload. What would take longer is
// cut into pieces of pieceTime: a small request waits for the one under way, and for one that goes with it. With pieces of chunkTime 1.5 %
// of the small requests were refused beside batches, with these 0.01 %, and the batches got on as well.
const (
	chunkTime = shardTolerance
	pieceTime = 5 * time.Millisecond
)

// wholePlace is what a command takes when it counts as much among others as alone: with it, a full chunk of the default size takes all
// of chunkTime. Of a tenth of that and less, ten are as cheap as one (adaptive.WeightOf).
const wholePlace = chunkTime / 100

// each is how long one command of a chunk keeps the node busy; 0 = not known, or nobody cares.
func (w *way) each() time.Duration {
	if w.overload.sendsAll() {
		return 0
	}
	return w.limiter.Each()
}

// most is how many commands a chunk for the node may have, of so many that are allowed; no more than bulk has places where it is cut: those
// are few where nothing must wait long.
func (w *way) most(allowed int) int {
	each := w.each()
	if each*time.Duration(allowed) <= chunkTime {
		return allowed
	}
	return max(min(int(pieceTime/each), w.limiter.Places(adaptive.Bulk)), 1)
}

// mostOfMany is most of what needs several chunks. If it is long ago that the node was seen to do several commands, and by what it takes for one it might
// be slow, the first chunk is for finding out.
func (w *way) mostOfMany(allowed int) int {
	most := w.most(allowed)
	if w.overload.sendsAll() {
		return most
	}
	if each := w.limiter.AtMost(); each*time.Duration(allowed) > chunkTime {
		return min(most, max(int(chunkTime/each), leastProbe))
	}
	return most
}

// leastProbe is how many commands show how long one of them takes.
const leastProbe = 8

// weight is how many places so many commands take that go together: by the time that they keep the node busy. What is cut (most) never takes
// more than bulk may have, so it gets its places when nothing else is there.
func (w *way) weight(commands int) int {
	return weightOf(commands, w.each())
}

func weightOf(commands int, each time.Duration) int {
	return max(adaptive.WeightOf(commands), int(time.Duration(commands)*min(each, wholePlace)/wholePlace))
}

// turns are whose chunk goes to a slow or crowded node, by class: one at a time, in the order in which they came. What is less important has none
// of what is more important before it: it would wait for places while it has the turn.
type turns [3]chan struct{}

func newTurns() (t turns) {
	for _, c := range adaptive.Classes() {
		t[c] = make(chan struct{}, 1)
	}
	return t
}

// admission is what a chunk has got: places, and perhaps the turn, and a place among those that go by themselves (way.place).
type admission struct {
	place adaptive.Place
	turn  chan struct{} // nil = not taken
	alone func()        // gives it back; nil = not taken
}

// leave gives the turn to the next one, and the places back (see leave).
func (a *admission) leave(e *pipe.Entry, sent error) {
	if a.alone != nil {
		a.alone()
	}
	if a.turn != nil {
		<-a.turn
	}
	leave(a.place, e, sent)
}

// admit takes places for so many commands of the batch that go together. A large batch waits for them, as long as there is time: they come
// back soon, and to refuse a part at once, perhaps because others of its own chunks are under way, would only make it incomplete. Of those
// who wait only one looks for places. To a slow node it always goes by turns. Who waits so holds none of the places that others go alone with.
func (b *batch) admit(ctx context.Context, w *way, commands int, alone bool) (a admission, err error) {
	last, limited := w.lastCall(ctx, commands)
	slow := w.most(b.store.cfg.Batch.Chunk) < b.store.cfg.Batch.Chunk
	for {
		if b.large && slow && a.turn == nil {
			if a.turn = w.turns[b.class]; !take(ctx, a.turn, last) {
				return admission{}, w.refused(adaptive.Hopeless, b.class)
			}
		}
		if alone {
			if a.alone, err = w.place(ctx); err != nil {
				a.leave(nil, nil)
				return admission{}, err
			}
		}
		place, reason := w.acquire(ctx, b.id, b.class, w.weight(commands))
		if reason == adaptive.Admitted {
			a.place = place
			return a, nil
		}
		if alone {
			a.alone()
			a.alone = nil
		}
		if limited && reason == adaptive.Full && b.large {
			if slow = true; a.turn == nil {
				continue
			}
			if last, _ = w.lastCall(ctx, commands); pause(ctx, max(w.each(), leastPause), last) {
				continue
			}
			reason = adaptive.Hopeless
		}
		a.leave(nil, nil)
		return admission{}, w.refused(reason, b.class)
	}
}

// leastPause is how long a chunk waits for places before it looks again.
const leastPause = time.Millisecond

// lastCall is when a chunk of so many commands must be sent at the latest to be answered by the deadline; false = there is none. What is under way
// and the chunk itself count twice: it is better to refuse a write than not to know what became of it.
func (w *way) lastCall(ctx context.Context, commands int) (time.Time, bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Time{}, false
	}
	return deadline.Add(-2*time.Duration(w.limiter.InFlight()+commands)*w.each() - sweepInterval), true
}

// pause waits so long, and is false if ctx ends or the time would come before.
func pause(ctx context.Context, d time.Duration, until time.Time) bool {
	if time.Until(until) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// hopeless is the fault of an item that was refused because its node could not answer in time, or nil.
func (b *batch) hopeless(items []int) *fault {
	for _, i := range items {
		if f := b.items[i].fault; f != nil && errors.Is(f.err, errShardHopeless) {
			return f
		}
	}
	return nil
}
