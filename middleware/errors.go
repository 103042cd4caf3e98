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
// jitter spreads Retry-After of 503 answers by ±20 %, so that clients do not come back all at once; it returns values in [0,1) and nil
// means math/rand.
func Errors(jitter func() float64) gin.HandlerFunc {
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
		e := asStoreError(last.Err, c.Request.Method)
		r.event.Code, r.event.Err = e.Code, last.Err
		if c.Writer.Written() {
			r.event.Status = e.Status()
			panic(http.ErrAbortHandler)
		}
		problem := problemOf(e, c.Request.Method, r.event.RequestID)
		problem.setHeaders(c.Writer.Header(), jitter)
		c.Writer.WriteHeader(problem.status)
		buf := takeBuffer()
		*buf = problem.append(*buf)
		_, _ = c.Writer.Write(*buf) // the client may be gone; nothing to do about it
		giveBuffer(buf)
	}
}

// asStoreError finds the error to show. What does not come from our own code is named where it has a name; nobody can say what it means
// for a write.
func asStoreError(err error, method string) *store.Error {
	var e *store.Error
	var tooMany *http.MaxBytesError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &tooMany):
		return tooLarge(tooMany.Limit)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		e = store.NewError(store.CodeBackendTimeout, "the request's deadline has passed")
	default:
		e = store.NewError(store.CodeInternal, "")
	}
	if !safe(method) {
		e.Outcome = store.Unknown
	}
	return e
}

// unsent marks a refusal in the gateway, before anything was sent: of a write it says so.
func unsent(e *store.Error, method string) *store.Error {
	if !safe(method) {
		e.Outcome = store.NotApplied
	}
	return e
}

// problem is a store.Error together with what only the request knows.
type problem struct {
	*store.Error
	status    int
	retryable bool
	requestID string
}

func problemOf(e *store.Error, method, requestID string) problem {
	idempotent := safe(method) || method == http.MethodPut || method == http.MethodDelete
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
	if p.status == http.StatusServiceUnavailable {
		if after <= 0 {
			after = retryAfter503
		}
		after = time.Duration(float64(after) * (0.8 + 0.4*jitter()))
	}
	if after > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(seconds(int64(after)), 10)}
	}
}
