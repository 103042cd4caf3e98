package balance

import (
	"testing"

	"pgregory.net/rapid"
)

const second = int64(1e9)

func TestHeld(t *testing.T) {
	for _, c := range []struct {
		name    string
		fill    func(o *offsets)
		history string
		to      int64
		want    int64
	}{
		{"nothing is known of a primary that was never asked", func(*offsets) {}, "a", 100, never},
		{"who is as far as the primary holds all", func(o *offsets) { o.add(1, "a", 100) }, "a", 100, 1},
		{"who is ahead of the last look holds all that it saw", func(o *offsets) { o.add(1, "a", 100) }, "a", 200, 1},
		{"who is behind the first look holds nothing that is known", func(o *offsets) { o.add(1, "a", 100) }, "a", 99, never},
		{"who is between two looks holds the older one's", func(o *offsets) {
			o.add(1*second, "a", 100)
			o.add(2*second, "a", 200)
			o.add(3*second, "a", 300)
		}, "a", 299, 2 * second},
		{"who is where an idle primary is holds the last look's", func(o *offsets) {
			o.add(1*second, "a", 100)
			o.add(2*second, "a", 100)
			o.add(3*second, "a", 100)
		}, "a", 100, 3 * second},
		{"offsets of another history are not compared", func(o *offsets) { o.add(1, "a", 100) }, "b", 100, never},
		{"what was known of another history is forgotten", func(o *offsets) {
			o.add(1*second, "a", 100)
			o.add(2*second, "b", 100)
		}, "a", 100, never},
		{"a primary that has less than it had begins a history", func(o *offsets) {
			o.add(1*second, "a", 100)
			o.add(2*second, "a", 50)
		}, "a", 60, 2 * second},
		{"a look that was overtaken makes nobody newer", func(o *offsets) {
			o.add(2*second, "a", 100)
			o.add(1*second, "a", 110)
		}, "a", 105, 2 * second},
		{"what was known before the primary had less is forgotten", func(o *offsets) {
			o.add(1*second, "a", 40)
			o.add(2*second, "a", 100)
			o.add(3*second, "a", 50)
		}, "a", 45, never},
		{"who is further behind than what is kept holds nothing that is known", func(o *offsets) {
			for i := range int64(offsetsKept + 1) {
				o.add(i*second, "a", i)
			}
		}, "a", 0, never},
		{"the oldest that is kept counts", func(o *offsets) {
			for i := range int64(offsetsKept + 1) {
				o.add(i*second, "a", i)
			}
		}, "a", 1, second},
		{"looks that follow fast do not make what is kept shorter", func(o *offsets) {
			for i := range int64(10 * offsetsKept) {
				o.add(i*second/10, "a", i)
			}
		}, "a", 100, 99 * second / 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o offsets
			c.fill(&o)
			if is := o.held(c.history, c.to); is != c.want {
				t.Errorf("held at %d, want %d", is, c.want)
			}
		})
	}
}

// Whatever the looks, nobody is said to hold more than he does.
func TestHeldIsNeverTooLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o offsets
		var past []offset // of the primary
		now, to := int64(0), int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			now += rapid.Int64Range(1, 2*second).Draw(t, "time")
			to += rapid.Int64Range(0, 3).Draw(t, "writes")
			o.add(now, "a", to)
			past = append(past, offset{now, to})
			has := rapid.Int64Range(0, to).Draw(t, "has")
			held := o.held("a", has)
			for _, p := range past {
				if p.at <= held && p.offset > has {
					t.Fatalf("who has %d is said to hold all of %d, but the primary had %d at %d", has, held, p.offset, p.at)
				}
			}
		}
	})
}
