package adaptive

import (
	"math"
	"time"
)

// The numbers of the loop are those of the design's simulation (10 s of a node of 20,000 commands/s that is offered twice that, slows
// down tenfold, or stalls), which is among the tests.
const (
	windowLength = 50 * time.Millisecond
	windowLeast  = 20   // answers, before a window says anything
	tolerated    = 3    // times what answers take without load
	lostShare    = .05  // of answers that do not come: a sign by itself
	lostCut      = .7   // of the limit that is left then
	drift        = .01  // by which what is taken for "without load" rises in a second
	driftAtMin   = .2   // and where nothing can be lowered any more
	quiet        = 2    // times that: more is a queue, from which nothing is learnt about times without load
	gradientMin  = .5   // no window halves the limit by more than to (.5 + .5*.5)
	probe        = 2    // places that a lowered limit gets back, so that it finds its level
	recovery     = 1    // places that come back in a window of peace, though nobody needs them
	nearMin      = 1.25 // times the least limit: so near comes what only approaches it
	firstFactor  = 2    // times the shortest answer of the first window, at the most, is what answers take without load
	forgetEvery  = 5000 * time.Millisecond
)

// long is how long answers take when it is no hiccup of anything. With commands of 15 ms a window is a batch of half a second and more: to
// let the first pass, and to halve a limit of which a tenth was used, left such a node without one answer in time for eight seconds (the
// overload suite's slow shard).
const long = 200 * time.Millisecond

// window is what the loop remembers from one to the next.
type window struct {
	began     time.Time
	ticked    time.Time     // when Tick was called last
	lag       time.Duration // by which its calls were late, together
	ticks     int
	slow      int     // windows in a row whose answers took too long
	base      float64 // what answers take without load, in ns; 0 = not known
	forgotten time.Time
}

// Tick ends the window if it is time, and sets the limit:
//
//   - More than 5 % of the answers did not come: 0.7 of it.
//   - Answers took more than three times what they take without load (and than Settings.Tolerance): down to three quarters of what was
//     used, by how much longer they took, but to no less than half of it. The first such window is let pass: a fork, a collection of garbage
//     and a neighbour on the same machine are hiccups.
//     But answers of 200 ms and more are none, and then only what was used counts.
//   - Else, if half of it was used: up by half its root.
//   - Else, if there was no queue: slowly back to what it was at first.
//
// What answers take without load is the shortest mean of a window. It rises by 1 % in a second, so that a network that became slower is
// learnt, but only in windows without a queue: rising always, as first designed, it would take an overload of minutes for the rule. When
// the least limit is reached and answers still take long, it is not this side's queue that they wait in, and the rise is faster.
func (l *Limiter) Tick(now time.Time) {
	if !l.ticking.TryLock() {
		return
	}
	defer l.ticking.Unlock()
	w := &l.window
	if w.began.IsZero() {
		w.began, w.forgotten, w.ticked = now, now, now
	} else if every := l.settings.Every; every > 0 {
		w.lag += max(now.Sub(w.ticked)-every, 0)
		w.ticks++
	}
	w.ticked = now
	l.pace.tick(now)
	elapsed := now.Sub(w.began)
	lost := float64(l.lost.Load())
	n := float64(l.answers.Load() >> sumBits)
	if elapsed < windowLength || n+lost < windowLeast {
		return
	}
	answers := l.answers.Swap(0)
	l.lost.Store(0)
	n = float64(answers >> sumBits)
	mean := 0.
	if n > 0 {
		mean = float64(answers&(1<<sumBits-1)) * sumUnit / n
	}
	mean = max(mean-min(w.waited(), float64(l.settings.Tolerance)), min(mean, w.base))
	peak := float64(l.peak.Swap(int64(l.InFlight())))
	l.adapt(mean, lost/(n+lost), peak, elapsed)
	l.serve(mean, n, elapsed)
	l.pace.turn()
	w.began, w.lag, w.ticks = now, 0, 0
	l.turn(now)
}

// waited is how long goroutines waited for a processor in this window, in ns, twice for an answer: when it is asked for and when it has come.
// That is what this machine took, not the other side. It is believed up to Settings.Tolerance: a machine that is overloaded by requests
// must not be blind for the other side's queue.
func (w *window) waited() float64 {
	return 2 * float64(w.lag) / float64(max(w.ticks, 1))
}

// adapt sets the limit after a window.
func (l *Limiter) adapt(mean, lost, peak float64, elapsed time.Duration) {
	limit, base := l.Limit(), l.base(mean, elapsed)
	slow, well := max(tolerated*base, float64(l.settings.Tolerance)), max(quiet*base, float64(l.settings.Tolerance)/2)
	if l.settings.Slow > 0 {
		slow, well = float64(l.settings.Slow), float64(l.settings.Slow)/2
	}
	g := 1.
	if mean > 0 {
		g = min(max(slow/mean, gradientMin), 1)
	}
	if g == 1 {
		l.window.slow = 0
	} else {
		l.window.slow++
	}
	switch {
	case lost > lostShare:
		limit *= lostCut
	case mean >= float64(long): // what was not used is no bound
		limit = min(limit, peak)*(.5+.5*g) + probe
	case l.window.slow == 1: // one that is slow is a hiccup
	case g < 1:
		limit = max(min(limit, peak)*(.5+.5*g)+probe, limit/2)
	case 2*peak >= limit:
		limit += math.Sqrt(limit) / 2
	case mean <= well && limit < float64(l.settings.Initial):
		limit = min(limit+recovery, float64(l.settings.Initial))
	}
	l.setLimit(limit)
}

// base is what answers take without load, with what a window has shown.
func (l *Limiter) base(mean float64, elapsed time.Duration) float64 {
	w := &l.window
	switch least := l.Limit() <= nearMin*float64(l.settings.Min); {
	case mean == 0:
	case w.base == 0: // who starts in the middle of an overload has only its first answers to learn from
		w.base = min(mean, firstFactor*float64(l.shortest.Load()))
	case mean < w.base:
		w.base = mean
	case mean <= quiet*w.base:
		w.base *= 1 + drift*elapsed.Seconds()
	case least && mean > tolerated*w.base:
		w.base *= 1 + driftAtMin*min(elapsed.Seconds(), 1)
	}
	return w.base
}

// serve learns how long an answer keeps the other side busy. With a queue that is what lies between two answers; without one it is that
// at the most.
func (l *Limiter) serve(mean, answers float64, elapsed time.Duration) {
	if answers == 0 {
		return
	}
	service := min(float64(elapsed)/answers, mean)
	if known := float64(l.service.Load()); known > 0 && mean <= quiet*l.window.base {
		service = min(service, known)
	}
	l.service.Store(int64(service))
}

// turn begins another window for the shares of the apps.
func (l *Limiter) turn(now time.Time) {
	epoch := l.epoch.Add(1)
	forget := now.Sub(l.window.forgotten) >= forgetEvery
	if forget {
		l.window.forgotten = now
	}
	for c := range l.shares {
		l.shares[c].turn()
		if forget {
			l.shares[c].forget(epoch)
		}
	}
}
