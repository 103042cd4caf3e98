package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// Back-off between tries: 10 ms doubling up to 200 ms, each with full jitter so that callers do not return together.
// A failover takes Redis 1 s and more; the requests that outlive it are those with a longer deadline.
const (
	firstBackoff = 10 * time.Millisecond
	maxBackoff   = 200 * time.Millisecond
	// retryAfter is what a 503 tells the client: by then a topology reload has certainly been tried.
	retryAfter = time.Second
)

// try runs one command until it succeeds, its failure is final, or tries or time run out. send must make a fresh
// command each time, and says which node it went to, if that is known. redis.Nil passes as it is.
func (c *cluster) try(ctx context.Context, r *row, retries int, send func() (*way, error)) error {
	write := r.writes()
	c.retries.requests.Add(1)
	start := time.Now()
	for attempt := 0; ; attempt++ {
		w, err := send()
		if err == nil || errors.Is(err, redis.Nil) {
			c.observe(r, w, start)
			c.report(ctx, r, w, start, verdict{})
			return err
		}
		v := classify(err)
		c.failed(ctx, v)
		if !v.mayRepeat(write) || attempt >= v.tries(retries) || !c.mayRetry(v) || !backoff(ctx, attempt) {
			if !v.shed {
				c.observe(r, w, start)
			}
			c.report(ctx, r, w, start, v)
			return v.problem(write, err)
		}
		c.metrics.retried(c.name, w)
	}
}

// failed counts a failure and reloads the topology if that may be the reason.
func (c *cluster) failed(ctx context.Context, v verdict) {
	c.metrics.failed(c.name, v)
	if v.reload {
		c.reload(ctx)
	}
}

// mayRepeat is the rule of decision 3: a write only if Redis certainly did not run it, a read after any passing fault.
func (v verdict) mayRepeat(write bool) bool {
	return v.again && (v.notExecuted || !write)
}

// movingTries bounds the wait for a moving slot where a call has no deadline: about 10 s.
const movingTries = 64

// tries is how often a fault is worth repeating.
func (v verdict) tries(retries int) int {
	if v.moving {
		return max(retries, movingTries)
	}
	return retries
}

// backoff waits before try number attempt+1. It is false if the deadline would pass meanwhile.
func backoff(ctx context.Context, attempt int) bool {
	wait := min(firstBackoff<<min(attempt, 10), maxBackoff)
	wait = wait/2 + rand.N(wait/2)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
