package store

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/slot"
)

// SetItem is one key of MSet.
type SetItem struct {
	Key    string
	Data   []byte
	Expiry Expiry // none, ExpireIn or ExpireAt
}

// MSet writes many strings, in any slots: all, or an error that names the outcome of each item in request order. It is
// not atomic: others can see some written before the rest. Of a key named twice the last value wins; the earlier one
// is not sent and shares its outcome. Errors: batch_incomplete; before anything is sent those of one bad item, with its
// pointer; forbidden.
func (s *Store) MSet(ctx context.Context, id *acl.Identity, items []SetItem) (written int, err error) {
	if err := rowSet.allow(id); err != nil {
		return 0, err
	}
	if len(items) == 0 {
		return 0, Invalid("/items", "no items; give at least one")
	}
	now := s.now()
	for i := range items {
		if err := s.checkItem(id, &items[i], i, now); err != nil {
			return 0, err
		}
	}
	b := &batch{store: s, id: id, row: rowSet, items: newItems(len(items))}
	var bad *Error
	if b.cluster, bad = s.clusters.get(id.App.Cluster); bad != nil {
		return 0, bad
	}
	var stored []byte
	for i := range items {
		it := &items[i]
		stored = append(append(stored[:0], id.Prefix...), it.Key...)
		to := &b.items[i]
		to.key, to.slot, to.value, to.expiry = it.Key, slot.Of(stored), notNil(it.Data), it.Expiry.words(id.App)
	}
	b.markTwins()
	b.run(ctx)
	defer b.release()
	return b.written()
}

// markTwins finds keys that are named again later: only the last of each is sent. Equal keys have equal slots, so most
// batches need no more than a bit for each slot to see that there are none.
func (b *batch) markTwins() {
	var seen [slot.Count / 64]uint64
	shared := false
	for i := range b.items {
		n := b.items[i].slot
		shared = shared || seen[n/64]&(1<<(n%64)) != 0
		seen[n/64] |= 1 << (n % 64)
	}
	if !shared {
		return
	}
	last := make(map[string]int, len(b.items))
	for i := len(b.items) - 1; i >= 0; i-- {
		if j, ok := last[b.items[i].key]; ok {
			b.items[i].twin = j
		} else {
			last[b.items[i].key] = i
		}
	}
}

// notNil gives the empty value a form that differs from no value.
func notNil(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// written counts, or makes the error that lists every item.
func (b *batch) written() (int, error) {
	var cause *Error
	for i := range b.items {
		if cause = b.items[i].err; cause != nil {
			break
		}
	}
	if cause == nil {
		return len(b.items), nil
	}
	outcomes := make([]ItemOutcome, len(b.items))
	for i := range b.items {
		it := &b.items[i]
		if it.twin > 0 {
			it = &b.items[it.twin]
		}
		outcomes[i] = ItemOutcome{Key: it.key, Outcome: Applied}
		if it.err != nil {
			outcomes[i].Outcome = cmp.Or(it.err.Outcome, NotApplied)
		}
	}
	e := NewError(CodeBatchIncomplete, "not every item was written: sending the same mset again is safe and writes the rest")
	e.Items, e.RetryAfter = outcomes, retryAfter
	e.Outcome = e.together()
	return 0, e.WithCause(cause)
}

// together is the outcome of a batch as a whole: unknown if any item is, or if some were applied and some were not.
func (e *Error) together() Outcome {
	all := e.Items[0].Outcome
	for _, it := range e.Items {
		if it.Outcome != all {
			return Unknown
		}
	}
	return all
}

// checkItem validates one item before any is written.
func (s *Store) checkItem(id *acl.Identity, it *SetItem, i int, now time.Time) error {
	if err := checkKey(id, it.Key); err != nil {
		return atItem(err, "/items", i, "/key")
	}
	if err := checkValue(id, int64(len(it.Data))); err != nil {
		return atItem(err, "/items", i, "/value")
	}
	if it.Expiry.Mode == KeepExpiry {
		return Invalid("/items/"+strconv.Itoa(i), "keep_ttl is not for batches")
	}
	if err := it.Expiry.check(id.App, now); err != nil {
		return atItem(err, "/items", i, "/ttl_ms")
	}
	return nil
}

// atItem points the error at an item of a batch.
func atItem(e *Error, list string, i int, member string) *Error {
	for f := range e.Fields {
		e.Fields[f].Pointer = list + "/" + strconv.Itoa(i) + member
	}
	return e
}
