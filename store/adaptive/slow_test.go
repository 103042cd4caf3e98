package adaptive_test

import (
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/adaptive"
)

// With a measure of its own a limiter takes nothing for the normal state, however long it lasts.
func TestWhatIsSlowIsNotLearntWhereItIsSaid(t *testing.T) {
	l := adaptive.New(adaptive.Settings{Initial: 100, Min: 10, Max: 1000, Slow: time.Millisecond})
	now := time.Unix(1_800_000_000, 0)
	l.Tick(now)
	window := func(took time.Duration) {
		l.Observe(took, 100)
		now = now.Add(100 * time.Millisecond)
		l.Tick(now)
	}
	var places []adaptive.Place
	full := func() { // all places are always taken
		for {
			p, reason := l.Acquire(adaptive.Request{Class: adaptive.Critical})
			if reason != adaptive.Admitted {
				return
			}
			places = append(places, p)
		}
	}
	for range 100 {
		full()
		window(900 * time.Microsecond)
	}
	if l.Limit() != 1000 {
		t.Errorf("%v places with answers that are not slow, want the most", l.Limit())
	}
	for range 10_000 {
		full()
		window(2 * time.Millisecond)
		if len(places) > 2000 {
			t.Fatal("it goes on giving out places")
		}
	}
	if l.Limit() > 12 {
		t.Errorf("%v places after 1,000 s of slow answers, want the least", l.Limit())
	}
	for _, p := range places {
		p.Release(false)
	}
	if l.InFlight() != 0 {
		t.Errorf("%d places are still taken", l.InFlight())
	}
}
