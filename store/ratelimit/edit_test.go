package ratelimit

import (
	"fmt"
	"slices"
	"testing"
)

// For a second after an edit some gateways have the rules of before. Each counts by its own, so the most that passes is what both give.
func TestGatewaysWithRulesOfBeforeAndAfterGiveNoMoreThanBoth(t *testing.T) {
	window := Rule{ID: "new", Algorithm: SlidingWindow, Limit: 5, PeriodMS: 60_000}
	total := func(r Rule) Rule { r.Scope = PerLimit; return r }
	full := make([]Rule, MaxRules-1)
	for i := range full {
		full[i] = bucketOf(fmt.Sprint("r", i), 1000, 60_000, 1000)
	}
	for name, c := range map[string]struct{ before, after []Rule }{
		"renamed":                    {[]Rule{bucketOf("old", 10, 60_000, 10)}, []Rule{bucketOf("new", 5, 60_000, 5)}},
		"renamed, now a window":      {[]Rule{bucketOf("old", 10, 60_000, 10)}, []Rule{window}},
		"a window that was a bucket": {[]Rule{bucketOf("new", 10, 60_000, 10)}, []Rule{window}},
		"renamed in a limit of ten":  {append([]Rule{bucketOf("old", 10, 60_000, 10)}, full...), append(slices.Clone(full), window)},
		"renamed, of the limit":      {[]Rule{total(bucketOf("old", 10, 60_000, 10))}, []Rule{total(window)}},
		"renamed, of both scopes": {
			[]Rule{bucketOf("old", 10, 60_000, 10), total(bucketOf("old-total", 12, 60_000, 12))}, []Rule{bucketOf("new", 5, 60_000, 5), total(bucketOf("new-total", 6, 60_000, 6))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := newBench(t, Definition{Rules: c.before})
			after := newBench(t, Definition{Rules: c.after})
			after.id = before.id
			passed := 0
			for range 100 {
				for _, b := range []*bench{before, after} {
					if r, _ := b.take(Request{Subject: "u"}); r.Allowed {
						passed++
					}
				}
			}
			if passed != 15 {
				t.Errorf("%d of 200 passed, want 10 and 5", passed)
			}
		})
	}
}

// What a rule counted that is no more is kept while it would count, and then goes.
func TestWhatIsOfNoRuleIsKeptWhileItCounts(t *testing.T) {
	gone := []Rule{bucketOf("bucket", 10, 60_000, 10), {ID: "window", Algorithm: FixedWindow, Limit: 10, PeriodMS: 60_000}}
	b := newBench(t, Definition{Rules: append(gone, bucketOf("stays", 100, 3_600_000, 100))})
	was := b.lim.Definition
	b.take(Request{Subject: "u", Cost: ptr(5)})
	now := Definition{Rules: []Rule{bucketOf("stays", 100, 3_600_000, 100)}}
	if err := now.Validate(); err != nil {
		t.Fatal(err)
	}
	key, c := keysOf(b.id, "api", "u", Atomic).subject, client(t)
	for _, step := range []struct {
		at   int64 // us
		want int   // states in all
	}{{0, 3}, {30*second - 1, 3}, {30 * second, 2}, {2*minute - 1, 2}, {2 * minute, 1}} {
		b.clock = func() int64 { return T0 + step.at }
		b.lim.Definition = &now
		b.take(Request{Subject: "u"})
		if n := len(c.Get(testContext(t), key).Val()) / (numbersOfState * 8); n != step.want {
			t.Errorf("after %d us: %d states, want %d", step.at, n, step.want)
		}
		if step.at == 0 {
			b.lim.Definition = was
			b.wantRemaining("u", 5, 5, 94)
		}
	}
}

// Nobody fills a key by edits without end.
func TestAKeyHoldsTenStatesOfOtherRulesAtMost(t *testing.T) {
	b := newBench(t, Definition{Rules: []Rule{bucketOf("r", 10, 60_000, 10)}})
	key, c := keysOf(b.id, "api", "u", Atomic).subject, client(t)
	for i := range 30 {
		b.lim.Definition = &Definition{Isolation: Atomic, Rules: valid(t, bucketOf(fmt.Sprint("r", i), 10, 60_000, 10))}
		b.take(Request{Subject: "u"})
	}
	if n := len(c.Get(testContext(t), key).Val()) / (numbersOfState * 8); n != 1+10 {
		t.Errorf("%d states", n)
	}
	b.lim.Definition = &Definition{Isolation: Atomic, Rules: valid(t, bucketOf("r28", 10, 60_000, 10))}
	b.wantRemaining("u", 9) // the last before are kept
}
