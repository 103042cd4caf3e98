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
func (s *Store) MGet(ctx context.Context, id *acl.Identity, keys []string) ([]GetItem, error) {
	b, err := s.newBatch(id, rowGet, keys)
	if err != nil {
		return nil, err
	}
	b.budget = newBudget(ctx, id.Sizes.ResponseMaxBytes)
	b.cluster.replies.Allow(b.budget.limit)
	b.run(ctx)
	defer b.release()
	answers := make([]GetItem, len(keys))
	for i := range b.items {
		if answers[i] = b.items[i].got; b.items[i].err != nil {
			answers[i] = GetItem{Err: b.items[i].err}
		}
	}
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
	b, err := s.newBatch(id, rowUnlink, keys)
	if err != nil {
		return nil, err
	}
	b.markTwins()
	b.run(ctx)
	defer b.release()
	answers := make([]FlagItem, len(keys))
	told := map[int]int{} // the item that was sent -> the first of its twins
	for i := range b.items {
		if t := b.items[i].twin; t > 0 {
			if _, ok := told[t]; !ok {
				told[t] = i
			}
		}
	}
	for i := range b.items {
		sent := i
		if t := b.items[i].twin; t > 0 {
			sent = t
		}
		first, twins := told[sent]
		answers[i] = b.flag(sent)
		answers[i].Flag = answers[i].Flag && (!twins || first == i)
	}
	return answers, nil
}

// flag is the answer of an item.
func (b *batch) flag(i int) FlagItem {
	return FlagItem{Flag: b.items[i].err == nil && b.items[i].n > 0, Err: b.items[i].err}
}

// MExists says which of many keys exist, every duplicate too. Errors: forbidden, invalid_key.
func (s *Store) MExists(ctx context.Context, id *acl.Identity, keys []string) ([]FlagItem, error) {
	b, err := s.newBatch(id, rowExists, keys)
	if err != nil {
		return nil, err
	}
	b.run(ctx)
	defer b.release()
	answers := make([]FlagItem, len(keys))
	for i := range answers {
		answers[i] = b.flag(i)
	}
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

// newBatch checks the permission once and every key before anything is sent.
func (s *Store) newBatch(id *acl.Identity, r *row, keys []string) (*batch, error) {
	if err := r.allow(id); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, Invalid("/keys", "no keys; name at least one")
	}
	if err := checkKeys(id, keys); err != nil {
		return nil, err
	}
	b := &batch{store: s, id: id, row: r, items: newItems(len(keys))}
	var stored []byte
	for i, key := range keys {
		stored = append(append(stored[:0], id.Prefix...), key...)
		b.items[i].key, b.items[i].slot = key, slot.Of(stored)
	}
	var err *Error
	if b.cluster, err = s.clusters.get(id.App.Cluster); err != nil {
		return nil, err
	}
	return b, nil
}
