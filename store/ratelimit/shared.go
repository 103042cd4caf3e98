package ratelimit

import (
	"context"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// Grant is what one rule gave, and how it stands.
type Grant struct {
	Granted   int64 // tokens, 0 = refused
	Remaining int64 // tokens that could be taken now
	// Reset is until all are back if nobody takes. Retry is until the take that was refused would pass, or until one more token is there
	// where it was granted in part; -1 = never.
	Reset, Retry time.Duration
}

func (a answer) grant(granted int64) Grant {
	g := Grant{Granted: granted, Remaining: a.remaining, Reset: time.Duration(a.reset) * time.Microsecond, Retry: -1}
	if a.retry >= 0 {
		g.Retry = time.Duration(a.retry) * time.Microsecond
	}
	return g
}

// TakeAt takes up to cost tokens, and at least so many or none, of one rule whose state is at key: a name that only the gateway makes,
// in the slot of its tag. The rule is valid and 1 <= least <= cost; nothing of it is asked of an app. Errors: an outcome.
func (l *Limiter) TakeAt(ctx context.Context, id *acl.Identity, key string, rule Rule, cost, least int64) (Grant, error) {
	r, err := l.send(ctx, call{id: id, mode: take, cost: cost, least: least}, []string{key}, 1, []Rule{rule})
	if err != nil {
		return Grant{}, err
	}
	if len(r.rules) != 1 {
		return Grant{}, store.NewError(store.CodeBackendError, "").WithCause(errBadReply)
	}
	return r.rules[0].grant(r.granted), nil
}

// RefundAt gives tokens back that TakeAt took; more than were taken fill the rule and are lost.
func (l *Limiter) RefundAt(ctx context.Context, id *acl.Identity, key string, rule Rule, n int64) error {
	_, err := l.send(ctx, call{id: id, mode: refund, cost: n, least: n}, []string{key}, 1, []Rule{rule})
	return err
}

// Capacity is the most tokens of the valid rule that one take can have.
func (r *Rule) Capacity() int64 { return r.capacity(0) }

// One decides one rule in this process, by the same arithmetic. It must not be copied after its first use, nor used by several at once.
type One struct {
	exact exact
	state state
}

// Set gives it a valid rule. The state of before is read in its light; one of another id begins anew, and a window that becomes a bucket.
func (o *One) Set(rule Rule) {
	x := rule.exactly(0)
	if x.tag != o.exact.tag {
		o.state = state{}
	}
	o.exact = x
}

// Take is TakeAt at a time in us. Time may go back by some seconds, as that of Redis.
func (o *One) Take(now, cost, least int64) Grant {
	v := o.decide(now, take, cost, least)
	return v.rules[0].grant(v.granted)
}

// Peek says how it stands at a time in us.
func (o *One) Peek(now int64) Grant {
	v := o.decide(now, peek, 1, 1)
	return v.rules[0].grant(v.granted)
}

// Refund is RefundAt.
func (o *One) Refund(now, n int64) { o.decide(now, refund, n, n) }

func (o *One) decide(now int64, m mode, cost, least int64) verdict {
	states := []state{o.state}
	v := decide(now, m, cost, least, []exact{o.exact}, states)
	o.state = states[0]
	return v
}

// Encode spells a subject so that it can be part of a key's tag: it has no brace then, and different subjects have different spellings.
func Encode(subject string) string { return encode(subject) }
