package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

func TestAWriteThatFailsWhileItReadsWasNotApplied(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3, Config: map[string]string{"cluster-require-full-coverage": "no"}})
	s, ctx, id := newStore(t, c), testContext(t), newApp(t)
	const key = "k"
	must[store.SetResult](t)(s.Set(ctx, id, key, []byte("v"), store.SetOptions{}))
	if err := must[*localcluster.Node](t)(c.PrimaryOf(ctx, slotOf(id, key))).Pause(); err != nil {
		t.Fatal(err)
	}
	match := store.Condition{IfMatch: []string{store.ETag([]byte("v"))}}
	for name, write := range map[string]func(ctx context.Context) error{
		"set if match": func(ctx context.Context) error {
			_, err := s.Set(ctx, id, key, nil, store.SetOptions{Cond: match})
			return err
		},
		"set and return": func(ctx context.Context) error {
			_, err := s.Set(ctx, id, key, nil, store.SetOptions{ReturnPrevious: true})
			return err
		},
		"set a counter": func(ctx context.Context) error {
			_, _, err := s.CounterSet(ctx, id, key, store.Int(1), store.SetOptions{})
			return err
		},
		"delete if match": func(ctx context.Context) error {
			_, err := s.Delete(ctx, id, key, store.DeleteOptions{Cond: match})
			return err
		},
		"get and expire": func(ctx context.Context) error {
			_, err := s.Get(ctx, id, key, store.GetOptions{Expiry: store.Expiry{Mode: store.ExpireIn, Millis: 1000}})
			return err
		},
	} {
		err := within(t, 100*time.Millisecond, write)
		var e *store.Error
		if !errors.As(err, &e) || e.Status() < 500 || e.Outcome != store.NotApplied {
			t.Errorf("%s: %v, outcome %q", name, err, e.Outcome)
		}
	}
}

func TestADamagedValueIsNotWrittenOver(t *testing.T) {
	c := clustertest.Shared(t)
	s, ctx, id := newStore(t, c), testContext(t), newApp(t)
	damage := func() {
		must[store.SetResult](t)(s.Set(ctx, id, "k", make([]byte, 1000), store.SetOptions{}))
		raw := foreign(t, c)
		if err := raw.SetRange(ctx, id.Prefix+"k", 6, "\x00\x00\x00\x00").Err(); err != nil {
			t.Fatal(err)
		}
	}
	damage()
	_, err := s.Append(ctx, id, "k", []byte("+"), store.AppendOptions{})
	if e := wantCode(t, err, store.CodeCorruptValue); e.Outcome != store.NotApplied {
		t.Errorf("append: outcome %q", e.Outcome)
	}
	_, err = s.Delete(ctx, id, "k", store.DeleteOptions{ReturnValue: true})
	if e := wantCode(t, err, store.CodeCorruptValue); e.Outcome != store.NotApplied {
		t.Errorf("delete: outcome %q", e.Outcome)
	}
	_, err = s.Get(ctx, id, "k", store.GetOptions{Expiry: store.Expiry{Mode: store.ExpireIn, Millis: 60_000}})
	if e := wantCode(t, err, store.CodeCorruptValue); e.Outcome != store.Applied {
		t.Errorf("get and expire: outcome %q", e.Outcome)
	}
}

func TestTheResponseLimitIsThatOfTheDecodedValue(t *testing.T) {
	s, ctx := newStore(t, clustertest.Shared(t)), testContext(t)
	id := newApp(t, func(a *acl.App) { a.Sizes.ResponseMaxBytes = 10_000 })
	big := make([]byte, 100_000) // stored in 5,000
	set := func() { must[store.SetResult](t)(s.Set(ctx, id, "k", big, store.SetOptions{})) }
	set()
	_, err := s.Get(ctx, id, "k", store.GetOptions{})
	wantCode(t, err, store.CodeResponseTooLarge)
	_, err = s.GetRange(ctx, id, "k", 0, -1, store.Reading{})
	wantCode(t, err, store.CodeResponseTooLarge)
	if r := must[store.Range](t)(s.GetRange(ctx, id, "k", 5, 10_004, store.Reading{})); len(r.Data) != 10_000 || r.Length != 100_000 {
		t.Errorf("%d bytes of %d", len(r.Data), r.Length)
	}
	_, err = s.Set(ctx, id, "k", nil, store.SetOptions{ReturnPrevious: true})
	wantCode(t, err, store.CodeResponseTooLarge)
	_, err = s.Delete(ctx, id, "k", store.DeleteOptions{ReturnValue: true})
	wantCode(t, err, store.CodeResponseTooLarge)
	if n := must[int64](t)(s.Append(ctx, id, "k", []byte("+"), store.AppendOptions{})); n != 100_001 {
		t.Errorf("a change that answers with little is not bound by it: %d", n)
	}
	set()
	match := store.Condition{IfMatch: []string{store.ETag(big)}}
	must[store.SetResult](t)(s.Set(ctx, id, "k", big, store.SetOptions{Cond: match}))
	must[*store.Value](t)(s.Delete(ctx, id, "k", store.DeleteOptions{Cond: match}))
}
