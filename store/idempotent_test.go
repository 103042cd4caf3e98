package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/slot"
)

// named is a delivery with an Idempotency-Key, for a request that is told apart by its text.
func named(key, request string) store.Delivery {
	return store.Delivery{
		Idempotency: store.Idempotency{Key: key, Fingerprint: sha256.Sum256([]byte(request))},
		Receipt:     new(store.Receipt),
	}
}

// idempotentWrite is one operation: what must be there before, and what it answers, as text.
type idempotentWrite struct {
	before string // "" = nothing; "-" stands for the empty value
	ttl    int64  // of what is there before
	do     func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) (string, error)
}

const long = 2000 // bytes of a value that is stored compressed

func setWith(data string, o store.SetOptions) func(context.Context, *store.Store, *acl.Identity, store.Delivery) (string, error) {
	return func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) (string, error) {
		o := o // several requests run at once
		o.Delivery = d
		res, err := s.Set(ctx, id, "k", []byte(data), o)
		if res.Previous == nil || !o.ReturnPrevious {
			return fmt.Sprint(res.TTLMS), err
		}
		return fmt.Sprint(res.TTLMS, " ", string(res.Previous.Data)), err
	}
}

func addWith(o store.AddOptions) func(context.Context, *store.Store, *acl.Identity, store.Delivery) (string, error) {
	return func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) (string, error) {
		o := o // several requests run at once
		o.Delivery = d
		n, err := s.CounterAdd(ctx, id, "k", o)
		return n.String(), err
	}
}

func deleteWith(o store.DeleteOptions) func(context.Context, *store.Store, *acl.Identity, store.Delivery) (string, error) {
	return func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) (string, error) {
		o := o // several requests run at once
		o.Delivery = d
		v, err := s.Delete(ctx, id, "k", o)
		if v == nil || !o.ReturnValue {
			return "", err
		}
		return string(v.Data), err
	}
}

func numberOf(t testing.TB, text string) store.Number {
	return must[store.Number](t)(store.ParseNumber(text))
}

func idempotentWrites(t testing.TB) map[string]idempotentWrite {
	a, compressed := store.ETag([]byte("a")), strings.Repeat("a", long)
	low, high := store.Int(-10), store.Int(10)
	in := store.Expiry{Mode: store.ExpireIn, Millis: 60_000}
	return map[string]idempotentWrite{
		"SET":                           {do: setWith("v", store.SetOptions{})},
		"SET with a TTL":                {before: "a", do: setWith("v", store.SetOptions{Expiry: in})},
		"SET with a time":               {before: "a", do: setWith("v", store.SetOptions{Expiry: store.Expiry{Mode: store.ExpireAt, Millis: time.Now().Add(time.Hour).UnixMilli()}})},
		"SET that keeps the TTL":        {before: "a", ttl: 60_000, do: setWith("v", store.SetOptions{Expiry: store.Expiry{Mode: store.KeepExpiry}})},
		"SET if there is none":          {do: setWith("v", store.SetOptions{Cond: store.Condition{IfNoneMatch: true}})},
		"SET if there is any":           {before: "a", do: setWith("v", store.SetOptions{Cond: store.Condition{IfMatch: []string{"*"}}})},
		"SET if it is that":             {before: "a", do: setWith("v", store.SetOptions{Cond: store.Condition{IfMatch: []string{a}}})},
		"SET that returns nothing":      {do: setWith("v", store.SetOptions{ReturnPrevious: true})},
		"SET that returns an empty one": {before: "-", do: setWith("v", store.SetOptions{ReturnPrevious: true})},
		"SET that returns a long one":   {before: compressed, do: setWith("v", store.SetOptions{ReturnPrevious: true, Expiry: in})},
		"SET of a compressed value":     {do: setWith(compressed, store.SetOptions{})},
		"UNLINK":                        {before: "a", do: deleteWith(store.DeleteOptions{})},
		"UNLINK if there is any":        {before: "a", do: deleteWith(store.DeleteOptions{Cond: store.Condition{IfMatch: []string{"*"}}})},
		"UNLINK if it is that":          {before: "a", do: deleteWith(store.DeleteOptions{Cond: store.Condition{IfMatch: []string{a}}})},
		"UNLINK that returns it":        {before: compressed, do: deleteWith(store.DeleteOptions{ReturnValue: true})},
		"INCRBY":                        {before: "5", do: addWith(store.AddOptions{Delta: store.Int(3)})},
		"INCRBY to a new counter":       {do: addWith(store.AddOptions{Delta: store.Int(-3), Expiry: in})},
		"INCRBY beyond 2^53":            {before: "9007199254740993", do: addWith(store.AddOptions{Delta: store.Int(2)})},
		"INCRBY to the end of 64 bits":  {before: "-9223372036854775807", do: addWith(store.AddOptions{Delta: store.Int(-1)})},
		"INCRBY within bounds":          {before: "5", do: addWith(store.AddOptions{Delta: store.Int(3), Min: &low, Max: &high})},
		"INCRBYFLOAT":                   {before: "1.5", do: addWith(store.AddOptions{Delta: numberOf(t, "0.25")})},
		"APPEND":                        {before: "a", do: appendWith("+")},
		"APPEND to nothing":             {do: appendWith("+")},
		"APPEND to a compressed value":  {before: compressed, do: appendWith("+")},
		"SETRANGE":                      {before: "abcdefgh", do: rangeWith(6, "+++")},
		"SETRANGE at the front":         {before: "abcdefgh", do: rangeWith(1, "+")},
		"SETRANGE of nothing":           {do: rangeWith(3, "+")},
		"SETRANGE of a compressed one":  {before: compressed, do: rangeWith(long, "+")},
		"PEXPIRE":                       {before: "a", do: expireWith("")},
		"PEXPIRE if it had one":         {before: "a", do: expireWith("xx")},
		"PERSIST": {before: "a", ttl: 60_000, do: func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) (string, error) {
			return "", s.Persist(ctx, id, "k", d)
		}},
		"a counter that is set": {before: "17", do: func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) (string, error) {
			n, _, err := s.CounterSet(ctx, id, "k", store.Int(3), store.SetOptions{Delivery: d})
			return fmt.Sprint(n), err
		}},
	}
}

func appendWith(data string) func(context.Context, *store.Store, *acl.Identity, store.Delivery) (string, error) {
	return func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) (string, error) {
		n, err := s.Append(ctx, id, "k", []byte(data), store.AppendOptions{Delivery: d})
		return fmt.Sprint(n), err
	}
}

func rangeWith(offset int64, data string) func(context.Context, *store.Store, *acl.Identity, store.Delivery) (string, error) {
	return func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) (string, error) {
		n, err := s.SetRange(ctx, id, "k", offset, []byte(data), d)
		return fmt.Sprint(n), err
	}
}

func expireWith(when string) func(context.Context, *store.Store, *acl.Identity, store.Delivery) (string, error) {
	return func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) (string, error) {
		applied, ttl, err := s.Expire(ctx, id, "k", store.Expiry{Mode: store.ExpireIn, Millis: 50_000}, when, d)
		return fmt.Sprint(applied, " ", ttl), err
	}
}

// prepare puts what is there before under k.
func (w idempotentWrite) prepare(ctx context.Context, t testing.TB, s *store.Store, id *acl.Identity) {
	t.Helper()
	if w.before == "" {
		return
	}
	o := store.SetOptions{}
	if w.ttl > 0 {
		o.Expiry = store.Expiry{Mode: store.ExpireIn, Millis: w.ttl}
	}
	must[store.SetResult](t)(s.Set(ctx, id, "k", []byte(strings.TrimPrefix(w.before, "-")), o))
}

// stored is what Redis holds under k: the bytes, and whether it expires.
func stored(ctx context.Context, t testing.TB, s *store.Store, id *acl.Identity) string {
	t.Helper()
	v, err := s.Get(ctx, id, "k", store.GetOptions{WithTTL: true})
	var e *store.Error
	if errors.As(err, &e) && e.Code == store.CodeKeyNotFound {
		return "nothing"
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(string(v.Data), " expires: ", v.TTLMS > 0)
}

func TestARepeatedWriteHasTheFirstAnswerAndIsDoneOnce(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw := newStore(t, c), foreign(t, c)
	for name, w := range idempotentWrites(t) {
		for _, layout := range []acl.Layout{acl.Spread, acl.Together} {
			t.Run(string(layout)+"/"+name, func(t *testing.T) {
				ctx, id := testContext(t), newApp(t, func(a *acl.App) { a.Layout = layout })
				w.prepare(ctx, t, s, id)
				first := named("one", "request")
				want, err := w.do(ctx, s, id, first)
				if err != nil || first.Receipt.Replayed {
					t.Fatalf("the first: %q, replayed %v, %v", want, first.Receipt.Replayed, err)
				}
				after := stored(ctx, t, s, id)
				if got := must[string](t)(w.do(ctx, s, id, first)); got != want || !first.Receipt.Replayed {
					t.Errorf("the second: %q, replayed %v; the first was %q", got, first.Receipt.Replayed, want)
				}
				if now := stored(ctx, t, s, id); now != after {
					t.Errorf("it was done twice: %.50q, and after the first %.50q", now, after)
				}
				other := named("one", "another request")
				_, err = w.do(ctx, s, id, other)
				wantCode(t, err, store.CodeIdempotencyMismatch)
				if now := stored(ctx, t, s, id); now != after || other.Receipt.Replayed {
					t.Error("another request with the key was done, or replayed")
				}
				// Whatever became of the key since: the answer is the first one.
				raw.Set(ctx, id.Prefix+"k", "something else", 0)
				if got := must[string](t)(w.do(ctx, s, id, named("one", "request"))); got != want {
					t.Errorf("the third: %q; the first was %q", got, want)
				}
				raw.Del(ctx, id.Prefix+"k")
				if got := must[string](t)(w.do(ctx, s, id, named("one", "request"))); got != want {
					t.Errorf("the fourth: %q; the first was %q", got, want)
				}
			})
		}
	}
}

// What the first answer says must be what the write without an Idempotency-Key says.
func TestAKeyedWriteAnswersAsAPlainOne(t *testing.T) {
	c := clustertest.Shared(t)
	s := newStore(t, c)
	for name, w := range idempotentWrites(t) {
		if strings.Contains(name, "time") {
			continue // its TTL runs
		}
		t.Run(name, func(t *testing.T) {
			ctx, plain, keyed := testContext(t), newApp(t), newApp(t)
			w.prepare(ctx, t, s, plain)
			w.prepare(ctx, t, s, keyed)
			want := must[string](t)(w.do(ctx, s, plain, store.Delivery{}))
			if got := must[string](t)(w.do(ctx, s, keyed, named("one", ""))); got != want {
				t.Errorf("with the key %q, without %q", got, want)
			}
			if got, want := stored(ctx, t, s, keyed), stored(ctx, t, s, plain); got != want {
				t.Errorf("with the key %.50q is stored, without %.50q", got, want)
			}
		})
	}
}

func TestARefusedWriteIsNotRecorded(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw := newStore(t, c), foreign(t, c)
	ctx := testContext(t)
	low := store.Int(0)
	for name, row := range map[string]struct {
		before string
		code   store.Code
		cure   string // what must be there for the same request to pass
		do     func(context.Context, *store.Store, *acl.Identity, store.Delivery) (string, error)
	}{
		"no key to delete":       {"", store.CodeKeyNotFound, "v", deleteWith(store.DeleteOptions{})},
		"no value to return":     {"", store.CodeKeyNotFound, "v", deleteWith(store.DeleteOptions{ReturnValue: true})},
		"another value":          {"a", store.CodePreconditionFailed, "b", setWith("v", store.SetOptions{Cond: store.Condition{IfMatch: []string{store.ETag([]byte("b"))}}})},
		"any value":              {"a", store.CodePreconditionFailed, "", setWith("v", store.SetOptions{Cond: store.Condition{IfNoneMatch: true}})},
		"not a number":           {"a", store.CodeNotANumber, "1", addWith(store.AddOptions{Delta: store.Int(1)})},
		"below the least number": {"1", store.CodeOutOfRange, "5", addWith(store.AddOptions{Delta: store.Int(-3), Min: &low})},
		"no key to expire":       {"", store.CodeKeyNotFound, "v", expireWith("")},
	} {
		t.Run(name, func(t *testing.T) {
			id := newApp(t)
			if row.before != "" {
				raw.Set(ctx, id.Prefix+"k", row.before, 0)
			}
			_, err := row.do(ctx, s, id, named("one", ""))
			wantCode(t, err, row.code)
			if raw.Del(ctx, id.Prefix+"k"); row.cure != "" {
				raw.Set(ctx, id.Prefix+"k", row.cure, 0)
			}
			d := named("one", "")
			if _, err = row.do(ctx, s, id, d); err != nil || d.Receipt.Replayed {
				t.Errorf("the same request when it can pass: %v, replayed %v", err, d.Receipt.Replayed)
			}
		})
	}
}

func TestTwinsAreOneWrite(t *testing.T) {
	c := clustertest.Shared(t)
	s := newStore(t, c)
	for name, w := range idempotentWrites(t) {
		t.Run(name, func(t *testing.T) {
			ctx, id := testContext(t), newApp(t)
			w.prepare(ctx, t, s, id)
			var answers sync.Map
			var wg sync.WaitGroup
			var first atomic.Int64
			for range 50 {
				wg.Go(func() {
					d := named("twin", "")
					got, err := w.do(ctx, s, id, d)
					if err != nil {
						t.Error(err)
					}
					answers.Store(got, true)
					if !d.Receipt.Replayed {
						first.Add(1)
					}
				})
			}
			wg.Wait()
			different := 0
			answers.Range(func(answer, _ any) bool { different++; return true })
			if first.Load() != 1 || different != 1 {
				t.Errorf("%d of 50 were no replay, and there were %d answers", first.Load(), different)
			}
		})
	}
}

func TestTheRecordOfAWrite(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw, ctx := newStore(t, c, func(cfg *store.Config) { cfg.RecordTTL = time.Hour }), foreign(t, c), testContext(t)
	record := func(t *testing.T, id *acl.Identity, key string) string {
		t.Helper()
		var found []string
		for _, node := range must[[]*localcluster.Node](t)(c.Primaries(ctx)) {
			for _, k := range must[[]string](t)(node.Client().Keys(ctx, "slotgate:i:*").Result()) {
				if slotOf(id, key) == slot.Of(k) {
					found = append(found, k)
				}
			}
		}
		if len(found) != 1 {
			t.Fatalf("records in the slot of the key: %q", found)
		}
		return found[0]
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, key := range map[string]string{
		"lies in the slot of its key":       "some key",
		"lies in the slot of a hash tag":    "a{customer 17}b",
		"lies in the slot of an odd tag":    "a{}b{c}",
		"lies in the slot of an open brace": "a{b",
		"is of a key with every byte":       string(all),
	} {
		t.Run(name, func(t *testing.T) {
			id := newApp(t)
			d := named(strings.Repeat("x", 255), "")
			must[store.SetResult](t)(s.Set(ctx, id, key, all, store.SetOptions{Delivery: d}))
			k := record(t, id, key)
			if ttl := raw.PTTL(ctx, k).Val(); ttl <= 0 || ttl > time.Hour {
				t.Errorf("it lives for %v", ttl)
			}
			t.Logf("%d bytes under a key of %d", raw.StrLen(ctx, k).Val(), len(k))
			if used := raw.MemoryUsage(ctx, k).Val(); used > 250 {
				t.Errorf("it takes %d bytes", used)
			}
			must[store.SetResult](t)(s.Set(ctx, id, key, all, store.SetOptions{Delivery: d}))
			if !d.Receipt.Replayed {
				t.Error("it is not found again")
			}
			raw.PExpire(ctx, k, time.Millisecond)
			eventually(t, func() string {
				if raw.Exists(ctx, k).Val() == 1 {
					return "the record does not expire"
				}
				return ""
			})
			again := named(strings.Repeat("x", 255), "")
			must[store.SetResult](t)(s.Set(ctx, id, key, all, store.SetOptions{Delivery: again}))
			if again.Receipt.Replayed {
				t.Error("an expired record is replayed")
			}
		})
	}
	t.Run("is not shared by two apps", func(t *testing.T) {
		key := "{same}"
		for range 2 {
			d := named("one", "")
			must[store.Number](t)(s.CounterAdd(ctx, newApp(t), key, store.AddOptions{Delta: store.Int(1), Delivery: d}))
			if d.Receipt.Replayed {
				t.Error("an app has the answer of another one")
			}
		}
	})
	t.Run("that cannot be read is never taken for an answer", func(t *testing.T) {
		id := newApp(t)
		d := named("one", "")
		must[store.Number](t)(s.CounterAdd(ctx, id, "k", store.AddOptions{Delta: store.Int(1), Delivery: d}))
		k := record(t, id, "k")
		raw.Append(ctx, k, "damage")
		_, err := s.CounterAdd(ctx, id, "k", store.AddOptions{Delta: store.Int(1), Delivery: d})
		wantCode(t, err, store.CodeCorruptValue)
	})
	t.Run("keeps no large value: the write is refused", func(t *testing.T) {
		id := newApp(t, func(a *acl.App) { a.CompressMinBytes = 0 })
		large := bytes.Repeat([]byte("x"), 4097)
		must[store.SetResult](t)(s.Set(ctx, id, "k", large, store.SetOptions{}))
		_, err := s.Set(ctx, id, "k", nil, store.SetOptions{ReturnPrevious: true, Delivery: named("one", "")})
		wantCode(t, err, store.CodeIdempotencyUnsupported)
		_, err = s.Delete(ctx, id, "k", store.DeleteOptions{ReturnValue: true, Delivery: named("one", "")})
		wantCode(t, err, store.CodeIdempotencyUnsupported)
		if got := must[store.Value](t)(s.Get(ctx, id, "k", store.GetOptions{})); !bytes.Equal(got.Data, large) {
			t.Error("something was written")
		}
	})
}

// A client that gets no answer sends the same request again.
func TestALostReplyWithAKeyIsRepeatedByTheClient(t *testing.T) {
	c := clustertest.Shared(t)
	net := clustertest.Proxied(t, c)
	s := newStore(t, c, func(cfg *store.Config) {
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: net.Dial}
	})
	for name, w := range idempotentWrites(t) {
		t.Run(name, func(t *testing.T) {
			ctx, id := testContext(t), newApp(t)
			w.prepare(ctx, t, s, id)
			plain := newApp(t)
			w.prepare(ctx, t, s, plain)
			must[string](t)(w.do(ctx, s, plain, store.Delivery{}))
			node := must[*localcluster.Node](t)(c.PrimaryOf(ctx, slotOf(id, "k")))
			d, lost := named("one", ""), false
			// The node knows no script, so each is sent as EVAL once: also the second one of those that first rewrite the value.
			if err := node.Client().ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			for range 4 {
				net.Proxy(node.Addr).ResetReplies(1, "EVAL")
				_, err := w.do(ctx, s, id, d)
				net.Pass()
				var e *store.Error
				if err == nil {
					break
				}
				if lost = true; !errors.As(err, &e) || e.Outcome != store.Unknown {
					t.Fatal(err)
				}
			}
			must[string](t)(w.do(ctx, s, id, d))
			if !lost || !d.Receipt.Replayed {
				t.Errorf("lost %v, replayed %v", lost, d.Receipt.Replayed)
			}
			if got, want := stored(ctx, t, s, id), stored(ctx, t, s, plain); got != want {
				t.Errorf("%.50q is stored, done once it is %.50q", got, want)
			}
		})
	}
}

func TestScriptsThatNodesForgetAreSentAgain(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw, ctx, id := newStore(t, c), foreign(t, c), testContext(t), newApp(t)
	for i := range 3 {
		for range 2 {
			must[store.Number](t)(s.CounterAdd(ctx, id, "k", store.AddOptions{Delta: store.Int(1), Delivery: named(fmt.Sprint(i), "")}))
			if err := raw.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := must[store.Number](t)(s.CounterGet(ctx, id, "k", store.Reading{})); n.String() != "3" {
		t.Errorf("three keys, twice each: %s", n)
	}
}
