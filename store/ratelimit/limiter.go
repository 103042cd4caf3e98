package ratelimit

import (
	"context"
	_ "embed" // the script
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/packed"
)

// Runner runs a script on keys of one slot; *store.Store is one.
type Runner interface {
	// RecordTTL is how long the repetition of a take is known, at least a millisecond.
	RecordTTL() time.Duration
	RunLimit(ctx context.Context, id *acl.Identity, access acl.Access, sc *store.Script, keys []string, argv []any) ([]any, error)
}

var _ Runner = (*store.Store)(nil)

//go:embed ratelimit.lua
var source string

var (
	script = store.NewScript(source)
	forget = store.NewScript("return {redis.call('UNLINK', KEYS[1])}")
)

const (
	// giveBackFor is how long the giving back of what a total has refused may last: Redis answers in a fraction of a millisecond, and a
	// node that does not in a hundred has lost the count or keeps it until it has refilled.
	giveBackFor = 100 * time.Millisecond
	// maxGivingBack are under way at once. They are more than a few only while a shard hangs, and others then end with their request.
	maxGivingBack = 256
)

// Limiter decides in Redis. It is safe for concurrent use.
type Limiter struct {
	// Log is told of a panic while something is given back; nil = nobody. Set it before the first take.
	Log    *slog.Logger
	run    Runner
	giving chan struct{} // one for each that is given back
	// clock is the time in us for tests of this package; nil = that of the Redis node.
	clock func() int64
}

// New makes a limiter.
func New(run Runner) *Limiter {
	return &Limiter{run: run, giving: make(chan struct{}, maxGivingBack)}
}

// Limit is a limit as it holds for a request: a valid definition, and the override of the request's subject, nil = none.
type Limit struct {
	Name       string
	Definition *Definition
	Override   *Override
}

// Take takes the cost, or at least the minimum, of every rule, or nothing at all. With i.Key set, a repetition has the answer of the
// first take that was allowed; one that was refused is not kept. replayed says so. Errors: those of Request.Validate, forbidden,
// idempotency_mismatch, or an outcome.
func (l *Limiter) Take(ctx context.Context, id *acl.Identity, lim Limit, r *Request, i store.Idempotency) (res Result, replayed bool, err error) {
	return l.decide(ctx, id, take, lim, r, i)
}

// Peek is what Take would say; it changes nothing.
func (l *Limiter) Peek(ctx context.Context, id *acl.Identity, lim Limit, r *Request) (Result, error) {
	res, _, err := l.decide(ctx, id, peek, lim, r, store.Idempotency{})
	return res, err
}

// Refund gives the cost back to every rule, as far as it was taken. The result has Allowed and no grant.
func (l *Limiter) Refund(ctx context.Context, id *acl.Identity, lim Limit, r *Request, i store.Idempotency) (res Result, replayed bool, err error) {
	return l.decide(ctx, id, refund, lim, r, i)
}

// Reset forgets what a subject has taken of the rules of scope subject.
func (l *Limiter) Reset(ctx context.Context, id *acl.Identity, lim Limit, subject string) error {
	if err := CheckSubject("path:subject", subject); err != nil {
		return err
	}
	k := keysOf(id, lim.Name, subject, lim.Definition.Isolation)
	_, err := l.run.RunLimit(ctx, id, acl.Write, forget, []string{k.subject}, nil)
	return err
}

func (l *Limiter) decide(ctx context.Context, id *acl.Identity, m mode, lim Limit, r *Request, i store.Idempotency) (Result, bool, error) {
	rules := lim.Definition.RulesFor(lim.Override, time.Now())
	if err := r.Validate(rules); err != nil && (m != refund || !exceeds(err)) {
		return Result{}, false, err
	}
	s := split(rules)
	k := keysOf(id, lim.Name, r.Subject, lim.Definition.Isolation)
	c := call{id: id, mode: m, cost: r.cost(), least: r.least(), maxWait: r.MaxWaitMS * 1000, idempotency: i}
	var out reply
	var err error
	if k.apart && len(s.subject) > 0 && len(s.total) > 0 {
		out, err = l.twice(ctx, c, k, s)
	} else {
		out, err = l.once(ctx, c, k, s)
	}
	if err != nil {
		return Result{}, false, err
	}
	res := out.result(rules, m)
	if lim.Definition.Shadow && !res.Allowed {
		res.Allowed, res.Granted, res.Shadowed = true, r.cost(), true
	}
	return res, out.replayed, nil
}

// exceeds: a refund may be of any size, several takes together.
func exceeds(err error) bool {
	var e *store.Error
	return errors.As(err, &e) && e.Code == store.CodeCostExceedsLimit
}

// shares are the rules by scope.
type shares struct{ subject, total []Rule }

func split(rules []Rule) (s shares) {
	for _, r := range rules {
		if r.Scope == PerLimit {
			s.total = append(s.total, r)
		} else {
			s.subject = append(s.subject, r)
		}
	}
	return s
}

// call is one run of the script.
type call struct {
	id          *acl.Identity
	mode        mode
	cost, least int64
	maxWait     int64 // us
	idempotency store.Idempotency
}

// reply is what the script said of rules.
type reply struct {
	verdict
	order    []string // ids of the rules
	replayed bool
	asked    decided
	text     string // what it was made of
}

// once decides all rules in one step; they are of one slot.
func (l *Limiter) once(ctx context.Context, c call, k keys, s shares) (reply, error) {
	var names []string
	if len(s.subject) > 0 {
		names = append(names, k.subject)
	}
	if len(s.total) > 0 {
		names = append(names, k.total)
	}
	first := len(s.subject)
	if first == 0 {
		first = len(s.total)
	}
	return l.send(ctx, c, names, first, slices.Concat(s.subject, s.total))
}

// twice decides the subject's rules and then the total, which is in another slot. What the total refuses is given back to the
// subject; so the subject may meanwhile be refused what it could have had, never the other way. Of two requests at the same time with
// the same Idempotency-Key, one may use what the other is about to give back.
//
// What the total has said holds, also where giving back fails: a refusal that became an error would let through what is open then. The
// subject lacks so much until it has refilled, or with an Idempotency-Key until the repetition.
func (l *Limiter) twice(ctx context.Context, c call, k keys, s shares) (reply, error) {
	own, err := l.send(ctx, c, []string{k.subject}, len(s.subject), s.subject)
	if err != nil || !own.allowed {
		return own, err
	}
	t := c
	if c.mode != refund {
		t.cost = own.granted
	}
	total, err := l.send(ctx, t, []string{k.total}, len(s.total), s.total)
	back := own.granted - total.granted
	if back == 0 || err != nil && !tookNothing(err) {
		return join(own, total), err
	}
	b := c
	b.cost, b.least = back, back
	switch {
	case total.granted > 0:
		if c.mode == take && !total.replayed {
			b.mode, b.idempotency = refund, store.Idempotency{}
			_, _ = l.giveBack(ctx, b, k, s)
		}
		own.regrant(total.granted)
	case c.mode == take:
		b.mode = undo
		if left, undone := l.giveBack(ctx, b, k, s); undone == nil {
			own.adopt(left)
		}
	}
	return join(own, total), err
}

// giveBack gives the subject what the total did not grant. It has a time of its own, as waiting for the total may have used up that of
// the request, which does not wait longer for it than it would anyway.
func (l *Limiter) giveBack(ctx context.Context, c call, k keys, s shares) (reply, error) {
	send := func(ctx context.Context) (reply, error) {
		return l.send(ctx, c, []string{k.subject}, len(s.subject), s.subject)
	}
	select {
	case l.giving <- struct{}{}:
	default:
		return send(ctx)
	}
	log := l.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	type outcome struct {
		reply reply
		err   error
	}
	done := make(chan outcome, 1)
	go alive.Once(log, "giving back of a rate limit", func() {
		out := outcome{err: errBadReply} // unless it ends
		defer func() { <-l.giving; done <- out }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackFor)
		defer cancel()
		out.reply, out.err = send(ctx)
	})
	select {
	case out := <-done:
		return out.reply, out.err
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
}

// tookNothing says whether a failed take certainly took nothing: it was not done, or it was refused as a request.
func tookNothing(err error) bool {
	var e *store.Error
	return errors.As(err, &e) && (e.Outcome == store.NotApplied || e.Outcome == store.NoOutcome)
}

// adopt takes over what is left after a refund.
func (r *reply) adopt(after reply) {
	for i := range r.rules {
		r.rules[i].remaining, r.rules[i].reset = after.rules[i].remaining, after.rules[i].reset
	}
}

func join(own, total reply) reply {
	out := reply{verdict: verdict{allowed: total.allowed, granted: total.granted}, replayed: own.replayed && total.replayed}
	out.rules, out.order = slices.Concat(own.rules, total.rules), slices.Concat(own.order, total.order)
	out.limiting = own.limiting
	if total.limiting > 0 {
		out.limiting = len(own.rules) + total.limiting
	}
	if !out.allowed {
		for i := range own.rules {
			out.rules[i].wait = 0
		}
	}
	return out
}

// recordVersion is the format of what is kept for an Idempotency-Key.
const recordVersion = "1"

// send runs the script: the first rules are those of names[0].
func (l *Limiter) send(ctx context.Context, c call, names []string, first int, rules []Rule) (reply, error) {
	names, argv := l.arguments(c, names, first, rules)
	access := acl.Write
	if c.mode == peek {
		access = acl.Read
	}
	values, err := l.run.RunLimit(ctx, c.id, access, script, names, argv)
	if err != nil {
		return reply{}, err
	}
	return parse(c, first, rules, values)
}

// arguments are KEYS and ARGV of the script.
func (l *Limiter) arguments(c call, keys []string, first int, rules []Rule) ([]string, []any) {
	clock := int64(0)
	if l.clock != nil {
		clock = l.clock()
	}
	b := make([]byte, 0, 8*(numbersOfCall+numbersOfRule*len(rules)))
	b = packed.Append(b, int64(c.mode), c.cost, c.least, clock, int64(first), int64(len(rules)))
	argv := []any{appendRules(b, c.exactly(rules))}
	if c.idempotency.Key != "" {
		keys = append(keys, recordKey(keys[0], c.idempotency.Key))
		argv = append(argv, recordVersion+string(c.idempotency.Fingerprint[:]), l.run.RecordTTL().Milliseconds(), strings.Join(ids(rules), ","))
	}
	return keys, argv
}

// ids are those of rules; none has a comma.
func ids(rules []Rule) []string {
	list := make([]string, len(rules))
	for i := range rules {
		list[i] = rules[i].ID
	}
	return list
}

func (c *call) exactly(rules []Rule) []exact {
	list := make([]exact, len(rules))
	for i := range rules {
		list[i] = rules[i].exactly(c.maxWait)
	}
	return list
}
