package ratelimit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
)

var noon = time.Unix(1_800_000_000, 0)

func limitOf(t testing.TB, rules ...Rule) Limit {
	t.Helper()
	return Limit{Name: "api", Definition: &Definition{Rules: valid(t, rules...)}}
}

func hourly(limit int64) Rule {
	return Rule{ID: "hour", Algorithm: TokenBucket, Limit: limit, PeriodMS: 3_600_000}
}

// shared is a Memory of which an app has a share.
type shared struct {
	*Memory
	share Share
}

func sharing(gateways int) *shared { return &shared{NewMemory(), Share{"ns", gateways}} }

// remember takes from a Memory, which must be asked well.
func remember(t testing.TB, m *shared, at time.Time, lim Limit, subject string, cost int64) Result {
	t.Helper()
	res, err := m.Take(at, m.share, lim, &Request{Subject: subject, Cost: &cost})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// granted is how many takes of one pass, of so many.
func granted(t testing.TB, m *shared, at time.Time, lim Limit, subject string, of int) (n int64) {
	t.Helper()
	for range of {
		n += remember(t, m, at, lim, subject, 1).Granted
	}
	return n
}

func TestAMemoryGivesItsShare(t *testing.T) {
	for _, c := range []struct {
		gateways int
		rule     Rule
		want     int64
	}{
		{0, hourly(10), 10},
		{1, hourly(10), 10},
		{2, hourly(10), 5},
		{3, hourly(10), 3}, // together 9: never more than the limit
		{20, hourly(10), 1},
		{2, Rule{ID: "hour", Algorithm: TokenBucket, Limit: 100, Burst: 4, PeriodMS: 3_600_000}, 2},
		{2, Rule{ID: "hour", Algorithm: FixedWindow, Limit: 9, PeriodMS: 3_600_000}, 4},
		{2, Rule{ID: "hour", Algorithm: SlidingWindow, Limit: 9, PeriodMS: 3_600_000}, 4},
		{2, Rule{ID: "hour", Algorithm: LeakyBucket, Mode: Shaper, Limit: 9, Burst: 6, PeriodMS: 3_600_000}, 3},
		{2, Rule{ID: "hour", Algorithm: TokenBucket, Scope: PerLimit, Limit: 10, PeriodMS: 3_600_000}, 5},
	} {
		t.Run(fmt.Sprint(c.gateways, " gateways, ", c.rule.Algorithm, " of ", c.rule.Limit), func(t *testing.T) {
			m, lim := sharing(c.gateways), limitOf(t, c.rule)
			if got := granted(t, m, noon, lim, "u", 30); got != c.want {
				t.Errorf("%d were granted, want %d", got, c.want)
			}
			res := remember(t, m, noon, lim, "u", 1)
			if res.Allowed || res.Source != FromLocal || res.RetryAfterMS <= 0 || *res.LimitedBy != "hour" {
				t.Errorf("%+v", res)
			}
		})
	}
}

func TestAMemoryTellsSubjectsLimitsAndTotalsApart(t *testing.T) {
	m, lim := sharing(1), limitOf(t, hourly(3), Rule{ID: "total", Scope: PerLimit, Algorithm: TokenBucket, Limit: 5, PeriodMS: 3_600_000})
	if a, b := granted(t, m, noon, lim, "u", 9), granted(t, m, noon, lim, "v", 9); a != 3 || b != 2 {
		t.Errorf("u has %d and v %d of a total of 5", a, b)
	}
	// What the total refused has cost v nothing.
	res := remember(t, m, noon, lim, "v", 1)
	if *res.LimitedBy != "total" || res.Rules[0].Remaining != 1 {
		t.Errorf("%+v", res)
	}
	one := int64(1)
	if other, err := m.Take(noon, Share{App: "other"}, lim, &Request{Subject: "u", Cost: &one}); err != nil || !other.Allowed {
		t.Errorf("the limit of another app: %+v, %v", other, err)
	}
}

func TestAMemoryRefills(t *testing.T) {
	m, lim := sharing(1), limitOf(t, Rule{ID: "second", Algorithm: TokenBucket, Limit: 1, PeriodMS: 1000, Burst: 2})
	granted(t, m, noon, lim, "u", 3)
	if res := remember(t, m, noon.Add(999*time.Millisecond), lim, "u", 1); res.Allowed || res.RetryAfterMS != 1 {
		t.Errorf("%+v", res)
	}
	if got := granted(t, m, noon.Add(time.Second), lim, "u", 3); got != 1 {
		t.Errorf("%d a second later", got)
	}
	// A clock that goes back by a little gives nothing, and ends nothing.
	if got := granted(t, m, noon, lim, "u", 3); got != 0 {
		t.Errorf("%d when the clock has gone back", got)
	}
}

// What a share can never grant is refused for a moment only: Redis, which can, may be there again then.
func TestAShareIsNotForEver(t *testing.T) {
	m, lim := sharing(4), limitOf(t, hourly(8))
	if res := remember(t, m, noon, lim, "u", 3); res.Allowed || res.RetryAfterMS != 1000 {
		t.Errorf("%+v", res)
	}
	nine := int64(9)
	_, err := m.Take(noon, m.share, lim, &Request{Subject: "u", Cost: &nine})
	if e, ok := errors.AsType[*store.Error](err); !ok || e.Code != store.CodeCostExceedsLimit {
		t.Errorf("what the whole limit cannot grant: %v", err)
	}
	// A part of it is.
	one := int64(1)
	if res, err := m.Take(noon, m.share, lim, &Request{Subject: "u", Cost: &nine, MinGrant: &one}); err != nil || res.Granted != 2 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestAMemoryKnowsOverridesAndShadow(t *testing.T) {
	m, lim := sharing(2), limitOf(t, hourly(2))
	lim.Override = &Override{Rules: valid(t, hourly(20)), ExpiresAt: noon.Add(time.Second)}
	if got := granted(t, m, noon, lim, "vip", 30); got != 10 {
		t.Errorf("%d with an override of 20", got)
	}
	if res := remember(t, m, noon.Add(time.Second), lim, "vip", 1); res.Allowed || res.Rules[0].Limit != 1 {
		t.Errorf("after it has expired: %+v", res)
	}
	lim = limitOf(t, hourly(2))
	lim.Definition.Shadow = true
	granted(t, m, noon, lim, "w", 1)
	if res := remember(t, m, noon, lim, "w", 1); !res.Allowed || !res.Shadowed || res.Granted != 1 || *res.LimitedBy != "hour" {
		t.Errorf("%+v", res)
	}
}

// A Memory does not weigh on a gateway for ever, nor without bounds.
func TestAMemoryForgets(t *testing.T) {
	m, lim := sharing(1), limitOf(t, hourly(1))
	for i := range maxRemembered + 100 {
		remember(t, m, noon, lim, fmt.Sprint(i), 1)
	}
	if n := len(m.entries); n > maxRemembered+2 || m.used.Len() != n { // one take adds a subject and a total
		t.Errorf("%d are kept, %d in order", n, m.used.Len())
	}
	if res := remember(t, m, noon, lim, fmt.Sprint(maxRemembered), 1); res.Allowed {
		t.Error("one of the last is forgotten")
	}
	if res := remember(t, m, noon, lim, "1", 1); !res.Allowed {
		t.Error("the least used are kept")
	}
	if res := remember(t, m, noon.Add(rememberFor-time.Second), lim, "1", 1); res.Allowed {
		t.Error("it was forgotten before its time")
	}
	remember(t, m, noon.Add(2*rememberFor), lim, "new", 1)
	if n := len(m.entries); n != 2 || m.used.Len() != 2 {
		t.Errorf("%d are kept when all but one are old", n)
	}
}

// An app with many subjects does not make a Memory forget those of others.
func TestAnAppWithManySubjectsForgetsItsOwn(t *testing.T) {
	m, lim := sharing(1), limitOf(t, hourly(2))
	const few = 1000 // subjects of each of two others
	quiet, busy := Share{App: "quiet"}, Share{App: "busy"}
	take := func(share Share, subject int) bool {
		res, err := m.Take(noon, share, lim, &Request{Subject: fmt.Sprint(subject)})
		if err != nil {
			t.Fatal(err)
		}
		return res.Allowed
	}
	for i := range few {
		take(quiet, i)
		take(quiet, i)
	}
	for i := range maxRemembered + 500 {
		take(busy, i)
	}
	for i := range few { // who comes when it is full
		take(m.share, i)
		take(m.share, i)
	}
	for i := range few {
		if take(quiet, i) || take(m.share, i) {
			t.Fatalf("subject %d has more than its limit", i)
		}
	}
	if n := len(m.entries); n > maxRemembered+2 || m.used.Len() != n {
		t.Errorf("%d are kept, %d in order", n, m.used.Len())
	}
	if take(busy, maxRemembered+499); take(busy, maxRemembered+499) {
		t.Error("of the busy app not even the last are kept")
	}
}

// Where all want more than there is, each has an equal part.
func TestAMemoryIsDividedEqually(t *testing.T) {
	m, lim := sharing(1), limitOf(t, hourly(2))
	apps := []Share{{App: "a"}, {App: "b"}, {App: "c"}}
	for i := range maxRemembered {
		for _, share := range apps {
			if _, err := m.Take(noon, share, lim, &Request{Subject: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, share := range apps {
		if n := m.apps[share.App].used.Len(); n < maxRemembered/3-5 || n > maxRemembered/3+5 {
			t.Errorf("%s has %d of %d", share.App, n, maxRemembered)
		}
	}
	m.Forget(noon.Add(rememberFor))
	if len(m.apps) != 0 || m.larger != nil {
		t.Errorf("%d apps are kept that have nothing", len(m.apps))
	}
}

func TestAMemoryKeepsWhoIsThere(t *testing.T) {
	m, lim := sharing(1), limitOf(t, hourly(5))
	at := func(s time.Duration) time.Time { return noon.Add(s * time.Second) }
	remember(t, m, noon, lim, "stays", 1)
	remember(t, m, noon, lim, "leaves", 1)
	remember(t, m, at(40), lim, "stays", 1)
	if res := remember(t, m, at(80), lim, "stays", 1); res.Rules[0].Remaining != 2 {
		t.Errorf("%+v", res)
	}
	if n := len(m.entries); n != 2 { // and the total
		t.Errorf("%d are kept", n)
	}
}

// A Memory of one gateway is the model itself, whatever is asked, but for what it forgets.
func TestAMemoryOfOneIsTheModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		rules := valid(t, Rule{ID: "a", Algorithm: TokenBucket, Limit: 1 + r.Int64N(5), PeriodMS: 1 + r.Int64N(5000)},
			Rule{ID: "b", Algorithm: SlidingWindow, Limit: 1 + r.Int64N(9), PeriodMS: 1 + r.Int64N(9000)})
		m, lim := sharing(1), Limit{Name: "api", Definition: &Definition{Rules: rules}}
		states, at := make([]state, len(rules)), noon
		for range 50 {
			at = at.Add(time.Duration(r.Int64N(int64(time.Second))))
			cost := 1 + r.Int64N(2)
			req := &Request{Subject: "u", Cost: &cost}
			if req.Validate(rules) != nil {
				continue
			}
			want := decide(at.UnixMicro(), take, cost, cost, []exact{rules[0].exactly(0), rules[1].exactly(0)}, states)
			if got := remember(t, m, at, lim, "u", cost); got.Allowed != want.allowed || got.Rules[1].Remaining != want.rules[1].remaining {
				t.Fatalf("seed %d: %+v, the model says %+v", seed, got, want)
			}
		}
	}
}

func TestAMemoryIsSafeForManyAtOnce(t *testing.T) {
	m, lim := sharing(2), limitOf(t, hourly(100))
	var got atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				got.Add(remember(t, m, noon, lim, "u", 1).Granted)
			}
		})
	}
	all.Wait()
	if got.Load() != 50 {
		t.Errorf("%d were granted of a share of 50", got.Load())
	}
}
