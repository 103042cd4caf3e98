package limits

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/ratelimit"
)

var noon = time.Unix(1_800_000_000, 0)

func limitOf(t testing.TB, rules ...ratelimit.Rule) limit {
	t.Helper()
	d := ratelimit.Definition{Rules: rules}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	return limit{Limit: ratelimit.Limit{Name: "api", Definition: &d}, key: "api", version: 1}
}

// randomRule is a small one, so that many takes are refused and granted again within seconds.
func randomRule(id string, r *rand.Rand) ratelimit.Rule {
	rule := ratelimit.Rule{ID: id, Limit: 1 + r.Int64N(8), PeriodMS: 1 + r.Int64N(20_000)}
	rule.Algorithm = []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.LeakyBucket, ratelimit.FixedWindow, ratelimit.SlidingWindow}[r.IntN(4)]
	switch rule.Algorithm {
	case ratelimit.TokenBucket:
		rule.Burst = 1 + r.Int64N(8)
	case ratelimit.LeakyBucket:
		rule.Mode = []ratelimit.Mode{ratelimit.Policer, ratelimit.Shaper}[r.IntN(2)]
	case ratelimit.FixedWindow:
		rule.Align = []ratelimit.Align{ratelimit.AlignEpoch, ratelimit.AlignFirstHit}[r.IntN(2)]
	}
	if r.IntN(3) == 0 {
		rule.Scope = ratelimit.PerLimit
	}
	return rule
}

// TestNothingIsRefusedThatWouldBeGranted drives random takes of two gateways through the arithmetic of the script, and asks it too
// whenever one of them refuses by itself: it must refuse as well. A refusal consumes nothing, so asking changes nothing.
func TestNothingIsRefusedThatWouldBeGranted(t *testing.T) {
	known := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var rules []ratelimit.Rule
		for i := range 1 + r.IntN(3) {
			rules = append(rules, randomRule(fmt.Sprint("r", i), r))
		}
		lim := limitOf(t, rules...)
		redis := ratelimit.NewMemory()
		gateways := []*blocked{newBlocked(MostBlocked), newBlocked(MostBlocked)}
		now := noon
		for range 300 {
			now = now.Add(time.Duration(r.Int64N(int64(400 * time.Millisecond))))
			g := gateways[r.IntN(2)]
			cost := 1 + r.Int64N(3)
			req := &ratelimit.Request{Subject: fmt.Sprint("u", r.IntN(2)), Cost: &cost}
			if r.IntN(3) == 0 {
				least := 1 + r.Int64N(cost)
				req.MinGrant = &least
			}
			if r.IntN(4) == 0 {
				req.MaxWaitMS = r.Int64N(300)
			}
			said, found := g.find(now, lim, req)
			asked := now
			now = now.Add(time.Duration(r.Int64N(int64(3 * time.Millisecond)))) // on its way
			is, err := redis.Take(asked.Add(now.Sub(asked)/2), ratelimit.Share{App: "ns"}, lim.Limit, req)
			if err != nil {
				continue // more than a rule can ever grant
			}
			if found {
				known++
				if is.Allowed {
					t.Fatalf("seed %d: %+v was refused with %+v, and is granted", seed, *req, said)
				}
				continue
			}
			g.keep(asked, now, lim, req, is)
		}
	}
	if known < 1000 {
		t.Errorf("only %d refusals were repeated", known)
	}
}

func refusalOf(after time.Duration) ratelimit.Result {
	id := "r"
	return ratelimit.Result{LimitedBy: &id, RetryAfterMS: after.Milliseconds(), Source: ratelimit.FromRedis}
}

func TestAnAnswerThatAGiftHasOvertakenIsNotKept(t *testing.T) {
	lim := limitOf(t, ratelimit.Rule{ID: "r", Algorithm: ratelimit.TokenBucket, Limit: 1, PeriodMS: 60_000})
	req := &ratelimit.Request{Subject: "u"}
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		name         string
		to           string // the gift is at 5 ms
		asked, until int
		kept         bool
	}{
		{"asked before and answered after", "u", 1, 9, false},
		{"asked before, and the gift is everybody's", "", 1, 9, false},
		{"asked at the same moment", "u", 5, 9, false},
		{"asked afterwards", "u", 6, 9, true},
		{"asked afterwards, and the gift is everybody's", "", 6, 9, true},
		{"the gift is another's", "v", 1, 9, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBlocked(time.Second)
			b.forgive(at(5), lim.key, c.to)
			b.keep(at(c.asked), at(c.until), lim, req, refusalOf(time.Minute))
			if _, found := b.find(at(10), lim, req); found != c.kept {
				t.Errorf("kept: %v", found)
			}
		})
	}
	t.Run("a gift ends what was kept", func(t *testing.T) {
		b := newBlocked(time.Second)
		b.keep(at(1), at(2), lim, req, refusalOf(time.Minute))
		b.forgive(at(3), lim.key, "")
		if _, found := b.find(at(4), lim, req); found {
			t.Error("it is still refused")
		}
	})
	t.Run("an older answer that comes late", func(t *testing.T) {
		b := newBlocked(time.Second)
		b.keep(at(100), at(101), lim, req, refusalOf(time.Minute))
		b.keep(at(1), at(102), lim, req, refusalOf(time.Minute))
		if _, found := b.find(at(1050), lim, req); !found {
			t.Error("it has taken the place of the newer one")
		}
	})
}

// TestRefusalsAreKeptWithinBounds: of time and number.
func TestRefusalsAreKeptWithinBounds(t *testing.T) {
	lim := limitOf(t, ratelimit.Rule{ID: "r", Algorithm: ratelimit.TokenBucket, Limit: 1, PeriodMS: 60_000})
	b := newBlocked(time.Second)
	subject := func(i int) *ratelimit.Request { return &ratelimit.Request{Subject: fmt.Sprint(i)} }
	for i := range maxBlocked + 10 {
		b.keep(noon, noon, lim, subject(i), refusalOf(time.Minute))
	}
	if n := len(b.entries); n != maxBlocked || b.oldest.Len() != n {
		t.Errorf("%d are kept, %d in order", n, b.oldest.Len())
	}
	if _, found := b.find(noon, lim, subject(9)); found {
		t.Error("the oldest is still there")
	}
	if _, found := b.find(noon, lim, subject(maxBlocked+9)); !found {
		t.Error("the newest is not there")
	}
	later := noon.Add(2 * time.Second)
	b.keep(later, later, lim, subject(0), refusalOf(time.Minute))
	if n := len(b.entries); n != 1 || b.oldest.Len() != 1 {
		t.Errorf("%d are kept when all but one are over", n)
	}
	for i := range 3 {
		b.keep(later.Add(time.Duration(i)), later, lim, subject(0), refusalOf(time.Minute))
		b.forgive(later.Add(time.Duration(i)), lim.key, "0")
	}
	b.keep(later, later, lim, subject(1), refusalOf(time.Millisecond))
	b.keep(later, later.Add(time.Second), lim, subject(2), refusalOf(time.Minute))
	if n := len(b.entries); n != 1 || b.oldest.Len() != 1 {
		t.Errorf("%d are kept, of which some are over before they are known", n)
	}
}

func BenchmarkBlockedUnknown(b *testing.B) {
	lim := limitOf(b, ratelimit.Rule{ID: "r", Algorithm: ratelimit.TokenBucket, Limit: 1, PeriodMS: 60_000})
	k, req := newBlocked(time.Second), &ratelimit.Request{Subject: "u"}
	b.ReportAllocs()
	for b.Loop() {
		k.find(noon, lim, req)
	}
}
