package store

import (
	"context"
	"errors"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/slot"
)

// GetItem is the answer for one key of MGet.
type GetItem struct {
	Found bool
	Data  []byte
	Err   *Error // nil = Found and Data are true
}

// MGet reads many strings, in any slots, and answers in the order of keys, every duplicate too. A key that fails has
// its own error; the others are not harmed. All values together are no larger than the app's response limit: a value
// that would pass it is response_too_large. The values are of different moments. Errors: forbidden, invalid_key.
func (s *Store) MGet(ctx context.Context, id *acl.Identity, keys []string, rd Reading) ([]GetItem, error) {
	b, slots, err := s.newBatch(id, rowGet, keys)
	if err != nil {
		return nil, err
	}
	b.budget = newBudget(ctx, id.Sizes.ResponseMaxBytes)
	b.cluster.replies.Allow(b.budget.limit)
	answers := make([]GetItem, len(keys))
	b.runFrom(ctx, rd, &job{slots, func(i int, it *item) { it.key = keys[i] }, func(i int, from *item) {
		if answers[i] = from.got; from.err != nil {
			answers[i] = GetItem{Err: from.err}
		}
	}})
	return answers, nil
}

// read decodes what the items have received.
func (b *batch) read(items []int) {
	if b.budget == nil {
		return
	}
	for _, i := range items {
		if it := &b.items[i]; it.err == nil && it.call != nil {
			it.got = b.answer(&it.call.out)
		}
	}
}

// answer decodes a value; what it grows by also counts against the budget.
func (b *batch) answer(out *reply) GetItem {
	if out.grant != granted {
		return GetItem{Err: refusedItem(out.grant)}
	}
	if !out.found {
		return GetItem{}
	}
	data, err := decode(out.data, b.budget)
	if err == nil {
		return GetItem{Found: true, Data: data}
	}
	b.budget.give(out.size) // what is not answered makes room for the others
	out.data = nil
	var e *Error
	if errors.As(err, &e) && e.Code == CodeResponseTooLarge {
		e = refusedItem(overCap)
	}
	return GetItem{Err: e}
}

// refusedItem is the problem of a value that was not kept.
func refusedItem(g grant) *Error {
	if g == overloaded {
		return errOverloaded(false)
	}
	return NewError(CodeResponseTooLarge,
		"the answer would pass the app's response limit with this value: ask for fewer keys, or for this one alone")
}

// FlagItem is the answer for one key of MDelete and MExists.
type FlagItem struct {
	Flag bool   // deleted, or exists
	Err  *Error // nil = Flag is true
}

// MDelete removes many keys of any type. A key named twice is removed once: the first is answered as deleted, the
// others as not. Errors: forbidden, invalid_key.
func (s *Store) MDelete(ctx context.Context, id *acl.Identity, keys []string) ([]FlagItem, error) {
	b, slots, err := s.newBatch(id, rowUnlink, keys)
	if err != nil {
		return nil, err
	}
	answers := make([]FlagItem, len(keys))
	sent := sentOnce(slots, func(i int) string { return keys[i] })
	b.run(ctx, &job{sent.slots(slots), func(n int, it *item) { it.key = keys[sent.item(n)] }, func(n int, from *item) {
		answers[sent.item(n)] = flag(from)
	}})
	for i, last := range sent.others() {
		b.count(answers[last].Err)
		answers[i] = answers[last]
		answers[last].Flag = false // the first was deleted, the others found nothing
	}
	return answers, nil
}

// flag is the answer of an item.
func flag(from *item) FlagItem { return FlagItem{Flag: from.err == nil && from.n > 0, Err: from.err} }

// MExists says which of many keys exist, every duplicate too. Errors: forbidden, invalid_key.
func (s *Store) MExists(ctx context.Context, id *acl.Identity, keys []string, rd Reading) ([]FlagItem, error) {
	b, slots, err := s.newBatch(id, rowExists, keys)
	if err != nil {
		return nil, err
	}
	answers := make([]FlagItem, len(keys))
	b.runFrom(ctx, rd, &job{slots, func(i int, it *item) { it.key = keys[i] }, func(i int, from *item) { answers[i] = flag(from) }})
	return answers, nil
}

func checkKeys(id *acl.Identity, keys []string) *Error {
	for i, key := range keys {
		if err := checkKey(id, key); err != nil {
			return atItem(err, "/keys", i, "")
		}
	}
	return nil
}

// newBatch checks the permission once and every key before anything is sent, and finds the slots.
func (s *Store) newBatch(id *acl.Identity, r *row, keys []string) (*batch, []uint16, error) {
	if err := r.allow(id); err != nil {
		return nil, nil, err
	}
	if len(keys) == 0 {
		return nil, nil, Invalid("/keys", "no keys; name at least one")
	}
	if err := checkKeys(id, keys); err != nil {
		return nil, nil, err
	}
	b := &batch{store: s, id: id, row: r}
	var err *Error
	if b.cluster, err = s.clusters.get(id.App.Cluster); err != nil {
		return nil, nil, err
	}
	return b, slotsOf(id, len(keys), func(i int) string { return keys[i] }), nil
}

// slotsOf are the slots of n keys of the caller's.
func slotsOf(id *acl.Identity, n int, key func(i int) string) []uint16 {
	slots := make([]uint16, n)
	var stored []byte
	for i := range slots {
		stored = append(append(stored[:0], id.Prefix...), key(i)...)
		slots[i] = uint16(slot.Of(stored))
	}
	return slots
}
