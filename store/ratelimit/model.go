package ratelimit

import "math"

// The arithmetic of ratelimit.lua in Go, step by step the same, on integers. Where the two differ one of them is wrong: the tests
// drive both. It is also what decides without Redis.

// As in the script, in us.
const (
	jitter  = 5_000_000
	forever = 1 << 52
)

// mode is what is done with the rules, as the script numbers it.
type mode int64

const (
	take mode = iota
	peek
	refund
	undo
)

// state is what is kept of a rule: of a bucket level, time in us, period in units and the time in us when the level is 0; of a window start
// in us, period in us, count and count before. The zero state is none.
type state struct{ a, b, c, d int64 }

// decision is one rule while it is decided.
type decision struct {
	exact
	level, ts, drained   int64 // bucket
	start, count, before int64 // window
	can                  int64 // tokens that it could give
	moved                bool  // the clock was set back: must be written
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// answer is what is returned of one rule; times in us.
type answer struct{ remaining, reset, retry, wait int64 }

// verdict is what is decided of all rules.
type verdict struct {
	allowed  bool
	granted  int64
	limiting int // number of the rule that gives the least, from 1; 0 = none
	rules    []answer
	written  bool // what there is of the rules was changed
}

// decide decides at the time now in us, and changes states, one for each rule, as Redis would be changed.
func decide(now int64, m mode, cost, least int64, rules []exact, states []state) verdict {
	open := make([]decision, len(rules))
	v, moved := verdict{allowed: true, granted: cost, rules: make([]answer, len(rules))}, false
	for i := range rules {
		open[i].exact = rules[i]
		open[i].open(now, states[i])
		moved = moved || open[i].moved
		if (m == take || m == peek) && open[i].can < v.granted {
			v.granted, v.limiting = open[i].can, i+1
		}
	}
	consumed := int64(0)
	switch m {
	case take, peek:
		if v.granted < least {
			v.allowed, v.granted = false, 0
		}
		if m == take {
			consumed = v.granted
		}
	default:
		v.granted, consumed = 0, -cost
	}
	if v.allowed && v.granted >= cost {
		v.limiting = 0
	}
	v.written = m != peek && (consumed != 0 || moved)
	for i := range open {
		d := &open[i]
		v.rules[i] = d.close(now, least, consumed, &v)
		if v.written {
			states[i] = d.state()
		}
	}
	return v
}

func (d *decision) open(now int64, s state) {
	if d.kind.bucket() {
		d.openBucket(now, s)
	} else {
		d.openWindow(now, s)
	}
}

func (d *decision) close(now, least, consumed int64, v *verdict) answer {
	if d.kind.bucket() {
		return d.closeBucket(now, least, consumed, v)
	}
	return d.closeWindow(now, least, consumed, v)
}

func (d *decision) state() state {
	if d.kind.bucket() {
		return state{d.level, d.ts, d.period, d.drained}
	}
	return state{d.start, d.micros, d.count, d.before}
}

func (d *decision) openBucket(now int64, s state) {
	level, ts := s.a, s.b
	if level > 0 && s.c != d.period {
		level = rescale(level, s.c, d.period)
	}
	if ts-now > jitter {
		ts, d.moved = now, true
	}
	if level == 0 {
		ts = now
	}
	if now > ts {
		if units := (now - ts) / d.unit; units >= ceilDiv(level, d.limit) {
			level, ts = 0, now
		} else {
			level, ts = level-units*d.limit, ts+units*d.unit
		}
	}
	d.level, d.ts = level, ts
	d.can = max(0, d.most-level) / d.period
}

// rescale keeps the tokens of a level whose period was edited. The part of a token is computed in doubles, as Lua does; products are
// assigned before they are used, since Go may otherwise compute them with a precision that Lua has not.
func rescale(level, period, to int64) int64 {
	tokens, part := level/period, level%period
	scaled := float64(part) / float64(period) * float64(to)
	return min(tokens, MaxCount/to-1)*to + min(to, int64(math.Ceil(scaled)))
}

// after is how long it takes until so much of the level has drained, from now on.
func (d *decision) after(now, level int64) int64 {
	return d.ts - now + min(ceilDiv(level, d.limit), forever/d.unit)*d.unit
}

// ends is how long it takes until all of the level has drained, forever at most.
func (d *decision) ends(now int64) int64 {
	units := ceilDiv(d.level, d.limit)
	if units > 2*forever/d.unit {
		return forever
	}
	return min(d.ts-now+units*d.unit, forever)
}

func (d *decision) closeBucket(now, least, consumed int64, v *verdict) (a answer) {
	if !v.allowed && d.can < least {
		a.retry = -1
		if least <= d.most/d.period {
			a.retry = d.after(now, d.level-(d.most-least*d.period))
		}
	}
	if v.granted > 0 {
		late := d.level
		if d.kind != shaper {
			late += v.granted*d.period - d.full
		}
		if late > 0 {
			a.wait = d.after(now, late)
		}
	}
	switch {
	case consumed > 0:
		d.level += consumed * d.period
	case -consumed >= ceilDiv(d.level, d.period):
		d.level = 0
	default:
		d.level += consumed * d.period
	}
	a.remaining = max(0, d.full-d.level) / d.period
	d.drained = now
	if d.level > 0 {
		a.reset = d.after(now, d.level)
		d.drained += d.ends(now)
	}
	return a
}

func (d *decision) openWindow(now int64, s state) {
	origin := now
	if d.kind != first {
		origin = (now+d.offset)/d.micros*d.micros - d.offset
	}
	start, micros, count, before := s.a, s.b, s.c, s.d
	switch {
	case start > now && start-now <= jitter:
		origin = start
	case start > now:
		d.moved = true
	case d.kind == first && now < start+d.micros:
		origin = start
	case d.kind == first:
		count, before = 0, 0
	case start+micros == origin && micros == d.micros:
		count, before = 0, count
	case start == origin && micros == d.micros:
	case now < start+micros: // edited: what is counted at the moment stays
		before = 0
	default:
		count, before = 0, 0
	}
	d.start, d.count, d.before = origin, count, before
	d.can = d.left(now)
}

// left is how many tokens a window has.
func (d *decision) left(now int64) int64 {
	if d.kind != sliding {
		return max(0, d.limit-d.count)
	}
	part := d.period - max(0, now-d.start)/d.unit
	return max(0, d.limit-d.count-ceilDiv(min(d.before, d.limit)*part, d.period))
}

func (d *decision) closeWindow(now, least, consumed int64, v *verdict) (a answer) {
	if !v.allowed && d.can < least {
		a.retry = d.retryWindow(now, least)
	}
	d.count = max(0, d.count+consumed)
	a.remaining = d.left(now)
	switch {
	case d.count > 0 && d.kind == sliding:
		a.reset = d.start + 2*d.micros - now
	case d.count > 0 || d.before > 0 && d.kind == sliding:
		a.reset = d.start + d.micros - now
	}
	return a
}

func (d *decision) retryWindow(now, least int64) int64 {
	if least > d.limit {
		return -1
	}
	at := d.start + d.micros
	if d.kind == sliding {
		if d.count <= d.limit-least {
			at = d.start + min(d.micros, (d.period-(d.limit-d.count-least)*d.period/min(d.before, d.limit))*d.unit)
		} else {
			at += min(d.micros, (d.period-min(d.period, (d.limit-least)*d.period/min(d.count, d.limit)))*d.unit)
		}
	}
	return at - now
}
