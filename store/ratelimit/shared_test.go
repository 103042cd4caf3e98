package ratelimit

import "testing"

// Gateways learn of an edit one after the other. One that still has the lower number, and gives something back, must not forget for the others
// what is above it; a refusal writes nothing.
func TestALowerLimitRemembersWhatAHigherOneHasGiven(t *testing.T) {
	for _, algorithm := range []Algorithm{TokenBucket, FixedWindow, SlidingWindow} {
		rule := func(limit int64) Rule {
			d := Definition{Rules: []Rule{{ID: "a", Algorithm: algorithm, Limit: limit, PeriodMS: 3_600_000}}}
			if err := d.Validate(); err != nil {
				t.Fatal(err)
			}
			return d.Rules[0]
		}
		const now = 3_600_000_000
		var o One
		o.Set(rule(1000))
		o.Take(now, 1000, 1000)
		o.Set(rule(500))
		o.Refund(now, 10)
		o.Set(rule(1000))
		if g := o.Take(now, 1000, 1); g.Granted > 10 {
			t.Errorf("%s: %d were given after 10 came back", algorithm, g.Granted)
		}
	}
}
