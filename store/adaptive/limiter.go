// Package adaptive bounds how much is under way to something that can be overloaded, and finds the bound by itself.
//
// It promises:
//
//   - The bound follows what is measured: it falls fast when answers take much longer than they do without load, or do not come, and
//     rises slowly while it is used (see Tick).
//   - What is more important goes first. A class may fill its part of the places and no more, whatever the others hold.
//   - Among apps of a class, one that holds no more than its fair share is not refused because others hold more than theirs (see party).
//   - Whoever could not be served in time is refused at once.
//   - Whoever holds a place for long, if its user says so (Age), waits for something else and leaves the place to others.
//   - Nobody waits. Taking and giving back a place are some atomic operations, without an allocation, a lock or a look at the clock.
//
// It knows neither Redis nor HTTP: what a place is for, and what the time of an answer means, is its user's.
package adaptive

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Settings of a limiter. Zero fields mean the defaults beside them.
type Settings struct {
	// Initial is how many places there are at first, and in peace; 0 = 1024.
	Initial int
	// Min is the least; 0 = 8. A few are needed to know that the other side is well again, and to keep it busy.
	Min int
	// Max is the most; 0 = 4096.
	Max int
	// Spare is how many places what is normal leaves to what is critical at the least, up to a third of them; 0 = 3. Of a low limit the shares of
	// the classes alone would leave one. The more places come back together, the more of them it takes until the next do.
	Spare int
	// Tolerance is a time that answers may take without being a sign of overload, whatever they take without load; 0 = none. With it
	// the noise of a busy machine does not count where answers take microseconds.
	Tolerance time.Duration
	// Slow is the time from which on answers count as slow; 0 = it is learnt from what they take without load. It is for times whose
	// right measure is known, and that may stay bad for hours without becoming the normal state.
	Slow time.Duration
	// Every is how often Tick is called; 0 = not said. By how much it is late is taken off what answers take: the machine is busy, and it
	// is late for them too. It must be told the time at which it runs, not the one at which it should.
	Every time.Duration
	// Clock is asked for the time only when a request with a deadline comes while half of the places are taken, or so many that the other
	// side needs long for them; nil = time.Now.
	Clock func() time.Time
}

func (s Settings) withDefaults() Settings {
	def(&s.Min, 8)
	def(&s.Spare, 3)
	def(&s.Max, max(4096, s.Min))
	def(&s.Initial, min(max(1024, s.Min), s.Max))
	if s.Clock == nil {
		s.Clock = time.Now
	}
	return s
}

func def(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

// taken is how many places each class holds: 20 bits for one.
type taken uint64

const takenBits = 20

func (t taken) by(c Class) int { return int(t >> (c * takenBits) & (1<<takenBits - 1)) }

func (t taken) all() int { return t.by(Normal) + t.by(Critical) + t.by(Bulk) }

// without is what is left; the two were not read at the same moment.
func (t taken) without(some taken) (rest taken) {
	for c := range classes {
		rest |= taken(max(t.by(c)-some.by(c), 0)) << (c * takenBits)
	}
	return rest
}

// Request is who wants a place.
type Request struct {
	// App is the id of the app, or whatever else the places are shared fairly among.
	App   string
	Class Class
	// Weight is how many places it takes; 0 = 1. Something heavier than half of the places is let in when half of them are free.
	Weight int
	// Deadline is when the answer is of no use any more; zero = none.
	Deadline time.Time
}

// WeightOf is the weight of so many commands that are sent together: a batch of ten costs Redis little more than one command does,
// what it costs beyond that is one place for ten.
func WeightOf(commands int) int { return max(commands/10, 1) }

// Reason says why a request was refused.
type Reason uint8

// The reasons.
const (
	Admitted Reason = iota
	Full            // the places that its class may fill are taken
	Hopeless        // what is under way takes longer than its deadline
)

// Reasons lists why requests are refused.
func Reasons() []Reason { return []Reason{Full, Hopeless} }

// String is the name for metrics.
func (r Reason) String() string {
	switch r {
	case Full:
		return "full"
	case Hopeless:
		return "deadline"
	}
	return "admitted"
}

// Limiter hands out places. It is safe for concurrent use. Tick must be called every few milliseconds.
type Limiter struct {
	settings Settings
	limit    atomic.Uint64 // bits of a float64
	service  atomic.Int64  // nanoseconds that one place keeps the other side busy; 0 = not known
	epoch    atomic.Uint32 // number of the window
	_        [64]byte      // every request reads what is above and writes what is below

	state atomic.Uint64 // a taken
	peak  atomic.Int64  // most places taken in this window
	_     [48]byte

	// answers of this window: their number, and below 40 bits the sum of their times in units of 64 ns. That is room for 16 million
	// answers and 19 hours.
	answers  atomic.Uint64
	shortest atomic.Int64 // nanoseconds of the shortest answer that ever came; 0 = none came
	lost     atomic.Int64 // answers that did not come in time
	pace     pace

	shares [classes]shares
	ages   ages

	ticking sync.Mutex
	window  window
}

// New makes a limiter.
func New(s Settings) *Limiter {
	s = s.withDefaults()
	l := &Limiter{settings: s}
	l.setLimit(float64(s.Initial))
	l.epoch.Store(1)
	return l
}

// Place is what a request has got. The zero value is none.
type Place struct {
	limiter *Limiter
	party   *party // nil = not counted for its app
	age     *age   // nil = not known
	weight  uint32
	class   Class
}

// Acquire takes a place if there is one for the request; the place must be released once.
func (l *Limiter) Acquire(r Request) (Place, Reason) {
	weight := uint32(min(max(r.Weight, 1), math.MaxInt16))
	limit := l.places(r.Class)
	for {
		old := l.state.Load()
		counts := taken(old)
		if waiting := l.ages.count(); waiting != 0 && counts.all()+int(weight) <= l.most(r.Class) {
			counts = counts.without(waiting)
		}
		held := float64(counts.all())
		var p *party
		if held >= limit/2 || held*float64(l.service.Load()) >= float64(long) {
			p = l.shares[r.Class].party(r.App, l.epoch.Load())
			if !r.Deadline.IsZero() && l.hopeless(held, r.Deadline) {
				return Place{}, Hopeless
			}
			if l.full(counts, p, r.Class, limit, float64(weight)) {
				return Place{}, Full
			}
		}
		if !l.state.CompareAndSwap(old, old+uint64(weight)<<(r.Class*takenBits)) {
			continue
		}
		l.note(int64(held) + int64(weight))
		if p != nil {
			p.held.Add(int64(weight))
		}
		return Place{l, p, l.ages.join(r.Class, weight), weight, r.Class}, Admitted
	}
}

// full says whether there is no place for weight more.
//
// What less important classes hold above their own places, because they share fairly, is no reason to refuse.
func (l *Limiter) full(t taken, p *party, c Class, limit, weight float64) bool {
	above, below := 0., 0. // held by more and by less important classes
	most := 0.             // that those below may fill
	for _, other := range Classes() {
		switch held := float64(t.by(other)); {
		case rank[other] < rank[c]:
			above += held
		case rank[other] > rank[c]:
			below += held
			most = max(most, l.places(other))
		}
	}
	held := above + float64(t.by(c)) + min(below, most)
	if held+min(weight, max(limit/2, 1)) < limit+1 {
		return false
	}
	return held+weight > 2*limit || !l.shares[c].within(p, limit-above, weight)
}

// note keeps the peak of the window.
func (l *Limiter) note(held int64) {
	for {
		peak := l.peak.Load()
		if held <= peak || l.peak.CompareAndSwap(peak, held) {
			return
		}
	}
}

// hopeless says whether what is under way takes longer than until the deadline.
func (l *Limiter) hopeless(held float64, deadline time.Time) bool {
	service := l.service.Load()
	return service > 0 && held*float64(service) > float64(deadline.Sub(l.settings.Clock()))
}

// Release gives the place back. late says that no answer came in time, which counts against the other side; whoever left for another
// reason says false.
func (p Place) Release(late bool) {
	if p.limiter == nil {
		return
	}
	if p.party != nil {
		p.party.held.Add(-int64(p.weight))
	}
	p.limiter.ages.leave(p.age, p.class, p.weight)
	p.limiter.state.Add(-(uint64(p.weight) << (p.class * takenBits)))
	if late {
		p.limiter.lost.Add(1)
	}
}

// Observe tells how long the answer to n requests that went together took. Only what the other side has answered belongs here.
func (l *Limiter) Observe(took time.Duration, n int) {
	took = max(took, 1)
	least(&l.shortest, int64(took))
	l.pace.observe(took, n)
	l.answers.Add(uint64(n)<<sumBits + uint64(took)/sumUnit*uint64(n))
}

// Lost tells that n answers did not come in time, which is a sign of overload by itself.
func (l *Limiter) Lost(n int) { l.lost.Add(int64(n)) }

const (
	sumBits = 40
	sumUnit = 64
)

// Limit is how many places there are.
func (l *Limiter) Limit() float64 { return math.Float64frombits(l.limit.Load()) }

func (l *Limiter) setLimit(n float64) {
	l.limit.Store(math.Float64bits(min(max(n, float64(l.settings.Min)), float64(l.settings.Max))))
}

// places is how many of them a class may fill.
func (l *Limiter) places(c Class) float64 { return c.of(l.Limit(), float64(l.settings.Spare)) }

// Places is how many places a class may fill; at least one.
func (l *Limiter) Places(c Class) int { return max(int(l.places(c)), 1) }

// most is how many places a class may hold together with those that do not count.
func (l *Limiter) most(c Class) int {
	return int(c.of(float64(l.settings.Max), float64(l.settings.Spare)))
}

// InFlight is how many places are taken, without those that do not count (Age).
func (l *Limiter) InFlight() int { return taken(l.state.Load()).without(l.ages.count()).all() }
