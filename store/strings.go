package store

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
)

// Value is a string as its owner wrote it.
type Value struct {
	Data []byte
	// TTLMS is the remaining lifetime, if GetOptions.WithTTL asked for it: -1 = does not expire.
	TTLMS int64
}

// GetOptions change what a read does.
type GetOptions struct {
	Expiry  Expiry // ExpireIn or ExpireAt makes it a write (GETEX) that moves the expiry
	WithTTL bool   // fill Value.TTLMS
	Reading        // of no effect with an Expiry
}

// SetOptions change what a write does.
type SetOptions struct {
	Expiry         Expiry
	Cond           Condition
	ReturnPrevious bool
	Delivery
}

// SetResult is what a write did.
type SetResult struct {
	TTLMS    int64  // the lifetime it set, in milliseconds; 0 = none, or a kept one
	Previous *Value // with ReturnPrevious: nil if there was none
}

var errKeyNotFound = NewError(CodeKeyNotFound, "the key does not exist")

// decodeLimit is how large a decoded value may be: what may be written or what may be answered, whichever is more.
func decodeLimit(id *acl.Identity) int64 {
	return max(id.Sizes.ValueMaxBytes, id.Sizes.ResponseMaxBytes)
}

// loadLimit is how large a decoded value may be that a write looks at, and perhaps answers with.
func loadLimit(id *acl.Identity, answered bool) int64 {
	if answered {
		return id.Sizes.ResponseMaxBytes
	}
	return decodeLimit(id)
}

// Get reads the value of key. Errors: key_not_found, wrong_type, response_too_large (known before it is loaded),
// corrupt_value, ttl_too_long.
func (s *Store) Get(ctx context.Context, id *acl.Identity, key string, o GetOptions) (Value, error) {
	var stored []byte
	var err error
	from := newBudget(ctx, id.Sizes.ResponseMaxBytes)
	switch {
	case o.Expiry.Mode != NoExpiry:
		stored, err = s.getAndExpire(ctx, id, key, o.Expiry, from)
	case o.Replicas:
		stored, err = s.fetchFrom(ctx, id, o.Reading, rowGet, rowGet, from, key)
	default: // which fetchFrom would do as well, with its words on the heap
		stored, err = s.fetch(ctx, id, rowGet, from, key)
	}
	if err != nil {
		return Value{}, notFound(err)
	}
	v := Value{}
	if v.Data, err = decode(stored, from); err != nil {
		if o.Expiry.Mode != NoExpiry {
			err = withOutcome(err, Applied)
		}
		return Value{}, err
	}
	if o.WithTTL {
		if v.TTLMS, err = s.ttl(ctx, id, key, o); err != nil {
			return Value{}, err
		}
	}
	return v, nil
}

// getAndExpire is GETEX. The size is looked at first: a value that cannot be answered keeps its lifetime.
func (s *Store) getAndExpire(ctx context.Context, id *acl.Identity, key string, e Expiry, from *budget) ([]byte, error) {
	if err := rowGetEx.allow(id); err != nil {
		return nil, err
	}
	if err := e.check(id.App, s.now()); err != nil {
		return nil, err
	}
	size, err := s.lengthAs(ctx, id, rowGetEx, key)
	if err != nil {
		return nil, err
	}
	if size > from.limit {
		return nil, errTooLarge(size, from.limit)
	}
	return s.fetch(ctx, id, rowGetEx, from, append([]string{key}, e.words(id.App)...)...)
}

// ttl is the remaining lifetime of a key that was just read; the row is that of the read, which the caller may run.
func (s *Store) ttl(ctx context.Context, id *acl.Identity, key string, o GetOptions) (int64, error) {
	if o.Expiry.Mode != NoExpiry {
		return o.Expiry.remaining(id.App, s.now()), nil
	}
	if o.Replicas {
		return s.ttlFrom(ctx, id, key, o.Reading)
	}
	cl, err := s.send(ctx, id, rowPTTL, nil, key)
	if cl == nil {
		return 0, err
	}
	ms := cl.out.n
	cl.release()
	return max(ms, -1), notNone(err, false)
}

// decode opens a stored value whose bytes were taken from a budget; what it grows by is taken from it too. Errors:
// response_too_large, overloaded, corrupt_value.
func decode(stored []byte, from *budget) ([]byte, error) {
	if length, envelope := storedLength(stored, int64(len(stored))); envelope {
		switch from.take(length - int64(len(stored))) {
		case overCap:
			return nil, errTooLarge(length, from.limit)
		case overloaded:
			return nil, errOverloaded(false)
		case granted:
		}
	}
	data, err := decodeValue(stored, from.limit)
	if err != nil {
		return nil, err
	}
	return data, nil
}

func notFound(err error) error {
	if errors.Is(err, redis.Nil) {
		return errKeyNotFound
	}
	return err
}

// Set writes data under key. Errors: precondition_failed with the current ETag, value_too_large, ttl_required,
// ttl_too_long, wrong_type (only when the previous value is asked for or looked at), or an outcome.
func (s *Store) Set(ctx context.Context, id *acl.Identity, key string, data []byte, o SetOptions) (SetResult, error) {
	if err := s.checkWrite(id, rowSet, key, int64(len(data)), o.Expiry); err != nil {
		return SetResult{}, err
	}
	stored := encodeValue(data, id.CompressMinBytes)
	res := SetResult{TTLMS: o.Expiry.remaining(id.App, s.now())}
	var err error
	switch {
	case o.Cond.byValue() || o.ReturnPrevious:
		res, err = s.swap(ctx, id, key, stored, o, res.TTLMS)
	case o.keyed() || o.Expiry.Mode == KeepExpiry && hasTTLPolicy(id.App):
		d, reply := o.Delivery.keeping(keptInteger("", res.TTLMS)), scriptReply(nil)
		if reply, err = s.setByScript(ctx, id, d, rowSet, key, stored, o.Cond.script(), nil, o.Expiry); err == nil {
			res, err = s.setResult(id, d, reply, res)
		}
	default:
		err = s.setPlain(ctx, id, key, stored, o)
	}
	if errors.Is(err, errConditionUnmet) {
		err = s.unmet(ctx, id, key)
	}
	if err != nil {
		return SetResult{}, err
	}
	return res, nil
}

// errConditionUnmet says inside this package that Redis did not write because of the condition.
var errConditionUnmet = errors.New("store: condition not met")

// checkWrite is what every write of a value checks before anything is sent.
func (s *Store) checkWrite(id *acl.Identity, r *row, key string, size int64, e Expiry) error {
	if err := r.allow(id); err != nil {
		return err
	}
	if err := checkKey(id, key); err != nil {
		return err
	}
	if err := checkValue(id, size); err != nil {
		return err
	}
	if err := e.check(id.App, s.now()); err != nil {
		return err
	}
	return nil
}

// setPlain is one SET.
func (s *Store) setPlain(ctx context.Context, id *acl.Identity, key string, stored []byte, o SetOptions) error {
	words := append(make([]string, 0, maxWords), key, text(stored))
	words = append(words, o.Expiry.words(id.App)...)
	switch {
	case o.Cond.IfNoneMatch:
		words = append(words, "NX")
	case o.Cond.mustExist():
		words = append(words, "XX")
	}
	_, err := s.do(ctx, id, o.Delivery, rowSet, words...)
	if errors.Is(err, redis.Nil) {
		return errConditionUnmet
	}
	return err
}

// setByScript is SET with the conditions and policies that SET itself does not know, as a step of the operation whose row is as.
// expected goes with cond "cas".
func (s *Store) setByScript(ctx context.Context, id *acl.Identity, d Delivery, as *row, key string, stored []byte, cond string, expected []byte, e Expiry) (scriptReply, error) {
	mode, ms := e.script()
	reply, err := s.run(ctx, id, d, as, scriptSet, key,
		stored, cond, expected, mode, ms, id.App.DefaultTTLMS, id.App.MaxTTLMS)
	if err != nil {
		return nil, err
	}
	if reply.status() == statusUnmet {
		return nil, errConditionUnmet
	}
	if p := ttlProblem(reply.status(), id.App); p != nil {
		return nil, p
	}
	return reply, nil
}

// swap writes only over the value that it has read: it compares the decoded value with the condition here, and the
// script writes only if the stored bytes are still the ones read; otherwise it reads again.
func (s *Store) swap(ctx context.Context, id *acl.Identity, key string, stored []byte, o SetOptions, ttl int64) (SetResult, error) {
	res, err := s.trySwap(ctx, id, key, stored, o, ttl)
	if reply, e := s.earlier(ctx, id, o.Delivery, rowSet, key, err); reply != nil {
		return s.setResult(id, o.Delivery, reply, res)
	} else if e != nil {
		return SetResult{}, e
	}
	return res, nil
}

func (s *Store) trySwap(ctx context.Context, id *acl.Identity, key string, stored []byte, o SetOptions, ttl int64) (SetResult, error) {
	from := newBudget(ctx, loadLimit(id, o.ReturnPrevious))
	for {
		old, err := s.readForSwap(ctx, id, rowSet, key, from)
		if err != nil {
			return SetResult{}, err
		}
		if err := old.holds(id, o.Cond); err != nil {
			return SetResult{}, err
		}
		cond := "cas"
		if old == nil {
			cond = "nx"
		}
		d := o.Delivery
		if d.keyed() {
			if d.kept = keptInteger("", ttl); o.ReturnPrevious {
				if d.kept, err = keptValue(d.kept, old); err != nil {
					return SetResult{}, err
				}
			}
		}
		reply, err := s.setByScript(ctx, id, d, rowSet, key, stored, cond, old.bytes(), o.Expiry)
		if err == nil {
			return s.setResult(id, d, reply, SetResult{TTLMS: ttl, Previous: old.value()})
		}
		if !errors.Is(err, errConditionUnmet) {
			return SetResult{}, err
		}
		if err := raced(ctx); err != nil {
			return SetResult{}, err
		}
	}
}

// held is a value with the bytes that Redis stores for it; nil = the key does not exist.
type held struct{ stored, data []byte }

func (h *held) bytes() []byte {
	if h == nil {
		return nil
	}
	return h.stored
}

func (h *held) value() *Value {
	if h == nil {
		return nil
	}
	return &Value{Data: h.data}
}

// holds is nil if the condition is met by the value. The error tells the ETag, which for a short value is as good as the
// value itself, only to a caller who may read.
func (h *held) holds(id *acl.Identity, c Condition) error {
	switch {
	case h == nil && len(c.IfMatch) > 0:
		return errUnmet("")
	case h != nil && (c.IfNoneMatch || c.byValue() && !c.matches(ETag(h.data))):
		if rowGet.allow(id) != nil {
			return errUnmetUnseen()
		}
		return errUnmet(ETag(h.data))
	}
	return nil
}

// readForSwap reads a value on behalf of a write that the caller may do; reading is not a permission of its own here.
// What the last reading took of the budget is given back.
func (s *Store) readForSwap(ctx context.Context, id *acl.Identity, as *row, key string, from *budget) (*held, error) {
	from.clear()
	stored, err := s.fetchAs(ctx, id, as, rowGet, from, key)
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := decode(stored, from)
	if err != nil {
		return nil, withOutcome(err, NotApplied)
	}
	return &held{stored: stored, data: data}, nil
}

// raced is called when another writer came between; it ends the loop at the deadline.
func raced(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &Error{Code: CodeBackendTimeout, Detail: "other writers changed the key again and again until the deadline", Outcome: NotApplied, cause: err}
	}
	return nil
}

// unmet is the answer to a condition that Redis found unmet: 412 with the current ETag, as far as the caller may read.
func (s *Store) unmet(ctx context.Context, id *acl.Identity, key string) error {
	if v, err := s.Get(ctx, id, key, GetOptions{}); err == nil {
		return errUnmet(ETag(v.Data))
	} else if errors.Is(err, errKeyNotFound) {
		return errUnmet("")
	}
	return errUnmetUnseen()
}

// DeleteOptions change what a delete does.
type DeleteOptions struct {
	Cond        Condition
	ReturnValue bool // give back what was removed; strings only
	Delivery
}

// Delete removes a key of any type; with a condition by value, or when its value is asked for, a string only.
// Errors: key_not_found, precondition_failed, wrong_type, or an outcome.
func (s *Store) Delete(ctx context.Context, id *acl.Identity, key string, o DeleteOptions) (*Value, error) {
	if err := rowUnlink.allow(id); err != nil {
		return nil, err
	}
	if o.Cond.byValue() || o.ReturnValue {
		return s.deleteValue(ctx, id, key, o)
	}
	removed, err := s.unlink(ctx, id, key, o.Delivery)
	switch {
	case err != nil || removed:
		return nil, err
	case o.Cond.mustExist():
		return nil, errUnmet("")
	}
	return nil, errKeyNotFound
}

// unlink is one UNLINK; a record needs the script.
func (s *Store) unlink(ctx context.Context, id *acl.Identity, key string, d Delivery) (removed bool, err error) {
	if d.keyed() {
		reply, err := s.run(ctx, id, d, rowUnlink, scriptDelete, key)
		return reply.status() == statusDone, err
	}
	a, err := s.do(ctx, id, d, rowUnlink, key)
	return a.n > 0, err
}

// deleteValue removes exactly the value that it has read, so that what it returns is what was removed.
func (s *Store) deleteValue(ctx context.Context, id *acl.Identity, key string, o DeleteOptions) (*Value, error) {
	if o.ReturnValue {
		if err := rowGetDel.allow(id); err != nil {
			return nil, err
		}
	}
	v, err := s.tryDeleteValue(ctx, id, key, o)
	if reply, e := s.earlier(ctx, id, o.Delivery, rowUnlink, key, err); reply != nil {
		return keptPrevious(id, reply, 1)
	} else if e != nil {
		return nil, e
	}
	return v, nil
}

func (s *Store) tryDeleteValue(ctx context.Context, id *acl.Identity, key string, o DeleteOptions) (*Value, error) {
	from := newBudget(ctx, loadLimit(id, o.ReturnValue))
	for {
		old, err := s.readForSwap(ctx, id, rowUnlink, key, from)
		if err != nil {
			return nil, err
		}
		if err := old.holds(id, o.Cond); err != nil {
			return nil, err
		}
		if old == nil {
			return nil, errKeyNotFound
		}
		d := o.Delivery
		if d.keyed() && o.ReturnValue {
			if d.kept, err = keptValue("", old); err != nil {
				return nil, err
			}
		}
		reply, err := s.run(ctx, id, d, rowUnlink, scriptDelete, key, old.stored)
		if err != nil {
			return nil, err
		}
		if reply.status() == statusDone && d.keyed() {
			return keptPrevious(id, reply, 1)
		}
		if reply.status() == statusDone {
			return old.value(), nil
		}
		if err := raced(ctx); err != nil {
			return nil, err
		}
	}
}
