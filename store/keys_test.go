package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/slot"
)

func TestKeyInfo(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw, ctx := newStore(t, c), foreign(t, c), testContext(t)
	id := newApp(t)
	raw.HSet(ctx, id.Prefix+"a{tag}b", "f", "v")
	raw.PExpire(ctx, id.Prefix+"a{tag}b", time.Minute)
	info := must[store.KeyInfo](t)(s.KeyInfo(ctx, id, "a{tag}b", true, store.Reading{}))
	if info.Type != "hash" || info.Encoding == "" || info.TTLMS <= 0 || info.MemoryBytes <= 0 || info.HashTag != "tag" || info.Slot != slot.Of("tag") {
		t.Errorf("%+v", info)
	}
	raw.Set(ctx, id.Prefix+"s", "v", 0)
	if info := must[store.KeyInfo](t)(s.KeyInfo(ctx, id, "s", false, store.Reading{})); info.TTLMS != -1 || info.HashTag != "" || info.MemoryBytes != 0 {
		t.Errorf("%+v", info)
	}
	_, err := s.KeyInfo(ctx, id, "absent", true, store.Reading{})
	wantCode(t, err, store.CodeKeyNotFound)
}

func TestExpireAndPersist(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw, ctx := newStore(t, c), foreign(t, c), testContext(t)
	id := newApp(t)
	raw.Set(ctx, id.Prefix+"k", "v", 0)
	for _, step := range []struct {
		name, when string
		e          store.Expiry
		applied    bool
		atMost     int64
	}{
		{"xx does nothing where there is none", "xx", in(1000_000), false, -1},
		{"nx sets it", "nx", in(100_000), true, 100_000},
		{"nx does nothing where there is one", "nx", in(500_000), false, 100_000},
		{"lt shortens", "lt", in(50_000), true, 50_000},
		{"lt does not lengthen", "lt", in(70_000), false, 50_000},
		{"gt lengthens", "gt", in(90_000), true, 90_000},
		{"an instant sets it", "", store.Expiry{Mode: store.ExpireAt, Millis: time.Now().Add(time.Minute).UnixMilli()}, true, 60_000},
	} {
		applied, ttl, err := s.Expire(ctx, id, "k", step.e, step.when, store.Delivery{})
		if err != nil || applied != step.applied || ttl > step.atMost || step.atMost > 0 && ttl < step.atMost-20_000 {
			t.Errorf("%s: applied %v, ttl %d, %v", step.name, applied, ttl, err)
		}
	}
	if err := s.Persist(ctx, id, "k", store.Delivery{}); err != nil || raw.PTTL(ctx, id.Prefix+"k").Val() != -1 {
		t.Error(err)
	}
	if err := s.Persist(ctx, id, "k", store.Delivery{}); err != nil {
		t.Errorf("without an expiry there is nothing to remove, and that is fine: %v", err)
	}
	wantCode(t, s.Persist(ctx, id, "absent", store.Delivery{}), store.CodeKeyNotFound)
	_, _, err := s.Expire(ctx, id, "absent", in(5), "", store.Delivery{})
	wantCode(t, err, store.CodeKeyNotFound)
	_, _, err = s.Expire(ctx, id, "k", in(5), "later", store.Delivery{})
	wantCode(t, err, store.CodeValidationFailed)
}

// listAll pages through a listing.
func listAll(t testing.TB, s *store.Store, id *acl.Identity, o store.ListOptions) []string {
	t.Helper()
	ctx := testContext(t)
	var keys []string
	for range 10_000 {
		p, err := s.List(ctx, id, o)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, p.Keys...)
		if o.Cursor = p.NextCursor; o.Cursor == "" {
			slices.Sort(keys)
			return slices.Compact(keys)
		}
	}
	t.Fatal("the listing does not end")
	return nil
}

func TestListingsShowOnlyOnesOwn(t *testing.T) {
	c := clustertest.Shared(t)
	s, ctx := newStore(t, c), testContext(t)
	raw := foreign(t, c)
	spread, other := newApp(t), newApp(t)
	together := newApp(t, func(a *acl.App) { a.Layout = acl.Together })
	var want []string
	for i := range 300 {
		key := fmt.Sprintf("k*[%d]?\\{%d}", i, i%7)
		want = append(want, key)
		for _, id := range []*acl.Identity{spread, other, together} {
			must[store.SetResult](t)(s.Set(ctx, id, key, []byte(id.Prefix), store.SetOptions{}))
		}
	}
	raw.RPush(ctx, spread.Prefix+"a list", "x")
	raw.Set(ctx, spread.Prefix+"kx[1", "a key that the prefix k*[1 would find if it were a pattern", 0)
	slices.Sort(want)
	for _, id := range []*acl.Identity{other, together} {
		for _, limit := range []int{1, 10, 1000} {
			if got := listAll(t, s, id, store.ListOptions{Limit: limit}); !slices.Equal(got, want) {
				t.Errorf("%s by %d: %d keys, want %d", id.Prefix, limit, len(got), len(want))
			}
		}
	}
	if got := listAll(t, s, spread, store.ListOptions{Limit: 100, Prefix: "k*[1"}); len(got) != 111 {
		t.Errorf("%d keys have the literal prefix, want 111", len(got))
	}
	if got := listAll(t, s, spread, store.ListOptions{Limit: 100, Type: "list"}); !slices.Equal(got, []string{"a list"}) {
		t.Errorf("%q", got)
	}
	for _, id := range []*acl.Identity{spread, other, together} {
		if v := must[store.Value](t)(s.Get(ctx, id, want[0], store.GetOptions{})); string(v.Data) != id.Prefix {
			t.Errorf("%s reads the value of %s", id.Prefix, v.Data)
		}
	}
}

func TestCursors(t *testing.T) {
	c := clustertest.Shared(t)
	s, ctx := newStore(t, c), testContext(t)
	id, other := newApp(t), newApp(t)
	for i := range 100 {
		must[store.SetResult](t)(s.Set(ctx, id, fmt.Sprint(i), nil, store.SetOptions{}))
	}
	page := must[store.Page](t)(s.List(ctx, id, store.ListOptions{Limit: 5}))
	if page.NextCursor == "" {
		t.Fatal("100 keys fit a page of 5")
	}
	refused := func(name string, id *acl.Identity, o store.ListOptions) {
		t.Run(name, func(t *testing.T) {
			o.Limit = 5
			_, err := s.List(ctx, id, o)
			wantCode(t, err, store.CodeInvalidRequest)
		})
	}
	refused("a cursor of another app", other, store.ListOptions{Cursor: page.NextCursor})
	refused("a cursor with another prefix", id, store.ListOptions{Cursor: page.NextCursor, Prefix: "x"})
	refused("a cursor with another type", id, store.ListOptions{Cursor: page.NextCursor, Type: "string"})
	refused("a changed cursor", id, store.ListOptions{Cursor: "B" + page.NextCursor[1:]})
	refused("a shortened cursor", id, store.ListOptions{Cursor: page.NextCursor[:10]})
	refused("nonsense", id, store.ListOptions{Cursor: "%%%"})
	t.Run("a cursor works at another gateway", func(t *testing.T) {
		must[store.Page](t)(newStore(t, c).List(ctx, id, store.ListOptions{Limit: 5, Cursor: page.NextCursor}))
	})
}

func TestACursorExpiresWhenSlotsMove(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3})
	s, ctx, id := newStore(t, c), testContext(t), newApp(t)
	for i := range 100 {
		must[store.SetResult](t)(s.Set(ctx, id, fmt.Sprint(i), nil, store.SetOptions{}))
	}
	page := must[store.Page](t)(s.List(ctx, id, store.ListOptions{Limit: 5}))
	primaries := must[[]*localcluster.Node](t)(c.Primaries(ctx))
	from := must[*localcluster.Node](t)(c.PrimaryOf(ctx, 100))
	to := primaries[0]
	if to == from {
		to = primaries[1]
	}
	if err := c.MigrateSlot(ctx, 100, from, to); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		_, err := s.List(ctx, id, store.ListOptions{Limit: 5, Cursor: page.NextCursor})
		if err == nil {
			return "the cursor of before still works"
		}
		wantCode(t, err, store.CodeCursorExpired)
		return ""
	})
	if got := listAll(t, s, id, store.ListOptions{Limit: 50}); len(got) != 100 {
		t.Errorf("a new listing has %d keys", len(got))
	}
}

func TestOneSlotOfTheLayoutTogether(t *testing.T) {
	c := clustertest.Shared(t)
	s, ctx := newStore(t, c), testContext(t)
	id := newApp(t, func(a *acl.App) { a.Layout = acl.Together })
	slots := map[int]bool{}
	for _, key := range []string{"a", "b{x}", strings.Repeat("k", 100)} {
		must[store.SetResult](t)(s.Set(ctx, id, key, nil, store.SetOptions{}))
		slots[must[store.KeyInfo](t)(s.KeyInfo(ctx, id, key, false, store.Reading{})).Slot] = true
	}
	if len(slots) != 1 {
		t.Errorf("the app is in %d slots", len(slots))
	}
}
