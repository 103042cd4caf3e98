package middleware

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/slotgate/slotgate/acl"
)

// measure is what a rule counts.
type measure uint8

const (
	ofRequests measure = iota
	ofBytes
	ofFlights // requests under way
	measures
)

// cost is what a request takes from the rules that concern it, by what they count.
type cost [measures]int64

// ledger is what is used up of one limit, by all requests that it counts. It outlives reloads.
type ledger struct {
	bucket bucket
	flying atomic.Int64 // requests under way
	// owed are the bytes of answers that no request has paid for yet: how large an answer is, is known when it has been sent.
	owed atomic.Int64
}

// rule is one limit as requests meet it.
type rule struct {
	limit
	*ledger
	counts  measure
	ceiling bool   // the operator's: its callers can do nothing about it, and are not told its numbers
	id      string // of the limit
	head    string // `"id";r=`, the beginning of its RateLimit item
	policy  string // its RateLimit-Policy item

	// Which requests it counts; zero values are all.
	route  string
	class  acl.Class
	access acl.Access
}

func newRule(spec acl.Limit, st *ledger) rule {
	name, period := sfString(spec.ID), time.Duration(spec.PeriodMS)*time.Millisecond
	r := rule{ledger: st, id: spec.ID, head: name + ";r=", route: spec.Route}
	r.class, r.access, _ = spec.Concerns() // it is Known
	switch spec.Of {
	case acl.OfConcurrency:
		r.counts, r.limit = ofFlights, limit{interval: 1, depth: spec.Limit}
		r.policy = name + ";q=" + strconv.FormatInt(spec.Limit, 10) + `;qu="concurrent-requests"`
		return r
	case acl.OfBytes:
		r.counts, r.policy = ofBytes, name+policyWindow(spec.Limit, period, `;qu="content-bytes"`)
	default:
		r.policy = name + policyWindow(spec.Limit, period, "")
	}
	r.limit = newLimit(spec.Limit, period, spec.EffectiveBurst())
	return r
}

// concerns says whether the rule counts requests of the route, by its template and the class and access of what it does.
func (r *rule) concerns(route string, class acl.Class, access acl.Access) bool {
	return (r.route == "" || r.route == route) && (r.class == 0 || r.class == class) && (r.access == 0 || r.access == access)
}

// everything says whether the rule counts all requests.
func (r *rule) everything() bool { return r.route == "" && r.class == 0 && r.access == 0 }

// rank is where the rule stands among those of a request.
func (r *rule) rank() int {
	if r.counts == ofFlights {
		return 1
	}
	return 0
}

// take takes n, or nothing. n = 0 only looks.
func (r *rule) take(now, n int64) decision {
	switch {
	case r.counts == ofFlights:
		return r.board(n)
	case r.counts == ofBytes && n > 0:
		return r.pay(now, n)
	}
	return r.bucket.take(now, r.limit, n)
}

// board counts one more request under way, if there is room.
func (r *rule) board(n int64) decision {
	flying := r.flying.Add(n)
	if flying <= r.depth {
		return decision{ok: true, remaining: r.depth - flying}
	}
	r.flying.Add(-n)
	return decision{retry: int64(time.Second)} // when one ends, nobody knows; a second is the longest life of most
}

// pay takes what is owed before it takes n. What is more than a bucket holds is paid by the bucketful.
func (r *rule) pay(now, n int64) decision {
	owed := r.owed.Swap(0)
	d := r.bucket.take(now, r.limit, min(owed+n, max(r.burst(), n)))
	switch {
	case owed == 0 || d.ok && owed+n <= r.burst():
		return d
	case d.ok: // a bucketful of it
		owed -= r.burst()
	case d.retry != never && d.remaining > 0: // all there is
		part := min(owed, d.remaining)
		if r.bucket.take(now, r.limit, part).ok {
			owed -= part
		}
	}
	r.owed.Add(max(owed, 0))
	if d.retry != never {
		d.retry = max(min(owed+n, r.burst()), 1) * r.interval
	}
	d.ok, d.remaining = false, 0
	return d
}

// giveBack undoes a take that another rule of the same request refused.
func (r *rule) giveBack(n int64) {
	if r.counts == ofFlights {
		r.flying.Add(-n)
		return
	}
	r.bucket.giveBack(r.limit, n)
}

// left is the share that is left, from 0 to 1.
func (r *rule) left(now int64) float64 {
	used := r.flying.Load()
	if r.counts != ofFlights {
		used = max(r.bucket.state.Load()-now, 0)
	}
	return 1 - float64(min(used, r.depth))/float64(r.depth)
}

// view is the rules that concern the requests of one kind, all of them or those of some routes.
type view struct {
	mask   uint64 // of the rules of the app, by their index
	rules  []rule
	policy []string // the RateLimit-Policy header's value; nil = no limit of the app is among them
	ends   bool     // a rule wants to know of the request's end
}

func newView(all []rule, mask uint64) *view {
	v := &view{mask: mask}
	var policies []string
	for i := range all {
		if mask&(1<<i) == 0 {
			continue
		}
		r := all[i]
		v.rules = append(v.rules, r)
		v.ends = v.ends || r.counts != ofRequests
		if !r.ceiling {
			policies = append(policies, r.policy)
		}
	}
	if len(policies) > 0 {
		v.policy = []string{strings.Join(policies, ", ")}
	}
	return v
}

// verdict is what all rules of a request say to it.
type verdict struct {
	ok      bool
	retry   int64   // nanoseconds; never when a rule cannot grant the cost at any time
	refused []*rule // those that did
}

// take takes the cost from every rule or from none, and appends the RateLimit header's value to dst.
func (v *view) take(now int64, c *cost, dst []byte) (verdict, []byte) {
	out := verdict{ok: true}
	var buf [maxRules]decision
	decisions := buf[:len(v.rules)]
	for i := range v.rules {
		r := &v.rules[i]
		d := r.take(now, c[r.counts])
		decisions[i] = d
		if !d.ok {
			out.refuse(r, d)
		}
	}
	for i := range v.rules {
		r, d := &v.rules[i], &decisions[i]
		if n := c[r.counts]; !out.ok && d.ok && n > 0 {
			r.giveBack(n)
			d.remaining = min(d.remaining+n, r.burst())
		}
		if !r.ceiling {
			dst = r.appendState(dst, d)
		}
	}
	return out, dst
}

// appendState appends the rule's item of the RateLimit header.
func (r *rule) appendState(dst []byte, d *decision) []byte {
	if len(dst) > 0 {
		dst = append(dst, ", "...)
	}
	dst = append(dst, r.head...)
	dst = strconv.AppendInt(dst, d.remaining, 10)
	if r.counts == ofFlights {
		return dst // it has no window
	}
	dst = append(dst, ";t="...)
	return strconv.AppendInt(dst, max(seconds(d.next), 1), 10)
}

func (v *verdict) refuse(r *rule, d decision) {
	v.ok = false
	v.refused = append(v.refused, r)
	if d.retry == never || v.retry == never {
		v.retry = never
		return
	}
	v.retry = max(v.retry, d.retry)
}

// own are the ids of the app's limits that refused. Where a ceiling refused too, they are still what the caller can do something about.
func (v *verdict) own() []string {
	var ids []string
	for _, r := range v.refused {
		if !r.ceiling {
			ids = append(ids, r.id)
		}
	}
	return slices.Clip(ids)
}
