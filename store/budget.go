package store

import (
	"context"
	"sync"
)

// Reserver counts the bytes that the gateway holds for all its requests. A request's context answers ReserverKey with
// one; what is reserved is given back when the request ends.
type Reserver interface {
	// Reserve takes n bytes, or none and returns false: then the gateway holds as many as it may.
	Reserve(n int64) bool
}

type reserverKey struct{}

// ReserverKey is the context key of the Reserver of a request.
func ReserverKey() any { return reserverKey{} }

// Steps of reserving. What every request holds anyway is free; beyond it a budget reserves in steps, so that the count
// that all requests share is seldom touched.
const (
	freeBytes   = 16 << 10
	reserveStep = 64 << 10
)

// budget is what the answers of one request may hold, in bytes; its chunks draw from it together.
type budget struct {
	limit    int64
	reserver Reserver // nil = nobody counts; a lender makes it a loan
	mu       sync.Mutex
	used     int64
	reserved int64 // ended = a loan that gives nothing any more
}

// newBudget makes the budget of a request that may answer with limit bytes.
func newBudget(ctx context.Context, limit int64) *budget {
	r, _ := ctx.Value(reserverKey{}).(Reserver)
	return &budget{limit: limit, reserver: r, reserved: freeBytes}
}

// lender is the budget that a loan draws from. It stands where other budgets have their Reserver: each request makes one, and two fields for
// what few of them need would make it a third larger.
type lender struct{ *budget }

// Reserve implements Reserver.
func (l lender) Reserve(n int64) bool { return l.take(n) == granted }

// ended is budget.reserved of a loan that is over.
const ended = -1

// lend makes a budget that draws from b and can be ended: for a try that may be given up while its answer is still to come.
func (b *budget) lend() *budget {
	if b == nil {
		return nil
	}
	return &budget{limit: b.limit, reserver: lender{b}}
}

// keep ends a loan: all but so many bytes go back, and who draws from it afterwards gets nothing.
func (b *budget) keep(n int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, ok := b.reserver.(lender); ok && b.reserved != ended {
		b.reserved = ended
		l.give(b.used - n)
	}
}

// grant says what became of a wish for bytes.
type grant uint8

const (
	granted    grant = iota
	overCap          // it would pass the limit of the answer
	overloaded       // the gateway holds as many bytes as it may
)

// take reserves n bytes, or none. n may be negative.
func (b *budget) take(n int64) grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, ok := b.reserver.(lender); ok {
		return b.draw(l, n)
	}
	if n > b.limit-b.used { // not used+n, which a node that lies about a length could make overflow
		return overCap
	}
	if missing := b.used + n - b.reserved; missing > 0 && b.reserver != nil {
		step := max(missing, reserveStep)
		if !b.reserver.Reserve(step) {
			return overloaded
		}
		b.reserved += step
	}
	b.used += n
	return granted
}

// draw is take of a loan, whose lock is held.
func (b *budget) draw(l lender, n int64) grant {
	if b.reserved == ended {
		return overCap
	}
	g := l.take(n)
	if g == granted {
		b.used += n
	}
	return g
}

// give returns what was taken and is not held any more.
func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reserved == ended {
		return // it was given back
	}
	b.used -= n
	if l, ok := b.reserver.(lender); ok {
		l.give(n)
	}
}

// clear gives back everything: what was loaded is dropped, and loaded again.
func (b *budget) clear() {
	b.mu.Lock()
	b.used = 0
	b.mu.Unlock()
}

func errOverloaded(write bool) *Error {
	e := NewError(CodeOverloaded, "the gateway holds as many bytes of answers as it may")
	e.RetryAfter = retryAfter
	if write {
		e.Outcome = Applied // it was done; only what it returns cannot be answered
	}
	return e
}
