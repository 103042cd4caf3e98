package adaptive_test

import (
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/adaptive"
)

// clocked is a limiter whose windows a test ends.
type clocked struct {
	*adaptive.Limiter
	now time.Time
}

func newClocked(s adaptive.Settings) *clocked {
	c := &clocked{adaptive.New(s), time.Unix(1000, 0)}
	c.Tick(c.now)
	return c
}

// windows lets so many pass in which answers took so long, ticked each step.
func (c *clocked) windows(n int, took, step time.Duration) {
	for range n {
		c.Observe(took, 20)
		for end := c.now.Add(50 * time.Millisecond); c.now.Before(end); {
			c.now = c.now.Add(step)
			c.Tick(c.now)
		}
	}
}

const tick = 10 * time.Millisecond

func TestAHiccupIsLetPass(t *testing.T) {
	c := newClocked(adaptive.Settings{})
	c.windows(5, time.Millisecond, tick)
	for range 3 {
		c.windows(1, 100*time.Millisecond, tick)
		c.windows(1, time.Millisecond, tick)
	}
	if c.Limit() != 1024 {
		t.Errorf("single slow windows leave %.0f places", c.Limit())
	}
	c.windows(2, 100*time.Millisecond, tick)
	if c.Limit() != 512 {
		t.Errorf("two in a row, with nothing under way, leave %.0f places, not a half", c.Limit())
	}
}

func TestWhatIsNotUsedIsNoBoundWhenAnswersTakeLong(t *testing.T) {
	c := newClocked(adaptive.Settings{})
	c.windows(5, time.Millisecond, tick)
	for range 40 {
		c.Acquire(adaptive.Request{App: "a"})
	}
	c.windows(1, time.Second, tick)
	if c.Limit() > 32 {
		t.Errorf("40 places were used, answers take a second: there are %.0f places", c.Limit())
	}
}

func TestThePlacesComeBackInPeace(t *testing.T) {
	c := newClocked(adaptive.Settings{Initial: 100})
	c.windows(5, time.Millisecond, tick)
	c.windows(4, 100*time.Millisecond, tick)
	if c.Limit() > 20 {
		t.Fatalf("%.0f places are left", c.Limit())
	}
	c.windows(200, time.Millisecond, tick)
	if c.Limit() != 100 {
		t.Errorf("%.0f places came back", c.Limit())
	}
}

func TestWhatTheMachineTakesIsNotTheOtherSides(t *testing.T) {
	for late, lowered := range map[time.Duration]bool{0: true, 50 * time.Millisecond: false} {
		c := newClocked(adaptive.Settings{Every: tick, Tolerance: 15 * time.Millisecond})
		c.windows(5, time.Millisecond, tick)
		c.windows(5, 25*time.Millisecond, tick+late)
		if got := c.Limit() < 1024; got != lowered {
			t.Errorf("answers take 25 ms and ticks are late by %v: there are %.0f places", late, c.Limit())
		}
	}
	c := newClocked(adaptive.Settings{Every: tick, Tolerance: 15 * time.Millisecond})
	c.windows(5, time.Millisecond, tick)
	c.windows(5, 100*time.Millisecond, tick+50*time.Millisecond)
	if c.Limit() > 100 {
		t.Errorf("answers take 100 ms: there are %.0f places, however busy the machine is", c.Limit())
	}
}

func TestAnswersThatDoNotComeAreASignByThemselves(t *testing.T) {
	c := newClocked(adaptive.Settings{})
	c.windows(5, time.Millisecond, tick)
	c.Lost(1)
	c.windows(1, time.Millisecond, tick)
	if c.Limit() != 1024 {
		t.Errorf("one of 21 leaves %.0f places", c.Limit())
	}
	c.Lost(2)
	c.windows(1, time.Millisecond, tick)
	if c.Limit() > 717 {
		t.Errorf("two of 22 leave %.0f places", c.Limit())
	}
}
