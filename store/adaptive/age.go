package adaptive

import (
	"sync/atomic"
	"time"
)

// ages knows how many of the places that are taken have been taken for long.
//
// Places that were taken between two calls of Age are counted together, in one word with the flag of being old. So whoever gives one back
// knows for certain whether it is among the old ones, whatever happens at the same time. It costs a place three atomic operations on a line of their own.
type ages struct {
	current atomic.Pointer[age]   // nil = Age was never called
	old     [classes]atomic.Int64 // places in ages that are old
	_       [64]byte              // every request reads what is above
	young   []endedAge            // those before the current one, the eldest first; for Age alone
}

// age is the places that were taken in it and are not given back: a taken, and isOld. An old one lives as long as somebody holds a place in it.
type age struct {
	held atomic.Uint64
	came atomic.Int64 // places taken in it
	_    [48]byte     // every request writes it
}

type endedAge struct {
	*age
	end time.Time
}

const isOld = 1 << 63

// join counts places to the current age.
func (a *ages) join(c Class, weight uint32) *age {
	at := a.current.Load()
	if at == nil {
		return nil
	}
	at.came.Add(int64(weight))
	if at.held.Add(uint64(weight)<<(c*takenBits))&isOld != 0 { // it has become old since it was loaded
		a.old[c].Add(int64(weight))
	}
	return at
}

// leave undoes join.
func (a *ages) leave(at *age, c Class, weight uint32) {
	if at != nil && at.held.Add(-(uint64(weight)<<(c*takenBits)))&isOld != 0 {
		a.old[c].Add(-int64(weight))
	}
}

// count is how many places are old, by class.
func (a *ages) count() (t taken) {
	for c := range classes {
		t |= taken(max(a.old[c].Load(), 0)) << (c * takenBits)
	}
	return t
}

// Age says that whoever has held a place for patience and longer waits for something else than what the places are for: from now on it takes
// none, while its class does not fill its part of Settings.Max with all that it holds. Call it regularly, from one goroutine. It tells how
// many places were taken since it was called last.
func (l *Limiter) Age(now time.Time, patience time.Duration) (came int) {
	a := &l.ages
	if at := a.current.Load(); at != nil {
		came = int(at.came.Load())
		a.young = append(a.young, endedAge{at, now})
	}
	a.current.Store(new(age))
	n := 0
	for n < len(a.young) && now.Sub(a.young[n].end) >= patience {
		was := taken(a.young[n].held.Or(isOld))
		for c := range classes {
			a.old[c].Add(int64(was.by(c)))
		}
		n++
	}
	a.young = append(a.young[:0], a.young[n:]...) // not resliced: it would let go of its memory, and keep what is old alive
	clear(a.young[len(a.young):cap(a.young)])
	return came
}

// Waiting is how many places are taken for so long that they do not count (Age).
func (l *Limiter) Waiting() int { return l.ages.count().all() }
