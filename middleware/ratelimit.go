package middleware

import (
	"strconv"
	"time"
	"unsafe"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/store"
)

// RateLimit takes what a request costs from every limit that concerns it, and writes RateLimit-Policy and RateLimit on the answer; over a
// limit of the app it is 429, over a ceiling of the operator's 503. It costs one request and the bytes of its body, and is one more under way until
// the event of the request ends (Events), which also owes the bytes of its answer. classes (nil: none has one) tells what a route does;
// counts may be nil. A handler charges the other items of a batch by store.Charge, which answers in the same way;
// the one taken here stays taken.
func RateLimit(limiter *Limiter, classes Classes, counts *QuotaCounts) gin.HandlerFunc {
	return func(c *gin.Context) {
		r := of(c)
		if r.event.Identity == nil {
			return
		}
		limits := r.caller(limiter, nil).limits
		r.records = records{limiter: limiter, caller: limits, counts: counts}
		if len(limits.rules) == 0 {
			return
		}
		v := limits.view(c.Request.Method, c.FullPath(), classes)
		if len(v.rules) == 0 {
			return
		}
		r.quota.r, r.quota.view = r, v
		if v.policy != nil {
			h := c.Writer.Header()
			h["Ratelimit-Policy"] = v.policy
			h["Ratelimit"] = r.rateHeader[:]
		}
		// A request without a body pays a byte of its answer ahead, so that it does not pass when bytes are owed.
		asked := cost{ofRequests: 1, ofBytes: max(r.bodyCost(), 1), ofFlights: 1}
		if err := r.quota.take(limiter.at(r.started(limiter.clock)), &asked, 1); err != nil {
			refuse(c, err)
			return
		}
		r.flying = v.ends
	}
}

// bodyCost are the bytes of the body that are known before it comes. One that is refused anyway costs none.
func (r *request) bodyCost() int64 {
	if n := r.http.ContentLength; n > 0 && n <= r.requestLimit() {
		return n
	}
	return 0
}

// quota is the request's store.Charger. What else it needs is in the request, which is no byte larger than it must be.
type quota struct {
	r       *request
	view    *view    // nil = no rule concerns it
	text    [64]byte // of the RateLimit header, of one or two policies
	charged int64    // items so far
}

// Charge takes n more, all or nothing.
func (q *quota) Charge(n int64) error {
	if n <= 0 {
		return nil
	}
	q.charged += n
	if err := q.take(q.r.records.limiter.Now(), &cost{ofRequests: n}, q.charged+1); err != nil {
		q.r.refused = true // nothing was sent yet
		return err
	}
	return nil
}

// end is told when the request and its answer are over.
func (q *quota) end() {
	if q.r == nil || !q.r.flying {
		return
	}
	q.r.flying = false
	now := q.r.records.limiter.at(q.r.event.Start.Add(q.r.event.Duration))
	for i := range q.view.rules {
		switch r := &q.view.rules[i]; r.counts {
		case ofFlights:
			r.flying.Add(-1)
		case ofBytes:
			r.spend(now, q.r.unpaid())
		}
	}
}

// take takes what c says of a request of so many items in all.
func (q *quota) take(now int64, c *cost, items int64) *store.Error {
	v, value := q.view.take(q.r, now, c, q.text[:0])
	if q.view.policy != nil {
		q.r.rateHeader[0] = unsafe.String(unsafe.SliceData(value), len(value)) // the text is not written again once the headers are sent
	}
	if v.unasked != 0 {
		q.countUnasked(v.unasked)
	}
	if v.ok {
		return nil
	}
	of := &q.r.records
	for _, r := range v.refused {
		if r.ceiling {
			of.counts.ceiling(r.id)
		} else {
			of.counts.rejected(of.caller.app.ID, r.id)
		}
	}
	return v.problem(&cost{ofRequests: items, ofBytes: q.r.bodyCost(), ofFlights: 1})
}

func (q *quota) countUnasked(rules uint64) {
	of := &q.r.records
	for i := range q.view.rules {
		if rules&(1<<i) == 0 {
			continue
		}
		r, app := &q.view.rules[i], of.caller.app.ID
		if r.ceiling {
			app = ceilingsNamespace
		}
		of.counts.unasked(app, r.id)
	}
}

// QuotaCounts are told what becomes of limits. nil, or one of them, is fine.
type QuotaCounts struct {
	Rejected func(app, policy string) // a limit of the app refused
	Unasked  func(app, policy string) // a limit was decided without the cluster that gateways share it in
	Ceiling  func(ceiling string)     // a ceiling refused
}

func (c *QuotaCounts) rejected(app, policy string) {
	if c != nil && c.Rejected != nil {
		c.Rejected(app, policy)
	}
}

func (c *QuotaCounts) unasked(app, policy string) {
	if c != nil && c.Unasked != nil {
		c.Unasked(app, policy)
	}
}

func (c *QuotaCounts) ceiling(ceiling string) {
	if c != nil && c.Ceiling != nil {
		c.Ceiling(ceiling)
	}
}

// problem says what the caller can do about a refusal of a request that costs so much in all: about a limit of the app it can do something,
// about a ceiling of the operator it cannot.
func (v *verdict) problem(asked *cost) *store.Error {
	own := v.own()
	if len(own) == 0 {
		e := store.NewError(store.CodeOverloaded, "all callers together have reached a ceiling of the gateway's operator")
		if v.refused[0].down {
			e = store.NewError(store.CodeLimiterUnavailable, "a limit did not answer in time, and is to refuse then")
		}
		e.RetryAfter = time.Duration(max(v.retry, 0))
		return e
	}
	e := &store.Error{Code: store.CodeQuotaExceeded, Policies: own}
	for _, r := range v.refused {
		if total := asked[r.counts]; !r.ceiling && !r.down && total > r.burst() {
			e.Detail = tooMuch(r.rule, total)
			v.retry = never
		}
	}
	if v.retry != never {
		e.RetryAfter = time.Duration(v.retry)
		e.Detail = "the app has used up its quota"
	}
	return e
}

// tooMuch tells of a request that no repetition will let through.
func tooMuch(r *rule, total int64) string {
	what, unit, remedy := "batch", "requests", "smaller batches"
	if r.counts == ofBytes {
		what, unit, remedy = "body", "bytes", "smaller bodies"
	}
	return "this " + what + " costs " + strconv.FormatInt(total, 10) + " " + unit + ", and policy " + strconv.Quote(r.id) +
		" never has more than " + strconv.FormatInt(r.burst(), 10) + " at once; send " + remedy
}

// unpaid are the bytes of a request that has ended that were not known when it came: those of its answer, and of a body without a length.
func (r *request) unpaid() int64 {
	n := r.event.BytesOut
	if r.body != nil && r.body.declared < 0 {
		n += r.event.BytesIn
	}
	if r.bodyCost() == 0 {
		n-- // paid ahead
	}
	return max(n, 0)
}
