package store_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// counted is a Reserver with a limit; it gives nothing back, as a request does not before its end.
type counted struct {
	context.Context
	left, refused atomic.Int64
}

func (c *counted) Reserve(n int64) bool {
	if c.left.Add(-n) >= 0 {
		return true
	}
	c.left.Add(n)
	c.refused.Add(1)
	return false
}

func (c *counted) Value(key any) any {
	if key == store.ReserverKey() {
		return c
	}
	return c.Context.Value(key)
}

func TestAnswersCountAgainstTheGatewaysBytes(t *testing.T) {
	s := newStore(t, clustertest.Shared(t))
	id := newApp(t, func(a *acl.App) { a.CompressMinBytes = 0 })
	ctx := &counted{Context: testContext(t)}
	large := strings.Repeat("x", 100<<10)
	keys := []string{"a", "b", "c", "d"}
	for _, key := range keys {
		must[store.SetResult](t)(s.Set(ctx, id, key, []byte(large), store.SetOptions{}))
	}
	must[store.SetResult](t)(s.Set(ctx, id, "small", []byte("x"), store.SetOptions{}))

	t.Run("a small value needs nothing of them", func(t *testing.T) {
		must[store.Value](t)(s.Get(ctx, id, "small", store.GetOptions{}))
	})
	t.Run("a large one is overloaded when there are none", func(t *testing.T) {
		_, err := s.Get(ctx, id, "a", store.GetOptions{})
		if e := wantCode(t, err, store.CodeOverloaded); e.RetryAfter == 0 || e.Outcome != store.NoOutcome {
			t.Errorf("%+v", e)
		}
	})
	t.Run("and the answer of a write that was done says so", func(t *testing.T) {
		_, err := s.Get(ctx, id, "a", store.GetOptions{Expiry: in(60_000)})
		if e := wantCode(t, err, store.CodeOverloaded); e.Outcome != store.Applied {
			t.Errorf("%+v", e)
		}
	})
	t.Run("a batch loads what there is room for", func(t *testing.T) {
		ctx.left.Store(250 << 10)
		loaded := 0
		for _, it := range must[[]store.GetItem](t)(s.MGet(ctx, id, keys, store.Reading{})) {
			if it.Err == nil {
				loaded++
				continue
			}
			wantCode(t, it.Err, store.CodeOverloaded)
		}
		if loaded != 2 || ctx.refused.Load() == 0 {
			t.Errorf("%d values of 100 KiB were loaded with room for 250", loaded)
		}
	})
}
