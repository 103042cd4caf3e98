package middleware

import (
	"strconv"
	"time"
	"unsafe"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/store"
)

// RateLimit takes one request from every limit of the caller's app and writes RateLimit-Policy and RateLimit on the answer; over a
// limit it is 429. rejected (nil is fine) counts refusals. A handler charges the other items of a batch by store.Charge, which
// answers in the same way; the one taken here stays taken.
func RateLimit(limiter *Limiter, rejected func(app, policy string)) gin.HandlerFunc {
	return func(c *gin.Context) {
		r := of(c)
		if r.event.Identity == nil {
			return
		}
		limits := r.caller(limiter, nil).limits
		r.records = records{limiter: limiter, app: limits, rejected: rejected}
		if len(limits.limits) == 0 {
			return
		}
		r.quota.limiter, r.quota.app, r.quota.header, r.quota.rejected = limiter, limits, &r.rateHeader[0], rejected
		h := c.Writer.Header()
		h["Ratelimit-Policy"] = limits.policy
		h["Ratelimit"] = r.rateHeader[:]
		if err := r.quota.take(limiter.at(r.started(limiter.clock)), 1, 1); err != nil {
			refuse(c, err)
		}
	}
}

// quota is the request's store.Charger.
type quota struct {
	limiter  *Limiter
	app      *appLimits
	header   *string  // RateLimit, until the headers are sent
	text     [64]byte // its text, of one or two policies
	rejected func(app, policy string)
}

// Charge takes n more, all or nothing.
func (q *quota) Charge(n int64) error {
	if n <= 0 {
		return nil
	}
	if err := q.take(q.limiter.now(), n, n+1); err != nil {
		return err
	}
	return nil
}

// take takes n of a request that costs total.
func (q *quota) take(now, n, total int64) *store.Error {
	v, value := q.app.take(now, n, q.text[:0])
	*q.header = unsafe.String(unsafe.SliceData(value), len(value)) // the text is not written again once the headers are sent
	if v.ok {
		return nil
	}
	e := &store.Error{Code: store.CodeQuotaExceeded, Policies: v.violated}
	for i := range q.app.limits {
		if l := &q.app.limits[i]; total > l.burst() {
			e.Detail = "this batch costs " + strconv.FormatInt(total, 10) + " requests, and policy " + strconv.Quote(l.id) +
				" never has more than " + strconv.FormatInt(l.burst(), 10) + " at once; send smaller batches"
			v.retry = never
		}
	}
	if v.retry != never {
		e.RetryAfter = time.Duration(v.retry)
		e.Detail = "the app has used up its quota"
	}
	for _, policy := range v.violated {
		if q.rejected != nil {
			q.rejected(q.app.app.ID, policy)
		}
	}
	return e
}
