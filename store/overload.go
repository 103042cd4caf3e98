package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/adaptive"
	"github.com/slotgate/slotgate/store/pipe"
)

// OverloadConfig bounds how much is under way to one node: what a node cannot do in time is refused before it is sent (overloaded,
// not_applied), the least important first. The bound is found by itself (package adaptive). Zero fields mean the defaults beside them.
type OverloadConfig struct {
	// Off sends everything, until ProtectNodes says otherwise.
	Off bool
	// Initial, Min and Max are places for single commands, a batch takes one for ten of its commands that go together and are fast: how many there are
	// at first, at the least and at the most; 0 = 1024, 8 and 4096.
	Initial, Min, Max int

	off *atomic.Bool // as it is now; made by withDefaults
}

// ProtectNodes turns the limits of the nodes on or off, for what is sent from now on.
func (s *Store) ProtectNodes(on bool) { s.cfg.Overload.off.Store(!on) }

// sendsAll says whether the limits are off now.
func (c OverloadConfig) sendsAll() bool { return c.off != nil && c.off.Load() }

const (
	// shardTolerance is how long a node's answers may take without being a sign of overload. Below it, it is rather the gateway's own
	// machine that is busy: then goroutines wait for a processor some milliseconds, and the node would be blamed.
	shardTolerance = 15 * time.Millisecond
	// shardSpare: a slow node gives its places back with the batch that they were sent in, and they are taken in less time than the next batch
	// needs. Of three places, 7 % of what was critical found none at twice the peak of a node of 667 commands a second.
	shardSpare = 6
	// lostAfter is how long an answer must have been waited for to count as lost: a caller with a short deadline is no sign of anything.
	lostAfter = 50 * time.Millisecond
)

// newLimiter is the limiter of one node.
func (c OverloadConfig) newLimiter() *adaptive.Limiter {
	return adaptive.New(adaptive.Settings{Initial: c.Initial, Min: c.Min, Max: c.Max, Spare: shardSpare, Tolerance: shardTolerance, Every: sweepInterval})
}

type classKey struct{}

// ClassKey is the context key of the class of a request, an adaptive.Class. It may lower the class of the caller's app, not raise it; a context
// without one leaves it.
func ClassKey() any { return classKey{} }

// classOf is the class of what a caller asks for; nil is the gateway itself, which asks for what decides about many requests.
func classOf(ctx context.Context, id *acl.Identity) adaptive.Class {
	if id == nil {
		return adaptive.Critical
	}
	class := adaptive.ClassOf(id.App.Priority)
	if lowered, ok := ctx.Value(classKey{}).(adaptive.Class); ok {
		return class.Lower(lowered)
	}
	return class
}

// What is refused was not sent, and says nothing about the node.
var (
	errShardFull     = shedding("the shard of this key has more to do than it can")
	errShardHopeless = shedding("the shard of this key has so much to do that it would not answer in time")
)

// told are the errors that callers of reads and of writes see, made once: in a flood of refusals each costs as little as it can.
type told struct{ read, write *Error }

func shedding(detail string) *refusal {
	r := &refusal{verdict: verdict{code: CodeOverloaded, notExecuted: true, shed: true, detail: detail}}
	read, write := r.problem(false, r), r.problem(true, r)
	r.told = &told{read, write}
	return r
}

// admit takes places for what the caller sends to the node; they must be given back (leave). A node that is cut off says so itself.
func (w *way) admit(ctx context.Context, id *acl.Identity, class adaptive.Class, weight int) (adaptive.Place, error) {
	place, reason := w.acquire(ctx, id, class, weight)
	if reason == adaptive.Admitted {
		return place, nil
	}
	return place, w.refused(reason, class)
}

// acquire is admit that leaves it open whether a refusal is the last word.
func (w *way) acquire(ctx context.Context, id *acl.Identity, class adaptive.Class, weight int) (adaptive.Place, adaptive.Reason) {
	if w.overload.sendsAll() || w.health.refuses() {
		return adaptive.Place{}, adaptive.Admitted
	}
	r := adaptive.Request{Class: class, Weight: weight}
	if id != nil {
		r.App = id.App.ID
	}
	r.Deadline, _ = ctx.Deadline()
	return w.limiter.Acquire(r)
}

// refused counts a refusal and is what the caller is told.
func (w *way) refused(reason adaptive.Reason, class adaptive.Class) error {
	w.shed.WithLabelValues(w.cluster, w.label, reason.String(), class.String()).Inc()
	if reason == adaptive.Hopeless {
		return errShardHopeless
	}
	return errShardFull
}

// leave gives places back, sent being what Do or Start of a pipe, or way.do, has said about the entry. What was abandoned the node still has to do: until
// it has answered, or the connection was closed, the places are taken.
func leave(place adaptive.Place, e *pipe.Entry, sent error) {
	if place != (adaptive.Place{}) && errors.Is(sent, pipe.ErrAbandoned) {
		e.After(func() { place.Release(false) })
		return
	}
	place.Release(false)
}

// admitOne is admit of one command.
func (w *way) admitOne(ctx context.Context, id *acl.Identity) (adaptive.Place, error) {
	if w.overload.sendsAll() {
		return adaptive.Place{}, nil
	}
	return w.admit(ctx, id, classOf(ctx, id), 1)
}

// admitRedirected is admitOne at the node that err redirects to, if that is known.
func (c *cluster) admitRedirected(ctx context.Context, id *acl.Identity, err error) (adaptive.Place, error) {
	if c.cfg.Overload.sendsAll() {
		return adaptive.Place{}, nil
	}
	addr, moved := redis.IsMovedError(err)
	if !moved {
		addr, _ = redis.IsAskError(err)
	}
	if node := c.nodes.client(addr); node != nil {
		return c.way(node).admitOne(ctx, id)
	}
	return adaptive.Place{}, nil
}

// observe tells the limiter how long the node took for commands that went together, err being what became of them.
func (w *way) observe(start time.Time, err error, commands int) {
	took := time.Since(start)
	switch {
	case err == nil, err == redis.Nil, answered(err): //nolint:errorlint // the bare sentinel is the common case
		w.limiter.Observe(took, commands)
	case took >= lostAfter && isTimeout(err):
		w.limiter.Lost(commands)
	}
}

// placeFigures are the sums of all nodes that share a label.
type placeFigures struct{ limit, inFlight float64 }

func (c *cluster) placesByNode() map[string]placeFigures {
	sums := map[string]placeFigures{}
	c.ways.Range(func(_, v any) bool {
		if w := v.(*way); !w.overload.sendsAll() {
			sum := sums[w.label]
			sum.limit += w.limiter.Limit()
			sum.inFlight += float64(w.limiter.InFlight())
			sums[w.label] = sum
		}
		return true
	})
	return sums
}
