package prepaid

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/ratelimit"
)

func TestWhileRedisDoesNotAnswerTheModeDecides(t *testing.T) {
	for _, row := range []struct {
		mode                         ratelimit.OnError
		allowed, denied, unavailable int
	}{
		{ratelimit.Open, 200, 0, 0},
		{ratelimit.Closed, 0, 0, 200},
		{ratelimit.Local, 25, 175, 0}, // a quarter of 100
		{"", 25, 175, 0},
	} {
		for name, mode := range map[string]Mode{"prepaid": Prepaid, "exact": Exact} {
			t.Run(string(row.mode)+" "+name, func(t *testing.T) {
				w := newWorld()
				w.setDown(errDown)
				g := w.gateway(t, 4)
				l := limitOf(perSecond(t, 100))
				l.Mode, l.OnError = mode, row.mode
				a := g.Allowance(l)
				got := map[Verdict]int{}
				for range 200 {
					d, _ := g.take(a, 1)
					if !d.Unasked {
						t.Fatalf("%+v", d)
					}
					if d.Verdict != Allowed && d.RetryAfter <= 0 {
						t.Fatalf("%+v", d)
					}
					got[d.Verdict]++
					g.work()
				}
				if got[Allowed] != row.allowed || got[Denied] != row.denied || got[Unavailable] != row.unavailable {
					t.Errorf("%v", got)
				}
				if w.takes != 1 {
					t.Errorf("it was asked %d times in no time", w.takes)
				}
				for range 100 { // ten seconds
					w.pass(time.Duration(rest))
					for range 10 {
						if _, waited := g.take(a, 1); waited {
							t.Fatal("a take waits for Redis which does not answer")
						}
					}
					g.work()
				}
				if w.takes < 90 || w.takes > 101 {
					t.Errorf("asked %d times in ten seconds", w.takes)
				}
				w.setDown(nil)
				w.pass(time.Duration(rest))
				g.take(a, 1)
				g.work()
				if d, _ := g.take(a, 1); d.Unasked || d.Verdict != Allowed {
					t.Errorf("when Redis is there again: %+v", d)
				}
			})
		}
	}
}

// hung is a Redis that answers nothing before the caller gives up.
type hung struct{ asked atomic.Int64 }

func (h *hung) Take(ctx context.Context, _ *Limit, _, _ int64) (ratelimit.Grant, error) {
	h.asked.Add(1)
	<-ctx.Done()
	return ratelimit.Grant{}, ctx.Err()
}

func (h *hung) Refund(ctx context.Context, _ *Limit, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestOneRequestWaitsForRedisThatHangsAndTheNextDoNot(t *testing.T) {
	h := &hung{}
	p := New(Config{Redis: h, Gateways: 1, Timeout: 10 * time.Millisecond})
	defer p.Close()
	l := limitOf(perSecond(t, 100))
	l.Mode = Exact
	a := p.Allowance(l)
	if d := a.Take(t.Context(), p.Now(), 1); d.Verdict != Allowed || !d.Unasked {
		t.Errorf("%+v", d)
	}
	for range 100 {
		if d := a.Try(p.Now(), 1); d.Verdict == Ask {
			t.Fatal("a second take would wait")
		}
	}
	if n := h.asked.Load(); n > 2 {
		t.Errorf("asked %d times", n)
	}
	// A request that has spent its time already does not wait at all, and says nothing about Redis.
	l.Key = Key("ns", "other", "")
	b := p.Allowance(l)
	if d := b.Take(t.Context(), p.Now()-int64(time.Second), 1); !d.Unasked {
		t.Errorf("%+v", d)
	}
	if d := b.Try(p.Now(), 1); d.Verdict != Ask {
		t.Errorf("after a request that came late: %+v", d)
	}
}

func TestNobodyWaitsForRedisThatIsLate(t *testing.T) {
	for name, row := range map[string]struct {
		took time.Duration
		rest bool
	}{
		"the question is young": {time.Millisecond, false},
		"the question is old":   {DefaultTimeout, true},
		"and answered still":    {DefaultTimeout + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			g := w.gateway(t, 1)
			l := limitOf(perSecond(t, 100))
			l.Mode = Exact
			a := g.Allowance(l)
			waiting, _, _ := a.join(t.Context(), g.Now(), 1)
			w.during = func() {
				w.during = func() { w.pass(row.took) }
				w.pass(row.took)
				if d := a.leave(waiting, true); !d.Unasked {
					t.Errorf("%+v", d)
				}
				if rests := a.Try(g.Now(), 1).Verdict != Ask; rests != row.rest {
					t.Errorf("nobody waits: %v", rests)
				}
			}
			g.work()
			if row.took > DefaultTimeout {
				d, waited := g.take(a, 1)
				if g.work(); !d.Unasked || waited {
					t.Errorf("after an answer that was late somebody waits: %+v", d)
				}
				w.pass(2 * row.took)
				if d, waited = g.take(a, 1); d.Unasked || !waited {
					t.Errorf("after twice that time nobody asks: %+v", d)
				}
			}
		})
	}
}

func TestATakeThatLeavesAndIsGivenBackTakesNothing(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	l := limitOf(rule(t, ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Align: ratelimit.AlignFirstHit, Limit: 10, PeriodMS: 60_000}))
	l.Mode = Exact
	a := g.Allowance(l)
	ctx, leave := context.WithCancel(t.Context())
	waiting, _, _ := a.join(ctx, g.Now(), 4)
	leave()
	a.GiveBack(a.leave(waiting, false), 4)
	g.work()
	if n := g.all(a); n != 10 {
		t.Errorf("%d of 10 are left", n)
	}
	if w, d, _ := a.join(ctx, g.Now(), 4); w != nil {
		t.Errorf("a take that has left waits: %+v", d)
	}
}

func TestAnAnswerThatWasLostIsNotUsedTwice(t *testing.T) {
	w := newWorld()
	g := w.gateway(t, 1)
	l := limitOf(rule(t, ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Align: ratelimit.AlignFirstHit, Limit: 10, PeriodMS: 60_000}))
	l.Mode, l.OnError = Exact, ratelimit.Closed
	a := g.Allowance(l)
	w.lose = true
	if d, _ := g.take(a, 4); d.Verdict != Unavailable {
		t.Errorf("%+v", d)
	}
	w.lose = false
	w.pass(time.Duration(rest))
	g.take(a, 1) // asks whether it is there again, and that costs one
	g.work()
	if n := g.all(a); n != 5 {
		t.Errorf("%d of 10 are left", n)
	}
}

// broken panics once.
type broken struct {
	*world
	sound atomic.Bool
}

func (b *broken) Take(ctx context.Context, l *Limit, cost, least int64) (ratelimit.Grant, error) {
	if !b.sound.Swap(true) {
		panic("a mistake")
	}
	return b.world.Take(ctx, l, cost, least)
}

func TestAPanicLeavesNobodyWaiting(t *testing.T) {
	var log bytes.Buffer
	w := newWorld()
	p := New(Config{Redis: &broken{world: w}, Now: w.clock, Gateways: 1, Timeout: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil))})
	l := limitOf(perSecond(t, 100))
	l.Mode, l.OnError = Exact, ratelimit.Closed
	a := p.Allowance(l)
	if d := a.Take(t.Context(), p.Now(), 1); d.Verdict != Unavailable {
		t.Errorf("%+v", d)
	}
	w.pass(time.Duration(rest))
	for i := 0; a.Take(t.Context(), p.Now(), 1).Unasked; i++ {
		if i == 1000 {
			t.Fatal("Redis is never asked again")
		}
		time.Sleep(time.Millisecond)
		w.pass(time.Duration(rest))
	}
	p.Close()
	if !strings.Contains(log.String(), "panic") {
		t.Errorf("logged %q", log.String())
	}
}

func TestCloseGivesBackAndPays(t *testing.T) {
	w := newWorld()
	p := w.live(t, 1)
	window := ratelimit.Rule{Algorithm: ratelimit.FixedWindow, Align: ratelimit.AlignFirstHit, Limit: 10_000, PeriodMS: 60_000}
	var all []*Allowance
	for i := range 20 {
		l := limitOf(rule(t, window))
		l.Key = Key("ns", "l", strings.Repeat("x", i+1))
		all = append(all, p.Allowance(l))
	}
	used := int64(0)
	for i, a := range all {
		for range 1 + 20*i {
			if d := a.Take(t.Context(), p.Now(), 1); d.Verdict == Allowed {
				used++
			}
		}
	}
	p.Close()
	p.Close()
	if got := w.charged - w.undone; got != used {
		t.Errorf("Redis knows of %d of %d", got, used)
	}
	if d := all[0].Take(t.Context(), p.Now(), 1); !d.Unasked {
		t.Errorf("after the end: %+v", d)
	}
}

func TestGatewaysCountEachOther(t *testing.T) {
	const second = int64(time.Second)
	p := &peers{}
	for _, row := range []struct {
		what         string
		at, n, known int64
	}{
		{"one that has just come holds nothing", 1 * second, 1, 0},
		{"before all have met it", 3 * second, 3, 0},
		{"then it knows", 5 * second, 3, 3},
		{"one more is counted at once", 6 * second, 4, 4},
		{"one that is gone may be back", 7 * second, 3, 4},
		{"and counts for ten seconds", 15 * second, 3, 4},
		{"but not longer", 17 * second, 3, 3},
		{"after a while without Redis all come back one by one", 60 * second, 1, 3},
		{"for as long as a new one is on trial", 62 * second, 2, 3},
		{"and then it is believed what it sees", 66 * second, 2, 2},
	} {
		for at := max(p.last+second, row.at-3*second); p.last != 0 && row.at-p.last <= 10*second && at < row.at; at += second {
			p.met(at, row.n) // each second
		}
		if p.met(row.at, row.n); p.known.Load() != row.known {
			t.Errorf("%s: %d are known, not %d", row.what, p.known.Load(), row.known)
		}
	}
}

func TestGatewaysOfAClusterCountEachOther(t *testing.T) {
	place := NewRedis(newStore(t))
	name := newName()
	count := func(cluster, name string, leave bool) int64 {
		t.Helper()
		n, err := place.Meet(t.Context(), cluster, name, leave)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count("default", name, false)
	if n := count("default", name, false); n != before {
		t.Errorf("one that comes again makes %d of %d", n, before)
	}
	other := newName()
	if n := count("default", other, false); n != before+1 {
		t.Errorf("two are %d, where one was %d", n, before)
	}
	if n := count("default", name, true); n != before {
		t.Errorf("after one has left there are %d", n)
	}
	if _, err := place.Meet(t.Context(), "none", name, false); err == nil {
		t.Error("a cluster that is not configured is counted")
	}
	p := New(Config{Redis: place})
	defer p.Close()
	if n := p.Gateways("default"); n != 1 {
		t.Errorf("at first there are %d", n)
	}
	deadline := time.Now().Add(20 * time.Second)
	for p.peers["default"].known.Load() < 1 {
		if time.Now().After(deadline) {
			t.Fatal("they are never known")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
