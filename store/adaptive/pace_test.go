package adaptive_test

import (
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/adaptive"
)

// side is another side that does one command after the other.
type side struct{ trip, each time.Duration }

func (s side) take(commands int) time.Duration { return s.trip + time.Duration(commands)*s.each }

// work lets so many windows pass in which the other side has answered so many commands at a time, 20 times each.
func (c *clocked) work(windows int, s side, at ...int) {
	for range windows {
		for _, n := range at {
			for range 20 {
				c.Observe(s.take(n), n)
			}
		}
		c.now = c.now.Add(50 * time.Millisecond)
		c.Tick(c.now)
	}
}

var (
	fastSide = side{100 * time.Microsecond, 10 * time.Microsecond}
	farSide  = side{5 * time.Millisecond, 10 * time.Microsecond}
	slowSide = side{100 * time.Microsecond, 1500 * time.Microsecond}
)

func TestWhatOneOfSeveralCommandsTakes(t *testing.T) {
	for name, row := range map[string]struct {
		work func(*clocked)
		want time.Duration
	}{
		"nothing is known at first":           {func(*clocked) {}, 0},
		"commands that go alone show nothing": {func(c *clocked) { c.work(10, slowSide, 1, 3) }, 0},
		"one window might be a hiccup":        {func(c *clocked) { c.work(1, slowSide, 1, 100) }, 0},
		"two show it":                         {func(c *clocked) { c.work(2, slowSide, 1, 100) }, 1500 * time.Microsecond},
		"few at a time show it, too":          {func(c *clocked) { c.work(2, slowSide, 1, 4) }, 1500 * time.Microsecond},
		"of a fast one":                       {func(c *clocked) { c.work(2, fastSide, 1, 100) }, 10 * time.Microsecond},
		"the way there is not the work":       {func(c *clocked) { c.work(2, farSide, 1, 50) }, 10 * time.Microsecond},
		"a hiccup is none": {func(c *clocked) {
			c.work(2, fastSide, 1, 50)
			c.work(1, slowSide, 50)
			c.work(1, fastSide, 50)
			c.work(1, slowSide, 50)
		}, 10 * time.Microsecond},
		"it becomes slow": {func(c *clocked) { c.work(9, fastSide, 1, 50); c.work(2, slowSide, 50) }, 1501 * time.Microsecond},
		"it becomes fast": {func(c *clocked) { c.work(9, slowSide, 1, 50); c.work(1, fastSide, 50) }, time.Nanosecond},
		"it becomes fast, and only commands alone show that": {func(c *clocked) { c.work(9, slowSide, 1, 50); c.work(1, fastSide, 1) }, 110 * time.Microsecond},
	} {
		c := newClocked(adaptive.Settings{})
		row.work(c)
		if got := c.Each(); got > row.want+row.want/20 || got < row.want-row.want/20 {
			t.Errorf("%s: %v, not %v", name, got, row.want)
		}
		if c.AtMost() != 0 {
			t.Errorf("%s: it is doubted", name)
		}
	}
}

func TestWhatSeveralHaveShownLongAgoIsDoubted(t *testing.T) {
	c := newClocked(adaptive.Settings{})
	c.work(5, fastSide, 1, 50)
	c.work(50, slowSide, 1)
	if c.Each() > 11*time.Microsecond || c.AtMost() != slowSide.take(1) {
		t.Errorf("after 2.5 s of commands alone: %v, at most %v", c.Each(), c.AtMost())
	}
	c.Observe(slowSide.take(8), 8) // the first is believed
	if c.Each() < 1500*time.Microsecond || c.AtMost() != 0 {
		t.Errorf("after several: %v, at most %v", c.Each(), c.AtMost())
	}
	c.work(1, slowSide, 8)
	if c.Each() < 1500*time.Microsecond {
		t.Errorf("a window later: %v, which is what it was long ago", c.Each())
	}
}

func TestHowManyPlacesAClassMayFill(t *testing.T) {
	for class, want := range map[adaptive.Class]int{adaptive.Critical: 8, adaptive.Normal: 5, adaptive.Bulk: 3} {
		if got := fixed(8).Places(class); got != want {
			t.Errorf("%v may fill %d of 8, not %d", class, got, want)
		}
	}
	if got := fixed(1).Places(adaptive.Bulk); got != 1 {
		t.Errorf("bulk may fill %d of one place", got)
	}
}
