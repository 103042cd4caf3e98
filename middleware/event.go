package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// statusClientGone is logged and counted (never sent: nobody is there) when the client went away before the answer; nginx's number.
const statusClientGone = 499

// Event is what one request was: filled by the guards on the way and handed to every sink once, at the end. It holds no key,
// value, token, raw path or query, so no sink can leak one.
type Event struct {
	RequestID string
	Identity  *acl.Identity // nil: not authenticated
	Route     string        // the template; "unmatched" when there is none
	Method    string        // one of the usual ones, or "OTHER"
	Start     time.Time
	Duration  time.Duration
	Status    int        // what was sent; 499 when the client had gone; the error's own when the response was cut off
	Code      store.Code // "" = no error
	Err       error      // what the handler or a guard reported, for the log
	BytesIn   int64      // of the body, as far as it was read
	BytesOut  int64      // of the body

	app    *appSeries  // counted in its in-flight gauge until the event is recorded; nil = not counted
	watch  *watch      // nil: neither traced nor timed
	header http.Header // of the answer
}

// Sink turns an event into output. It must not keep the pointer.
type Sink func(*Event)

// Events opens the request's event and hands it to the sinks when the request is over, even when it ends in a panic.
func Events(clock Clock, sinks ...Sink) gin.HandlerFunc {
	clock = clock.orReal()
	return func(c *gin.Context) {
		r := of(c)
		r.started(clock)
		defer func() {
			r.finish(c, clock())
			r.quota.end()
			r.places.leave()
			for _, sink := range sinks {
				sink(&r.event)
			}
		}()
		c.Next()
	}
}

func (r *request) finish(c *gin.Context, now time.Time) {
	e := &r.event
	e.Duration = now.Sub(e.Start)
	e.Method = knownMethod(c.Request.Method)
	if e.Route = c.FullPath(); e.Route == "" {
		e.Route = "unmatched"
	}
	e.BytesIn = r.body.bytes()
	e.BytesOut = max(0, int64(c.Writer.Size())) // -1 = nothing written
	e.header = c.Writer.Header()
	if e.Status == 0 {
		e.Status = c.Writer.Status()
	}
	if e.Status >= 500 && errors.Is(e.Err, context.Canceled) && r.Context.Err() != nil {
		e.Status = statusClientGone
	}
}

// knownMethod bounds what a client can put into logs and labels.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodPatch, http.MethodOptions:
		return m
	}
	return "OTHER"
}
