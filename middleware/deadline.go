package middleware

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/store"
)

const headerDeadline = "X-Request-Deadline-Ms"

// DeadlineConfig bounds the time of a request.
type DeadlineConfig struct {
	Default time.Duration // from arrival, or from the last byte of a slow body, to the answer; 0 = 1 s. The header may only lower it
	Body    time.Duration // for the body to come in; 0 = 10 s
}

const (
	defaultDeadline    = time.Second
	defaultBodyTimeout = 10 * time.Second
)

// slowBody is the share of the deadline (one in so many) that reading the body may take unnoticed; when it takes longer, the deadline
// starts anew at its end, because sending a large body over a slow line is not the work the deadline is for.
const slowBody = 16

// timing is what the body's reader needs to know at its end.
type timing struct {
	clock   Clock
	limit   time.Duration
	started time.Time
	parent  context.Context // the request's, without the deadline
	cancel  context.CancelFunc
}

// Deadline gives the request's context an end, and the connection one for reading the body.
func Deadline(cfg DeadlineConfig, clock Clock) gin.HandlerFunc {
	clock = clock.orReal()
	if cfg.Default <= 0 {
		cfg.Default = defaultDeadline
	}
	if cfg.Body <= 0 {
		cfg.Body = defaultBodyTimeout
	}
	return func(c *gin.Context) {
		limit, err := deadlineOf(c.Request.Header[headerDeadline], cfg.Default)
		if err != nil {
			refuse(c, err)
			return
		}
		r := of(c)
		now := clock()
		r.timing = timing{clock: clock, limit: limit, started: now, parent: r.Context}
		if c.Request.Body == &r.body {
			// net/http takes it off again at the body's end. Not every writer can (a test's recorder); the server's ReadTimeout holds anyway.
			_ = http.NewResponseController(c.Writer).SetReadDeadline(now.Add(cfg.Body))
		}
		r.Context, r.timing.cancel = context.WithDeadline(r.timing.parent, now.Add(limit))
		defer func() { r.timing.cancel() }()
		c.Next()
	}
}

// bodyRead starts the deadline anew when the body took a noticeable part of it.
func (t *timing) bodyRead(r *request) {
	if t.cancel == nil { // there is no Deadline in the chain
		return
	}
	now := t.clock()
	if now.Sub(t.started) < t.limit/slowBody {
		return
	}
	t.cancel()
	r.Context, t.cancel = context.WithDeadline(t.parent, now.Add(t.limit))
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
