package store

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/adaptive"
)

func TestTheWeightOfCommandsByTheirTime(t *testing.T) {
	for _, row := range []struct {
		commands int
		each     time.Duration
		want     int
	}{
		{1, 0, 1},
		{1, time.Second, 1},
		{100, 0, 10},
		{100, 10 * time.Microsecond, 10},
		{5000, 10 * time.Microsecond, 500},
		{100, 75 * time.Microsecond, 50},
		{100, 150 * time.Microsecond, 100},
		{3, 1500 * time.Microsecond, 3},
		{100, time.Second, 100},
	} {
		if got := weightOf(row.commands, row.each); got != row.want {
			t.Errorf("%d commands of %v weigh %d, not %d", row.commands, row.each, got, row.want)
		}
	}
}

// pacedWay is a way to a node that does a command in such a time, with so many places.
func pacedWay(each time.Duration, places int) *way {
	w := &way{overload: &OverloadConfig{}, limiter: adaptive.New(adaptive.Settings{Initial: places, Min: places, Max: places, Spare: shardSpare})}
	now := time.Unix(1000, 0)
	for range 3 {
		for range 20 {
			w.limiter.Observe(each, 1)
			w.limiter.Observe(50*each, 50)
		}
		w.limiter.Tick(now)
		now = now.Add(50 * time.Millisecond)
	}
	return w
}

func TestHowManyCommandsAChunkMayHave(t *testing.T) {
	for _, row := range []struct {
		each            time.Duration
		places, allowed int
		want            int
	}{
		{10 * time.Microsecond, 1024, 100, 100},
		{10 * time.Microsecond, 1024, 1000, 1000},
		{149 * time.Microsecond, 1024, 100, 100},
		{10 * time.Microsecond, 8, 100, 100}, // few places for another reason
		{200 * time.Microsecond, 1024, 100, 25},
		{200 * time.Microsecond, 1024, 50, 50}, // which is no more than what a chunk may take
		{200 * time.Microsecond, 20, 100, 10},
		{1500 * time.Microsecond, 1024, 100, 3},
		{1500 * time.Microsecond, 8, 100, 3},
		{time.Second, 1024, 100, 1},
	} {
		w := pacedWay(row.each, row.places)
		got := w.most(row.allowed)
		if got != row.want {
			t.Errorf("of %d commands of %v, %d places: %d, not %d", row.allowed, row.each, row.places, got, row.want)
		}
		if bulk := w.limiter.Places(adaptive.Bulk); got < row.allowed && w.weight(got) > bulk {
			t.Errorf("of %d commands of %v, %d places: it weighs %d, which is more than the %d that bulk has", row.allowed, row.each, row.places, w.weight(got), bulk)
		}
	}
	off := pacedWay(time.Second, 8)
	off.overload.off = new(atomic.Bool)
	off.overload.off.Store(true)
	if got := off.most(100); got != 100 {
		t.Errorf("with the limits off: %d", got)
	}
}
