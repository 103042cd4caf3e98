package balance

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The vectors D of the design's section 1d, where they are about nodes too. Those of pools differ where it is said.

func TestWeight(t *testing.T) {
	for _, c := range []struct {
		times, errors, want float64
	}{
		{1, 0, 1},
		{.6, 0, 1},
		{.05, 0, 1},
		{1.5, 0, .5},
		{1.9, 0, .1},
		{2, 0, .1},
		{10, 0, .1},
		{1, .05, .5},
		{1.2, .03, .5},
		{1, .09, .1},
		{1, .1, .1},
		{1, .01, 1}, // pools: 0.9; what is less than a quarter is noise here
		{1.24, 0, 1},
		{1.26, 0, .74},
	} {
		if w := weightOf(c.times, c.errors); math.Abs(w-c.want) > 1e-9 {
			t.Errorf("%v times as long, %v errors: weight %v, want %v", c.times, c.errors, w, c.want)
		}
	}
}

// Errors that cost 2.0 of weight, after each half-life. The design counts none for its vector that pretended successes would hide.
func TestErrorsFade(t *testing.T) {
	h := newHealth(0)
	h.failures, h.calls = 1e9, 5e9-pretended // nothing but the half-life moves a rate of so many
	if e := h.errors(0); math.Abs(e-.2) > 1e-9 {
		t.Fatalf("a rate of %v, want 0.2", e)
	}
	if e := h.errors(int64(errorsHalf)); math.Abs(e-.2) > 1e-6 {
		t.Errorf("the rate of many errors is %v after a half-life without any answer, want 0.2: it is a rate", e)
	}
	h.failures, h.calls = 4, 0
	want := []float64{.1, .1, .5, .75, 1, 1, 1} // the last three of pools: .875, .9375, .96875
	for i, w := range want {
		if is := h.weight(int64(i)*int64(errorsHalf), 1); math.Abs(is-w) > 1e-9 {
			t.Errorf("after %d half-lives: weight %v, want %v", i, is, w)
		}
	}
}

func TestFadeIsTheHalfLife(t *testing.T) {
	for _, elapsed := range []time.Duration{-time.Hour, 0, 1, time.Microsecond, 72 * time.Millisecond, 73 * time.Millisecond, time.Second, 5 * time.Second, time.Hour} {
		want := math.Exp2(-max(elapsed, 0).Seconds() / 5)
		if is := fade(int64(elapsed)); math.Abs(is-want) > 1e-8 {
			t.Errorf("after %v: %v, want %v", elapsed, is, want)
		}
	}
}

// story tells a node's health, in seconds, and writes down its states.
type story struct {
	*testing.T
	health
	states strings.Builder
}

func tell(t *testing.T) *story { return &story{T: t, health: newHealth(0)} }

func (s *story) at(t float64) int64 { return int64(t * 1e9) }

// note is an answer outside a trial, or one that ends it.
func (s *story) note(t float64, o Outcome) { s.Helper(); s.noteTime(t, o, 1) }

func (s *story) noteTime(t float64, o Outcome, took float64) {
	trial := s.trial
	if s.health.note(s.at(t), o, took, trial, 1) {
		s.eject(s.at(t), .5)
	}
	s.states.WriteByte("HDU"[s.state])
}

// try begins a trial if it is due.
func (s *story) try(t float64) bool {
	if !s.mayTry(s.at(t)) {
		return false
	}
	s.trial, s.tried = true, s.at(t)
	return true
}

func (s *story) want(states string) {
	s.Helper()
	if is := s.states.String(); is != states {
		s.Errorf("states %s, want %s", is, states)
	}
	s.states.Reset()
}

func TestFiveFailuresEjectAndThreeTrialsBringBack(t *testing.T) {
	s := tell(t)
	for i := range 5 {
		s.note(1+float64(i)/10, Failed)
	}
	s.want("HDDDU") // D2

	for range 3 {
		s.note(1.5, Answered) // sent before
	}
	s.note(1.6, Failed)
	s.note(1.7, Failed)
	s.want("UUUUU") // D3

	if s.try(2.3) { // D4, with the gateway's second instead of the pools' five
		t.Error("tried before a second is over")
	}
	if !s.try(2.5) || s.try(2.7) {
		t.Error("not one trial at a time")
	}
	s.note(2.8, Answered)
	if s.try(2.55) || !s.try(2.9) {
		t.Error("trials are not a tenth of a second apart")
	}
	s.note(2.95, Answered)
	s.try(3.1)
	s.note(3.1, Answered)
	s.want("UUD") // D5

	for i := 1; i <= 31; i++ {
		s.note(3.1+float64(i), Answered)
		if want, ok := map[int]float64{1: .13, 10: .4, 20: .7, 29: .97, 30: 1}[i]; ok {
			if w := s.weight(s.at(3.1+float64(i)), 1); math.Abs(w-want) > 1e-3 {
				t.Errorf("weight %.3f after %d s, want %.2f", w, i, want)
			}
		}
	}
	s.want(strings.Repeat("D", 29) + "HH") // D6

	for i := range 5 {
		s.note(50+float64(i)/10, Failed)
	}
	if length := float64(s.until)/1e9 - 50.4; math.Abs(length-1) > 1e-6 {
		t.Errorf("after it was healthy, ejected for %.3f s, want 1", length)
	}
	s.try(51.5)
	s.note(51.5, Answered)
	s.want("HDDDUU") // the trials before do not count again
}

func TestAlternatingFailuresNeverBecomeHealthy(t *testing.T) {
	s := tell(t)
	s.note(0, Failed)
	s.note(1, Failed)
	s.states.Reset()
	for i := range 60 {
		s.note(2+float64(i), []Outcome{Answered, Failed}[i%2])
	}
	s.want(strings.Repeat("D", 60)) // D7
}

func TestSlownessDegradesUntilHalfAMinuteAfterItsEnd(t *testing.T) {
	s := tell(t)
	now := 0.
	for range 100 {
		now += .01
		s.noteTime(now, Answered, 10)
	}
	if s.state != Degraded || s.weight(s.at(now), 1) != weightLeast {
		t.Fatalf("%v, weight %.3f", s.state, s.weight(s.at(now), 1))
	}
	for range 40 { // not as slow as to be degraded for it
		now++
		s.noteTime(now, Answered, 1.6)
	}
	if s.state != Degraded {
		t.Fatalf("%v though it is still slow", s.state)
	}
	well := now
	for s.state == Degraded && now < well+60 {
		now++
		s.noteTime(now, Answered, 1)
	}
	if took := now - well; took < 30 || took > 33 {
		t.Errorf("healthy after %.0f s, want 30 and what the mean needs", took)
	}
}

func TestOneSlowAnswerOfFewIsNoEvidence(t *testing.T) {
	s := tell(t)
	for i := range 60 { // D8 at one answer a second: the weight tells it, the state does not
		s.noteTime(float64(i), Answered, 10)
	}
	if s.state != Healthy || s.weight(s.at(60), 1) != weightLeast {
		t.Errorf("%v, weight %.3f", s.state, s.weight(s.at(60), 1))
	}
}

func TestOneFailureOfTwoIsNoRate(t *testing.T) {
	s := tell(t)
	s.note(0, Answered)
	s.note(1, Failed)
	s.want("HH") // D11
	if w := s.weight(s.at(1), 1); math.Abs(w-.544) > .01 {
		t.Errorf("weight %.3f, want 0.54 (pools: 0.59, with another half-life)", w)
	}
}

func TestWhatEjects(t *testing.T) {
	for _, c := range []struct {
		name  string
		tell  func(s *story)
		state State
	}{
		{"four failures in a row do not", func(s *story) {
			for i := range 4 {
				s.note(float64(i)/10, Refused)
			}
		}, Degraded},
		{"two in a row over 5 s do", func(s *story) { s.note(1, Late); s.note(6, Late) }, Ejected},
		{"two in a row over 4.9 s do not", func(s *story) { s.note(1, Late); s.note(5.9, Late) }, Degraded},
		{"two over 5 s with an answer between them do not", func(s *story) { s.note(1, Late); s.note(3, Answered); s.note(6, Late) }, Healthy},
		{"more than half of many do", func(s *story) {
			for i := range 200 { // two failures, one answer
				s.note(float64(i)/100, []Outcome{Failed, Failed, Answered}[i%3])
			}
		}, Ejected},
		{"less than half of many do not", func(s *story) {
			for i := range 200 {
				s.note(float64(i)/100, []Outcome{Failed, Answered, Answered}[i%3])
			}
		}, Degraded},
		{"what says nothing about the node does not", func(s *story) {
			for i := range 200 {
				s.note(float64(i)/100, Unknown)
			}
		}, Healthy},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tell(t)
			c.tell(s)
			if s.state != c.state {
				t.Errorf("%v, want %v", s.state, c.state)
			}
		})
	}
}

func TestEjectionsBecomeLonger(t *testing.T) {
	s := tell(t)
	for range 5 {
		s.note(0, Refused)
	}
	now := 0.
	for _, want := range []float64{1, 2, 4, 8, 16, 32, 32} {
		if length := float64(s.until)/1e9 - now; math.Abs(length-want) > 1e-6 {
			t.Errorf("ejected for %.3f s, want %.0f", length, want)
		}
		now = float64(s.until)/1e9 + .001
		if !s.try(now) {
			t.Fatalf("not tried after %v s", want)
		}
		s.note(now, Refused)
	}
	if s.ejectedTimes != 1 {
		t.Errorf("%d ejections counted, want 1", s.ejectedTimes)
	}
	for _, chance := range []float64{0, .999} {
		h := newHealth(0)
		h.eject(0, chance)
		if length := time.Duration(h.until); length < 900*time.Millisecond || length > 1100*time.Millisecond {
			t.Errorf("ejected for %v by chance %v, want 1 s give or take a tenth", length, chance)
		}
	}
}

// After hours of ejections the next trial would be 32 s away, too far to be back in 40 s.
func TestANodeThatLooksWellIsTriedBeforeItsTime(t *testing.T) {
	s := tell(t)
	for range 5 {
		s.note(0, Refused)
	}
	s.ejections, s.until = 5, s.at(1000)
	s.well = s.at(100)
	if s.try(105.9) || !s.try(106) {
		t.Error("not tried after six seconds of looking well")
	}
	s.note(106, Refused)
	if s.try(120) {
		t.Error("a trial that failed is repeated at once")
	}
}

func TestATrialThatSaysNothingIsRepeated(t *testing.T) {
	s := tell(t)
	for range 5 {
		s.note(0, Refused)
	}
	if !s.try(2) {
		t.Fatal("not tried")
	}
	s.note(2.05, Unknown)
	if s.state != Ejected || !s.try(2.2) {
		t.Error("no trial after one that was given up")
	}
}

func TestFastFailuresSayNothingAboutSpeed(t *testing.T) {
	for o, want := range map[Outcome]float64{Answered: 1.01, Late: 1.01, Refused: 1, Failed: 1, Unknown: 1} {
		h := newHealth(0)
		h.note(0, Answered, 1, false, 1)
		h.note(0, o, 2, false, 1)
		if math.Abs(h.latency-want) > 1e-9 {
			t.Errorf("outcome %d: latency %v, want %v", o, h.latency, want)
		}
	}
}

// A command that is lost for three seconds, of a node that takes half a millisecond, must not count 6,000 times as much as an answer.
func TestWhatIsLostIsOneTimeOfMany(t *testing.T) {
	h := newHealth(0)
	h.note(0, Answered, 1, false, 1)
	h.note(0, Late, 6000, false, 1)
	if h.latency > 2 {
		t.Errorf("latency %v times what it was, want 2 at the most", h.latency)
	}
}

func TestMedian(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var m median
	for i := range 2000 {
		x := r.ExpFloat64() // median ln 2
		if i%100 == 0 {
			x = 1e9
		}
		m.add(x)
	}
	if m.value < .75*math.Ln2 || m.value > 1.3*math.Ln2 {
		t.Errorf("median %.3f, want %.3f", m.value, math.Ln2)
	}
	for range 100 {
		m.add(100)
	}
	if m.value < 1.5 {
		t.Errorf("median %.3f after 100 times of 100, want it to have risen", m.value)
	}
}

func TestStateNames(t *testing.T) {
	for s, want := range map[State]string{Healthy: "healthy", Degraded: "degraded", Ejected: "ejected"} {
		if s.String() != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
}
