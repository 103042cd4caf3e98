package ratelimit

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/slotgate/slotgate/acl"
)

// Times of the vectors in us: T0 is a multiple of a minute.
const (
	T0     = 1_800_000_000_000_000
	second = 1_000_000
	minute = 60 * second
)

// stage is where a vector plays: the model, or a cluster.
type stage interface {
	do(t testing.TB, at int64, rules []Rule, m mode, r Request) Result
}

// modelStage keeps state as Redis would.
type modelStage map[string]state

func (s modelStage) do(_ testing.TB, at int64, rules []Rule, m mode, r Request) Result {
	sh := split(rules)
	ordered := append(append([]Rule(nil), sh.subject...), sh.total...)
	exacts, states := make([]exact, len(ordered)), make([]state, len(ordered))
	name := func(rule Rule) string {
		if rule.Scope == PerLimit {
			return "total/" + rule.ID
		}
		return r.Subject + "/" + rule.ID
	}
	for i, rule := range ordered {
		exacts[i], states[i] = rule.exactly(r.MaxWaitMS*1000), s[name(rule)]
	}
	out := reply{verdict: decide(at, m, r.cost(), r.least(), exacts, states)}
	for i, rule := range ordered {
		s[name(rule)] = states[i]
		out.order = append(out.order, rule.ID)
	}
	return out.result(rules, m)
}

// clusterStage runs the script on real nodes, at the vector's time.
type clusterStage struct {
	l  *Limiter
	id *acl.Identity
}

func (s clusterStage) do(t testing.TB, at int64, rules []Rule, m mode, r Request) Result {
	t.Helper()
	l := *s.l
	l.clock = func() int64 { return at }
	out, err := l.once(testContext(t), call{id: s.id, mode: m, cost: r.cost(), least: r.least(), maxWait: r.MaxWaitMS * 1000},
		keysOf(s.id, "vector", r.Subject, Atomic), split(rules))
	if err != nil {
		t.Fatal(err)
	}
	return out.result(rules, m)
}

// play is a vector on its way.
type play struct {
	t     *testing.T
	stage stage
	at    int64
	rules []Rule
}

func (p *play) use(rules ...Rule) { p.rules = valid(p.t, rules...) }

func (p *play) take(cost int64) Result { return p.do(take, Request{Subject: "u", Cost: &cost}) }
func (p *play) peek() Result           { return p.do(peek, Request{Subject: "u"}) }
func (p *play) do(m mode, r Request) Result {
	p.t.Helper()
	return p.stage.do(p.t, p.at, p.rules, m, r)
}

// admitted takes one token n times.
func (p *play) admitted(n int) (all int) {
	p.t.Helper()
	for range n {
		if p.take(1).Allowed {
			all++
		}
	}
	return all
}

func (p *play) want(what string, got, want any) {
	p.t.Helper()
	if !reflect.DeepEqual(got, want) {
		p.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func by(r Result) string {
	if r.LimitedBy == nil {
		return "none"
	}
	return *r.LimitedBy
}

func bucketOf(id string, limit, periodMS, burst int64) Rule {
	return Rule{ID: id, Algorithm: TokenBucket, Limit: limit, PeriodMS: periodMS, Burst: burst}
}

// vectors are those of the design (algorithms 1b), with the figures that were measured there.
var vectors = []struct {
	name string
	play func(p *play)
}{
	{"V1 a bucket of 60 a minute lets a burst of 60 through and then one a second", func(p *play) {
		p.use(bucketOf("minute", 60, 60_000, 60))
		p.want("of 100", p.admitted(100), 60)
		r := p.take(1)
		p.want("then", []any{r.Allowed, r.Rules[0].Remaining, r.Rules[0].ResetMS, r.RetryAfterMS}, []any{false, int64(0), int64(60_000), int64(1000)})
		p.at += second / 2
		p.want("half a second later", p.admitted(1), 0)
		p.at += second / 2
		p.want("a second later", p.admitted(2), 1)
	}},
	{"V2 two buckets are taken from together", func(p *play) {
		p.use(bucketOf("minute", 60, 60_000, 60), bucketOf("day", 10_000, 86_400_000, 10_000))
		p.want("of 100", p.admitted(100), 60)
		r := p.peek()
		p.want("the day", []int64{r.Rules[1].Remaining, r.Rules[1].ResetMS}, []int64{9940, 518_400})
	}},
	{"V3 a take that the day refuses leaves the minute alone", func(p *play) {
		p.use(bucketOf("minute", 60, 60_000, 60), bucketOf("day", 3, 86_400_000, 3))
		p.want("of 5", p.admitted(5), 3)
		r := p.take(1)
		p.want("then", []any{by(r), r.RetryAfterMS, r.Rules[0].Remaining}, []any{"day", int64(28_800_000), int64(57)})
	}},
	{"V4 a total is shared by all subjects", func(p *play) {
		p.use(bucketOf("minute", 60, 60_000, 60), Rule{ID: "total", Scope: PerLimit, Algorithm: FixedWindow, Limit: 5, PeriodMS: 60_000})
		got := ""
		for _, subject := range []string{"u", "v", "u", "v", "u", "v", "u", "v"} {
			got += fmt.Sprint(p.do(take, Request{Subject: subject}).Granted)
		}
		p.want("of 8", got, "11111000")
		p.at += 10 * second
		r := p.take(1)
		p.want("after 10 s", []any{by(r), r.RetryAfterMS, r.Rules[0].Remaining}, []any{"total", int64(50_000), int64(60)})
		p.at += 50 * second
		p.want("in the next window", p.admitted(1), 1)
	}},
	{"V5 a shaper spaces what it lets through", func(p *play) {
		p.use(Rule{ID: "q", Algorithm: LeakyBucket, Mode: Shaper, Limit: 10, PeriodMS: 1000, Burst: 5})
		var waits []int64
		for range 5 {
			waits = append(waits, p.take(1).WaitMS)
		}
		p.want("waits", waits, []int64{0, 100, 200, 300, 400})
		for range 2 {
			r := p.take(1)
			p.want("when the queue is full", []any{r.Allowed, r.RetryAfterMS}, []any{false, int64(100)})
		}
		p.at += second / 10
		r := p.take(1)
		p.want("after 100 ms", []any{r.Allowed, r.WaitMS}, []any{true, int64(400)})
	}},
	{"V6 a token bucket reserves what a caller would wait for", func(p *play) {
		p.use(bucketOf("b", 10, 1000, 2))
		var got []any
		for range 6 {
			r := p.do(take, Request{Subject: "u", MaxWaitMS: 200})
			got = append(got, r.Allowed, r.WaitMS, r.RetryAfterMS)
		}
		p.want("waits", fmt.Sprint(got), "[true 0 0 true 0 0 true 100 0 true 200 0 false 0 100 false 0 100]")
	}},
	{"V7 a sliding window counts the one before in proportion", func(p *play) {
		p.use(Rule{ID: "w", Algorithm: SlidingWindow, Limit: 10, PeriodMS: 60_000})
		p.at = T0 + 30*second
		p.admitted(4)
		p.at = T0 + minute
		p.admitted(5)
		p.at = T0 + minute + 15*second
		a, b, c := p.take(1), p.take(1), p.take(1)
		p.want("remaining", []int64{a.Rules[0].Remaining, b.Rules[0].Remaining}, []int64{1, 0})
		p.want("then", []any{c.Allowed, c.RetryAfterMS}, []any{false, int64(15_000)})
		p.at += 15*second - 1
		p.want("a microsecond too early", p.admitted(1), 0)
		p.at++
		p.want("when it said", p.admitted(1), 1)
	}},
	{"V8 costs, a partial grant, a refund, and a cost that never passes", func(p *play) {
		p.use(bucketOf("b", 10, 60_000, 10))
		p.want("8 of 10", p.take(8).Rules[0].Remaining, int64(2))
		r := p.take(5)
		p.want("5 of 2", []any{r.Allowed, r.Granted, r.Rules[0].Remaining}, []any{false, int64(0), int64(2)})
		p.want("1 of 2", p.take(1).Allowed, true)
		r = p.do(take, Request{Subject: "u", Cost: ptr(5), MinGrant: ptr(1)})
		p.want("at least 1 of 5", []any{r.Allowed, r.Granted, by(r)}, []any{true, int64(1), "b"})
		p.want("refund", p.do(refund, Request{Subject: "u", Cost: ptr(3)}).Rules[0].Remaining, int64(3))
		p.want("a refund of more than was taken", p.do(refund, Request{Subject: "u", Cost: ptr(MaxCount)}).Rules[0].Remaining, int64(10))
		r = p.take(11)
		p.want("11 of 10", []any{r.Allowed, r.RetryAfterMS}, []any{false, int64(-1)})
	}},
	{"V9 an edit keeps what was taken", func(p *play) {
		p.use(bucketOf("b", 60, 60_000, 60))
		p.take(30)
		p.use(bucketOf("b", 10, 1000, 60))
		r := p.peek()
		p.want("faster", []int64{r.Rules[0].Remaining, r.Rules[0].ResetMS}, []int64{30, 3000})
		p.use(bucketOf("b", 60, 60_000, 20))
		r = p.peek()
		p.want("smaller", []int64{r.Rules[0].Remaining, r.Rules[0].ResetMS}, []int64{0, 30_000})
	}},
	{"V10 a clock that goes back gives nothing, and 5 s later is believed", func(p *play) {
		p.use(bucketOf("b", 10, 1000, 10))
		p.admitted(10)
		p.at = T0 - 2*second
		p.want("2 s back", p.admitted(1), 0)
		p.at = T0 - 60*second
		p.want("60 s back", p.admitted(1), 0)
		p.at += second
		p.want("a second later", p.admitted(1), 1)
	}},
	{"V12 nothing drifts in 30 s of 100 takes a second at 7 a second", func(p *play) {
		p.use(bucketOf("b", 7, 1000, 7))
		all := 0
		for i := range int64(3000) {
			p.at = T0 + i*10_000
			all += p.admitted(1)
		}
		p.want("admitted", all, 7+209)
	}},
	{"a window of days begins at midnight of its time zone", func(p *play) {
		p.use(Rule{ID: "day", Algorithm: FixedWindow, Limit: 1, PeriodMS: 86_400_000, TZOffsetMin: 120})
		p.at = 1_799_964_000_000_000 // 2027-01-14 22:00 UTC, midnight two hours east
		p.want("after midnight", p.admitted(2), 1)
		p.at += 86_400*second - 1
		p.want("before the next", p.admitted(1), 0)
		p.at++
		p.want("at the next", p.admitted(1), 1)
	}},
	{"a window by first hit begins with the first take", func(p *play) {
		p.use(Rule{ID: "w", Algorithm: FixedWindow, Align: AlignFirstHit, Limit: 2, PeriodMS: 60_000})
		p.at = T0 + 50*second
		p.want("of 3", p.admitted(3), 2)
		p.want("retry", p.take(1).RetryAfterMS, int64(60_000))
		p.at += minute - 1
		p.want("before its end", p.admitted(1), 0)
		p.at++
		p.want("after it", p.admitted(3), 2)
	}},
	{"the largest limit counts exactly", func(p *play) {
		p.use(bucketOf("b", MaxCount, 1000, MaxCount), Rule{ID: "s", Algorithm: SlidingWindow, Limit: MaxCount, PeriodMS: 1000},
			Rule{ID: "f", Algorithm: FixedWindow, Limit: MaxCount, PeriodMS: 1000}, Rule{ID: "q", Algorithm: LeakyBucket, Mode: Shaper, Limit: MaxCount, PeriodMS: 1000})
		p.want("all but one", p.take(MaxCount-1).Allowed, true)
		p.want("two", p.take(2).Allowed, false)
		r := p.take(1)
		p.want("one", []any{r.Allowed, r.Rules[0].Remaining, r.Rules[1].Remaining, r.Rules[2].Remaining}, []any{true, int64(0), int64(0), int64(0)})
	}},
	{"a retry names the rule that refuses longest", func(p *play) {
		p.use(bucketOf("second", 1, 1000, 1), bucketOf("day", 1, 86_400_000, 1))
		p.take(1)
		r := p.take(1)
		p.want("then", []any{by(r), r.RetryAfterMS}, []any{"day", int64(86_400_000)})
	}},
}

func TestVectorsInTheModel(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) { v.play(&play{t: t, stage: modelStage{}, at: T0}) })
	}
}

func TestVectorsOnACluster(t *testing.T) {
	s := newStore(t)
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			v.play(&play{t: t, stage: clusterStage{New(s), newApp(t, "ratelimits:*")}, at: T0})
		})
	}
}
