package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func gcPercent() int {
	p := debug.SetGCPercent(100)
	debug.SetGCPercent(p)
	return p
}

func TestPercentSinksAsTheHeapGrows(t *testing.T) {
	for _, c := range []struct {
		live int64
		most int
		want int
	}{
		{0, 400, 400},
		{32 << 20, 400, 400},
		{64 << 20, 400, 200},
		{128 << 20, 400, 100},
		{1 << 40, 400, 100},
		{1 << 40, 50, 50},
		{1 << 20, 50, 50},
	} {
		if got := (&collector{least: min(c.most, 100), most: c.most}).percentFor(c.live); got != c.want {
			t.Errorf("%d live, at most %d: %d, want %d", c.live, c.most, got, c.want)
		}
	}
}

// Under a memory limit the heap may have three quarters of it, but not more than so much of garbage.
func TestAMemoryLimitIsUsed(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for _, c := range []struct {
		limit, live int64
		want        int
	}{
		{1 << 30, 8 << 20, 2400}, // 192 MiB of garbage
		{256 << 20, 8 << 20, 2300},
		{128 << 20, 8 << 20, 1100},
		{128 << 20, 48 << 20, 100},
		{128 << 20, 100 << 20, 100}, // more lives than there should
		{1 << 30, 256 << 20, 100},
		{math.MaxInt64, 8 << 20, 400}, // no limit
	} {
		debug.SetMemoryLimit(c.limit)
		restore := collectAt(400)
		begins := gcPercent()
		restore()
		if got := newCollector(400).percentFor(c.live); got != c.want || begins < c.want {
			t.Errorf("limit %d, %d alive: %d %%, at first %d; want %d", c.limit, c.live, got, begins, c.want)
		}
	}
}

func TestCollectAt(t *testing.T) {
	was := gcPercent()
	restore := collectAt(400)
	eventually(t, func() bool { runtime.GC(); return gcPercent() == 400 }) // what gateways of tests before this one held dies first
	held := make([]byte, gcRoom)
	eventually(t, func() bool { runtime.GC(); return gcPercent() <= 110 })
	runtime.KeepAlive(held)
	held = nil
	eventually(t, func() bool { runtime.GC(); return gcPercent() == 400 })
	restore()
	runtime.GC()
	if p := gcPercent(); p != was {
		t.Errorf("%d %% afterwards, want %d as before", p, was)
	}
	_ = held
}

// Go takes the percentage of stacks too, of which ten thousand connections have some 35 MB here.
func TestStacksGetNoGarbageOfTheirOwn(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	const many = 10_000
	for range many {
		go stand(5, ready, stop)
	}
	for range many {
		<-ready
	}
	defer collectAt(400)()
	samples := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
	eventually(t, func() bool {
		runtime.GC()
		metrics.Read(samples)
		garbage := samples[0].Value.Uint64() - samples[1].Value.Uint64()
		return garbage <= limitRoom*11/10 // small changes are left alone
	})
}

// stand waits on a stack of so many halves of a KB.
func stand(deep int, ready, stop chan struct{}) byte {
	var frame [512]byte
	if deep > 0 {
		frame[0] = stand(deep-1, ready, stop)
	} else {
		ready <- struct{}{}
		<-stop
	}
	return frame[deep]
}
