package middleware

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/store"
)

var (
	problemJSON = []string{"application/problem+json"}
	// Basic is offered because curl -u is; the browser's dialogue is no loss on an API.
	challenges = []string{`Bearer realm="slotgate"`, `Basic realm="slotgate", charset="UTF-8"`}
)

// retryAfter503 is sent with a 503 whose error does not know better.
const retryAfter503 = time.Second

// Errors is the only place that writes an error. After the handlers it renders the last one reported, once; an error that is not a
// *store.Error is a 500 whose text goes to the log only. When the response has already begun, an error can only be told by cutting it
// off: the connection is aborted.
//
// A 5xx to a write says what became of it, whoever made the error: where the error does not say, nothing was applied if a guard refused
// the request, and otherwise nobody knows. reads says which routes change nothing although their method would; nil = none does.
//
// jitter spreads Retry-After, so that clients do not come back all at once; it returns values in [0,1) and nil means math/rand.
func Errors(jitter func() float64, reads func(route string) bool) gin.HandlerFunc {
	if jitter == nil {
		jitter = rand.Float64
	}
	return func(c *gin.Context) {
		c.Next()
		last := c.Errors.Last()
		if last == nil {
			return
		}
		r := of(c)
		e := asStoreError(last.Err)
		if e.Status() >= http.StatusInternalServerError && e.Outcome == store.NoOutcome &&
			!safe(c.Request.Method) && (reads == nil || !reads(c.FullPath())) {
			told := *e // the error may be shared
			told.Outcome = r.outcome()
			e = &told
		}
		r.event.Code, r.event.Err = e.Code, last.Err
		if c.Writer.Written() {
			r.event.Status = e.Status()
			panic(http.ErrAbortHandler)
		}
		problem := problemOf(e, c.Request, r.event.RequestID)
		problem.setHeaders(c.Writer.Header(), jitter)
		c.Writer.WriteHeader(problem.status)
		buf := takeBuffer()
		*buf = problem.append(*buf)
		_, _ = c.Writer.Write(*buf) // the client may be gone; nothing to do about it
		giveBuffer(buf)
	}
}

// outcome is that of a write whose error says nothing about it.
func (r *request) outcome() store.Outcome {
	if r.refused {
		return store.NotApplied
	}
	return store.Unknown
}

// asStoreError finds the error to show. What does not come from our own code is named where it has a name.
func asStoreError(err error) *store.Error {
	var e *store.Error
	var tooMany *http.MaxBytesError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &tooMany):
		return tooLarge(tooMany.Limit)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return store.NewError(store.CodeBackendTimeout, "the request's deadline has passed")
	default:
		return store.NewError(store.CodeInternal, "")
	}
}

// problem is a store.Error together with what only the request knows.
type problem struct {
	*store.Error
	status    int
	retryable bool
	requestID string
}

func problemOf(e *store.Error, req *http.Request, requestID string) problem {
	idempotent := safe(req.Method) || len(req.Header["Idempotency-Key"]) > 0
	switch req.Method {
	case http.MethodPut, http.MethodDelete, http.MethodPatch: // no PATCH here adds to what was there, each says how it shall be
		idempotent = true
	}
	return problem{Error: e, status: e.Status(), retryable: e.Retryable(idempotent), requestID: requestID}
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// setHeaders takes away what a handler has said about the answer it did not give, and adds what goes with the problem.
func (p *problem) setHeaders(h http.Header, jitter func() float64) {
	for _, name := range [...]string{"Content-Length", "Content-Disposition", "Accept-Ranges", "Etag"} {
		delete(h, name)
	}
	h["Content-Type"] = problemJSON
	if p.status == http.StatusUnauthorized {
		h["Www-Authenticate"] = challenges
	}
	if p.Allow != "" {
		h["Allow"] = []string{p.Allow}
	}
	if p.ETag != "" {
		h["Etag"] = []string{p.ETag}
	}
	after := p.RetryAfter
	if p.status == http.StatusServiceUnavailable && after <= 0 {
		after = retryAfter503
	}
	if after > 0 {
		h["Retry-After"] = retryAfter(spread(p.status, seconds(int64(after)), jitter()))
	}
}

// shortWaits are the values of Retry-After that a flood of refusals has, made once.
var shortWaits = [...][]string{{"0"}, {"1"}, {"2"}, {"3"}}

func retryAfter(seconds int64) []string {
	if seconds < int64(len(shortWaits)) {
		return shortWaits[seconds]
	}
	return []string{strconv.FormatInt(seconds, 10)}
}

// spread is how many seconds to wait at the least, and some more by chance: Retry-After has whole seconds only, and clients that were all
// refused at once would otherwise all be back at once. Where something is down or full, "1" becomes 1 to 3, and a longer wait up to half
// as long again: the first second brings back a third of the clients. Quotas know the moment, and most are one client's own; only waits
// of a minute and more, at whose end a whole fleet may be waiting for a new day's quota, become up to a tenth longer.
func spread(status int, least int64, chance float64) int64 {
	room := max(2, least/2)
	if status == http.StatusTooManyRequests {
		if room = least / 10; least < 60 {
			room = 0
		}
	}
	return least + int64(chance*float64(room+1))
}
