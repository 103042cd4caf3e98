package store

import (
	"context"
	"errors"

	"github.com/slotgate/slotgate/acl"
)

// AddOptions describe a step of a counter.
type AddOptions struct {
	Delta     Number
	Expiry    Expiry  // of a counter that the step creates; ExpireIn or ExpireAt
	TTLAlways bool    // Expiry also moves the expiry of an existing counter
	Min, Max  *Number // a step that would leave them is refused; nil = unbounded
	Delivery
}

// plain says whether INCRBY alone does it.
func (o AddOptions) plain(app *acl.App) bool {
	return o.Delta.IsInteger() && o.Expiry.Mode == NoExpiry && o.Min == nil && o.Max == nil && !hasTTLPolicy(app)
}

// CounterAdd adds Delta to a counter, which starts at 0, and returns the new value, exact in 64 bits. A fractional step
// works on an absent or fractional counter and is not_a_number on a stored integer; a fractional counter stays one.
// Errors: not_a_number, out_of_range (overflow, Min, Max; nothing is written), wrong_type, the TTL errors, or an outcome.
func (s *Store) CounterAdd(ctx context.Context, id *acl.Identity, key string, o AddOptions) (Number, error) {
	r := rowIncrBy
	if !o.Delta.IsInteger() {
		r = rowIncrByFloat
	}
	if err := s.checkEdit(id, r, key, 0, o.Expiry); err != nil {
		return Number{}, err
	}
	if o.plain(id.App) && !o.keyed() { // a record needs the script, which gives the value as text
		a, err := s.do(ctx, id, o.Delivery, r, key, o.Delta.String())
		if err == nil {
			return Int(a.n), nil
		}
		var e *Error
		if !errors.As(err, &e) {
			return Number{}, notNone(err, true)
		}
		if e.Code != CodeNotANumber {
			return Number{}, err
		}
		// The stored value may be a fraction, which INCRBY refuses and the script adds to.
	}
	return s.addByScript(ctx, id, r, key, o)
}

func (s *Store) addByScript(ctx context.Context, id *acl.Identity, r *row, key string, o AddOptions) (Number, error) {
	kind, when := "i", "created"
	if !o.Delta.IsInteger() {
		kind = "f"
	}
	if o.TTLAlways {
		when = "always"
	}
	mode, ms := o.Expiry.script()
	reply, err := s.run(ctx, id, o.Delivery, r, scriptAdd, key,
		o.Delta.String(), kind, bound(o.Min), bound(o.Max), mode, ms, when, id.App.DefaultTTLMS, id.App.MaxTTLMS)
	if err != nil {
		return Number{}, err
	}
	switch reply.status() {
	case statusUnmet:
		return Number{}, NewError(CodeOutOfRange, "the counter would leave the range of min and max; it was not changed")
	case statusFraction:
		return Number{}, NewError(CodeNotANumber, "the stored value is an integer; a fraction can't be added to it")
	}
	if p := ttlProblem(reply.status(), id.App); p != nil {
		return Number{}, p
	}
	return storedNumber(reply.text(1))
}

func bound(n *Number) string {
	if n == nil {
		return ""
	}
	return n.String()
}

// CounterGet reads a counter. Errors: key_not_found, not_a_number, wrong_type.
func (s *Store) CounterGet(ctx context.Context, id *acl.Identity, key string, rd Reading) (Number, error) {
	v, err := s.Get(ctx, id, key, GetOptions{Reading: rd})
	if err != nil {
		return Number{}, err
	}
	return storedNumber(string(v.Data))
}

// CounterSet writes a counter; o.ReturnPrevious is implied where the previous value is a number, nil otherwise.
func (s *Store) CounterSet(ctx context.Context, id *acl.Identity, key string, n Number, o SetOptions) (previous *Number, res SetResult, err error) {
	o.ReturnPrevious = true
	res, err = s.Set(ctx, id, key, []byte(n.String()), o)
	if err != nil || res.Previous == nil {
		return nil, res, err
	}
	if old, e := storedNumber(string(res.Previous.Data)); e == nil {
		previous = &old
	}
	return previous, res, nil
}

// storedNumber reads what Redis holds for a counter.
func storedNumber(text string) (Number, error) {
	n, err := ParseNumber(text)
	if err != nil {
		return Number{}, NewError(CodeNotANumber, "the stored value is not a number")
	}
	return n, nil
}
