package middleware

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/prepaid"
	"github.com/slotgate/slotgate/store/ratelimit"
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
	_    [40]byte // a cache line for each: those of other apps are written by others
}

// rule is one limit as requests meet it.
type rule struct {
	limit
	*ledger                    // of this gateway alone
	shared  *prepaid.Allowance // of all gateways together; nil = of this one alone
	counts  measure
	exact   bool   // each take asks the cluster
	ceiling bool   // the operator's: its callers can do nothing about it, and are not told its numbers
	id      string // of the limit
	head    string // `"id";r=`, the beginning of its RateLimit item
	policy  string // its RateLimit-Policy item

	// Which requests it counts; zero values are all.
	route  string
	class  acl.Class
	access acl.Access
}

// newRule makes the rule of a limit whose state is st, or in the pool.
func newRule(spec acl.Limit, st *ledger, pool *prepaid.Pool, kept place) rule {
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
	if pool != nil && spec.EffectiveMode() != acl.Alone {
		r.shared, r.exact = pool.Allowance(kept.shares(spec)), spec.EffectiveMode() == acl.Exact
	}
	return r
}

// place is where the state of a limit is that gateways share.
type place struct{ cluster, key string }

// shares is a limit as package prepaid has it. It is Known and was validated, so its rule is valid as well.
func (p place) shares(spec acl.Limit) prepaid.Limit {
	d := ratelimit.Definition{Rules: []ratelimit.Rule{{
		ID: spec.ID, Algorithm: ratelimit.Algorithm(spec.EffectiveAlgorithm()), Limit: spec.Limit, PeriodMS: spec.PeriodMS, Burst: spec.Burst,
	}}}
	_ = d.Validate() // fills in the defaults
	l := prepaid.Limit{Cluster: p.cluster, Key: p.key, Rule: d.Rules[0], OnError: prepaid.OnError(spec.EffectiveOnError())}
	if spec.EffectiveMode() == acl.Exact {
		l.Mode = prepaid.Exact
	}
	return l
}

// concerns says whether the rule counts requests of the route, by its template and the class and access of what it does.
func (r *rule) concerns(route string, class acl.Class, access acl.Access) bool {
	return (r.route == "" || r.route == route) && (r.class == 0 || r.class == class) && (r.access == 0 || r.access == access)
}

// everything says whether the rule counts all requests.
func (r *rule) everything() bool { return r.route == "" && r.class == 0 && r.access == 0 }

// rank is where the rule stands among those of a request: those that ask a cluster each time come behind those that may spare them that.
func (r *rule) rank() int {
	switch {
	case r.counts == ofFlights:
		return 2
	case r.exact:
		return 1
	}
	return 0
}

// take takes n, or nothing. n = 0 only looks.
func (r *rule) take(ctx context.Context, now, n int64) decision {
	switch {
	case r.shared != nil:
		return r.draw(ctx, now, n)
	case r.counts == ofFlights:
		return r.board(n)
	case r.counts == ofBytes && n > 0:
		return r.pay(now, n)
	}
	return r.bucket.take(now, r.limit, n)
}

// draw takes of what gateways share.
func (r *rule) draw(ctx context.Context, now, n int64) decision {
	if n == 0 {
		look := r.shared.Look(now)
		return decision{ok: true, remaining: look.Remaining, next: look.Next}
	}
	d := r.shared.Take(ctx, now, n)
	return decision{
		ok: d.Verdict == prepaid.Allowed, remaining: d.Remaining, retry: d.RetryAfter, next: d.Next,
		unasked: d.Unasked, down: d.Verdict == prepaid.Unavailable,
	}
}

// board counts n more requests under way, if there is room. Those who are refused take no room from others for a moment either.
func (r *rule) board(n int64) decision {
	for {
		flying := r.flying.Load()
		room := max(r.depth-flying, 0)
		switch {
		case n == 0: // it is under way already, whatever the limit is now
			return decision{ok: true, remaining: room}
		case n > room:
			return decision{retry: int64(time.Second)} // when one ends, nobody knows; a second is the longest life of most
		case r.flying.CompareAndSwap(flying, flying+n):
			return decision{ok: true, remaining: room - n}
		}
	}
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
func (r *rule) giveBack(d decision, n int64) {
	switch {
	case r.shared != nil:
		r.shared.GiveBack(prepaid.Decision{Verdict: prepaid.Allowed, Unasked: d.unasked}, n)
	case r.counts == ofFlights:
		r.flying.Add(-n)
	default:
		r.bucket.giveBack(r.limit, n)
	}
}

// spend takes bytes that were sent already.
func (r *rule) spend(now, n int64) {
	if r.shared != nil {
		r.shared.Spend(now, n)
		return
	}
	r.owed.Add(n)
}

// left is the share that is left, from 0 to 1.
func (r *rule) left(now int64) float64 {
	if r.shared != nil {
		return float64(min(r.shared.Look(now).Remaining, r.burst())) / float64(r.burst())
	}
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
	refused []blame // by which rules
	unasked uint64  // of which rules the cluster was not asked, by their index in the view
}

type blame struct {
	*rule
	down bool // only because its cluster does not answer
}

// take takes the cost from every rule or from none, and appends the RateLimit header's value to dst.
func (v *view) take(ctx context.Context, now int64, c *cost, dst []byte) (verdict, []byte) {
	if len(v.rules) <= few {
		var buf [few]decision
		return v.takeAll(ctx, now, c, dst, buf[:len(v.rules)])
	}
	return v.takeMany(ctx, now, c, dst)
}

// few rules are what most callers have. Room for the most there may be costs some 20 ns to clear (BenchmarkChain).
const few = 2

func (v *view) takeMany(ctx context.Context, now int64, c *cost, dst []byte) (verdict, []byte) {
	var buf [maxRules]decision
	return v.takeAll(ctx, now, c, dst, buf[:len(v.rules)])
}

// takeAll is take with room for the decision of each rule.
func (v *view) takeAll(ctx context.Context, now int64, c *cost, dst []byte, decisions []decision) (verdict, []byte) {
	out := verdict{ok: true}
	for i := range v.rules {
		r := &v.rules[i]
		if r.exact && !out.ok {
			continue // it is not asked for what is refused
		}
		d := r.take(ctx, now, c[r.counts])
		decisions[i] = d
		if d.unasked {
			out.unasked |= 1 << i
		}
		if !d.ok {
			out.refuse(r, d)
		}
	}
	for i := range v.rules {
		r, d := &v.rules[i], &decisions[i]
		if n := c[r.counts]; !out.ok && d.ok && n > 0 {
			r.giveBack(*d, n)
			d.remaining = min(d.remaining+n, r.burst())
		}
		if !r.ceiling && (d.ok || !r.exact || d.retry != 0) {
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
	v.refused = append(v.refused, blame{r, d.down})
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
		if !r.ceiling && !r.down {
			ids = append(ids, r.id)
		}
	}
	return slices.Clip(ids)
}
