package adaptive_test

import (
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/adaptive"
)

const patience = 100 * time.Millisecond

// aged is a limiter of so many places, up to most, for which patience passes.
type aged struct {
	*adaptive.Limiter
	now time.Time
}

func newAged(places, most int) *aged {
	a := &aged{adaptive.New(adaptive.Settings{Initial: places, Min: places, Max: most}), time.Unix(1000, 0)}
	a.Age(a.now, patience)
	return a
}

func (a *aged) pass() {
	a.Age(a.now, patience)
	a.now = a.now.Add(patience)
	a.Age(a.now, patience)
}

func (a *aged) want(t *testing.T, inFlight, waiting int) {
	t.Helper()
	if a.InFlight() != inFlight || a.Waiting() != waiting {
		t.Errorf("%d are in flight and %d wait, not %d and %d", a.InFlight(), a.Waiting(), inFlight, waiting)
	}
}

func TestWhoWaitsForLongLeavesItsPlaceToOthers(t *testing.T) {
	a := newAged(20, 1000)
	app := adaptive.Request{App: "of a slow shard"}
	slow := fill(a.Limiter, app)
	if other := fill(a.Limiter, app); len(slow) != 17 || len(other) != 0 {
		t.Fatalf("%d places, and %d behind them", len(slow), len(other))
	}
	a.Age(a.now, patience)
	a.now = a.now.Add(patience - 1)
	a.Age(a.now, patience)
	a.want(t, 17, 0)
	a.now = a.now.Add(1)
	a.Age(a.now, patience)
	a.want(t, 0, 17)
	fresh := fill(a.Limiter, adaptive.Request{App: "of another"})
	if len(fresh) != 17 {
		t.Errorf("%d places beside those who wait, not 17", len(fresh))
	}
	for _, p := range append(slow, fresh...) {
		p.Release(false)
	}
	a.want(t, 0, 0)
}

func TestALongPatienceLetsNobodyWaitBesides(t *testing.T) {
	a := newAged(20, 1000)
	fill(a.Limiter, adaptive.Request{App: "a"})
	a.Age(a.now, patience)
	a.now = a.now.Add(10 * patience)
	a.Age(a.now, 11*patience)
	a.want(t, 17, 0)
}

// What waits takes memory, too.
func TestThoseWhoWaitFillNoMoreThanTheMost(t *testing.T) {
	a := newAged(20, 100)
	for range 50 {
		fill(a.Limiter, adaptive.Request{App: "a"})
		a.pass()
	}
	if n := a.Waiting(); n != 85 {
		t.Errorf("%d of class normal wait, not the 85 that it may hold of 100", n)
	}
	if got := len(fill(a.Limiter, adaptive.Request{App: "b", Class: adaptive.Critical})); got != 15 {
		t.Errorf("%d critical ones beside them, not 15", got)
	}
}

func TestAgeTellsHowManyCame(t *testing.T) {
	a := newAged(100, 100)
	p, _ := a.Acquire(adaptive.Request{Weight: 3})
	p.Release(false)
	a.Acquire(adaptive.Request{})
	if came := a.Age(a.now, patience); came != 4 {
		t.Errorf("%d, not 4", came)
	}
	if came := a.Age(a.now, patience); came != 0 {
		t.Errorf("%d, not 0", came)
	}
}

func TestEveryPlaceComesBackWhileOthersGrowOld(t *testing.T) {
	a := newAged(1000, 1000)
	var callers sync.WaitGroup
	for n := range 4 {
		callers.Go(func() {
			var held []adaptive.Place
			for i := range 20_000 {
				p, _ := a.Acquire(adaptive.Request{App: "a", Class: adaptive.Class(i % 3), Weight: n + 1})
				if held = append(held, p); len(held) > 10 {
					held[0].Release(false)
					held = held[1:]
				}
			}
			for _, p := range held {
				p.Release(false)
			}
		})
	}
	over := make(chan struct{})
	go func() { callers.Wait(); close(over) }()
	for running := true; running; a.Age(a.now, 0) { // all but the current are old
		select {
		case <-over:
			running = false
		default:
		}
	}
	a.want(t, 0, 0)
}
