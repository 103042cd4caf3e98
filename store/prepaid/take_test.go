package prepaid

import (
	"strconv"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/ratelimit"
)

func TestALimitOfOneGatewayIsKept(t *testing.T) {
	for name, mode := range map[string]Mode{"prepaid": Prepaid, "exact": Exact} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			p := w.live(t, 1)
			l := limitOf(perSecond(t, 100))
			l.Mode = mode
			a := p.Allowance(l)
			allowed := 0
			for range 200 {
				switch d := a.Take(t.Context(), p.Now(), 1); d.Verdict {
				case Allowed:
					allowed++
				case Denied:
					if d.RetryAfter <= 0 || d.RetryAfter > int64(time.Second) {
						t.Fatalf("%+v", d)
					}
				default:
					t.Fatalf("%+v", d)
				}
			}
			if allowed < 100 || allowed > 102 || mode == Exact && allowed != 100 {
				t.Errorf("%d let through of 100", allowed)
			}
		})
	}
}

// The worst: all hold what they may, the bucket is full again, and then all use up everything.
func TestTheMostIsTheLimitAndItsSlack(t *testing.T) {
	w := newWorld()
	l := limitOf(rule(t, ratelimit.Rule{Limit: 3000, PeriodMS: 100}))
	var gateways []*gateway
	for range 3 {
		g := w.gateway(t, 3)
		gateways = append(gateways, g)
		a := g.Allowance(l)
		for i := 0; i < 200 || i < 300 && a.position.Load() < a.hold; i++ { // it is used, and so fills up
			g.take(a, 1)
			g.work()
			w.pass(10 * time.Microsecond)
		}
		if a.position.Load() != a.hold || a.hold != 10 || a.credit != 10 {
			t.Fatalf("it holds %d of %d, and has a credit of %d", a.position.Load(), a.hold, a.credit)
		}
	}
	w.pass(120 * time.Millisecond)
	total := int64(0)
	for _, g := range gateways {
		a := g.Allowance(l)
		for {
			d, _ := g.take(a, 1)
			if d.Verdict != Allowed {
				break
			}
			total++
		}
	}
	if total > 3060 || total < 3030 {
		t.Errorf("%d were let through of 3000", total)
	}
	t.Logf("%d were let through of 3000", total)
}

func TestFewRequestsDoNotWait(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 5)
	const apps = 100
	var all []*Allowance
	for i := range apps {
		l := limitOf(rule(t, ratelimit.Rule{Limit: 1000, PeriodMS: 1000}))
		l.Key = Key("ns", string(rune('a'+i)), "")
		all = append(all, g.Allowance(l))
	}
	waited := 0
	for range 20 { // 10 seconds at two requests a second
		for _, a := range all {
			d, slow := g.take(a, 1)
			if d.Verdict != Allowed {
				t.Fatalf("%+v", d)
			}
			if slow {
				waited++
			}
			g.work()
		}
		g.sweep(g.Now(), nil)
		g.work()
		w.pass(500 * time.Millisecond)
	}
	if waited != 0 {
		t.Errorf("%d of %d requests waited for Redis", waited, 20*apps)
	}
	if w.takes > 20*apps {
		t.Errorf("%d questions for %d requests", w.takes, 20*apps)
	}
	for range 20 { // what was used on credit is paid when nobody comes any more
		w.pass(500 * time.Millisecond)
		g.sweep(g.Now(), nil)
		g.work()
	}
	if used := w.charged - w.undone; used != 20*apps {
		t.Errorf("Redis knows of %d of %d", used, 20*apps)
	}
	t.Logf("%d questions for %d requests", w.takes, 20*apps)
}

func TestManyRequestsDoNotWaitAndAskSeldom(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 2)
	a := g.Allowance(limitOf(perSecond(t, 20_000)))
	waited, n := 0, 10_000
	for range n { // 10,000 in a second
		d, slow := g.take(a, 1)
		if d.Verdict != Allowed {
			t.Fatalf("%+v", d)
		}
		if slow {
			waited++
		}
		g.work()
		w.pass(100 * time.Microsecond)
	}
	if waited > 1 || w.takes > n/50 {
		t.Errorf("%d waited, %d questions", waited, w.takes)
	}
	t.Logf("%d waited, %d questions", waited, w.takes)
}

func TestARefusalIsRememberedUntilItEndsAndASecondAtMost(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	l := limitOf(rule(t, ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Limit: 10, PeriodMS: 60_000}))
	a := g.Allowance(l)
	if n := g.all(a); n != 10 {
		t.Fatalf("%d were let through", n)
	}
	asked := w.takes
	d, waited := g.take(a, 1)
	if d.Verdict != Denied || waited || w.takes != asked || d.Remaining != 0 {
		t.Errorf("%+v, waited %v, asked %d times more", d, waited, w.takes-asked)
	}
	if d.RetryAfter <= int64(time.Second) || d.RetryAfter > int64(time.Minute) {
		t.Errorf("a window of a minute ends in %v", time.Duration(d.RetryAfter))
	}
	w.pass(time.Second)
	if _, waited = g.take(a, 1); !waited {
		t.Error("after a second it is still believed")
	}
	l.Rule.Limit = 20
	if d, _ = g.take(g.Allowance(l), 1); d.Verdict != Allowed {
		t.Errorf("after the limit was raised: %+v", d)
	}
	w.pass(time.Minute)
	if d, _ = g.take(a, 1); d.Verdict != Allowed {
		t.Errorf("in the next window: %+v", d)
	}
}

func TestALimitThatIsUsedUpGivesNoCredit(t *testing.T) {
	w := newWorld()
	l := limitOf(rule(t, ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Align: ratelimit.AlignFirstHit, Limit: 1000, PeriodMS: 60_000}))
	if _, err := w.Take(t.Context(), &l, 1000, 1000); err != nil { // by others
		t.Fatal(err)
	}
	g := w.gateway(t, 1)
	a := g.Allowance(l)
	if d, _ := g.take(a, a.credit+1); d.Verdict != Denied {
		t.Fatalf("%+v", d)
	}
	for range 30 {
		if n := g.all(a); n != 0 {
			t.Fatalf("%d were let through", n)
		}
		w.pass(time.Second)
		g.sweep(g.Now(), nil)
		g.work()
	}
}

func TestTakesThatWaitTogetherAreGrantedWholly(t *testing.T) {
	for name, mode := range map[string]Mode{"prepaid": Prepaid, "exact": Exact} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			g := w.gateway(t, 1)
			l := limitOf(rule(t, ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Align: ratelimit.AlignFirstHit, Limit: 1000, PeriodMS: 60_000}))
			l.Mode = mode
			a := g.Allowance(l)
			var waiting []*waiter
			for _, n := range []int64{600, 300, 200} {
				w, _, _ := a.join(t.Context(), g.Now(), n)
				waiting = append(waiting, w)
			}
			g.work()
			for i, want := range []Verdict{Allowed, Allowed, Denied} {
				if d := <-waiting[i].decision; d.Verdict != want {
					t.Errorf("%d: %+v", i, d)
				}
			}
			if w.undone != 0 || w.charged-a.position.Load() != 900 {
				t.Errorf("for 900 of 1000 it drew %d and gave %d back", w.charged, w.undone)
			}
		})
	}
}

// A grant of the last token says when the next one is due: until then Redis is not asked, and a flood costs its shard no more than the tokens do.
func TestAFloodAsksRedisOnceForEachToken(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	l := limitOf(perSecond(t, 50))
	l.Mode = Exact
	a := g.Allowance(l)
	g.all(a)
	asked, granted := w.takes, 0
	for range 2000 { // of a millisecond
		w.pass(time.Millisecond)
		d, _ := g.take(a, 1)
		if d.Verdict == Allowed {
			granted++
		} else if d.RetryAfter <= 0 || d.RetryAfter > int64(20*time.Millisecond) {
			t.Fatalf("%+v", d)
		}
	}
	if granted < 99 || granted > 100 {
		t.Errorf("%d were let through in two seconds at 50/s", granted)
	}
	if asked = w.takes - asked; asked > granted+1 {
		t.Errorf("asked %d times for %d tokens", asked, granted)
	}
}

func TestWhoComesForATokenThatIsTheLastOneIsRefusedWithIt(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	l := limitOf(perSecond(t, 10))
	l.Mode = Exact
	a := g.Allowance(l)
	g.take(a, 9)
	first, _, _ := a.join(t.Context(), g.Now(), 1)
	var second *waiter
	w.during = func() {
		w.during = nil
		second, _, _ = a.join(t.Context(), g.Now(), 1)
	}
	asked := w.takes
	g.work()
	if d := <-first.decision; d.Verdict != Allowed || d.Remaining != 0 {
		t.Errorf("the first: %+v", d)
	}
	if d := <-second.decision; d.Verdict != Denied || d.RetryAfter != int64(100*time.Millisecond) {
		t.Errorf("the second: %+v", d)
	}
	if asked = w.takes - asked; asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// exactOf is a limit of which every token is asked for.
func exactOf(r ratelimit.Rule) Limit {
	l := limitOf(r)
	l.Mode = Exact
	return l
}

func TestTheLastTokensGivenBackMayBeTakenAgain(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	a := g.Allowance(exactOf(rule(t, ratelimit.Rule{Limit: 3, PeriodMS: 60_000})))
	d, _ := g.take(a, 3)
	if d.Verdict != Allowed {
		t.Fatalf("%+v", d)
	}
	a.GiveBack(d, 3)
	g.work()
	if d, _ := g.take(a, 1); d.Verdict != Allowed {
		t.Errorf("%+v", d)
	}
}

func TestTheLastTokensThatNobodyWaitedForMayBeTakenAgain(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	l := exactOf(rule(t, ratelimit.Rule{Limit: 3, PeriodMS: 60_000}))
	l.OnError = ratelimit.Closed
	a := g.Allowance(l)
	x, _, _ := a.join(t.Context(), g.Now(), 3)
	w.during = func() { w.during = nil; a.leave(x, false) }
	g.work()
	if d, _ := g.take(a, 1); d.Verdict != Allowed {
		t.Errorf("%+v", d)
	}
}

func TestWhoWantsMoreIsToldToWaitLonger(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	a := g.Allowance(exactOf(rule(t, ratelimit.Rule{Limit: 100, PeriodMS: 60_000})))
	if d, _ := g.take(a, 100); d.Verdict != Allowed {
		t.Fatalf("%+v", d)
	}
	if d, _ := g.take(a, 50); d.Verdict != Denied || d.RetryAfter != int64(30*time.Second) {
		t.Errorf("%+v", d)
	}
}

func TestAnExactRefusalOfManyDoesNotRefuseFew(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	l := limitOf(perSecond(t, 10))
	l.Mode = Exact
	a := g.Allowance(l)
	g.take(a, 6)
	if d, _ := g.take(a, 5); d.Verdict != Denied || d.RetryAfter != int64(100*time.Millisecond) {
		t.Errorf("five of four: %+v", d)
	}
	if d, _ := g.take(a, 4); d.Verdict != Allowed {
		t.Errorf("four of four: %+v", d)
	}
	if d, _ := g.take(a, 11); d.Verdict != Denied || d.RetryAfter != Never {
		t.Errorf("more than there ever is: %+v", d)
	}
}

func TestWhatIsHeldDiesAndIsGivenBack(t *testing.T) {
	hold := func(t *testing.T, w *world, r ratelimit.Rule) (*gateway, *Allowance) {
		g := w.gateway(t, 1)
		a := g.Allowance(limitOf(r))
		for range 100 {
			g.take(a, 1)
			g.work()
			w.pass(10 * time.Microsecond)
		}
		if a.position.Load() <= 0 {
			t.Fatalf("it holds %d", a.position.Load())
		}
		return g, a
	}
	t.Run("after a second", func(t *testing.T) {
		w := newWorld()
		g, a := hold(t, w, rule(t, ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Limit: 1000, PeriodMS: 86_400_000}))
		w.pass(time.Second)
		g.sweep(g.Now(), nil)
		g.work()
		if p := a.position.Load(); p != 0 || w.charged-w.undone != 100 {
			t.Errorf("it holds %d; 100 were used, and Redis knows of %d", p, w.charged-w.undone)
		}
	})
	t.Run("at the end of its window, and then nobody wants it back", func(t *testing.T) {
		w := newWorld()
		g, a := hold(t, w, rule(t, ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Align: ratelimit.AlignFirstHit, Limit: 1000, PeriodMS: 500}))
		w.pass(500 * time.Millisecond)
		d, _ := g.take(a, 1)
		if p := a.position.Load(); d.Verdict != Allowed || p >= 0 {
			t.Errorf("%+v of what was held, and %d is left", d, p)
		}
		g.work()
		if w.undone != 0 {
			t.Errorf("%d tokens of a window that is over were given back", w.undone)
		}
	})
	t.Run("and nobody wants it back when the window has ended meanwhile", func(t *testing.T) {
		w := newWorld()
		g, _ := hold(t, w, rule(t, ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Align: ratelimit.AlignFirstHit, Limit: 1000, PeriodMS: 1500}))
		w.pass(time.Second)
		g.sweep(g.Now(), nil)
		w.pass(time.Second / 2)
		if g.work(); w.undone != 0 {
			t.Errorf("%d tokens were given back", w.undone)
		}
	})
	t.Run("also where later ones are held", func(t *testing.T) {
		var c chunks
		c.drawn(1000, 0, 0) // ten, until 1000
		c.drawn(1500, 4, 6) // six of them are taken; more come
		for _, row := range []struct{ now, left, taken, dead int64 }{
			{999, 10, 10, 0},
			{1000, 10, 10, 0}, // the four are among those that were taken
			{1000, 12, 8, 2},
			{1500, 12, 8, 12},
			{1500, 0, 20, 0},
		} {
			if dead := c.dead(row.now, row.left, row.taken); dead != row.dead {
				t.Errorf("of %d left at %d, %d being taken, %d are dead, not %d", row.left, row.now, row.taken, dead, row.dead)
			}
		}
	})
}

func TestOneMoreGatewayMakesTheOthersHoldLess(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	a := g.Allowance(limitOf(perSecond(t, 1000)))
	for i := 0; i < 200 || i < 300 && a.position.Load() < a.hold; i++ {
		g.take(a, 1)
		g.work()
		w.pass(10 * time.Microsecond)
	}
	a.peers.known.Store(4)
	w.pass(time.Second)
	g.take(a, 1)
	g.work()
	if share := a.hold + a.credit; share != 5 || a.position.Load() > a.hold {
		t.Errorf("it holds %d, and its share is %d", a.position.Load(), share)
	}
}

func TestWhatIsUsedAlreadyIsOwed(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	a := g.Allowance(limitOf(perSecond(t, 1000)))
	a.Spend(g.Now(), 1500)
	g.work()
	d, _ := g.take(a, 1)
	if d.Verdict != Denied || d.RetryAfter < int64(400*time.Millisecond) || d.RetryAfter > int64(time.Second) {
		t.Errorf("with 1500 of 1000 used: %+v", d)
	}
	w.pass(600 * time.Millisecond)
	g.sweep(g.Now(), nil)
	g.work()
	if d, _ = g.take(a, 1); d.Verdict != Allowed {
		t.Errorf("after 0.6 s: %+v", d)
	}
}

// Each take is for a byte, and each answer has those of ten seconds.
func TestNobodyPassesBeforeADebtIsPaid(t *testing.T) {
	for name, mode := range map[string]Mode{"prepaid": Prepaid, "exact": Exact} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			g := w.gateway(t, 1)
			l := limitOf(perSecond(t, 1000))
			l.Mode = mode
			a := g.Allowance(l)
			passed := 0
			for i := range 20_000 { // 20 s
				w.pass(time.Millisecond)
				if d, _ := g.take(a, 1); d.Verdict == Allowed {
					passed++
					a.Spend(g.Now(), 10_000)
				}
				if i%250 == 0 {
					g.sweep(g.Now(), nil)
				}
				g.work()
			}
			if passed != 2 && passed != 3 {
				t.Errorf("%d passed in 20 s", passed)
			}
		})
	}
}

func TestATakeThatIsGivenBackIsAsIfItNeverWas(t *testing.T) {
	for name, mode := range map[string]Mode{"prepaid": Prepaid, "exact": Exact} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			g := w.gateway(t, 1)
			l := limitOf(rule(t, ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Align: ratelimit.AlignFirstHit, Limit: 100, PeriodMS: 3_600_000}))
			l.Mode = mode
			a := g.Allowance(l)
			for range 500 {
				d, _ := g.take(a, 1)
				a.GiveBack(d, 1)
				g.work()
			}
			if left := a.position.Load(); w.charged-w.undone != left || mode == Exact && left != 0 {
				t.Errorf("nothing was used and %d are held, and Redis knows of %d", left, w.charged-w.undone)
			}
			if n := g.all(a); n < 98 || n > 102 || mode == Exact && n != 100 {
				t.Errorf("%d were let through of 100", n)
			}
		})
	}
}

func TestRemainingIsWhatCanBeTaken(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	a := g.Allowance(limitOf(rule(t, ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Align: ratelimit.AlignFirstHit, Limit: 1000, PeriodMS: 60_000})))
	for i := range int64(1000) {
		d, _ := g.take(a, 1)
		if d.Verdict != Allowed {
			t.Fatalf("%+v", d)
		}
		if d.Remaining != 999-i || i > 50 && d.Next <= int64(50*time.Second) {
			t.Fatalf("after %d: %+v", i+1, d)
		}
		g.work()
	}
	b := g.Allowance(Limit{Cluster: "c", Key: Key("ns", "b", ""), Rule: perSecond(t, 10), Mode: Exact})
	if d, _ := g.take(b, 4); d.Remaining != 6 || d.Next != int64(100*time.Millisecond) {
		t.Errorf("four of ten a second: %+v", d)
	}
}

func TestWhatNobodyUsesIsForgotten(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	l := limitOf(rule(t, ratelimit.Rule{Limit: 1000, PeriodMS: 60_000}))
	a := g.Allowance(l)
	g.take(a, 1)
	for range 300 {
		w.pass(250 * time.Millisecond)
		g.sweep(g.Now(), nil)
		g.work()
	}
	if g.Len() != 0 {
		t.Fatalf("%d are kept, at %d", g.Len(), a.position.Load())
	}
	if used := w.charged - w.undone; used != 1 {
		t.Errorf("it was forgotten, and Redis knows of %d of 1", used)
	}
	b := g.Allowance(l)
	if a == b {
		t.Fatal("it was not forgotten")
	}
	for range 5 {
		g.take(a, 1) // by those who still have the old one
		g.take(b, 1)
		g.work()
	}
	if g.Len() != 1 || a.position.Load() != 0 {
		t.Errorf("%d are kept, and what was forgotten is at %d", g.Len(), a.position.Load())
	}
	for range 300 {
		w.pass(250 * time.Millisecond)
		g.sweep(g.Now(), nil)
		g.work()
	}
	if d, _ := g.take(b, 1); d.Verdict != Allowed || g.Len() != 1 || g.Allowance(l) != b {
		t.Errorf("used again it is not kept again: %+v, %d", d, g.Len())
	}
}

func TestMoreLimitsThanAreKeptAreExact(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	for i := range maxAllowances {
		g.byKey[strconv.Itoa(i)] = nil
	}
	a := g.Allowance(limitOf(perSecond(t, 1000)))
	if a.terms.Load().Mode != Exact || g.Len() > maxAllowances {
		t.Errorf("mode %d, %d are kept", a.terms.Load().Mode, g.Len())
	}
}

func BenchmarkTry(b *testing.B) {
	w := newWorld()
	p := w.live(b, 1)
	a := p.Allowance(limitOf(rule(b, ratelimit.Rule{Limit: 1 << 50, PeriodMS: 1000})))
	a.Take(b.Context(), p.Now(), 1)
	now := p.Now()
	try := func() {
		if d := a.Try(now, 1); d.Verdict != Allowed {
			b.Fatal(d)
		}
	}
	b.Run("one caller", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			try()
		}
	})
	b.Run("all cores", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				try()
			}
		})
	})
}

// What a request waits beside the network where Redis is asked each time.
func BenchmarkTakeExact(b *testing.B) {
	w := newWorld()
	p := w.live(b, 1)
	l := limitOf(rule(b, ratelimit.Rule{Limit: 1 << 50, PeriodMS: 1000}))
	l.Mode = Exact
	a := p.Allowance(l)
	b.ReportAllocs()
	for b.Loop() {
		if d := a.Take(b.Context(), p.Now(), 1); d.Verdict != Allowed {
			b.Fatal(d)
		}
	}
}
