package middleware

import (
	"math"
	"sync/atomic"
)

// BytesInFlight bounds the bytes of requests and answers the gateway holds at once, so that a crowd of large ones is refused instead of
// ending the process. Bodies reserve here by their length, and store for the values it loads, by way of the request's context.
type BytesInFlight struct {
	limit atomic.Int64
	used  atomic.Int64
}

// NewBytesInFlight makes a budget. It must be at least as large as the largest request allowed, or that one never passes; 0 means no
// limit, counting only.
func NewBytesInFlight(limit int64) *BytesInFlight {
	b := &BytesInFlight{}
	b.SetLimit(limit)
	return b
}

// SetLimit changes the budget. What is reserved stays so: below it nothing more is until enough was given back.
func (b *BytesInFlight) SetLimit(limit int64) { b.limit.Store(limit) }

// TryAcquire reserves n bytes if they are left; it never waits. Give them back with Release.
func (b *BytesInFlight) TryAcquire(n int64) bool {
	if n <= 0 {
		return true
	}
	limit := b.limit.Load()
	for {
		used := b.used.Load()
		if limit > 0 && n > limit-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Release gives back n bytes of an acquisition.
func (b *BytesInFlight) Release(n int64) {
	if n > 0 {
		b.used.Add(-n)
	}
}

// Used is the number of bytes reserved now.
func (b *BytesInFlight) Used() int64 { return b.used.Load() }

// answer is what a request holds of the gateway's bytes for its answer. It is a store.Reserver, for all goroutines of the request.
type answer struct {
	inFlight *BytesInFlight // nil: nobody counts
	held     atomic.Int64
}

// Reserve implements store.Reserver.
func (a *answer) Reserve(n int64) bool {
	if !a.inFlight.TryAcquire(n) {
		return false
	}
	if a.held.Add(n) < 0 { // released
		a.held.Add(-n)
		a.inFlight.Release(n)
		return false
	}
	return true
}

// release gives everything back. Afterwards nothing can be reserved: a pipeline of store writes late replies to a request that has
// ended, and nobody would give back what they take.
func (a *answer) release() {
	if a.inFlight != nil {
		a.inFlight.Release(a.held.Swap(math.MinInt64))
	}
}
