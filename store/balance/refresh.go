package balance

import (
	"math"
	"slices"
	"time"
)

const (
	// refreshEvery is how often the middle node is looked for, and those that should be tried.
	refreshEvery = 50 * time.Millisecond
	// scaleLeast: what answers sooner is quick; to prefer what is still quicker would follow noise.
	scaleLeast = 200 * time.Microsecond
	idleLong   = 500 * time.Millisecond
	idleLonger = 5 * time.Second // so long it is tried whatever is going on
	idleShare  = 1000            // one choice of so many tries an idle node, at the most
)

// try takes m for a read out of turn, if there is still a reason to.
func (s *Set) try(m *member, at int64) (Reason, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.health.state != Ejected {
		s.tried.Store(s.total.Load())
		return Idle, true
	}
	if !m.health.mayTry(at) {
		return 0, false
	}
	m.health.trial, m.health.tried = true, at
	return Trial, true
}

// refresh does, every 50 ms, what need not be done for each choice. Whoever comes while another does it goes on.
func (s *Set) refresh(at int64) {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if at >= s.next.Load() {
		s.refreshAll(s.view.Load(), at)
	}
}

func (s *Set) refreshAll(v *view, at int64) {
	s.next.Store(at + int64(refreshEvery))
	s.measure(v)
	base := math.Float64frombits(s.base.Load())
	total := s.total.Load()
	for i := range v.members {
		m := &v.members[i]
		if picks := m.reads.all(); picks != m.seen {
			total += picks - m.seen
			m.seen, m.idle = picks, at
		}
		m.mu.Lock()
		m.reprice(at, base)
		m.mu.Unlock()
	}
	s.total.Store(total)
	s.due.Store(s.nextDue(v, at))
}

// measure looks for the middle node: what it takes, and what it takes for each class. Of two it is the quicker one.
func (s *Set) measure(v *view) {
	var times [Most]float64
	var ofClass [classes][Most]float64
	var n int
	var known [classes]int
	for i := range v.members {
		m := &v.members[i]
		m.mu.Lock()
		if m.health.state != Ejected {
			if m.health.latency > 0 {
				times[n] = m.health.latency
				n++
			}
			for c := range m.medians {
				if m.medians[c].steps > 0 {
					ofClass[c][known[c]] = m.medians[c].value
					known[c]++
				}
			}
		}
		m.mu.Unlock()
	}
	if n > 0 {
		s.base.Store(math.Float64bits(max(middle(times[:n]), 1)))
	}
	for c := range ofClass {
		if k := known[c]; k > 0 {
			s.scale[c].Store(math.Float64bits(max(middle(ofClass[c][:k]), float64(scaleLeast))))
		}
	}
}

func middle(x []float64) float64 {
	slices.Sort(x)
	return x[(len(x)-1)/2]
}

// nextDue is the node that the next read tries: one that was ejected, else one that was not chosen for long. They take turns, as one may
// not hold what reads want. nil = none.
func (s *Set) nextDue(v *view, at int64) *member {
	share := s.total.Load()-s.tried.Load() >= idleShare
	var idle *member
	idleTurn := 0
	for i := range v.members {
		turn := (s.turn + i) % len(v.members)
		m := &v.members[turn]
		m.mu.Lock()
		out, mayTry := m.health.state == Ejected, m.health.mayTry(at)
		m.mu.Unlock()
		if mayTry {
			s.turn = turn + 1
			return m
		}
		since := time.Duration(at - m.idle)
		if idle == nil && !out && m.reads.underWay() == 0 && (since > idleLong && share || since > idleLonger) {
			idle, idleTurn = m, turn
		}
	}
	if idle != nil {
		s.turn = idleTurn + 1
	}
	return idle
}
