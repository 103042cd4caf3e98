package middleware

import (
	"math"
	"sync/atomic"
	"time"
)

// limit is a token bucket in GCRA form: interval nanoseconds make one token, depth nanoseconds a full bucket.
type limit struct {
	interval, depth int64
}

// maxDepth keeps every sum of a clock and two depths inside an int64.
const maxDepth = math.MaxInt64 / 4

// newLimit makes the bucket of n tokens per period with room for burst. A period that n does not divide rounds the interval down, so
// that n in one period always pass.
func newLimit(n int64, period time.Duration, burst int64) limit {
	interval := max(int64(period)/max(n, 1), 1)
	burst = max(burst, 1)
	if burst > maxDepth/interval {
		return limit{interval: interval, depth: maxDepth}
	}
	return limit{interval: interval, depth: burst * interval}
}

func (l limit) burst() int64 { return l.depth / l.interval }

// decision is what a bucket says to one request. Times are nanoseconds from now.
type decision struct {
	remaining int64 // whole tokens left after it
	retry     int64 // until it would pass; 0 when it did, never when it is more than the bucket holds
	next      int64 // until one more token than remaining is there
	ok        bool
	// Of a limit that gateways share, whose cluster did not answer: unasked says that it was not asked, down that it is to refuse then.
	unasked, down bool
}

const never = -1

// decide takes n tokens at time now from a bucket whose state is the time it will be full again (in the past: it is full). It returns the
// new state; a refusal takes nothing. A state further ahead than a full bucket's debt, from before the limit was changed or the
// clock went back, becomes that of an empty bucket, which fills from now on.
//
// It is pure, and the whole of the algorithm; the same arithmetic limits requests and throttles failed authentication.
func decide(now, state int64, l limit, n int64) (int64, decision) {
	state = min(state, now+l.depth)
	debt := max(state-now, 0)
	d := decision{ok: true}
	switch {
	case n > l.burst():
		d.ok, d.retry = false, never
	case debt+n*l.interval > l.depth:
		d.ok, d.retry = false, debt+n*l.interval-l.depth
	default:
		debt += n * l.interval
		state = now + debt
	}
	d.remaining = (l.depth - debt) / l.interval
	d.next = debt
	if d.remaining < l.burst() {
		d.next = debt - (l.depth - (d.remaining+1)*l.interval)
	}
	return state, d
}

// bucket is the state of one limit, shared by all requests.
type bucket struct{ state atomic.Int64 }

func (b *bucket) take(now int64, l limit, n int64) decision {
	for {
		old := b.state.Load()
		state, d := decide(now, old, l, n)
		if state == old || b.state.CompareAndSwap(old, state) {
			return d
		}
	}
}

// giveBack undoes a take that another limit of the same request refused.
func (b *bucket) giveBack(l limit, n int64) { b.state.Add(-n * l.interval) }

// seconds rounds nanoseconds up to whole seconds, as headers want them.
func seconds(ns int64) int64 {
	return (ns + int64(time.Second) - 1) / int64(time.Second)
}
