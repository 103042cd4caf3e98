package middleware

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/store"
)

const headerDeadline = "X-Request-Deadline-Ms"

// DeadlineConfig bounds the time of a request.
type DeadlineConfig struct {
	Default time.Duration // from arrival, or from the last byte of a slow body, to the answer; 0 = 1 s. The header may only lower it
	Body    time.Duration // for the body to come in; 0 = 10 s
	// BodyRate is the least speed of a body of 64 KiB or more, or without a length, in bytes per second from its beginning, with 2 s of
	// grace; 0 or less = none.
	BodyRate int64
}

const (
	defaultDeadline    = time.Second
	defaultBodyTimeout = 10 * time.Second
)

func (c DeadlineConfig) withDefaults() DeadlineConfig {
	if c.Default <= 0 {
		c.Default = defaultDeadline
	}
	if c.Body <= 0 {
		c.Body = defaultBodyTimeout
	}
	return c
}

// slowBody is the share of the deadline (one in so many) that reading the body may take unnoticed; when it takes longer, the deadline
// starts anew at its end, because sending a large body over a slow line is not the work the deadline is for.
const slowBody = 16

// timing is the request's deadline, and what the body's reader needs to know at its end.
type timing struct {
	clock Clock // nil: there is no Deadline in the chain
	limit time.Duration
	end   time.Time
	timer atomic.Pointer[timer]
}

// timer is a context with a deadline, made for those who must be woken.
type timer struct {
	context.Context
	cancel context.CancelFunc
}

// Deadline gives the request's context an end, and the connection one for reading the body.
//
// The context answers Deadline and Err without a timer; only who calls Done makes one. Nobody does on the way of a single key: the
// pipes of store are swept, and the driver gives the deadline to its connection. context.WithDeadline is 600 ns and four allocations.
func Deadline(live *Live, clock Clock) gin.HandlerFunc {
	clock = clock.orReal()
	return func(c *gin.Context) {
		cfg := &live.current.Load().Deadline
		limit, err := deadlineOf(c.Request.Header[headerDeadline], cfg.Default)
		if err != nil {
			refuse(c, err)
			return
		}
		r := of(c)
		now := r.started(clock)
		if r.body != nil && c.Request.Body == r.body {
			// net/http takes it off again at the body's end. Not every writer can (a test's recorder); the server's ReadTimeout holds anyway.
			_ = http.NewResponseController(c.Writer).SetReadDeadline(now.Add(r.body.paced(c.Writer, now, cfg)))
		}
		t := &r.timing
		t.clock, t.limit = clock, limit
		r.endAt(now.Add(limit))
		defer t.stop()
		c.Next()
	}
}

// endAt sets the deadline; an earlier one of net/http's context stays.
func (r *request) endAt(end time.Time) {
	if theirs, ok := r.Context.Deadline(); ok && theirs.Before(end) {
		end = theirs
	}
	r.timing.end = end
}

// stop ends the timer, if there is one.
func (t *timing) stop() {
	if timer := t.timer.Swap(nil); timer != nil {
		timer.cancel()
	}
}

// bodyRead starts the deadline anew when the body took a noticeable part of it.
func (t *timing) bodyRead(r *request) {
	if t.clock == nil {
		return
	}
	now := t.clock()
	if now.Sub(r.event.Start) < t.limit/slowBody {
		return
	}
	t.stop()
	r.endAt(now.Add(t.limit))
}

// Deadline implements context.Context.
func (r *request) Deadline() (time.Time, bool) {
	if r.timing.clock == nil {
		return r.Context.Deadline()
	}
	return r.timing.end, true
}

// Done implements context.Context.
func (r *request) Done() <-chan struct{} {
	if r.timing.clock == nil {
		return r.Context.Done()
	}
	for {
		if t := r.timing.timer.Load(); t != nil {
			return t.Done()
		}
		ctx, cancel := context.WithDeadline(r.Context, r.timing.end)
		if !r.timing.timer.CompareAndSwap(nil, &timer{ctx, cancel}) {
			cancel() // another goroutine was faster
		}
	}
}

// Err implements context.Context.
func (r *request) Err() error {
	if err := r.below().Err(); err != nil {
		return err
	}
	if t := &r.timing; t.clock != nil && !t.clock().Before(t.end) {
		return context.DeadlineExceeded
	}
	return nil
}

// below is the context that this one stands for: with a timer when there is one, so that contexts made from this one are ended by it
// without a goroutine (package context asks by Value).
func (r *request) below() context.Context {
	if t := r.timing.timer.Load(); t != nil {
		return t.Context
	}
	return r.Context
}

// deadlineOf reads the header: whole milliseconds, from 1 to the default.
func deadlineOf(sent []string, def time.Duration) (time.Duration, error) {
	if len(sent) == 0 {
		return def, nil
	}
	ms, err := strconv.ParseInt(sent[0], 10, 64)
	if err != nil || len(sent) > 1 || ms < 1 || ms > def.Milliseconds() || sent[0][0] == '+' {
		return 0, store.Unparsable("header:"+headerDeadline,
			"must be one whole number of milliseconds from 1 to "+strconv.FormatInt(def.Milliseconds(), 10))
	}
	return time.Duration(ms) * time.Millisecond, nil
}
