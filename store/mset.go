package store

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/slotgate/slotgate/acl"
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
	b := &batch{store: s, id: id, row: rowSet}
	var bad *Error
	if b.cluster, bad = s.clusters.get(id.App.Cluster); bad != nil {
		return 0, bad
	}
	key := func(i int) string { return items[i].Key }
	slots := slotsOf(id, len(items), key)
	sent := sentOnce(slots, key)
	var failed faults
	b.run(ctx, &job{sent.slots(slots), func(n int, it *item) {
		from := &items[sent.item(n)]
		it.key, it.value, it.expiry = from.Key, notNil(from.Data), from.Expiry.words(id.App)
	}, func(n int, from *item) { failed.add(sent.item(n), len(items), from.err) }})
	for i, last := range sent.others() {
		b.count(failed.of(last))
		failed.add(i, len(items), failed.of(last))
	}
	if failed.first == nil {
		return len(items), nil
	}
	return 0, incomplete(items, &failed)
}

// faults are the errors of the items that were not written, made when there is one. The zero value has none.
type faults struct {
	mu    sync.Mutex
	all   []*Error
	first *Error
}

// add notes the error of item i of n; nil = it was written.
func (f *faults) add(i, n int, err *Error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all, f.first = make([]*Error, n), err
	}
	f.all[i] = err
}

func (f *faults) of(i int) *Error {
	if f.all == nil {
		return nil
	}
	return f.all[i]
}

// notNil gives the empty value a form that differs from no value.
func notNil(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// incomplete is the error that lists every item.
func incomplete(items []SetItem, failed *faults) *Error {
	outcomes := make([]ItemOutcome, len(items))
	for i := range items {
		outcomes[i] = ItemOutcome{Key: items[i].Key, Outcome: Applied}
		if err := failed.of(i); err != nil {
			outcomes[i].Outcome = cmp.Or(err.Outcome, NotApplied)
		}
	}
	e := NewError(CodeBatchIncomplete, "not every item was written: sending the same mset again is safe and writes the rest")
	e.Items, e.RetryAfter = outcomes, retryAfter
	e.Outcome = e.together()
	return e.WithCause(failed.first)
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
