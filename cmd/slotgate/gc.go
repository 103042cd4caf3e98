package main

import (
	"math"
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
//
// Where the process was told how much memory it may have (GOMEMLIMIT), the heap may grow to three quarters of that from the first, by limitRoom at the most:
// on one core a collection holds most requests up for its 10 to 20 ms, and in a flood of refusals it came five times as often (make overload).
func collectAt(percent int) (restore func()) {
	c := newCollector(percent)
	c.now = c.percentFor(leastLive)
	was := debug.SetGCPercent(c.now)
	c.afterNext()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = true
		debug.SetGCPercent(was)
	}
}

// gcRoom is what garbage may take at most while that is more than what is alive, half of the default of limits.bytes_in_flight, and limitRoom the same
// where there is a limit. leastLive is what lives in a gateway that has just begun, which Go counts as 4 MB at the least.
const (
	gcRoom    = 128 << 20
	limitRoom = 192 << 20
	leastLive = 4 << 20
)

type collector struct {
	least, most int   // percent
	heap        int64 // bytes of it in all, garbage counted; 0 = no limit

	mu    sync.Mutex
	now   int
	ended bool
}

func newCollector(percent int) *collector {
	c := &collector{least: min(percent, 100), most: percent}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		c.heap = limit / 4 * 3
	}
	return c
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
	// Setting it stops the world for a moment, so that small changes are left alone.
	if p := c.percentFor(counted()); p < c.now*9/10 || p > c.now*11/10 || p == c.most && p != c.now {
		c.now = p
		debug.SetGCPercent(p)
	}
	c.afterNext()
}

// counted is how many bytes Go takes the percentage of: what is alive, and the stacks and globals where a collection begins to look. Thousands of
// connections have more of those than live bytes.
func counted() (n int64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		n += int64(s.Value.Uint64())
	}
	return n
}

// percentFor is the percentage for so many live bytes: that of the room there is, but at least the least, and without a limit no more than most.
func (c *collector) percentFor(live int64) int {
	live = max(live, leastLive)
	if c.heap > 0 {
		return max(c.least, int(min(limitRoom, c.heap-live)*100/live))
	}
	return min(c.most, max(c.least, int(gcRoom*100/live)))
}
