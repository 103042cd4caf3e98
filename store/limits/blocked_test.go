package limits_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/ratelimit"
)

func TestARefusalThatIsRepeatedCostsRedisNothing(t *testing.T) {
	g := newGateway(t)
	id := g.defined(slow("hour", 2))
	first := g.refuse(id, of("u"))
	takes, asked := g.store.takes.Load(), g.store.asked.Load()
	g.pass(500 * time.Millisecond)
	for range 50 {
		v := g.take(id, of("u"))
		if v.Allowed || v.Granted != 0 || v.Source != ratelimit.FromCache || *v.LimitedBy != "hour" || v.Rules[0].Remaining != 0 {
			t.Fatalf("%+v", v)
		}
		if less := first.RetryAfterMS - v.RetryAfterMS; less < 400 || less > 60_000 || v.Rules[0].ResetMS >= first.Rules[0].ResetMS {
			t.Fatalf("first %d ms, half a second later %d ms", first.RetryAfterMS, v.RetryAfterMS)
		}
	}
	if g.store.takes.Load() != takes || g.store.asked.Load() != asked {
		t.Errorf("%d takes and %d definitions were asked for", g.store.takes.Load()-takes, g.store.asked.Load()-asked)
	}
	if first.Source != ratelimit.FromRedis || first.Rules[0].RetryAfterMS != first.RetryAfterMS {
		t.Errorf("the answer that is kept was changed: %+v", first)
	}
}

// TestWhatEndsARefusal: each row does something after a refusal of the subject u, and then the take is one that Redis is asked for.
func TestWhatEndsARefusal(t *testing.T) {
	two := ratelimit.Request{Subject: "u", Cost: ptr(2)}
	override := func(r ratelimit.Rule, until time.Time) ratelimit.Override {
		return ratelimit.Override{Rules: []ratelimit.Rule{r}, ExpiresAt: until}
	}
	for name, c := range map[string]struct {
		rules []ratelimit.Rule // 0 = 3 an hour
		do    func(*testing.T, *gateway, *acl.Identity)
		then  ratelimit.Request
		key   string
		same  bool // the refusal goes on
	}{
		"nothing":                    {then: two, same: true},
		"a smaller cost":             {then: of("u")},
		"a part that is enough":      {then: ratelimit.Request{Subject: "u", Cost: ptr(2), MinGrant: ptr(1)}},
		"the same part of a larger":  {then: ratelimit.Request{Subject: "u", Cost: ptr(3), MinGrant: ptr(2)}, same: true},
		"a larger cost":              {then: ratelimit.Request{Subject: "u", Cost: ptr(3)}},
		"a longer wait":              {then: ratelimit.Request{Subject: "u", Cost: ptr(2), MaxWaitMS: 1000}},
		"another subject":            {then: ratelimit.Request{Subject: "v", Cost: ptr(2)}},
		"an Idempotency-Key":         {then: two, key: "k"},
		"the time that is set is up": {do: func(_ *testing.T, g *gateway, _ *acl.Identity) { g.pass(limits.MostBlocked) }, then: two},
		"nearly":                     {do: func(_ *testing.T, g *gateway, _ *acl.Identity) { g.pass(limits.MostBlocked / 2) }, then: two, same: true},
		"a refund": {do: func(t *testing.T, g *gateway, id *acl.Identity) {
			if _, err := g.Refund(t.Context(), id, "api", of("u"), store.Idempotency{}); err != nil {
				t.Error(err)
			}
		}, then: two},
		"another subject's refund": {do: func(t *testing.T, g *gateway, id *acl.Identity) {
			if _, err := g.Refund(t.Context(), id, "api", of("v"), store.Idempotency{}); err != nil {
				t.Error(err)
			}
		}, then: two, same: true},
		"another subject's refund of a total": {rules: []ratelimit.Rule{slow("hour", 9), total(3)}, do: func(t *testing.T, g *gateway, id *acl.Identity) {
			if _, err := g.Refund(t.Context(), id, "api", of("v"), store.Idempotency{}); err != nil {
				t.Error(err)
			}
		}, then: two},
		"a reset": {do: func(t *testing.T, g *gateway, id *acl.Identity) {
			if err := g.Reset(t.Context(), id, "api", "u"); err != nil {
				t.Error(err)
			}
		}, then: two},
		"an override": {do: func(t *testing.T, g *gateway, id *acl.Identity) {
			if _, err := g.Override(t.Context(), id, "api", "u", override(slow("hour", 9), time.Time{}), store.Condition{}); err != nil {
				t.Error(err)
			}
		}, then: two},
		"another definition": {do: func(_ *testing.T, g *gateway, id *acl.Identity) {
			g.define(id, ratelimit.Definition{Rules: []ratelimit.Rule{slow("hour", 9)}})
		}, then: two},
		"a definition made anew": {do: func(t *testing.T, g *gateway, id *acl.Identity) {
			if err := g.Delete(t.Context(), id, "api", store.Condition{}); err != nil {
				t.Error(err)
			}
			g.define(id, ratelimit.Definition{Rules: []ratelimit.Rule{slow("other", 9)}})
		}, then: two},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			rules := c.rules
			if rules == nil {
				rules = []ratelimit.Rule{slow("hour", 3)}
			}
			id := g.defined(rules...)
			g.refuse(id, two)
			if c.do != nil {
				c.do(t, g, id)
			}
			before := g.store.takes.Load()
			var key []string
			if c.key != "" {
				key = append(key, c.key)
			}
			v := g.take(id, c.then, key...)
			if asked := g.store.takes.Load() != before; asked == c.same || (v.Source == ratelimit.FromCache) != c.same {
				t.Errorf("Redis was asked: %v; %+v", asked, v)
			}
		})
	}
}

// An override that blocks a subject for a while ends when it says so.
func TestARefusalEndsWithItsOverride(t *testing.T) {
	g := newGateway(t)
	id := g.defined(slow("hour", 9))
	least := slow("hour", 1)
	if _, err := g.Override(t.Context(), id, "api", "u",
		ratelimit.Override{Rules: []ratelimit.Rule{least}, ExpiresAt: time.Now().Add(5 * time.Second)}, store.Condition{}); err != nil {
		t.Fatal(err)
	}
	g.refuse(id, of("u"))
	if v := g.take(id, of("u")); v.Source != ratelimit.FromCache {
		t.Fatalf("%+v", v)
	}
	g.pass(5 * time.Second)
	before := g.store.takes.Load()
	g.take(id, of("u"))
	if g.store.takes.Load() == before {
		t.Error("the refusal of an override outlived it")
	}
}

// A subject whose rules are apart from the total may be refused because of a take that the total is about to refuse.
func TestOfApartRulesOnlyTheTotalsRefusalIsBelieved(t *testing.T) {
	g := newGateway(t)
	id := newApp(t, "ratelimits:*")
	g.define(id, ratelimit.Definition{Isolation: ratelimit.Partitioned, Rules: []ratelimit.Rule{slow("hour", 3), total(5)}})
	g.refuse(id, of("u")) // by its own rule
	if v := g.take(id, of("u")); v.Source != ratelimit.FromRedis || *v.LimitedBy != "hour" {
		t.Errorf("%+v", v)
	}
	g.refuse(id, of("v")) // by the total
	if v := g.take(id, of("v")); v.Source != ratelimit.FromCache || *v.LimitedBy != "total" {
		t.Errorf("%+v", v)
	}
}

func TestABadTakeIsToldSoWhileItsSubjectIsRefused(t *testing.T) {
	g := newGateway(t)
	id := g.defined(slow("hour", 3))
	g.refuse(id, of("u"))
	_, err := g.Take(t.Context(), id, "api", ratelimit.Request{Subject: "u", Cost: ptr(ratelimit.MaxCount + 1), MinGrant: ptr(1)}, store.Idempotency{})
	if err == nil || !strings.Contains(err.Error(), "validation_failed") {
		t.Errorf("%v", err)
	}
}

func TestRefusalsAreNotBelievedWhereThatIsOff(t *testing.T) {
	g := newGateway(t, func(c *limits.Config) { c.Blocked = 0 })
	id := g.defined(slow("hour", 1))
	g.refuse(id, of("u"))
	before := g.store.takes.Load()
	if v := g.take(id, of("u")); v.Source != ratelimit.FromRedis || g.store.takes.Load() != before+1 {
		t.Errorf("%+v", v)
	}
}

func TestAShadowedRefusalIsCountedByRedis(t *testing.T) {
	g := newGateway(t)
	id := newApp(t, "ratelimits:*")
	g.define(id, ratelimit.Definition{Shadow: true, Rules: []ratelimit.Rule{slow("hour", 1)}})
	for range 3 {
		if v := g.take(id, of("u")); !v.Allowed || v.Source != ratelimit.FromRedis {
			t.Errorf("%+v", v)
		}
	}
}

// While Redis does not answer, a subject that it has refused goes on being refused.
func TestARefusalHoldsWhileRedisDoesNotAnswer(t *testing.T) {
	g := newGateway(t)
	id := g.defined(slow("hour", 1))
	g.refuse(id, of("u"))
	g.store.fails.Store(store.NewError(store.CodeBackendTimeout, ""))
	if v := g.take(id, of("u")); v.Allowed || v.Source != ratelimit.FromCache {
		t.Errorf("%+v", v)
	}
	if v := g.take(id, of("v")); !v.Allowed || v.Source != ratelimit.FailedOpen {
		t.Errorf("%+v", v)
	}
}
