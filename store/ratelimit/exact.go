package ratelimit

import (
	"hash/fnv"
	"io"
	"math/bits"
)

// Lua's numbers are doubles, so everything the script computes must stay at or below 2^53. A bucket's level is in tokens times units
// of time, at most `top * period`: units are microseconds while that fits, and longer for limits that are larger.

// kind is how a rule is decided, as the script numbers it.
type kind int64

const (
	bucket kind = iota
	shaper
	fixed
	first
	sliding
)

// bucket says whether the state of the kind is a level and not counts.
func (k kind) bucket() bool { return k <= shaper }

// exact are the numbers of a rule as script and model use them.
type exact struct {
	tag    int64 // by which its state is found
	kind   kind
	limit  int64 // tokens for each period
	period int64 // in units: limit * period, burst * period <= 2^53
	unit   int64 // us in a unit; period * unit >= the period in us
	// Of a bucket, in tokens times units.
	most int64 // the highest level: burst*period, and what the longest reservation adds, <= 2^53
	full int64 // the highest level of which nothing waits; of a shaper the same as most
	// Of a window, in us.
	micros int64 // the period
	offset int64 // by which windows begin earlier than at multiples of the period
}

// fewUnits is how many units a period has at least, where it must be divided exactly, see units.
const fewUnits = 1000

// exactly prepares a valid rule for a take that waits for maxWait us at most.
func (r *Rule) exactly(maxWait int64) exact {
	x, micros := exact{tag: r.tag(), kind: r.kind(), limit: r.Limit}, r.PeriodMS*1000
	switch x.kind {
	case bucket, shaper:
		x.unit, x.period = units(r.top(), micros)
		x.full = r.Burst * x.period
		x.most = x.full
		if r.Algorithm != LeakyBucket {
			x.most += x.limit * min(maxWait/x.unit, (MaxCount-x.full)/x.limit)
		}
		return x
	case sliding:
		x.unit, x.period = units(r.Limit, micros)
	default: // count tokens and need no product
		x.unit, x.period = 1, micros
	}
	x.micros, x.offset = micros, int64(r.TZOffsetMin)*60_000_000
	return x
}

func (r *Rule) kind() kind {
	switch {
	case r.shaper():
		return shaper
	case r.bucket():
		return bucket
	case r.Algorithm == SlidingWindow:
		return sliding
	case r.Align == AlignFirstHit:
		return first
	}
	return fixed
}

// tag is 53 bits of a hash of the rule's id and of what its state is: a rule that becomes another kind begins anew, and a level is never
// read as counts. Two rules of one limit with the same tag would only be at odds after an edit, for the life of their state.
func (r *Rule) tag() int64 {
	h := fnv.New64a()
	if r.kind().bucket() {
		_, _ = h.Write([]byte{'b'})
	} else {
		_, _ = h.Write([]byte{'w'})
	}
	_, _ = io.WriteString(h, r.ID)
	return int64(h.Sum64() >> 11)
}

// top is the most tokens that a bucket can hold, with the longest reservation. It is a property of the rule and not of a take,
// because the unit of the stored level depends on it.
func (r *Rule) top() int64 {
	most := max(r.Limit, r.Burst)
	if r.shaper() {
		return most
	}
	hi, lo := bits.Mul64(uint64(r.Limit), MaxWaitMS)
	if hi >= uint64(r.PeriodMS) {
		return MaxCount
	}
	waiting, _ := bits.Div64(hi, lo, uint64(r.PeriodMS))
	if waiting >= MaxCount || r.Burst+int64(waiting)+1 >= MaxCount {
		return MaxCount
	}
	return max(most, r.Burst+int64(waiting)+1)
}

// units divides a period of so many microseconds for a rule of up to top tokens. A unit that does not divide the period makes it
// longer, never shorter: a limit is then slower by less than 1/fewUnits. Where there are fewer units than that, the period, always
// a multiple of 1,000 us, is divided exactly.
func units(top, micros int64) (unit, period int64) {
	most := MaxCount / top
	switch {
	case most >= micros:
		return 1, micros
	case most >= fewUnits:
		unit = (micros + most - 1) / most
		return unit, (micros + unit - 1) / unit
	}
	for fewUnits%most != 0 {
		most--
	}
	return micros / most, most
}

// capacity is the most tokens that one take can be granted, if it waits for maxWait us at most.
func (r *Rule) capacity(maxWait int64) int64 {
	if !r.bucket() {
		return r.Limit
	}
	x := r.exactly(maxWait)
	return x.most / x.period
}
