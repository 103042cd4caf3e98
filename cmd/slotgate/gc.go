package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// collectAt sets how far the heap grows between two garbage collections, in percent of what is alive, as GOGC does; the function it
// returns sets it back.
//
// A gateway keeps little and drops a few KB with each request, so Go's own 100 collects several times a second, for 5 to 15 % of the
// CPU. But a percentage of much would be too much: while what is alive grows, percent sinks, so that never more than gcRoom is left to
// garbage, until it is 100 again, from where on memory is what it is with Go's default.
func collectAt(percent int) (restore func()) {
	was := debug.SetGCPercent(percent)
	c := &collector{most: percent, now: percent}
	c.afterNext()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = true
		debug.SetGCPercent(was)
	}
}

// gcRoom is what garbage may take at most while that is more than what is alive: half of the default of limits.bytes_in_flight.
const gcRoom = 128 << 20

type collector struct {
	mu        sync.Mutex
	most, now int
	ended     bool
}

// cycle is an object that dies with each collection. It holds a pointer, because the runtime packs tiny objects without one together.
type cycle struct{ *collector }

// afterNext calls adjust after the next collection, on the runtime's goroutine for finalizers.
func (c *collector) afterNext() {
	runtime.SetFinalizer(&cycle{c}, func(cy *cycle) { cy.adjust() })
}

func (c *collector) adjust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	// Setting it stops the world for a moment, so that small changes are left alone.
	if p := percentFor(live[0].Value.Uint64(), c.most); p < c.now*9/10 || p > c.now*11/10 || p == c.most && p != c.now {
		c.now = p
		debug.SetGCPercent(p)
	}
	c.afterNext()
}

// percentFor is the percentage for so many live bytes: most, less where that were more than gcRoom, but at least Go's default or most.
func percentFor(live uint64, most int) int {
	least := min(most, 100)
	return min(most, max(least, int(gcRoom*100/max(live, 1))))
}
