package main

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/slotgate/slotgate/middleware"
)

// newOverload makes the guard of the gateway's own places and memory.
func newOverload(cfg Overload) *middleware.Overload {
	ceiling := cfg.MemoryMaxBytes
	if limit := debug.SetMemoryLimit(-1); ceiling == 0 && limit != math.MaxInt64 {
		ceiling = limit
	}
	return middleware.NewOverload(middleware.OverloadConfig{
		Off: !cfg.Enabled, Initial: cfg.GatewayInitial, Min: cfg.GatewayMin, Max: cfg.GatewayMax, MemoryMax: ceiling,
	})
}

// pressureEvery is how often the gateway looks how it fares. At 100 ms, and with one goroutine in eight looked at by the runtime, a gateway
// that does anything has hundreds of waits to take the mean of.
const pressureEvery = 100 * time.Millisecond

// collectAfter is for how many readings memory may stand above the ceiling without a garbage collection before one is made. What is alive
// is known as of the last one only, and a gateway that refuses most of what comes may not make enough garbage for the next in minutes.
const collectAfter = 10

// watchPressure tells the guard how the process fares until ctx ends.
func (g *gateway) watchPressure(ctx context.Context) error {
	p := newPressure()
	stale, cycles := 0, uint64(0)
	for wait(ctx, pressureEvery) == nil {
		short := g.overload.Feel(p.read())
		if c := p.cycles(); c != cycles || !short {
			stale, cycles = 0, c
			continue
		}
		if stale++; stale >= collectAfter {
			stale = 0
			runtime.GC()
		}
	}
	return nil
}

// pressure reads what the runtime says of the process.
//
// That the gateway itself is slow is read from the scheduler, which says how long goroutines that could run waited for a processor. The
// other way, the time of a request less its time in Redis, hides what it is to show: the goroutine that takes the time of a reply waits for
// a processor, too, so that most of the wait is taken for Redis'. It would also count a client that sends or reads slowly, and
// cost two readings of the clock for each command. At one processor and 16, 64, 256 and 1000 busy connections the mean wait is some 40, 150,
// 330 and 1000 us, and the time of a request 0.5, 1.5, 5.5 and 30 ms; throughput is at its best at 64 to 256 and a third less at 1000.
type pressure struct {
	samples []metrics.Sample
	waits   []uint64 // counts of the buckets at the last reading
}

// The samples, by index.
const (
	sampleWaits = iota
	sampleTotal
	sampleReleased
	sampleFree
	sampleObjects
	sampleLive
	sampleCycles
)

func newPressure() *pressure {
	p := &pressure{samples: []metrics.Sample{
		sampleWaits:    {Name: "/sched/latencies:seconds"},
		sampleTotal:    {Name: "/memory/classes/total:bytes"},
		sampleReleased: {Name: "/memory/classes/heap/released:bytes"},
		sampleFree:     {Name: "/memory/classes/heap/free:bytes"},
		sampleObjects:  {Name: "/memory/classes/heap/objects:bytes"},
		sampleLive:     {Name: "/gc/heap/live:bytes"},
		sampleCycles:   {Name: "/gc/cycles/total:gc-cycles"},
	}}
	p.read()
	return p
}

// read says how the process has fared since the last reading.
func (p *pressure) read() middleware.Pressure {
	metrics.Read(p.samples)
	h := p.samples[sampleWaits].Value.Float64Histogram()
	if p.waits == nil {
		p.waits = make([]uint64, len(h.Counts))
	}
	mean := meanSince(p.waits, h)
	copy(p.waits, h.Counts)
	used := p.bytes(sampleTotal) - p.bytes(sampleReleased) - p.bytes(sampleFree)
	return middleware.Pressure{CPUWait: mean, Memory: held(used, p.bytes(sampleObjects), p.bytes(sampleLive))}
}

func (p *pressure) bytes(sample int) int64 { return int64(p.samples[sample].Value.Uint64()) }

func (p *pressure) cycles() uint64 { return p.samples[sampleCycles].Value.Uint64() }

// meanSince is the mean of what came into the buckets since they had the counts was. A bucket stands for its lower bound.
func meanSince(was []uint64, h *metrics.Float64Histogram) time.Duration {
	n, sum := uint64(0), 0.0
	for i, count := range h.Counts {
		n += count - was[i]
		sum += float64(count-was[i]) * max(h.Buckets[i], 0) // the first one begins at -Inf
	}
	if n == 0 {
		return 0
	}
	return time.Duration(sum / float64(n) * float64(time.Second))
}

// held is what no garbage collection would give back: used, which is what GOMEMLIMIT counts, without the garbage among the objects, which is
// there on purpose until the next collection.
func held(used, objects, live int64) int64 { return used - max(objects-live, 0) }
