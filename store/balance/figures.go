package balance

import (
	"math"
	"time"
)

// Figures are what is known of a node.
type Figures struct {
	ID      string
	Primary bool
	State   State
	// Weight is in [0.1, 1], and 0 of a node that is ejected. That of a primary is not halved.
	Weight float64
	// Latency is what a read of one value takes in its time; 0 = not known.
	Latency time.Duration
	// Errors is the rate of errors, in [0, 1).
	Errors   float64
	InFlight int64
	// Picks, Ejections and Changes (of the state) are counted since the node is known.
	Picks, Ejections, Changes uint64
	// Held is how old what it holds may be; 0 of a primary, negative = not known.
	Held time.Duration
}

// Figures are those of all nodes, in the order of Update.
func (s *Set) Figures(now time.Time) []Figures {
	at := s.since(now)
	base := math.Float64frombits(s.base.Load())
	scale := math.Float64frombits(s.scale[Point].Load())
	v := s.view.Load()
	all := make([]Figures, 0, len(v.members))
	for i := range v.members {
		all = append(all, v.members[i].figures(at, base, scale))
	}
	return all
}

func (m *member) figures(at int64, base, scale float64) Figures {
	f := Figures{ID: m.ID, Primary: m.Primary, InFlight: m.reads.underWay(), Picks: m.reads.all(), Held: -1}
	if m.Primary {
		f.Held = 0
	} else if current := m.current.Load(); current != never {
		f.Held = time.Duration(max(at-current, 0))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &m.health
	f.State, f.Errors, f.Ejections, f.Changes = h.state, h.errors(at), h.ejectedTimes, h.changes
	f.Latency = time.Duration(h.latency * scale)
	if h.state != Ejected {
		f.Weight = h.weight(at, base)
	}
	return f
}
