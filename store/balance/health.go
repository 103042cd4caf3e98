package balance

import (
	"math"
	"time"
)

// State is what a node is taken for.
type State uint8

// The states.
const (
	Healthy  State = iota
	Degraded       // chosen less, and more with every second in which nothing is wrong
	Ejected        // only tried
)

// String is the name for metrics.
func (s State) String() string {
	switch s {
	case Degraded:
		return "degraded"
	case Ejected:
		return "ejected"
	}
	return "healthy"
}

// Outcome is how a read ended.
type Outcome uint8

// The outcomes. What is wrong with the command (WRONGTYPE) was answered all the same.
const (
	Answered Outcome = iota
	Late             // no answer came in time
	Refused          // no connection, or it broke, or the node says that it cannot answer: LOADING, MASTERDOWN, CLUSTERDOWN
	Failed           // an error of the node that is none of these
	Unknown          // it says nothing about the node: the caller left, or the slot has moved
)

// The numbers are those of the design's simulation, which is among the tests.
const (
	latencyHalf  = time.Second // half-life of times
	halfRatio    = 5           // times that: half-life of errors
	errorsHalf   = halfRatio * latencyHalf
	sampleLeast  = .01 // weight of one time, however many come
	sampleMost   = 100 // scales: one that is lost weighs no more, whatever the timeout
	pretended    = 20  // answers without error that every node is credited with: one error of two is no rate
	evidence     = 20  // decayed answers, before their rate or times say anything
	errorCost    = 10  // of weight for a rate of 1
	deadBand     = .25 // of weight: less is noise
	weightLeast  = .1
	recovery     = 30 * time.Second // without anything wrong, from degraded to healthy
	slow         = 2.               // times what the middle node takes: degraded
	quick        = 1.5              // times that: more is still wrong
	errorRate    = .05              // more is degraded
	ejectRate    = .5               // more is ejected
	rowDegraded  = 2                // failures in a row
	rowEjected   = 5                // failures in a row
	rowLong      = 5 * time.Second  // two in a row that are so far apart are as bad, where little is read
	ejectFirst   = time.Second
	ejectDoubled = 5 // times, at the most: 32 s
	trialsEach   = 100 * time.Millisecond
	trialsPassed = 3 // until a node is chosen again
	// wellEnough is how long a node must have looked well to be tried before its time. With it a node is back in 40 s after an outage of hours,
	// while one that is well for some seconds now and then is not tried more often.
	wellEnough = 6 * time.Second
)

// health is what the answers of one node say about it: when it is ejected, and its weight otherwise. It is a pure state machine.
//
//	Healthy -> Degraded  two failures in a row, more than 5 % errors, or times above twice the middle node's
//	Degraded -> Healthy  30 s without a failure and with times below 1.5 of the middle node's
//	any -> Ejected       five failures in a row, two in a row over 5 s, or more than half
//	Ejected -> Degraded  three trials in a row that are answered; the first after 1 s, twice as long after each ejection and trial that fails
//
// What was counted fades, so that silence forgets good and bad. What failed fast says nothing about speed.
type health struct {
	state           State
	latency         float64 // mean, in scales (see Set.scale); 0 = not known
	failures, calls float64 // faded, at last
	last            int64   // when the last answer came
	clean           int64   // since when nothing was wrong
	row             int     // failures in a row
	rowBegan        int64
	ejections       int // in a row, for their length; forgotten when healthy
	until           int64
	trial           bool // one is under way
	tried           int64
	passed          int   // trials in a row
	well            int64 // since when the node looks well; never = it does not
	changes         uint64
	ejectedTimes    uint64
}

func newHealth(at int64) health {
	return health{last: at, clean: at, tried: never, well: never}
}

// fade is what is left of a count after a time. Most answers follow soon, and then the beginning of the series says it to eight places; to ask
// math.Exp2 is a sixth of what a read pays (BenchmarkPickAndDone).
func fade(elapsed int64) float64 {
	switch x := float64(elapsed) * (math.Ln2 / float64(errorsHalf)); {
	case elapsed <= 0:
		return 1
	case x < .01:
		return 1 - x*(1-x/2*(1-x/3))
	default:
		return math.Exp(-x)
	}
}

// note takes an outcome and says whether the node should be ejected. took is in scales; base is what the middle node takes.
func (h *health) note(at int64, o Outcome, took float64, trial bool, base float64) (eject bool) {
	if trial {
		h.trial = false
	}
	if o == Unknown {
		return false
	}
	k := fade(at - h.last)
	h.last = max(h.last, at)
	h.calls = h.calls*k + 1
	h.failures *= k
	if o == Answered || o == Late {
		h.time(took, k)
	}
	if o == Answered {
		h.good(at, trial, base)
		return false
	}
	h.failures++
	return h.bad(at, trial)
}

// time takes how long an answer took. k is how much of older errors is left.
func (h *health) time(took, k float64) {
	took = min(took, sampleMost)
	if h.latency == 0 {
		h.latency = took
		return
	}
	w := max(1-k*k*k*k*k, sampleLeast) // k^halfRatio
	h.latency += w * (took - h.latency)
}

func (h *health) good(at int64, trial bool, base float64) {
	h.row = 0
	switch h.state {
	case Ejected:
		if !trial {
			return // it was sent before
		}
		if h.passed++; h.passed >= trialsPassed {
			h.become(Degraded)
			h.clean = at
			h.failures = 0 // paid for: what is left counts the seconds from here on
		}
	case Degraded:
		if h.latency > quick*base {
			h.clean = at
		}
		if at-h.clean >= int64(recovery) {
			h.become(Healthy)
			h.ejections = 0
		}
	case Healthy:
		if h.calls > evidence && h.latency > slow*base {
			h.become(Degraded)
			h.clean = at
		}
	}
}

func (h *health) bad(at int64, trial bool) (eject bool) {
	if h.row == 0 {
		h.rowBegan = at
	}
	h.row++
	h.clean = at
	h.well = never
	if h.state == Ejected {
		return trial
	}
	rate := h.errors(at)
	if h.state == Healthy && (h.row >= rowDegraded || h.calls > evidence && rate > errorRate) {
		h.become(Degraded)
	}
	return h.row >= rowEjected || h.row >= rowDegraded && at-h.rowBegan >= int64(rowLong) || h.calls > evidence && rate > ejectRate
}

// eject leaves the node alone for a while. chance is in [0, 1): gateways shall not all try at once.
func (h *health) eject(at int64, chance float64) {
	if h.state != Ejected {
		h.become(Ejected)
		h.ejectedTimes++
	}
	h.passed = 0
	h.until = at + int64(float64(ejectFirst<<h.ejections)*(.9+.2*chance))
	h.ejections = min(h.ejections+1, ejectDoubled)
}

func (h *health) become(s State) {
	h.state = s
	h.changes++
}

// mayTry says whether the next trial is due.
func (h *health) mayTry(at int64) bool {
	if h.state != Ejected || h.trial || h.tried != never && at-h.tried < int64(trialsEach) {
		return false
	}
	return at >= h.until || h.well != never && at-h.well >= int64(wellEnough)
}

// errors is the rate of errors, in [0, 1).
func (h *health) errors(at int64) float64 {
	k := fade(at - h.last)
	return h.failures * k / (h.calls*k + pretended)
}

// weight is in [weightLeast, 1].
func (h *health) weight(at int64, base float64) float64 {
	w := weightOf(h.latency/base, h.errors(at))
	if h.state == Degraded {
		w = min(w, weightLeast+(1-weightLeast)*float64(at-h.clean)/float64(recovery))
	}
	return min(max(w, weightLeast), 1)
}

// weightOf is that of a node that takes so many times what the middle one does, and has such a rate of errors.
func weightOf(times, errors float64) float64 {
	penalty := max(times-1, 0) + errorCost*errors
	if penalty < deadBand {
		return 1
	}
	return max(1-penalty, weightLeast)
}

// cost is what a read costs if nothing is under way: time over weight. A node that was never asked is taken for a quick one: it will be known
// soon.
func (h *health) cost(at int64, base float64) float64 {
	return max(h.latency, base/4) / h.weight(at, base)
}

// median follows the middle of what it is shown, in small steps: an answer that takes an hour moves it no more than one that is a little late.
type median struct {
	value float64
	steps int
}

// medianSteps makes the last step 1 %: that times take twice as long is known after some 70, and of times that vary as those of a queue do
// the median is off by 9 % (one standard deviation).
const medianSteps = 100

func (m *median) add(x float64) {
	if m.steps < medianSteps {
		m.steps++
	}
	switch step := 1 + 1/float64(m.steps); {
	case m.steps == 1:
		m.value = x
	case x > m.value:
		m.value *= step
	case x < m.value:
		m.value /= step
	}
}
