package prepaid

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/ratelimit"
)

var (
	sequences = flag.Int("sequences", 1000, "random histories of several gateways")
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random histories")
)

// admission is what was let through at a time, in ns.
type admission struct{ at, n int64 }

// fleet are the gateways of one history. All goes on in one goroutine: while a question is on its way to Redis, and while the answer
// is on its way back, other things happen.
type fleet struct {
	*world
	*rand.Rand
	t       *testing.T
	limit   Limit // the largest that it ever is
	edited  Limit // what it is now and then
	pools   []*Pool
	ahead   []int64    // the clocks of the gateways, to that of Redis
	lives   []int      // how often each has died
	queues  [][]func() // work that was started
	handles []*Allowance
	depth   int
	rush    bool
	undo    bool // takes are given back, and some leave before they are answered
	flaps   bool // Redis comes and goes, and is slow at times: takes leave when they have waited for long enough
	slow    bool // it is slow now

	admitted         []admission
	waiters          []waited
	stranded, failed int64
	alone, refused   int64 // let through without Redis; and not let through
	returned         int64
	strayed          int64                // given back in another window than that in which they were taken
	charged          map[*Allowance]int64 // when the last answer was made
	mortal, edits    bool
	deaths, unpaid   int64 // what those who died owed
}

type waited struct {
	a *Allowance
	*waiter
	now int64
}

func newFleet(t *testing.T, r *rand.Rand, gateways int, l Limit) *fleet {
	f := &fleet{world: newWorld(), Rand: r, t: t, limit: l, edited: l, charged: map[*Allowance]int64{}}
	f.queues, f.pools, f.handles = make([][]func(), gateways), make([]*Pool, gateways), make([]*Allowance, gateways)
	f.ahead, f.lives = make([]int64, gateways), make([]int, gateways)
	f.world.now += r.Int64N(int64(time.Minute))
	for i := range gateways {
		f.start(i)
	}
	return f
}

// start begins a gateway with a clock of its own.
func (f *fleet) start(i int) {
	f.ahead[i] = f.Int64N(int64(time.Hour)) - int64(30*time.Minute)
	life := f.lives[i]
	p := newPool(Config{Redis: way{f, i, life}, Now: func() int64 { return f.at(i) }, Gateways: len(f.pools), Timeout: 5 * time.Millisecond})
	p.start = func(work func()) bool {
		if f.lives[i] == life {
			f.queues[i] = append(f.queues[i], work)
		}
		return true
	}
	f.pools[i], f.handles[i], f.queues[i] = p, p.Allowance(f.limit), nil
}

// at is what time it is for a gateway.
func (f *fleet) at(i int) int64 { return f.world.now + f.ahead[i] }

// die ends a gateway with all that it holds and owes, and who waits there; another begins in its place.
func (f *fleet) die(i int) {
	f.collect()
	dead := f.handles[i]
	f.deaths++
	f.unpaid += max(-dead.position.Load(), 0)
	f.waiters = slices.DeleteFunc(f.waiters, func(w waited) bool { return w.a == dead })
	f.lives[i]++
	f.start(i)
}

// way is one gateway's way to the world, in one of its lives.
type way struct {
	f       *fleet
	i, life int
}

// answered notes when the last answer to the gateway was made, if it still lives.
func (w way) answered(at int64) {
	if w.f.lives[w.i] == w.life {
		w.f.charged[w.f.handles[w.i]] = at
	}
}

func (w way) Take(_ context.Context, l *Limit, cost, least int64) (ratelimit.Grant, error) {
	f := w.f
	f.collect()
	asked := f.world.now
	f.meanwhile()
	f.dawdle()
	fate := f.IntN(40)
	if f.world.down != nil {
		fate = 0
	}
	if fate < 2 {
		f.failed++
	}
	if fate == 0 {
		return ratelimit.Grant{}, errDown // it was not executed
	}
	g := f.one(l).Take(f.world.now/1000, cost, least)
	f.world.charged += g.Granted
	w.answered(f.world.now)
	if fate == 1 {
		f.stranded += g.Granted
		return ratelimit.Grant{}, errDown // it was
	}
	at := f.world.now
	f.dawdle()
	f.meanwhile()
	w.answered(at)
	if f.world.now-asked > int64(5*time.Millisecond) {
		f.failed++
	}
	if f.flaps && f.world.now-asked > int64(drawing) { // nobody listens any more
		f.stranded += g.Granted
		return ratelimit.Grant{}, context.DeadlineExceeded
	}
	return g, nil
}

func (w way) Refund(_ context.Context, l *Limit, n int64) error {
	f := w.f
	f.collect()
	window := f.world.now / (l.Rule.PeriodMS * int64(time.Millisecond))
	f.dawdle()
	f.meanwhile()
	if f.IntN(40) == 0 {
		f.stranded += n
		return errDown
	}
	if f.world.now/(l.Rule.PeriodMS*int64(time.Millisecond)) != window {
		f.strayed += n
	}
	f.one(l).Refund(f.world.now/1000, n)
	f.undone += n
	f.meanwhile()
	return nil
}

// dawdle is the time that Redis takes for a part of its way.
func (f *fleet) dawdle() {
	if f.slow {
		f.world.now += f.Int64N(int64(10 * time.Millisecond))
		f.meanwhile()
		f.world.now += f.Int64N(int64(30 * time.Millisecond))
	}
}

// flap makes Redis come, go, slow or quick.
func (f *fleet) flap() {
	switch r := f.IntN(100); {
	case r == 0:
		f.slow = !f.slow
	case r == 1 && f.world.down == nil:
		f.world.down = errDown
	case r == 2:
		f.world.down = nil
	}
	for i := 0; i < len(f.waiters); i++ {
		if w := f.waiters[i]; f.at(slices.Index(f.handles, w.a))-w.now >= int64(DefaultTimeout) {
			f.leave(i, true)
			i--
		}
	}
}

// meanwhile is what happens while somebody waits.
func (f *fleet) meanwhile() {
	if f.depth++; f.depth < 4 {
		for range f.IntN(4) {
			f.step()
		}
	}
	f.depth--
}

// step is one thing that happens. In a rush takes are many and no time passes; otherwise there are some, and what is held can be filled up.
func (f *fleet) step() {
	if f.IntN(150) == 0 {
		f.rush = !f.rush
	}
	if f.flaps {
		f.flap()
	}
	i := f.IntN(len(f.pools))
	switch r := f.IntN(100); {
	case r < 60:
		n := int64(1)
		if f.IntN(4) == 0 && f.rush {
			n = 1 + f.Int64N(max(f.limit.Rule.Limit/4, 1))
		}
		f.take(i, n)
	case r < 75 && !f.rush:
		scales := []time.Duration{time.Microsecond, time.Millisecond, time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}
		f.world.now += f.Int64N(int64(scales[f.IntN(len(scales))/(1+f.IntN(3))]) + 1)
		if f.IntN(10) == 0 {
			f.world.now += f.Int64N(int64(400 * time.Millisecond))
		}
	case r < 79:
		f.pools[i].sweep(f.at(i), nil)
	case r < 80:
		if f.mortal && f.IntN(5) == 0 {
			f.die(i)
		}
		if f.edits {
			f.pools[i].Allowance([]Limit{f.limit, f.edited}[f.IntN(2)])
		}
	case r < 83:
		if f.undo && len(f.waiters) > 0 {
			f.leave(f.IntN(len(f.waiters)), f.IntN(2) == 0)
		}
	default:
		f.work(i)
	}
	f.collect()
}

// work does something of what a gateway has started.
func (f *fleet) work(i int) {
	if q := f.queues[i]; len(q) > 0 {
		f.queues[i] = q[1:]
		q[0]()
		f.collect()
	}
}

func (f *fleet) take(i int, n int64) {
	a, now := f.handles[i], f.at(i)
	d := a.Try(now, n)
	if d.Verdict != Ask {
		f.note(a, n, d, f.world.now)
		return
	}
	w, d, _ := a.join(f.t.Context(), now, n)
	if w == nil {
		f.note(a, n, d, f.world.now)
		return
	}
	f.waiters = append(f.waiters, waited{a, w, now})
}

// note counts what was let through, unless it is given back.
func (f *fleet) note(a *Allowance, n int64, d Decision, at int64) {
	switch {
	case d.Verdict == Ask:
		f.t.Fatal("a verdict is to ask")
	case d.Verdict == Denied && d.RetryAfter == 0:
		f.t.Fatal("a refusal without its end")
	case d.Verdict != Allowed:
		f.refused++
	case d.Unasked && !(f.undo && f.IntN(20) == 0): // it was let through now
		f.alone += n
		f.admitted = append(f.admitted, admission{f.world.now, n})
	case f.undo && (d.Unasked || f.IntN(20) == 0):
		a.GiveBack(d, n)
		f.returned += n
	default:
		f.admitted = append(f.admitted, admission{at, n})
	}
}

// collect looks who was answered. What Redis gave for them was let through when it gave it.
func (f *fleet) collect() {
	f.waiters = slices.DeleteFunc(f.waiters, func(w waited) bool {
		select {
		case d := <-w.decision:
			f.note(w.a, w.n, d, f.charged[w.a])
			return true
		default:
			return false
		}
	})
}

func (f *fleet) leave(i int, late bool) {
	w := f.waiters[i]
	f.waiters = slices.Delete(f.waiters, i, i+1)
	f.note(w.a, w.n, w.a.leave(w.waiter, late), f.charged[w.a])
}

// settle lets all that is under way come to its end.
func (f *fleet) settle() {
	f.depth = 100
	for again := true; again; {
		again = false
		for i := range f.queues {
			for len(f.queues[i]) > 0 {
				again = true
				f.work(i)
			}
		}
	}
	f.collect()
	if len(f.waiters) > 0 {
		f.t.Fatalf("%d takes wait for nobody", len(f.waiters))
	}
}

// most is the largest sum of admissions in any interval, less what the rule's rate gives meanwhile: a bucket's level at its highest. For a window
// it is the largest sum of one window.
func (f *fleet) most() int64 {
	slices.SortStableFunc(f.admitted, func(a, b admission) int { return int(min(max(a.at-b.at, -1), 1)) })
	r := f.limit.Rule
	period := r.PeriodMS * int64(time.Millisecond)
	most, window := 0.0, int64(0)
	level, last := 0.0, int64(0)
	for _, a := range f.admitted {
		if r.Algorithm == ratelimit.TokenBucket {
			level = max(level-float64(a.at-last)*float64(r.Limit)/float64(period), 0)
		} else if w := a.at / period; w != window {
			window, level = w, 0
		}
		level += float64(a.n)
		last, most = a.at, max(most, level)
	}
	return int64(most + 1e-6)
}

func TestGatewaysTogetherStayWithinTheLimitAndItsSlack(t *testing.T) {
	t.Logf("go test ./store/prepaid -run %s -args -seed=%d -sequences=%d", t.Name(), *seed, *sequences)
	used := map[string]int64{}
	for i := range *sequences {
		r := rand.New(rand.NewPCG(*seed, uint64(i))) //nolint:gosec // not a secret
		gateways := 1 + r.IntN(4)
		raw := ratelimit.Rule{Limit: []int64{1, 49, 100, 400, 400, 1000, 1000, 5000}[r.IntN(8)], PeriodMS: []int64{100, 1000, 10_000}[r.IntN(3)]}
		raw.Algorithm = []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.FixedWindow, ratelimit.SlidingWindow}[r.IntN(3)]
		if raw.Algorithm == ratelimit.TokenBucket && r.IntN(2) == 0 {
			raw.Burst = 1 + r.Int64N(2*raw.Limit)
		}
		l := Limit{Cluster: "c", Key: Key("ns", "l", ""), Rule: rule(t, raw), OnError: ratelimit.Closed, Mode: Mode(r.IntN(2))}
		f := newFleet(t, r, gateways, l)
		f.undo, f.mortal, f.edits = r.IntN(2) == 0, r.IntN(3) == 0, r.IntN(3) == 0
		half := raw
		half.Limit, half.Burst = (raw.Limit+1)/2, (raw.Burst+1)/2
		f.edited.Rule = rule(t, half)
		for range 600 {
			f.step()
		}
		f.settle()
		what := fmt.Sprintf("history %d, %d gateways, mode %d, %+v", i, gateways, l.Mode, l.Rule)

		terms := newTerms(l)
		slack := terms.share(int64(gateways)) * int64(gateways)
		if slack > l.Rule.Limit*Slack/100 {
			t.Fatalf("%s: together they may hold %d", what, slack)
		}
		most := f.most()
		bound := terms.most + slack
		if f.undo {
			bound += f.undone // what fills up while a refund is on its way has those tokens twice
		}
		bound += f.unpaid
		if most > bound {
			t.Fatalf("%s: %d were let through where %d are the most; undo %v, undone %d, %d deaths, edits %v", what, most, bound, f.undo, f.undone, f.deaths, f.edits)
		}
		if f.unpaid > f.deaths*terms.share(int64(gateways)) {
			t.Fatalf("%s: %d that died owed %d", what, f.deaths, f.unpaid)
		}
		used[fmt.Sprintf("%s, over the rule alone: %v", raw.Algorithm, most > terms.most)]++
		if f.deaths > 0 || f.edits {
			continue // what they held is lost, and bounds are others
		}

		// Nothing gets lost: what Redis gave was let through, is held, or was given back.
		let, held := int64(0), int64(0)
		for _, a := range f.admitted {
			let += a.n
		}
		for _, a := range f.handles {
			held += a.position.Load() + a.dead
			if p, lo, hi := a.position.Load(), -a.credit, a.hold; p > hi || p < lo {
				t.Fatalf("%s: a gateway is at %d, outside of %d to %d", what, p, lo, hi)
			}
		}
		if f.world.charged-f.undone-f.stranded < let+held {
			t.Fatalf("%s: Redis gave %d, took back %d, %d are lost; %d were let through and %d are held", what, f.world.charged, f.undone, f.stranded, let, held)
		}
		f.lost(what, f.world.charged-f.undone-f.stranded-let-held)
	}
	t.Log(used)
}

// lost are tokens that nobody gives back, because their window is over or a bucket may have filled up, and those that were drawn to see whether
// Redis answers: one for each time that it has not.
func (f *fleet) lost(what string, n int64) {
	if n > f.failed && f.limit.Rule.Algorithm == ratelimit.TokenBucket && !f.undo {
		f.t.Fatalf("%s: %d tokens have disappeared, %d questions were not answered", what, n, f.failed)
	}
}

// What a gateway gives alone, while Redis does not answer or answers late, never comes on top of what Redis gives.
func TestFlippingBetweenRedisAndTheOwnPartGivesNoMore(t *testing.T) {
	t.Logf("go test ./store/prepaid -run %s -args -seed=%d -sequences=%d", t.Name(), *seed, *sequences)
	alone, asked, over := int64(0), int64(0), 0
	for i := range *sequences {
		r := rand.New(rand.NewPCG(*seed, uint64(i))) //nolint:gosec // not a secret
		raw := ratelimit.Rule{Limit: []int64{1, 10, 50, 50, 400, 1000}[r.IntN(6)], PeriodMS: []int64{100, 1000, 1000, 10_000}[r.IntN(4)]}
		raw.Algorithm = []ratelimit.Algorithm{ratelimit.TokenBucket, ratelimit.FixedWindow}[r.IntN(2)]
		if raw.Algorithm == ratelimit.TokenBucket && r.IntN(2) == 0 {
			raw.Burst = 1 + r.Int64N(2*raw.Limit)
		}
		l := Limit{Cluster: "c", Key: Key("ns", "l", ""), Rule: rule(t, raw), Mode: Mode(r.IntN(2))}
		f := newFleet(t, r, 1, l)
		for own := &f.handles[0].own; f.world.charged == f.stranded || own.fixed() && !own.window.known; { // when a window ends is told by Redis
			f.world.now += rest
			f.take(0, 1)
			f.work(0)
		}
		f.flaps, f.undo = true, r.IntN(4) == 0
		for range 1500 {
			f.step()
		}
		f.world.down = nil
		f.settle()
		what := fmt.Sprintf("history %d, mode %d, %+v", i, l.Mode, l.Rule)
		terms := newTerms(l)
		bound := terms.most + terms.share(1)
		if terms.bucket {
			bound += l.Rule.Limit/lagging + 1
		} else {
			bound += f.strayed
		}
		if f.undo {
			bound += f.undone + f.returned // as above, and what was taken in another window
		}
		if most := f.most(); most > bound {
			t.Fatalf("%s: %d were let through where %d are the most; undo %v, undone %d", what, most, bound, f.undo, f.undone)
		} else if most > terms.most {
			over++
		}
		alone += f.alone
		for _, a := range f.admitted {
			asked += a.n
		}
	}
	t.Logf("%d of %d were let through without Redis; %d histories went over the rule alone", alone, asked, over)
	if alone < asked/20 || asked-alone < asked/20 {
		t.Errorf("there is little to see: %d of %d were let through without Redis", alone, asked)
	}
}
