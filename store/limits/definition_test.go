package limits_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// wantCode fails unless err has the code.
func wantCode(t testing.TB, err error, code store.Code) *store.Error {
	t.Helper()
	e, ok := errors.AsType[*store.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("error %v, want %s", err, code)
	}
	return e
}

func definition(rules ...ratelimit.Rule) ratelimit.Definition {
	return ratelimit.Definition{Rules: rules}
}

// TestOthersFollowWithinFresh: one gateway changes a limit that another one has just used. That one believes what it knows until Fresh
// has passed, and not a moment longer.
func TestOthersFollowWithinFresh(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T, *gateway, *acl.Identity)
		most   int64 // what the subject u can take at once then; 0 = the limit is gone
	}{
		"a definition": {func(_ *testing.T, g *gateway, id *acl.Identity) { g.define(id, definition(slow("hour", 7))) }, 7},
		"an override": {func(t *testing.T, g *gateway, id *acl.Identity) {
			if _, err := g.Override(t.Context(), id, "api", "u", ratelimit.Override{Rules: []ratelimit.Rule{slow("hour", 9)}}, store.Condition{}); err != nil {
				t.Error(err)
			}
		}, 9},
		"the end of an override": {func(t *testing.T, g *gateway, id *acl.Identity) {
			if err := g.DeleteOverride(t.Context(), id, "api", "u", store.Condition{}); err != nil {
				t.Error(err)
			}
		}, 3},
		"its end": {func(t *testing.T, g *gateway, id *acl.Identity) {
			if err := g.Delete(t.Context(), id, "api", store.Condition{}); err != nil {
				t.Error(err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := newGateway(t), newGateway(t)
			id := one.defined(slow("hour", 3))
			was := int64(3)
			if name == "the end of an override" {
				was = 9
				if _, err := one.Override(t.Context(), id, "api", "u", ratelimit.Override{Rules: []ratelimit.Rule{slow("hour", was)}}, store.Condition{}); err != nil {
					t.Fatal(err)
				}
			}
			most := func(g *gateway) int64 {
				v, err := g.Peek(t.Context(), id, "api", of("u"))
				if e, ok := errors.AsType[*store.Error](err); ok && e.Code == store.CodeLimitNotFound {
					return 0
				}
				if err != nil {
					t.Fatal(err)
				}
				return v.Rules[0].Remaining
			}
			if got := most(two); got != was {
				t.Fatalf("at first %d", got)
			}
			asked := two.store.asked.Load()
			c.change(t, one, id)
			if got := most(one); got != c.most {
				t.Errorf("the gateway that changed it has %d", got)
			}
			two.pass(limits.Fresh)
			if got := most(two); got != c.most {
				t.Errorf("the other one has %d after Fresh", got)
			}
			if n := two.store.asked.Load() - asked; n != 1 {
				t.Errorf("it has asked %d times", n)
			}
		})
	}
}

// TestManyTakesAskForADefinitionOnce: what they find too old is asked for by one of them.
func TestManyTakesAskForADefinitionOnce(t *testing.T) {
	still := time.Now() // the clock stands still but for what the test says
	var g *gateway
	g = newGateway(t, func(c *limits.Config) { c.Now = func() time.Time { return still.Add(time.Duration(g.clock.Load())) } })
	id := g.defined(slow("hour", 1000))
	for round := range 3 {
		g.pass(limits.Fresh)
		before := g.store.asked.Load()
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() { g.take(id, of("u")) })
		}
		all.Wait()
		if n := g.store.asked.Load() - before; n != 1 {
			t.Errorf("round %d: asked %d times", round, n)
		}
	}
}

// TestEditsUnderLoad: takes run through two gateways while a third changes the limit. None fails, none is more than the largest of the
// definitions allows, and whoever looks Fresh after the last edit sees it. There is more to lose than with old and new added up: a
// bucket keeps its level in tokens, a window its count.
func TestEditsUnderLoad(t *testing.T) {
	for name, rule := range map[string]func(limit int64) ratelimit.Rule{
		"bucket": func(limit int64) ratelimit.Rule { return slow("hour", limit) },
		"fixed window": func(limit int64) ratelimit.Rule {
			return ratelimit.Rule{ID: "hour", Algorithm: ratelimit.FixedWindow, Align: ratelimit.AlignFirstHit, Limit: limit, PeriodMS: 3_600_000}
		},
		"sliding window, whose period changes too": func(limit int64) ratelimit.Rule {
			return ratelimit.Rule{ID: "hour", Algorithm: ratelimit.SlidingWindow, Limit: limit, PeriodMS: 400 * 24 * 3_600_000 / (limit%7 + 2)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			editor := newGateway(t)
			gateways := []*gateway{newGateway(t), newGateway(t)}
			sizes := []int64{50, 80, 30, 120, 60}
			largest := slices.Max(sizes)
			id := editor.defined(rule(sizes[0]))
			var mu sync.Mutex
			admitted := map[string]int64{}
			var takes atomic.Int64
			var all sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			stop := func() { cancel(); all.Wait() }
			defer stop()
			for n := range 6 {
				g, subject := gateways[n%2], fmt.Sprint("u", n%3)
				all.Go(func() {
					for ctx.Err() == nil {
						v, err := g.Take(t.Context(), id, "api", of(subject), store.Idempotency{})
						if err != nil || v.Source != ratelimit.FromRedis && v.Source != ratelimit.FromCache {
							t.Errorf("%+v, %v", v, err)
							return
						}
						takes.Add(1)
						mu.Lock()
						admitted[subject] += v.Granted
						mu.Unlock()
					}
				})
			}
			for edits := range 20 {
				enough := takes.Load() + 200 // so that subjects are refused between two edits
				for end := time.Now().Add(20 * time.Second); takes.Load() < enough && time.Now().Before(end) && !t.Failed(); {
					time.Sleep(time.Millisecond)
				}
				d := definition(rule(sizes[edits%len(sizes)]))
				if edits%4 == 3 { // a rule comes and goes
					d.Rules = append(d.Rules, slow("day", 5000))
				}
				editor.define(id, d)
				for _, g := range gateways {
					g.pass(limits.Fresh / 3)
				}
			}
			stop()

			last := slow("hour", 7)
			editor.define(id, definition(last))
			for i, g := range gateways {
				g.pass(limits.Fresh)
				if v := g.take(id, of("afterwards")); v.Rules[0].Limit != 7 {
					t.Errorf("gateway %d: %+v", i, v)
				}
			}
			for subject, n := range admitted {
				if n > largest || n < slices.Min(sizes) {
					t.Errorf("%s was given %d tokens by limits of %v", subject, n, sizes)
				}
			}
			if len(admitted) != 3 {
				t.Errorf("admitted %v", admitted)
			}
		})
	}
}

// TestAnEditBeginsAnewAfterAnother: between its look and its change somebody else has changed the limit.
func TestAnEditBeginsAnewAfterAnother(t *testing.T) {
	g, other := newGateway(t), newGateway(t)
	between := func(f func()) { g.store.after.Store(&f) }
	put := func(g *gateway, id *acl.Identity, burst int64, cond store.Condition) (string, error) {
		return g.Override(t.Context(), id, "api", "u", ratelimit.Override{Rules: []ratelimit.Rule{slow("hour", burst)}}, cond)
	}
	must := func(tag string, err error) string {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		return tag
	}
	t.Run("the definition is another one", func(t *testing.T) {
		id := g.defined(slow("hour", 3))
		d, err := g.Show(t.Context(), id, "api")
		if err != nil {
			t.Fatal(err)
		}
		between(func() { other.define(id, definition(slow("hour", 4))) })
		_, err = g.Define(t.Context(), id, "api", definition(slow("hour", 5)), store.Condition{IfMatch: []string{d.ETag}})
		wantCode(t, err, store.CodePreconditionFailed)
	})
	t.Run("there is one where none must be", func(t *testing.T) {
		id := newApp(t, "ratelimits:*")
		between(func() { other.define(id, definition(slow("hour", 4))) })
		_, err := g.Define(t.Context(), id, "api", definition(slow("hour", 5)), store.Condition{IfNoneMatch: true})
		wantCode(t, err, store.CodePreconditionFailed)
	})
	t.Run("only an override has changed, which the condition is not about", func(t *testing.T) {
		id := g.defined(slow("hour", 3))
		d, err := g.Show(t.Context(), id, "api")
		if err != nil {
			t.Fatal(err)
		}
		between(func() { must(put(other, id, 9, store.Condition{})) })
		if _, err := g.Define(t.Context(), id, "api", definition(slow("hour", 5)), store.Condition{IfMatch: []string{d.ETag}}); err != nil {
			t.Error(err)
		}
	})
	t.Run("the override is another one", func(t *testing.T) {
		id := g.defined(slow("hour", 3))
		tag := must(put(g, id, 5, store.Condition{}))
		between(func() { must(put(other, id, 6, store.Condition{})) })
		_, err := put(g, id, 7, store.Condition{IfMatch: []string{tag}})
		wantCode(t, err, store.CodePreconditionFailed)
		if o, err := g.ShowOverride(t.Context(), id, "api", "u"); err != nil || o.Rules[0].Limit != 6 {
			t.Errorf("%+v, %v", o, err)
		}
		between(func() { must(put(other, id, 8, store.Condition{})) })
		wantCode(t, g.DeleteOverride(t.Context(), id, "api", "u", store.Condition{IfMatch: []string{tag}}), store.CodePreconditionFailed)
	})
	t.Run("the override of somebody else has changed", func(t *testing.T) {
		id := g.defined(slow("hour", 3))
		tag := must(put(g, id, 5, store.Condition{}))
		between(func() {
			_, err := other.Override(t.Context(), id, "api", "v", ratelimit.Override{Rules: []ratelimit.Rule{slow("hour", 6)}}, store.Condition{})
			must("", err)
		})
		must(put(g, id, 7, store.Condition{IfMatch: []string{tag}}))
	})
	t.Run("an override that has expired was renewed", func(t *testing.T) {
		id := g.defined(slow("hour", 3))
		renew := func(hours time.Duration) {
			o := ratelimit.Override{Rules: []ratelimit.Rule{slow("hour", 6)}, ExpiresAt: time.Now().Add(hours * time.Hour)}
			_, err := other.Override(t.Context(), id, "api", "v", o, store.Condition{})
			must("", err)
		}
		renew(1)
		g.pass(2 * time.Hour)
		between(func() { renew(10) })
		must(put(g, id, 7, store.Condition{}))
		if _, err := other.ShowOverride(t.Context(), id, "api", "v"); err != nil {
			t.Error(err)
		}
	})
	t.Run("the limit is gone", func(t *testing.T) {
		id := g.defined(slow("hour", 3))
		between(func() { must("", other.Delete(t.Context(), id, "api", store.Condition{})) })
		_, err := put(g, id, 7, store.Condition{})
		wantCode(t, err, store.CodeLimitNotFound)
	})
}

// TestAnEditHoldsAtOnceWhereItWasMade: also if a question is under way that Redis has answered before.
func TestAnEditHoldsAtOnceWhereItWasMade(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*testing.T, *gateway, *acl.Identity) error
		most int64 // what u can take then; 0 = the limit is gone
	}{
		"a definition": {func(_ *testing.T, g *gateway, id *acl.Identity) error {
			g.define(id, definition(slow("hour", 7)))
			return nil
		}, 7},
		"an override": {func(t *testing.T, g *gateway, id *acl.Identity) error {
			return second(g.Override(t.Context(), id, "api", "u", ratelimit.Override{Rules: []ratelimit.Rule{slow("hour", 9)}}, store.Condition{}))
		}, 9},
		"its end": {func(t *testing.T, g *gateway, id *acl.Identity) error {
			return g.Delete(t.Context(), id, "api", store.Condition{})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			id := g.defined(slow("hour", 3))
			g.pass(limits.Fresh)
			edit := func() {
				if err := c.edit(t, g, id); err != nil {
					t.Error(err)
				}
			}
			g.store.after.Store(&edit)
			_ = second(g.Peek(t.Context(), id, "api", of("u")))
			v, err := g.Peek(t.Context(), id, "api", of("u"))
			if c.most == 0 {
				wantCode(t, err, store.CodeLimitNotFound)
			} else if err != nil || v.Rules[0].Remaining != c.most {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// holding lets the next question of a gateway wait for its answer until release.
func (g *gateway) holding() (release func()) {
	held := make(chan struct{})
	hold := func() {
		select {
		case <-held:
		case <-time.After(10 * time.Second): // who waits for it shall fail, not hang
		}
	}
	g.store.after.Store(&hold)
	return func() { close(held) }
}

// An answer that comes later than a take waits is an answer: limits with many overrides are followed too.
func TestADefinitionThatComesLateIsFollowed(t *testing.T) {
	g, other := newGateway(t, func(c *limits.Config) { c.Timeout = time.Millisecond }), newGateway(t)
	id := g.defined(slow("hour", 3))
	other.define(id, definition(slow("hour", 7)))
	g.pass(limits.Fresh)
	release := g.holding()
	if v, err := g.Peek(t.Context(), id, "api", of("u")); err != nil || v.Rules[0].Limit != 3 {
		t.Errorf("meanwhile: %+v, %v", v, err)
	}
	release()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		v, err := g.Peek(t.Context(), id, "api", of("u"))
		if err == nil && v.Rules[0].Limit == 7 {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if n := g.store.asked.Load(); n != 2 { // its own definition, and one question
		t.Errorf("it has asked %d times", n)
	}
}

// Whoever asks first asks for all, and each waits for its own deadline.
func TestNobodyWaitsForAnothersDeadline(t *testing.T) {
	g, other := newGateway(t), newGateway(t)
	id := other.defined(slow("hour", 3))
	release := g.holding()
	var first sync.WaitGroup
	first.Go(func() { g.take(id, of("u")) })
	for end := time.Now().Add(10 * time.Second); g.store.asked.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody asks")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	e := wantCode(t, second(g.Take(ctx, id, "api", of("v"), store.Idempotency{})), store.CodeBackendTimeout)
	if e.Outcome != store.NotApplied {
		t.Errorf("outcome %q", e.Outcome)
	}
	release()
	first.Wait()
}

// What is known of a limit is believed while its shard does not answer, however old it is; of one that is not known nothing is.
func TestAKnownLimitIsBelievedWhileItsShardIsDown(t *testing.T) {
	g := newGateway(t)
	id := g.defined(slow("hour", 3))
	g.store.fails.Store(store.NewError(store.CodeClusterDown, ""))
	for range 3 {
		g.pass(10 * limits.Fresh)
		if v := g.take(id, of("u")); !v.Allowed || v.Source != ratelimit.FailedOpen {
			t.Errorf("%+v", v)
		}
	}
	_, err := g.Take(t.Context(), id, "unknown", of("u"), store.Idempotency{})
	wantCode(t, err, store.CodeClusterDown)
	g.store.fails.Store(nil)
	g.pass(limits.Fresh)
	if v := g.take(id, of("u")); v.Source != ratelimit.FromRedis {
		t.Errorf("afterwards: %+v", v)
	}
}

// rawClient knows nothing of the gateway.
func rawClient(t testing.TB) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: clustertest.Shared(t).Addrs(), DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestWhatIsStoredAndNotADefinitionIsCorrupt(t *testing.T) {
	client := rawClient(t)
	for name, fields := range map[string]map[string]string{
		"no JSON":                {"v": "1", "d": "{"},
		"an override of no JSON": {"v": "1", "d": `{"rules":[]}`, "ou": "1"},
		"no definition":          {"v": "1"},
		"a version of no number": {"v": "x", "d": `{"rules":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			g, id := newGateway(t), newApp(t, "ratelimits:*")
			if err := client.HSet(t.Context(), "slotgate:r:{"+id.App.Namespace+"/api}:d", fields).Err(); err != nil {
				t.Fatal(err)
			}
			_, err := g.Take(t.Context(), id, "api", of("u"), store.Idempotency{})
			wantCode(t, err, store.CodeCorruptValue)
			if err := g.DeleteOverride(t.Context(), id, "api", "u", store.Condition{}); err != nil { // which asks for nothing else
				t.Fatal(err)
			}
			g.define(id, definition(slow("hour", 3)))
			g.take(id, of("u"))
		})
	}
}

// A limit has so many overrides and no more; those that have expired make room.
func TestOverridesAreBounded(t *testing.T) {
	g := newGateway(t)
	id := g.defined(slow("hour", 3))
	put := func(subject string, expires time.Time) error {
		_, err := g.Override(t.Context(), id, "api", subject, ratelimit.Override{Rules: []ratelimit.Rule{slow("hour", 5)}, ExpiresAt: expires}, store.Condition{})
		return err
	}
	if err := put("first", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{} // as they are stored: a thousand edits take long
	for i := range limits.MaxOverrides - 1 {
		fields[fmt.Sprint("o", i)] = `{"rules":[]}`
	}
	if err := rawClient(t).HSet(t.Context(), "slotgate:r:{"+id.App.Namespace+"/api}:d", fields).Err(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, put("one more", time.Time{}), store.CodeValidationFailed)
	if err := put("33", time.Time{}); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	g.pass(2 * time.Hour)
	if err := put("one more", time.Time{}); err != nil {
		t.Errorf("after one has expired: %v", err)
	}
	d, err := g.Show(t.Context(), id, "api")
	if err != nil || len(d.Overrides) != limits.MaxOverrides {
		t.Errorf("%d overrides, %v", len(d.Overrides), err)
	}
	if subjects := slices.Collect(maps.Keys(d.Overrides)); slices.Contains(subjects, "first") || !slices.Contains(subjects, "one more") {
		t.Error("the expired one is still there")
	}
}

func TestNamesAndSubjectsAreChecked(t *testing.T) {
	g, id := newGateway(t), newApp(t, "ratelimits:*")
	ctx, long := t.Context(), strings.Repeat("s", 257)
	d := definition(slow("hour", 3))
	o := ratelimit.Override{Rules: d.Rules}
	for what, err := range map[string]error{
		"Show":           second(g.Show(ctx, id, "a b")),
		"Define":         second(g.Define(ctx, id, "", d, store.Condition{})),
		"no rules":       second(g.Define(ctx, id, "api", definition(), store.Condition{})),
		"Delete":         g.Delete(ctx, id, "a/b", store.Condition{}),
		"Override":       second(g.Override(ctx, id, "a{b", "u", o, store.Condition{})),
		"Override of":    second(g.Override(ctx, id, "api", long, o, store.Condition{})),
		"DeleteOverride": g.DeleteOverride(ctx, id, "api", "", store.Condition{}),
		"ShowOverride":   second(g.ShowOverride(ctx, id, "api", long)),
		"Take":           second(g.Take(ctx, id, strings.Repeat("n", 65), of("u"), store.Idempotency{})),
		"Reset":          g.Reset(ctx, id, "api", ""),
	} {
		t.Run(what, func(t *testing.T) { wantCode(t, err, store.CodeValidationFailed) })
	}
	if n := g.store.asked.Load() + g.store.takes.Load(); n != 0 {
		t.Errorf("Redis was asked %d times", n)
	}
}

func second[T any](_ T, err error) error { return err }

func TestEachOperationNeedsItsPermission(t *testing.T) {
	g := newGateway(t)
	all := g.defined(slow("hour", 3))
	ctx, d := t.Context(), definition(slow("hour", 3))
	o := ratelimit.Override{Rules: d.Rules}
	operations := map[string]func(*acl.Identity) error{
		"RATELIMIT|SHOW":   func(id *acl.Identity) error { return second(g.Show(ctx, id, "api")) },
		"RATELIMIT|TAKE":   func(id *acl.Identity) error { return second(g.Take(ctx, id, "api", of("u"), store.Idempotency{})) },
		"RATELIMIT|PEEK":   func(id *acl.Identity) error { return second(g.Peek(ctx, id, "api", of("u"))) },
		"RATELIMIT|REFUND": func(id *acl.Identity) error { return second(g.Refund(ctx, id, "api", of("u"), store.Idempotency{})) },
		"RATELIMIT|RESET":  func(id *acl.Identity) error { return g.Reset(ctx, id, "api", "u") },
		"RATELIMIT|DEFINE": func(id *acl.Identity) error { return second(g.Define(ctx, id, "api", d, store.Condition{})) },
		"RATELIMIT|DEFINE, an override": func(id *acl.Identity) error {
			return second(g.Override(ctx, id, "api", "u", o, store.Condition{}))
		},
		"RATELIMIT|DEFINE, an override's end": func(id *acl.Identity) error { return g.DeleteOverride(ctx, id, "api", "u", store.Condition{}) },
	}
	for name, do := range operations {
		command, _, _ := strings.Cut(name, ",")
		t.Run(name, func(t *testing.T) {
			for other := range operations {
				other, _, _ := strings.Cut(other, ",")
				id := *all
				p, err := acl.CompilePermissions([]string{"commands:" + other})
				if err != nil {
					t.Fatal(err)
				}
				id.Permissions = p
				if err := do(&id); other == command && err != nil {
					t.Errorf("with %s: %v", other, err)
				} else if other != command {
					wantCode(t, err, store.CodeForbidden)
				}
			}
		})
	}
}
