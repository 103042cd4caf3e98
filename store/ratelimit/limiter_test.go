package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// bench is a limiter on the shared cluster at a time that stands still, and an app of its own.
type bench struct {
	*Limiter
	t   testing.TB
	id  *acl.Identity
	lim Limit
}

func newBench(t testing.TB, d Definition) *bench {
	t.Helper()
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	l := New(newStore(t))
	l.clock = func() int64 { return T0 }
	return &bench{l, t, newApp(t, "ratelimits:*"), Limit{Name: "api", Definition: &d}}
}

func (b *bench) take(r Request, key ...string) (Result, bool) {
	b.t.Helper()
	res, replayed, err := b.Take(testContext(b.t), b.id, b.lim, &r, keyed(key...))
	if err != nil {
		b.t.Fatal(err)
	}
	return res, replayed
}

func (b *bench) remaining(subject string) []int64 {
	b.t.Helper()
	res, err := b.Peek(testContext(b.t), b.id, b.lim, &Request{Subject: subject})
	if err != nil {
		b.t.Fatal(err)
	}
	left := make([]int64, len(res.Rules))
	for i := range res.Rules {
		left[i] = res.Rules[i].Remaining
	}
	return left
}

func (b *bench) wantRemaining(subject string, want ...int64) {
	b.t.Helper()
	if got := b.remaining(subject); !slices.Equal(got, want) {
		b.t.Errorf("%s has %v left, want %v", subject, got, want)
	}
}

func (b *bench) exactly() []exact {
	var c call
	return c.exactly(b.lim.Definition.Rules)
}

func keyed(key ...string) (i store.Idempotency) {
	if len(key) > 0 {
		i.Key = key[0]
		copy(i.Fingerprint[:], strings.Join(key, "/"))
	}
	return i
}

func code(err error) store.Code {
	var e *store.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Rules of two scopes, in an order that the script does not have.
func twoScopes(i Isolation, own, total int64) Definition {
	return Definition{Isolation: i, Rules: []Rule{
		{ID: "total", Scope: PerLimit, Algorithm: FixedWindow, Limit: total, PeriodMS: 60_000},
		bucketOf("own", own, 60_000, own),
	}}
}

func TestV11ARepetitionTakesNothing(t *testing.T) {
	for _, isolation := range []Isolation{Atomic, Partitioned} {
		t.Run(string(isolation), func(t *testing.T) {
			b := newBench(t, twoScopes(isolation, 10, 20))
			first, replayed := b.take(Request{Subject: "u"}, "key")
			if replayed {
				t.Error("the first take was a repetition")
			}
			again, replayed := b.take(Request{Subject: "u"}, "key")
			if !replayed || fmt.Sprint(first) != fmt.Sprint(again) {
				t.Errorf("first %+v, then %+v, replayed %v", first, again, replayed)
			}
			b.wantRemaining("u", 19, 9)
			if _, _, err := b.Take(testContext(t), b.id, b.lim, &Request{Subject: "u"}, keyed("key", "another body")); code(err) != store.CodeIdempotencyMismatch {
				t.Errorf("another request with this key: %v", err)
			}
			b.take(Request{Subject: "u"}, "other key")
			b.wantRemaining("u", 18, 8)
		})
	}
}

func TestARefusedTakeIsNotKept(t *testing.T) {
	b := newBench(t, Definition{Rules: []Rule{bucketOf("own", 1, 1000, 1)}})
	b.take(Request{Subject: "u"})
	if r, _ := b.take(Request{Subject: "u"}, "key"); r.Allowed {
		t.Fatal("allowed")
	}
	b.clock = func() int64 { return T0 + second }
	if r, replayed := b.take(Request{Subject: "u"}, "key"); !r.Allowed || replayed {
		t.Errorf("after the retry: %+v, replayed %v", r, replayed)
	}
}

func TestARepetitionAfterAnEditHasTheFirstAnswer(t *testing.T) {
	b := newBench(t, Definition{Rules: []Rule{bucketOf("a", 10, 1000, 10), bucketOf("b", 20, 1000, 20)}})
	b.take(Request{Subject: "u"}, "key")
	b.lim.Definition = &Definition{Isolation: Atomic, Rules: valid(t, bucketOf("new", 5, 1000, 5), bucketOf("b", 20, 1000, 20))}
	r, replayed := b.take(Request{Subject: "u"}, "key")
	if !replayed || !r.Allowed || len(r.Rules) != 1 || r.Rules[0].ID != "b" || r.Rules[0].Remaining != 19 {
		t.Errorf("%+v, replayed %v", r, replayed)
	}
}

// What the total refuses, the subject gets back; in one slot nothing was taken to begin with.
func TestATotalThatRefusesTakesNothingOfTheSubject(t *testing.T) {
	for _, isolation := range []Isolation{Atomic, Partitioned} {
		t.Run(string(isolation), func(t *testing.T) {
			b := newBench(t, twoScopes(isolation, 10, 3))
			for range 3 {
				b.take(Request{Subject: "u"})
			}
			for _, key := range []string{"", "key"} {
				r, _ := b.take(Request{Subject: "v"}, strings.Fields(key)...)
				if r.Allowed || by(r) != "total" || r.RetryAfterMS != 60_000 || r.Rules[0].ID != "total" || r.Rules[1].Remaining != 10 {
					t.Errorf("%+v limited by %s", r, by(r))
				}
				b.wantRemaining("v", 0, 10)
			}
			b.clock = func() int64 { return T0 + minute }
			if r, replayed := b.take(Request{Subject: "v"}, "key"); !r.Allowed || replayed {
				t.Errorf("with the key of the refused take: %+v, replayed %v", r, replayed)
			}
			b.wantRemaining("v", 2, 9)
		})
	}
}

func TestAPartialGrantIsTheSmallestOfAllRules(t *testing.T) {
	for _, isolation := range []Isolation{Atomic, Partitioned} {
		t.Run(string(isolation), func(t *testing.T) {
			b := newBench(t, twoScopes(isolation, 10, 3))
			r, _ := b.take(Request{Subject: "u", Cost: ptr(8), MinGrant: ptr(2)})
			if !r.Allowed || r.Granted != 3 || by(r) != "total" {
				t.Errorf("%+v limited by %s", r, by(r))
			}
			b.wantRemaining("u", 0, 7)
			refunded, _, err := b.Refund(testContext(t), b.id, b.lim, &Request{Subject: "u", Cost: ptr(2)}, store.Idempotency{})
			if err != nil || !refunded.Allowed || refunded.Granted != 0 {
				t.Errorf("refund: %+v, %v", refunded, err)
			}
			b.wantRemaining("u", 2, 9)
		})
	}
}

// The first answer tells what the total has left of the subject's part, and so does every other.
func TestARepetitionOfAPartialGrantHasTheFirstAnswer(t *testing.T) {
	for _, isolation := range []Isolation{Atomic, Partitioned} {
		t.Run(string(isolation), func(t *testing.T) {
			b := newBench(t, twoScopes(isolation, 10, 3))
			r := Request{Subject: "u", Cost: ptr(8), MinGrant: ptr(2), MaxWaitMS: MaxWaitMS}
			first, _ := b.take(r, "key")
			again, replayed := b.take(r, "key")
			if !replayed || fmt.Sprint(first.Rules) != fmt.Sprint(again.Rules) || first.Rules[1].Remaining != 7 {
				t.Errorf("first %+v, then %+v, replayed %v", first, again, replayed)
			}
			b.wantRemaining("u", 0, 7)
		})
	}
}

// Of a key that was used for another subject, only the total's slot knows.
func TestAKeyOfAnotherRequestTakesNothing(t *testing.T) {
	for _, isolation := range []Isolation{Atomic, Partitioned} {
		t.Run(string(isolation), func(t *testing.T) {
			b := newBench(t, twoScopes(isolation, 10, 20))
			b.take(Request{Subject: "u"}, "key")
			other := keyed("key", "for v")
			if _, _, err := b.Take(testContext(t), b.id, b.lim, &Request{Subject: "v"}, other); code(err) != store.CodeIdempotencyMismatch {
				t.Errorf("for v: %v", err)
			}
			b.wantRemaining("v", 19, 10)
		})
	}
}

func TestARepeatedRefundGivesOnce(t *testing.T) {
	b := newBench(t, twoScopes(Partitioned, 10, 20))
	b.take(Request{Subject: "u", Cost: ptr(6)})
	for range 2 {
		if _, _, err := b.Refund(testContext(t), b.id, b.lim, &Request{Subject: "u", Cost: ptr(2)}, keyed("key")); err != nil {
			t.Fatal(err)
		}
	}
	b.wantRemaining("u", 16, 6)
}

func TestResetForgetsOneSubject(t *testing.T) {
	for _, isolation := range []Isolation{Atomic, Partitioned} {
		b := newBench(t, twoScopes(isolation, 10, 20))
		b.take(Request{Subject: "u"})
		b.take(Request{Subject: "v"})
		if err := b.Reset(testContext(t), b.id, b.lim, "u"); err != nil {
			t.Fatal(err)
		}
		b.wantRemaining("u", 18, 10)
		b.wantRemaining("v", 18, 9)
	}
}

func TestAnOverrideHoldsForItsSubject(t *testing.T) {
	b := newBench(t, Definition{Rules: []Rule{bucketOf("own", 1, 60_000, 1)}})
	b.take(Request{Subject: "u"})
	b.lim.Override = &Override{Rules: valid(t, bucketOf("own", 5, 60_000, 5))}
	b.wantRemaining("u", 4)
}

func TestAShadowRefusesNothing(t *testing.T) {
	b := newBench(t, Definition{Shadow: true, Rules: []Rule{bucketOf("own", 1, 60_000, 1)}})
	b.take(Request{Subject: "u"})
	r, _ := b.take(Request{Subject: "u"})
	if !r.Allowed || !r.Shadowed || r.Granted != 1 || by(r) != "own" {
		t.Errorf("%+v limited by %s", r, by(r))
	}
	b.wantRemaining("u", 0)
}

func TestHostileSubjectsStayApart(t *testing.T) {
	b := newBench(t, Definition{Rules: []Rule{bucketOf("own", 9, 60_000, 9)}})
	subjects := []string{"u", "{}:%", "a}b{c", "%7D", "}", "\x00", "\xff", strings.Repeat("s", 256), strings.Repeat("s", 255)}
	for i, subject := range subjects {
		b.take(Request{Subject: subject, Cost: ptr(int64(i + 1))})
	}
	for i, subject := range subjects {
		b.wantRemaining(subject, int64(8-i))
	}
}

func TestPermissions(t *testing.T) {
	b := newBench(t, Definition{Rules: []Rule{bucketOf("own", 1, 60_000, 1)}})
	for permission, want := range map[string][2]store.Code{
		"ratelimits:*":    {"", ""},
		"ratelimits:read": {store.CodeForbidden, ""},
		"strings:*":       {store.CodeForbidden, store.CodeForbidden},
	} {
		b.id = newApp(t, permission)
		_, _, take := b.Take(testContext(t), b.id, b.lim, &Request{Subject: "u"}, store.Idempotency{})
		_, peek := b.Peek(testContext(t), b.id, b.lim, &Request{Subject: "u"})
		if code(take) != want[0] || code(peek) != want[1] {
			t.Errorf("%s: take %v, peek %v", permission, take, peek)
		}
	}
}

func client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: clustertest.Shared(t).Addrs()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestANodeThatForgotTheScriptGetsItAgain(t *testing.T) {
	b := newBench(t, Definition{Rules: []Rule{bucketOf("own", 9, 60_000, 9)}})
	b.take(Request{Subject: "u"})
	err := client(t).ForEachMaster(testContext(t), func(ctx context.Context, c *redis.Client) error { return c.ScriptFlush(ctx).Err() })
	if err != nil {
		t.Fatal(err)
	}
	b.take(Request{Subject: "u"})
	b.wantRemaining("u", 7)
}

// How long a take is known is the store's to say, and may change while it runs.
func TestARecordLivesAsLongAsTheStoreKeepsThem(t *testing.T) {
	s, d := newStore(t), Definition{Rules: []Rule{bucketOf("minute", 60, 60_000, 60)}}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	b := &bench{New(s), t, newApp(t, "ratelimits:*"), Limit{Name: "api", Definition: &d}}
	c := client(t)
	for name, keep := range map[string]time.Duration{"first": time.Hour, "then": 77 * time.Second} {
		s.KeepRecords(keep)
		b.take(Request{Subject: "u"}, name)
		key := recordKey(keysOf(b.id, "api", "u", Atomic).subject, name)
		if ttl := c.PTTL(testContext(t), key).Val(); ttl > keep || ttl < keep-time.Minute {
			t.Errorf("a record that is to live for %v lives for %v", keep, ttl)
		}
	}
}

// A limit lives as long as it remembers anything, and a refused take touches nothing.
func TestALimitExpires(t *testing.T) {
	b := newBench(t, Definition{Rules: []Rule{bucketOf("minute", 60, 60_000, 60), bucketOf("day", 10_000, 86_400_000, 10_000)}})
	for range 60 {
		b.take(Request{Subject: "u"})
	}
	key, c := keysOf(b.id, "api", "u", Atomic).subject, client(t)
	ctx := testContext(t)
	// V2: until the day's 60 tokens are back, 518.4 s, and one second.
	if ttl := c.PTTL(ctx, key).Val(); ttl > 519_400*time.Millisecond || ttl < 400*time.Second {
		t.Errorf("lives for %v", ttl)
	}
	before := c.Dump(ctx, key).Val()
	if r, _ := b.take(Request{Subject: "u"}, "key"); r.Allowed {
		t.Error("the 61st was allowed")
	}
	if after := c.Dump(ctx, key).Val(); after != before || before == "" {
		t.Error("a refused take has changed the state")
	}
	if n := c.Exists(ctx, recordKey(key, "key")).Val(); n != 0 {
		t.Error("a refused take was recorded")
	}
}

// The clock is that of the node unless a test of this package has set another.
func TestTimeIsTheNodes(t *testing.T) {
	b := newBench(t, Definition{Rules: []Rule{bucketOf("own", 9, 60_000, 9)}})
	b.clock = nil
	b.take(Request{Subject: "u"})
	ctx := testContext(t)
	text := client(t).Get(ctx, keysOf(b.id, "api", "u", Atomic).subject).Val()
	held, err := readStates(text, b.exactly())
	if err != nil || held[0].a != minute || held[0].c != minute {
		t.Fatalf("%q, read as %+v: %v", text, held, err)
	}
	if off := time.Since(time.UnixMicro(held[0].b)); off < -time.Minute || off > time.Minute {
		t.Errorf("the state is of %v ago", off)
	}
	if held[0].b%1000 == 0 { // by chance once in a thousand takes; not twice
		b.take(Request{Subject: "v"})
		text = client(t).Get(ctx, keysOf(b.id, "api", "v", Atomic).subject).Val()
		if held, err = readStates(text, b.exactly()); err != nil || held[0].b%1000 == 0 {
			t.Errorf("the state is of %d us, a whole millisecond: %v", held[0].b, err)
		}
	}
}

// TestATakeIsSentOnce loses the reply of takes: each was executed once, whatever was told.
func TestATakeIsSentOnce(t *testing.T) {
	cluster := clustertest.Shared(t)
	net := clustertest.Proxied(t, cluster)
	s, err := store.New(store.Config{
		Clusters: map[string]store.ClusterConfig{"default": {Addrs: cluster.Addrs(), Dialer: net.Dial}}, CursorKey: []byte(strings.Repeat("k", 32)),
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	d := Definition{Rules: []Rule{bucketOf("own", 9, 60_000, 9)}}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	l := New(s)
	l.clock = func() int64 { return T0 }
	b := &bench{l, t, newApp(t, "ratelimits:*"), Limit{Name: "api", Definition: &d}}
	b.take(Request{Subject: "warm"})
	lose := func() {
		for _, addr := range cluster.Addrs() {
			net.Proxy(addr).ResetReplies(1, "EVALSHA")
		}
	}
	lose()
	var e *store.Error
	if _, _, err := b.Take(testContext(t), b.id, b.lim, &Request{Subject: "u"}, keyed("key")); !errors.As(err, &e) || e.Outcome != store.Unknown {
		t.Fatalf("a lost reply: %v", err)
	}
	net.Pass()
	b.wantRemaining("u", 8)
	if r, replayed := b.take(Request{Subject: "u"}, "key"); !replayed || !r.Allowed {
		t.Errorf("the repetition: %+v, replayed %v", r, replayed)
	}
	b.wantRemaining("u", 8)
}

func TestOneRuleThatBecomesAnotherKindBeginsAnew(t *testing.T) {
	var o One
	o.Set(valid(t, bucketOf("b", 9, 1000, 9))[0])
	o.Take(T0, 9, 9)
	o.Set(valid(t, bucketOf("b", 20, 2000, 20))[0])
	if g := o.Take(T0, 1, 1); g.Remaining != 10 {
		t.Errorf("a bucket of 20 of which 9 and 1 were taken has %d", g.Remaining)
	}
	o.Set(valid(t, Rule{ID: "b", Algorithm: FixedWindow, Limit: 9, PeriodMS: 1000})[0])
	if g := o.Take(T0, 9, 9); g.Granted != 9 || g.Remaining != 0 {
		t.Errorf("a new window of 9 gave %d", g.Granted)
	}
}
