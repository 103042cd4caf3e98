package store_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// values are what must come back as it went in.
func values() map[string][]byte {
	noise := make([]byte, 4096)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return map[string][]byte{
		"an empty value":                     {},
		"a short text":                       []byte("hello"),
		"every byte":                         all,
		"a large text that shrinks":          []byte(strings.Repeat("all work and no play ", 500)),
		"a large value that does not shrink": noise,
		"a value that begins with the magic": []byte("\xffSGV and more"),
		"the magic alone":                    []byte("\xffSGV"),
		"a large one that begins with it":    append([]byte("\xffSGV"), bytes.Repeat([]byte("x"), 2000)...),
		"a first byte of the magic":          {0xff},
		"RESP inside":                        []byte("x\r\nFLUSHALL\r\n"),
		"as large as the limit":              bytes.Repeat([]byte("ab"), 1<<19),
		"something like an unknown version":  []byte("\xffSGV\x02\x01aaaabbbbcccc"),
		"something like a wrong length":      []byte("\xffSGV\x01\x00aaaa\x00\x00\x00\x09ab"),
	}
}

func TestValuesComeBackAsTheyWentIn(t *testing.T) {
	s, ctx := newStore(t, clustertest.Shared(t)), testContext(t)
	for _, layout := range []acl.Layout{acl.Spread, acl.Together} {
		id := newApp(t, func(a *acl.App) { a.Layout = layout })
		for name, value := range values() {
			t.Run(string(layout)+"/"+name, func(t *testing.T) {
				must[store.SetResult](t)(s.Set(ctx, id, name, value, store.SetOptions{}))
				if got := must[store.Value](t)(s.Get(ctx, id, name, store.GetOptions{})); !bytes.Equal(got.Data, value) {
					t.Errorf("got %d bytes, want %d", len(got.Data), len(value))
				}
				if n := must[int64](t)(s.Length(ctx, id, name, store.Reading{})); n != int64(len(value)) {
					t.Errorf("length %d, want %d", n, len(value))
				}
				rng := must[store.Range](t)(s.GetRange(ctx, id, name, 1, -2, store.Reading{}))
				if want := value[min(1, len(value)):max(len(value)-1, min(1, len(value)))]; !bytes.Equal(rng.Data, want) || rng.Length != int64(len(value)) {
					t.Errorf("range of %d bytes of %d, want %d", len(rng.Data), rng.Length, len(want))
				}
			})
		}
	}
}

func TestStoredForm(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw, ctx := newStore(t, c), foreign(t, c), testContext(t)
	long := strings.Repeat("all work and no play ", 500)
	t.Run("a large text is stored compressed", func(t *testing.T) {
		id := newApp(t)
		must[store.SetResult](t)(s.Set(ctx, id, "k", []byte(long), store.SetOptions{}))
		if n := raw.StrLen(ctx, id.Prefix+"k").Val(); n > int64(len(long)/2) {
			t.Errorf("%d of %d bytes are stored", n, len(long))
		}
	})
	t.Run("without compression it is stored as it is", func(t *testing.T) {
		id := newApp(t, func(a *acl.App) { a.CompressMinBytes = 0 })
		must[store.SetResult](t)(s.Set(ctx, id, "k", []byte(long), store.SetOptions{}))
		if raw.Get(ctx, id.Prefix+"k").Val() != long {
			t.Error("a foreign client reads something else")
		}
	})
	t.Run("a small one is read by a foreign client, and the other way round", func(t *testing.T) {
		id := newApp(t)
		must[store.SetResult](t)(s.Set(ctx, id, "small", []byte("plain"), store.SetOptions{}))
		if raw.Get(ctx, id.Prefix+"small").Val() != "plain" {
			t.Error("a foreign client reads something else")
		}
		raw.Set(ctx, id.Prefix+"theirs", long, 0)
		if v := must[store.Value](t)(s.Get(ctx, id, "theirs", store.GetOptions{})); string(v.Data) != long {
			t.Error("the gateway reads something else")
		}
	})
	t.Run("a damaged envelope is corrupt_value, never other bytes", func(t *testing.T) {
		id := newApp(t)
		must[store.SetResult](t)(s.Set(ctx, id, "k", []byte(long), store.SetOptions{}))
		raw.SetRange(ctx, id.Prefix+"k", 100, "damage")
		_, err := s.Get(ctx, id, "k", store.GetOptions{})
		wantCode(t, err, store.CodeCorruptValue)
	})
	t.Run("an envelope that claims more than the limit is refused before it is decoded", func(t *testing.T) {
		id := newApp(t)
		raw.Set(ctx, id.Prefix+"bomb", "\xffSGV\x01\x01aaaa\xff\xff\xff\xff\xff\xff\xff\xff\x0f", 0)
		_, err := s.Get(ctx, id, "bomb", store.GetOptions{})
		wantCode(t, err, store.CodeResponseTooLarge)
	})
}

func TestGet(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw, ctx := newStore(t, c), foreign(t, c), testContext(t)
	id := newApp(t)
	t.Run("an absent key is key_not_found", func(t *testing.T) {
		_, err := s.Get(ctx, id, "absent", store.GetOptions{})
		wantCode(t, err, store.CodeKeyNotFound)
	})
	t.Run("a list is wrong_type", func(t *testing.T) {
		raw.RPush(ctx, id.Prefix+"list", "x")
		_, err := s.Get(ctx, id, "list", store.GetOptions{})
		if e := wantCode(t, err, store.CodeWrongType); e.RedisError != "WRONGTYPE" || e.Outcome != store.NoOutcome {
			t.Errorf("%+v", e)
		}
	})
	t.Run("a value over the response limit is refused with the way out", func(t *testing.T) {
		small := newApp(t, func(a *acl.App) { a.Sizes.ResponseMaxBytes, a.Sizes.ValueMaxBytes = 1000, 1000 })
		raw.Set(ctx, small.Prefix+"k", strings.Repeat("x", 1001), 0)
		_, err := s.Get(ctx, small, "k", store.GetOptions{})
		if e := wantCode(t, err, store.CodeResponseTooLarge); !strings.Contains(e.Detail, "Range") {
			t.Error(e.Detail)
		}
		if r := must[store.Range](t)(s.GetRange(ctx, small, "k", 0, 9, store.Reading{})); len(r.Data) != 10 || r.Length != 1001 {
			t.Errorf("%d of %d", len(r.Data), r.Length)
		}
		_, err = s.GetRange(ctx, small, "k", 0, -1, store.Reading{})
		wantCode(t, err, store.CodeResponseTooLarge)
	})
	t.Run("with an expiry it moves the expiry", func(t *testing.T) {
		raw.Set(ctx, id.Prefix+"k", "v", 0)
		must[store.Value](t)(s.Get(ctx, id, "k", store.GetOptions{Expiry: store.Expiry{Mode: store.ExpireIn, Millis: 50_000}}))
		if ttl := raw.PTTL(ctx, id.Prefix+"k").Val(); ttl <= 0 || ttl > 50*time.Second {
			t.Error(ttl)
		}
		if v := must[store.Value](t)(s.Get(ctx, id, "k", store.GetOptions{WithTTL: true})); v.TTLMS <= 0 || v.TTLMS > 50_000 {
			t.Error(v.TTLMS)
		}
	})
	t.Run("a value too large to answer keeps its expiry", func(t *testing.T) {
		small := newApp(t, func(a *acl.App) { a.Sizes.ResponseMaxBytes = 10 })
		raw.Set(ctx, small.Prefix+"k", "more than ten bytes", 0)
		_, err := s.Get(ctx, small, "k", store.GetOptions{Expiry: store.Expiry{Mode: store.ExpireIn, Millis: 50_000}})
		wantCode(t, err, store.CodeResponseTooLarge)
		if ttl := raw.PTTL(ctx, small.Prefix+"k").Val(); ttl != -1 {
			t.Error(ttl)
		}
	})
	t.Run("moving the expiry is a write", func(t *testing.T) {
		reader := newApp(t, func(a *acl.App) { a.Permissions = []string{"strings:read"} })
		_, err := s.Get(ctx, reader, "k", store.GetOptions{Expiry: store.Expiry{Mode: store.ExpireIn, Millis: 5}})
		wantCode(t, err, store.CodeForbidden)
	})
}

func TestConditions(t *testing.T) {
	s, ctx := newStore(t, clustertest.Shared(t)), testContext(t)
	id := newApp(t)
	etag := func(v string) []string { return []string{store.ETag([]byte(v))} }
	set := func(key, value string, c store.Condition) error {
		_, err := s.Set(ctx, id, key, []byte(value), store.SetOptions{Cond: c})
		return err
	}
	wantUnmet := func(t *testing.T, err error, current string) {
		t.Helper()
		if e := wantCode(t, err, store.CodePreconditionFailed); e.ETag != current {
			t.Errorf("the current ETag is %q, want %q", e.ETag, current)
		}
	}
	t.Run("If-None-Match * writes an absent key and no other", func(t *testing.T) {
		if err := set("n", "a", store.Condition{IfNoneMatch: true}); err != nil {
			t.Fatal(err)
		}
		wantUnmet(t, set("n", "b", store.Condition{IfNoneMatch: true}), store.ETag([]byte("a")))
	})
	t.Run("If-Match * writes an existing key and no other", func(t *testing.T) {
		wantUnmet(t, set("x", "a", store.Condition{IfMatch: []string{"*"}}), "")
		_ = set("x", "a", store.Condition{})
		if err := set("x", "b", store.Condition{IfMatch: []string{"*"}}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("If-Match with the ETag of the decoded value writes, with another one does not", func(t *testing.T) {
		long := strings.Repeat("compressed ", 200)
		_ = set("e", long, store.Condition{})
		wantUnmet(t, set("e", "b", store.Condition{IfMatch: etag("other")}), store.ETag([]byte(long)))
		if err := set("e", "b", store.Condition{IfMatch: append(etag("other"), etag(long)...)}); err != nil {
			t.Fatal(err)
		}
		wantUnmet(t, set("absent", "b", store.Condition{IfMatch: etag("b")}), "")
	})
	t.Run("delete with If-Match removes that value and no other", func(t *testing.T) {
		_ = set("d", "a", store.Condition{})
		_, err := s.Delete(ctx, id, "d", store.DeleteOptions{Cond: store.Condition{IfMatch: etag("b")}})
		wantUnmet(t, err, store.ETag([]byte("a")))
		v := must[*store.Value](t)(s.Delete(ctx, id, "d", store.DeleteOptions{Cond: store.Condition{IfMatch: etag("a")}, ReturnValue: true}))
		if string(v.Data) != "a" {
			t.Errorf("%q", v.Data)
		}
		_, err = s.Delete(ctx, id, "d", store.DeleteOptions{})
		wantCode(t, err, store.CodeKeyNotFound)
	})
	t.Run("of many writers with the same ETag exactly one wins each round", func(t *testing.T) {
		_ = set("race", "0", store.Condition{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for w := range 16 {
			wg.Go(func() {
				if set("race", strings.Repeat("w", w+1), store.Condition{IfMatch: etag("0")}) == nil {
					mu.Lock()
					won++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%d writers won", won)
		}
	})
	t.Run("the previous value is the one that was replaced", func(t *testing.T) {
		first := must[store.SetResult](t)(s.Set(ctx, id, "p", []byte("1"), store.SetOptions{ReturnPrevious: true}))
		second := must[store.SetResult](t)(s.Set(ctx, id, "p", []byte("2"), store.SetOptions{ReturnPrevious: true}))
		if first.Previous != nil || string(second.Previous.Data) != "1" {
			t.Errorf("%v %v", first.Previous, second.Previous)
		}
	})
}

func TestAppendAndSetRange(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw, ctx := newStore(t, c), foreign(t, c), testContext(t)
	id := newApp(t)
	long := strings.Repeat("compressed ", 200)
	get := func(t *testing.T, key string) string {
		t.Helper()
		return string(must[store.Value](t)(s.Get(ctx, id, key, store.GetOptions{})).Data)
	}
	appendTo := func(t *testing.T, key, data string) int64 {
		t.Helper()
		return must[int64](t)(s.Append(ctx, id, key, []byte(data), store.AppendOptions{}))
	}
	for name, before := range map[string]string{
		"an absent key": "", "a plain value": "abc", "a compressed value": long, "an escaped value": "\xffSGVx",
		"a value that becomes an envelope": "\xffSG", "the first byte of the magic": "\xff",
	} {
		t.Run("append to "+name, func(t *testing.T) {
			key, data := "a "+name, "V\x01\x00tail"
			if before != "" {
				must[store.SetResult](t)(s.Set(ctx, id, key, []byte(before), store.SetOptions{Expiry: store.Expiry{Mode: store.ExpireIn, Millis: 60_000}}))
			}
			if n := appendTo(t, key, data); n != int64(len(before+data)) {
				t.Errorf("length %d", n)
			}
			if n := appendTo(t, key, "!"); n != int64(len(before+data)+1) {
				t.Errorf("length %d", n)
			}
			if got := get(t, key); got != before+data+"!" {
				t.Errorf("%q", got)
			}
			if ttl := raw.PTTL(ctx, id.Prefix+key).Val(); before != "" && ttl <= 0 {
				t.Errorf("the expiry was lost: %v", ttl)
			}
		})
		t.Run("set a range of "+name, func(t *testing.T) {
			for _, offset := range []int{0, 2, 7} {
				key := "r " + name
				want := make([]byte, max(len(before), offset+3))
				copy(want, before)
				copy(want[offset:], "\xffSG")
				if before != "" {
					must[store.SetResult](t)(s.Set(ctx, id, key, []byte(before), store.SetOptions{}))
				} else {
					_, _ = s.Delete(ctx, id, key, store.DeleteOptions{})
				}
				if n := must[int64](t)(s.SetRange(ctx, id, key, int64(offset), []byte("\xffSG"), store.Delivery{})); n != int64(len(want)) {
					t.Errorf("length %d, want %d", n, len(want))
				}
				if got := get(t, key); got != string(want) {
					t.Errorf("at %d: %q, want %q", offset, got, want)
				}
			}
		})
	}
	t.Run("nothing at an absent key creates nothing", func(t *testing.T) {
		if n := must[int64](t)(s.SetRange(ctx, id, "none", 5, nil, store.Delivery{})); n != 0 || raw.Exists(ctx, id.Prefix+"none").Val() != 0 {
			t.Error(n)
		}
	})
	t.Run("over the limit nothing is written", func(t *testing.T) {
		small := newApp(t, func(a *acl.App) { a.Sizes.ValueMaxBytes = 10; a.CompressMinBytes = 0 })
		must[int64](t)(s.Append(ctx, small, "k", []byte("12345678"), store.AppendOptions{}))
		_, err := s.Append(ctx, small, "k", []byte("abc"), store.AppendOptions{})
		wantCode(t, err, store.CodeValueTooLarge)
		_, err = s.SetRange(ctx, small, "k", 8, []byte("abc"), store.Delivery{})
		wantCode(t, err, store.CodeValueTooLarge)
		_, err = s.SetRange(ctx, small, "k", 1<<62, []byte("abc"), store.Delivery{})
		wantCode(t, err, store.CodeValueTooLarge)
		if got := raw.Get(ctx, small.Prefix+"k").Val(); got != "12345678" {
			t.Errorf("%q", got)
		}
	})
	t.Run("appends of many writers to a compressed value are all there", func(t *testing.T) {
		must[store.SetResult](t)(s.Set(ctx, id, "many", []byte(long), store.SetOptions{}))
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { _, _ = s.Append(ctx, id, "many", []byte("+"), store.AppendOptions{}) })
		}
		wg.Wait()
		if got := get(t, "many"); got != long+strings.Repeat("+", 20) {
			t.Errorf("%d bytes, want %d", len(got), len(long)+20)
		}
	})
}

// in is a lifetime in milliseconds.
func in(ms int64) store.Expiry { return store.Expiry{Mode: store.ExpireIn, Millis: ms} }

func TestTTLPolicy(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw, ctx := newStore(t, c), foreign(t, c), testContext(t)
	bounded := newApp(t, func(a *acl.App) { a.MaxTTLMS = 60_000 })
	defaulted := newApp(t, func(a *acl.App) { a.DefaultTTLMS, a.MaxTTLMS = 30_000, 60_000 })
	keep := store.Expiry{Mode: store.KeepExpiry}
	far := store.Expiry{Mode: store.ExpireAt, Millis: time.Now().Add(time.Hour).UnixMilli()}
	one := store.Int(1)
	writes := map[string]func(id *acl.Identity, key string, e store.Expiry) error{
		"set": func(id *acl.Identity, key string, e store.Expiry) error {
			_, err := s.Set(ctx, id, key, []byte("1"), store.SetOptions{Expiry: e})
			return err
		},
		"set if absent": func(id *acl.Identity, key string, e store.Expiry) error {
			_, err := s.Set(ctx, id, key, []byte("1"), store.SetOptions{Expiry: e, Cond: store.Condition{IfNoneMatch: true}})
			return err
		},
		"set with the previous value": func(id *acl.Identity, key string, e store.Expiry) error {
			_, err := s.Set(ctx, id, key, []byte("1"), store.SetOptions{Expiry: e, ReturnPrevious: true})
			return err
		},
		"append": func(id *acl.Identity, key string, e store.Expiry) error {
			_, err := s.Append(ctx, id, key, []byte("1"), store.AppendOptions{Expiry: e})
			return err
		},
		"set range": func(id *acl.Identity, key string, e store.Expiry) error {
			_, err := s.SetRange(ctx, id, key, 9, []byte("1"), store.Delivery{})
			return err
		},
		"add": func(id *acl.Identity, key string, e store.Expiry) error {
			_, err := s.CounterAdd(ctx, id, key, store.AddOptions{Delta: one, Expiry: e})
			return err
		},
		"mset": func(id *acl.Identity, key string, e store.Expiry) error {
			_, err := s.MSet(ctx, id, []store.SetItem{{Key: key, Data: []byte("1"), Expiry: e}})
			return err
		},
	}
	for name, write := range writes {
		t.Run(name+" without a TTL is ttl_required and writes nothing", func(t *testing.T) {
			wantCode(t, write(bounded, name, store.Expiry{}), store.CodeTTLRequired)
			if raw.Exists(ctx, bounded.Prefix+name).Val() != 0 {
				t.Error("it was written")
			}
		})
		t.Run(name+" without a TTL gets the default", func(t *testing.T) {
			if err := write(defaulted, name, store.Expiry{}); err != nil {
				t.Fatal(err)
			}
			if ttl := raw.PTTL(ctx, defaulted.Prefix+name).Val(); ttl <= 0 || ttl > 30*time.Second {
				t.Error(ttl)
			}
		})
		if name == "set range" {
			continue // it takes no TTL
		}
		t.Run(name+" with a longer TTL is ttl_too_long", func(t *testing.T) {
			wantCode(t, write(bounded, name, in(60_001)), store.CodeTTLTooLong)
			wantCode(t, write(bounded, name, far), store.CodeTTLTooLong)
		})
	}
	raw.Set(ctx, bounded.Prefix+"old", "1", 0)
	raw.Set(ctx, bounded.Prefix+"long", "1", time.Hour)
	for name, write := range map[string]func(key string) error{
		"keep_ttl":                  func(key string) error { return writes["set"](bounded, key, keep) },
		"keep_ttl with a condition": func(key string) error { return writes["set with the previous value"](bounded, key, keep) },
		"append":                    func(key string) error { return writes["append"](bounded, key, store.Expiry{}) },
		"add":                       func(key string) error { return writes["add"](bounded, key, store.Expiry{}) },
		"set range":                 func(key string) error { return writes["set range"](bounded, key, store.Expiry{}) },
	} {
		t.Run(name+" does not keep an endless or too long life", func(t *testing.T) {
			wantCode(t, write("old"), store.CodeTTLRequired)
			wantCode(t, write("long"), store.CodeTTLTooLong)
		})
	}
	t.Run("removing the TTL is ttl_required", func(t *testing.T) {
		wantCode(t, s.Persist(ctx, bounded, "old", store.Delivery{}), store.CodeTTLRequired)
	})
	t.Run("lengthening past the maximum is ttl_too_long", func(t *testing.T) {
		_, _, err := s.Expire(ctx, bounded, "old", in(60_001), "", store.Delivery{})
		wantCode(t, err, store.CodeTTLTooLong)
		_, err = s.Get(ctx, bounded, "old", store.GetOptions{Expiry: far})
		wantCode(t, err, store.CodeTTLTooLong)
	})
	t.Run("keep_ttl creates with the default", func(t *testing.T) {
		if err := writes["set"](defaulted, "fresh", keep); err != nil {
			t.Fatal(err)
		}
		if ttl := raw.PTTL(ctx, defaulted.Prefix+"fresh").Val(); ttl <= 0 || ttl > 30*time.Second {
			t.Error(ttl)
		}
	})
}

func TestNothingIsSentForABadRequest(t *testing.T) {
	s := newStore(t, clustertest.Shared(t), func(c *store.Config) {
		c.Clusters = map[string]store.ClusterConfig{"default": {Addrs: []string{"127.0.0.1:1"}}} // nobody there
	})
	ctx, id := context.Background(), newApp(t)
	nobody := newApp(t, func(a *acl.App) { a.Permissions = nil })
	long := strings.Repeat("k", 1025)
	for name, c := range map[string]struct {
		id   *acl.Identity
		key  string
		size int
		want store.Code
	}{
		"no permission":   {nobody, "k", 1, store.CodeForbidden},
		"an empty key":    {id, "", 1, store.CodeInvalidKey},
		"a key too long":  {id, long, 1, store.CodeInvalidKey},
		"a value too big": {id, "k", 1<<20 + 1, store.CodeValueTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Set(ctx, c.id, c.key, make([]byte, c.size), store.SetOptions{})
			wantCode(t, err, c.want)
			_, err = s.MSet(ctx, c.id, []store.SetItem{{Key: "good", Data: []byte("1")}, {Key: c.key, Data: make([]byte, c.size)}})
			wantCode(t, err, c.want)
			_, err = s.Append(ctx, c.id, c.key, make([]byte, c.size), store.AppendOptions{})
			wantCode(t, err, c.want)
		})
	}
}

func TestSetRangeOfNothingTellsTheDecodedLength(t *testing.T) {
	s, ctx, id := newStore(t, clustertest.Shared(t)), testContext(t), newApp(t)
	must[store.SetResult](t)(s.Set(ctx, id, "compressed", make([]byte, 10_000), store.SetOptions{}))
	must[store.SetResult](t)(s.Set(ctx, id, "escaped", []byte("\xffSGV\x01"), store.SetOptions{}))
	for key, want := range map[string]int64{"compressed": 10_000, "escaped": 5, "absent": 0} {
		if n := must[int64](t)(s.SetRange(ctx, id, key, 9, nil, store.Delivery{})); n != want {
			t.Errorf("%s: %d bytes, want %d", key, n, want)
		}
	}
	_, err := s.KeyInfo(ctx, id, "absent", false, store.Reading{})
	wantCode(t, err, store.CodeKeyNotFound)
}
