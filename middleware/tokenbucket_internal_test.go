package middleware

import (
	"math"
	"sync"
	"testing"
	"time"
)

// The story of a bucket: at each moment somebody takes, and this is what is said. The numbers of the first two are vectors V1 and V8 of
// the design's algorithms page.
func TestDecideAsAStoryInTime(t *testing.T) {
	type step struct {
		at        time.Duration
		take      int64
		ok        bool
		remaining int64
		retry     time.Duration
		next      time.Duration
	}
	const s, ms = time.Second, time.Millisecond
	for name, story := range map[string]struct {
		limit limit
		steps []step
	}{
		"sixty a minute: all at once, then one a second": {newLimit(60, time.Minute, 60), []step{
			{0, 1, true, 59, 0, s},
			{0, 59, true, 0, 0, s},
			{0, 1, false, 0, s, s},
			{500 * ms, 1, false, 0, 500 * ms, 500 * ms},
			{s, 1, true, 0, 0, s},
			{s, 1, false, 0, s, s},
			{11 * s, 1, true, 9, 0, s},
			{time.Hour, 1, true, 59, 0, s},
		}},
		"a burst of ten: costs, and never more than it holds": {newLimit(10, 10*s, 10), []step{
			{0, 8, true, 2, 0, s},
			{0, 5, false, 2, 3 * s, s},
			{0, 1, true, 1, 0, s},
			{0, 11, false, 1, never, s},
			{0, 1, true, 0, 0, s},
		}},
		"a bucket smaller than the rate": {newLimit(100, s, 2), []step{
			{0, 1, true, 1, 0, 10 * ms},
			{0, 1, true, 0, 0, 10 * ms},
			{0, 1, false, 0, 10 * ms, 10 * ms},
			{15 * ms, 1, true, 0, 0, 5 * ms},
			{15 * ms, 1, false, 0, 5 * ms, 5 * ms},
			{20 * ms, 1, true, 0, 0, 10 * ms},
		}},
		"a clock that goes back does not lock anybody out for longer than a bucket": {newLimit(1, s, 3), []step{
			{time.Hour, 3, true, 0, 0, s},
			{0, 1, false, 0, s, s},
			{s, 1, true, 0, 0, s},
			{4 * s, 3, true, 0, 0, s},
		}},
		"three in a second, though a second has no third": {newLimit(3, s, 1), []step{
			{0, 1, true, 0, 0, 333333333},
			{333333333, 1, true, 0, 0, 333333333},
			{666666666, 1, true, 0, 0, 333333333},
			{999999999, 1, true, 0, 0, 333333333},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			state := int64(0)
			for i, st := range story.steps {
				var d decision
				before := state
				state, d = decide(int64(st.at), state, story.limit, st.take)
				want := decision{ok: st.ok, remaining: st.remaining, retry: int64(st.retry), next: int64(st.next)}
				if d != want {
					t.Fatalf("step %d (%d at %v): got %+v, want %+v", i, st.take, st.at, d, want)
				}
				if !d.ok && state != min(before, int64(st.at)+story.limit.depth) {
					t.Fatalf("step %d: a refusal changed the state", i)
				}
			}
		})
	}
}

func TestLimitsSurviveExtremes(t *testing.T) {
	for _, l := range []limit{
		newLimit(1<<53, time.Millisecond, 1<<53),
		newLimit(1, 24*time.Hour, 1<<53),
		newLimit(1<<53, 24*time.Hour, 1),
		newLimit(1, time.Millisecond, 1),
		newLimit(0, 0, 0),
	} {
		state := int64(0)
		for _, now := range []int64{0, 1, int64(100 * 365 * 24 * time.Hour)} {
			for _, n := range []int64{1, l.burst(), l.burst() + 1, math.MaxInt64} {
				var d decision
				state, d = decide(now, state, l, n)
				if d.remaining < 0 || d.remaining > l.burst() || d.retry < never || d.next < 0 || state < 0 {
					t.Errorf("%+v at %d: %d gives %+v, state %d", l, now, n, d, state)
				}
			}
		}
	}
}

func TestBucketNeverGivesMoreThanItHolds(t *testing.T) {
	var b bucket
	l := newLimit(1000, time.Hour, 1000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	passed := 0
	for range 8 {
		wg.Go(func() {
			mine := 0
			for range 500 {
				if b.take(1, l, 1).ok {
					mine++
				}
			}
			mu.Lock()
			passed += mine
			mu.Unlock()
		})
	}
	wg.Wait()
	if passed != 1000 {
		t.Errorf("%d of 4000 passed, want exactly 1000", passed)
	}
}

func TestSecondsRoundUp(t *testing.T) {
	for ns, want := range map[int64]int64{0: 0, 1: 1, 1e9: 1, 1e9 + 1: 2} {
		if got := seconds(ns); got != want {
			t.Errorf("seconds(%d) = %d, want %d", ns, got, want)
		}
	}
}

func BenchmarkTokenBucket(b *testing.B) {
	var bk bucket
	l := newLimit(1_000_000_000, time.Second, 1_000_000_000)
	start := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		bk.take(int64(time.Since(start)), l, 1)
	}
}

func TestTokenBucketAllocatesNothing(t *testing.T) {
	var bk bucket
	l := newLimit(10, time.Second, 10)
	if n := testing.AllocsPerRun(100, func() { bk.take(1, l, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
