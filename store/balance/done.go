package balance

import (
	"math"
	"time"
)

// Done says how the read ended, and when.
func (c Choice) Done(now time.Time, o Outcome) {
	if c.member == nil {
		return
	}
	m, s := c.member, c.set
	m.reads.end()
	at := s.since(now)
	base := math.Float64frombits(s.base.Load())
	m.mu.Lock()
	defer m.mu.Unlock()
	took := 0.
	switch o {
	case Answered, Late:
		took = s.scaled(m, c.class, float64(max(at-c.at, 1)))
		m.hard.Store(false)
	case Refused:
		m.hard.Store(true)
		m.doubted = at
		m.holdsOnly(never) // who answers next at this address may be another, with nothing
	}
	if m.health.note(at, o, took, c.Reason == Trial, base) {
		s.eject(m, at, o)
	}
	m.reprice(at, base)
}

// scaled is a time in what a command of its class takes in the middle: 1 = as long. The lock of m is held.
func (s *Set) scaled(m *member, c Class, took float64) float64 {
	m.medians[c].add(took)
	scale := s.scale[c].Load()
	if scale == 0 { // the first of its class
		scale = math.Float64bits(max(took, float64(scaleLeast)))
		s.scale[c].CompareAndSwap(0, scale)
	}
	return took / math.Float64frombits(scale)
}

// reprice sets what a read costs. The lock of m is held.
func (m *member) reprice(at int64, base float64) {
	if m.health.state == Ejected {
		m.cost.Store(ejected)
		return
	}
	cost := m.health.cost(at, base)
	if m.Primary {
		cost /= primaryWeight
	}
	m.cost.Store(math.Float64bits(cost))
}

// eject leaves m alone for a while, unless it is only slow or wrong and half of the nodes are left alone already: then it may be the load, the
// command or the network, and fewer nodes would make it worse. The lock of m is held.
func (s *Set) eject(m *member, at int64, o Outcome) {
	s.ejecting.Lock()
	defer s.ejecting.Unlock()
	if o != Refused && m.health.state != Ejected {
		v := s.view.Load()
		out := 0
		for i := range v.members {
			if v.members[i].cost.Load() == ejected {
				out++
			}
		}
		if out >= len(v.members)/2 {
			return
		}
	}
	m.health.eject(at, float64(s.random()>>11)/(1<<53))
	m.cost.Store(ejected)
}
