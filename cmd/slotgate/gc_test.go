package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func gcPercent() int {
	p := debug.SetGCPercent(100)
	debug.SetGCPercent(p)
	return p
}

func TestPercentSinksAsTheHeapGrows(t *testing.T) {
	for _, c := range []struct {
		live uint64
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
		if got := percentFor(c.live, c.most); got != c.want {
			t.Errorf("%d live, at most %d: %d, want %d", c.live, c.most, got, c.want)
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
