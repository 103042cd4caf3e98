package middleware

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/adaptive"
)

// request is all the gateway knows about one request: it is the request's context, and carries the event, the identity, the limits to
// charge and the deadline in one allocation, where a chain of context.WithValue, context.WithDeadline and gin's string keys would cost one
// each and more (BenchmarkChain). It has 512 bytes, one of Go's size classes: with half a KB more, a flood of refusals made one and a half times the garbage.
//
// Its fields are filled as the request passes the guards, which is safe because they and the handler run on one goroutine; whoever
// starts goroutines does so after reading the body. It is never pooled: a goroutine of the Redis client may hold a context longer than
// its request lives.
type request struct {
	context.Context // net/http's: ends when the client is gone

	http    *http.Request // gin's c.Request, with this context
	event   Event
	quota   quota
	records records
	body    *body // nil: it has none
	timing  timing
	answer  answer
	places  places
	// refused: a guard has ended the request, so no handler saw it.
	refused bool
	// class is how important it is; of no meaning unless classed, which Shed sets.
	class   adaptive.Class
	classed bool
	flying  bool // it is counted in what ends with it: see quota

	// Header values are slices; these are their backing arrays.
	idHeader, rateHeader [1]string
	madeID               [36]byte // the request id, if the client sent none
}

type requestKey struct{}

// Value answers for what the struct carries, then asks the contexts below.
func (r *request) Value(key any) any {
	switch key {
	case requestKey{}:
		return r
	case acl.ContextKey():
		if r.event.Identity != nil {
			return r.event.Identity
		}
	case store.ChargerKey():
		if r.quota.view == nil && r.places.shedder == nil {
			return nil
		}
		return (*charges)(r)
	case store.RecorderKey():
		if r.records.caller == nil {
			return nil
		}
		return &r.records
	case store.ObserverKey():
		if r.event.watch == nil {
			return nil
		}
		return r.event.watch
	case store.ClassKey():
		if !r.classed {
			return nil
		}
		return r.class
	case store.ReserverKey():
		if r.answer.inFlight == nil {
			return nil
		}
		return &r.answer
	}
	return r.below().Value(key)
}

// of returns the request's state, made by whichever guard comes first.
func of(c *gin.Context) *request {
	ctx := c.Request.Context()
	if r, ok := ctx.(*request); ok {
		return r
	}
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	r := &request{Context: ctx}
	if body := c.Request.Body; body == nil || body == http.NoBody {
		*c.Request = *c.Request.WithContext(r) // in place: the compiler keeps WithContext's own copy on the stack
	} else {
		// net/http goes by the body of its own request, to which Body gives another: whether what is unread has to be read, or the connection closed.
		c.Request = c.Request.WithContext(r)
	}
	r.http = c.Request
	return r
}

// started is the moment at which the first guard that asked saw the request: one reading of the clock for all of them.
func (r *request) started(clock Clock) time.Time {
	if r.event.Start.IsZero() {
		r.event.Start = clock()
	}
	return r.event.Start
}

// RequestIDFrom returns the id of the request ctx belongs to, "" when there is none.
func RequestIDFrom(ctx context.Context) string {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.event.RequestID
	}
	return ""
}

// refuse ends the request with an error for the renderer, before a handler has seen it.
func refuse(c *gin.Context, err error) {
	of(c).refused = true
	_ = c.Error(err)
	c.Abort()
}

// Clock tells the time; nil means time.Now.
type Clock func() time.Time

func (k Clock) orReal() Clock {
	if k == nil {
		return time.Now
	}
	return k
}
