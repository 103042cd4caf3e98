package store

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// leastRetries a second are always allowed, so that a gateway with little traffic can repeat at all. It is what Finagle and
	// Linkerd allow.
	leastRetries = 10
	// savedRetries is the most that can be saved up: what two broken connections of a shared pipe lose (CoalesceConfig.MaxBatch is
	// 256), so that a reset in peace costs no reader anything.
	savedRetries = 512
)

// retryBudget keeps repetitions a share of the requests to a cluster: without one, a cluster that has trouble gets four times the
// commands just then. What a planned failover or a moving slot makes necessary is not paid from it: such commands are redirected
// or told to wait, they always come to an end, and each is a question to a node that is well.
//
// failsafe-go's budget was weighed: it counts in time windows under a lock, for each request. This is one atomic addition.
type retryBudget struct {
	share    float64 // of a request; 0 = no bound
	requests atomic.Int64

	mu      sync.Mutex
	saved   float64
	counted int64 // of requests
	last    time.Time
}

// newRetryBudget is full, as after a time of peace. percent < 0 is no bound.
func newRetryBudget(percent int) *retryBudget {
	return &retryBudget{share: float64(max(percent, 0)) / 100, saved: savedRetries}
}

// take pays for one repetition. It is false if there is nothing left.
func (b *retryBudget) take(now time.Time) bool {
	if b.share == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	requests := b.requests.Load()
	earned := b.share * float64(requests-b.counted)
	if !b.last.IsZero() {
		earned = max(earned, leastRetries*now.Sub(b.last).Seconds())
	}
	b.counted, b.last = requests, now
	b.saved = min(b.saved+earned, savedRetries)
	if b.saved < 1 {
		return false
	}
	b.saved--
	return true
}

// mayRetry pays for the repetition of one command after a fault.
func (c *cluster) mayRetry(v verdict) bool {
	if v.moving || c.retries.take(time.Now()) {
		return true
	}
	c.overspent.Inc()
	return false
}
