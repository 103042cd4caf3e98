package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slotgate/slotgate/acl"
)

// AppendOptions say what an append does when it creates the key.
type AppendOptions struct {
	Expiry Expiry // applies to a new key only; the app's default stands in for none
	Delivery
}

// Append adds data to the end of a string, which it creates if there is none, and returns the new length of the decoded
// value. A compressed value is stored plain from then on. Errors: value_too_large for the whole, wrong_type, the TTL
// errors, or an outcome.
func (s *Store) Append(ctx context.Context, id *acl.Identity, key string, data []byte, o AppendOptions) (int64, error) {
	if err := s.checkEdit(id, rowAppend, key, int64(len(data)), o.Expiry); err != nil {
		return 0, err
	}
	mode, ms := o.Expiry.script()
	return s.edit(ctx, id, rowAppend, key, edit{
		delivery: o.Delivery,
		script:   scriptAppend,
		argv:     []any{data, envelopeMagic, id.Sizes.ValueMaxBytes, mode, ms, id.App.DefaultTTLMS, id.App.MaxTTLMS},
		expiry:   o.Expiry,
		apply:    func(old []byte) []byte { return slices.Concat(old, data) },
	})
}

// SetRange overwrites data at offset, padding with zero bytes, and returns the new length of the decoded value. With no
// data it changes nothing and creates nothing. Errors: as Append.
func (s *Store) SetRange(ctx context.Context, id *acl.Identity, key string, offset int64, data []byte, d Delivery) (int64, error) {
	if offset < 0 {
		return 0, Invalid("/offset", "the offset is negative; it must be 0 or more")
	}
	limit := id.Sizes.ValueMaxBytes
	if offset > limit || offset+int64(len(data)) > limit {
		return 0, fieldError(CodeValueTooLarge, "/offset", fmt.Sprintf("the value would end behind %d bytes, the app's limit", limit))
	}
	if err := s.checkEdit(id, rowSetRange, key, int64(len(data)), Expiry{}); err != nil {
		return 0, err
	}
	if len(data) == 0 {
		length, err := s.lengthAs(ctx, id, rowSetRange, key)
		if errors.Is(err, errKeyNotFound) {
			return 0, nil
		}
		return length, err
	}
	return s.edit(ctx, id, rowSetRange, key, edit{
		delivery: d,
		script:   scriptSetRange,
		argv:     []any{data, envelopeMagic, offset, id.App.DefaultTTLMS, id.App.MaxTTLMS},
		apply: func(old []byte) []byte {
			value := make([]byte, max(int64(len(old)), offset+int64(len(data))))
			copy(value, old)
			copy(value[offset:], data)
			return value
		},
	})
}

// checkEdit is checkWrite without the demand for a TTL, which an existing key may have already: the script decides.
func (s *Store) checkEdit(id *acl.Identity, r *row, key string, size int64, e Expiry) error {
	if e.Mode == NoExpiry {
		e.Mode = KeepExpiry
	}
	return s.checkWrite(id, r, key, size, e)
}

// edit is a change in place: by the script where the stored value is plain, by rewriting it where it is an envelope or
// would begin to look like one.
type edit struct {
	delivery Delivery
	script   script
	argv     []any
	expiry   Expiry // of a key that the edit creates
	apply    func(old []byte) []byte
}

func (s *Store) edit(ctx context.Context, id *acl.Identity, r *row, key string, e edit) (int64, error) {
	reply, err := s.run(ctx, id, e.delivery, r, e.script, key, e.argv...)
	if err != nil {
		return 0, err
	}
	switch reply.status() {
	case statusRewrite:
		length, err := s.rewrite(ctx, id, key, r, e)
		if reply, err = s.earlier(ctx, id, e.delivery, r, key, err); reply != nil {
			return reply.integer(1), nil
		}
		return length, err
	case statusTooLarge:
		return 0, checkValue(id, reply.integer(1))
	}
	if p := ttlProblem(reply.status(), id.App); p != nil {
		return 0, p
	}
	return reply.integer(1), nil
}

// rewrite decodes the value, changes it and stores it raw, if meanwhile nobody else changed it.
func (s *Store) rewrite(ctx context.Context, id *acl.Identity, key string, r *row, e edit) (int64, error) {
	from := newBudget(ctx, decodeLimit(id))
	for {
		old, err := s.readForSwap(ctx, id, r, key, from)
		if err != nil {
			return 0, err
		}
		cond, expiry := "cas", Expiry{Mode: KeepExpiry}
		var data []byte
		if old == nil {
			cond, expiry = "nx", e.expiry
		} else {
			data = old.data
		}
		value := e.apply(data)
		if err := checkValue(id, int64(len(value))); err != nil {
			return 0, err
		}
		d := e.delivery.keeping(keptInteger("", int64(len(value))))
		reply, err := s.setByScript(ctx, id, d, r, key, encodeRaw(value), cond, old.bytes(), expiry)
		if err == nil && d.keyed() {
			return reply.integer(1), nil
		}
		if !errors.Is(err, errConditionUnmet) {
			return int64(len(value)), err
		}
		if err := raced(ctx); err != nil {
			return 0, err
		}
	}
}

// Range is a part of a value, and how long the whole is.
type Range struct {
	Data   []byte
	Length int64 // of the whole decoded value
}

// GetRange reads the bytes start to end, both inclusive; negative ones count from the end, as in Redis' GETRANGE. Only
// that part of a plain value is loaded. Errors: key_not_found, wrong_type, response_too_large, corrupt_value.
func (s *Store) GetRange(ctx context.Context, id *acl.Identity, key string, start, end int64, rd Reading) (Range, error) {
	if err := rowGetRange.allow(id); err != nil {
		return Range{}, err
	}
	limit := id.Sizes.ResponseMaxBytes
	reply, err := s.runFrom(ctx, id, rd, rowGetRange, scriptRange, isUnmet, key, start, end, limit, envelopeProbeSize)
	if err != nil {
		return Range{}, err
	}
	if reply.status() == statusUnmet {
		return Range{}, errKeyNotFound
	}
	from := newBudget(ctx, decodeLimit(id))
	if _, envelope := storedLength([]byte(reply.text(2)), reply.integer(1)); envelope {
		return s.envelopeRange(ctx, id, key, start, end, from, rd)
	}
	if reply.status() == rangeOverCap {
		return Range{}, errTooLarge(reply.integer(1), limit)
	}
	r := Range{Data: []byte(reply.text(3)), Length: reply.integer(1)}
	if from.take(int64(len(r.Data))) == overloaded {
		return Range{}, errOverloaded(false)
	}
	return r, nil
}

// isUnmet says whether a reply means that there is no such key.
func isUnmet(reply scriptReply) bool { return reply.status() == statusUnmet }

// rangeOverCap is the status of the range script for a part that was not loaded.
const rangeOverCap = 2

// envelopeRange is GetRange of a value that must be decoded first.
func (s *Store) envelopeRange(ctx context.Context, id *acl.Identity, key string, start, end int64, from *budget, rd Reading) (Range, error) {
	stored, err := s.fetchFrom(ctx, id, rd, rowGetRange, rowGet, from, key)
	if err != nil {
		return Range{}, notFound(err)
	}
	data, err := decode(stored, from)
	if err != nil {
		return Range{}, err
	}
	r := Range{Data: part(data, start, end), Length: int64(len(data))}
	if limit := id.Sizes.ResponseMaxBytes; int64(len(r.Data)) > limit {
		return Range{}, errTooLarge(r.Length, limit)
	}
	return r, nil
}

// Length is the size of the decoded value in bytes; the value is not loaded. Errors: key_not_found, wrong_type.
func (s *Store) Length(ctx context.Context, id *acl.Identity, key string, rd Reading) (int64, error) {
	return s.lengthFrom(ctx, id, rd, rowStrlen, key)
}

// lengthAs is Length as a step of the operation whose row is as.
func (s *Store) lengthAs(ctx context.Context, id *acl.Identity, as *row, key string) (int64, error) {
	return s.lengthFrom(ctx, id, Reading{}, as, key)
}

func (s *Store) lengthFrom(ctx context.Context, id *acl.Identity, rd Reading, as *row, key string) (int64, error) {
	if err := as.allow(id); err != nil {
		return 0, err
	}
	reply, err := s.runFrom(ctx, id, rd, rowStrlen, scriptRange, isUnmet, key, 1, 0, 0, envelopeProbeSize)
	if as.writes() {
		err = withOutcome(err, NotApplied)
	}
	if err != nil {
		return 0, err
	}
	if reply.status() == statusUnmet {
		return 0, errKeyNotFound
	}
	length, _ := storedLength([]byte(reply.text(2)), reply.integer(1))
	return length, nil
}

// part is GETRANGE on a value in memory.
func part(data []byte, start, end int64) []byte {
	n := int64(len(data))
	if start < 0 {
		start = max(start+n, 0)
	}
	if end < 0 {
		end += n
	}
	if end = min(end, n-1); start > end {
		return nil
	}
	return data[start : end+1]
}
