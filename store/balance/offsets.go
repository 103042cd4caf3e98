package balance

import "time"

// LeastWithin is the smallest bound that Read.Within can be kept by replicas, if each node is looked at every second: what a look shows begins
// to age when the primary was asked, and the next look takes a second and the time that both take to answer.
const LeastWithin = 2 * time.Second

// Look is what a node says about its replication (INFO replication). The zero value is a node that did not answer.
type Look struct {
	// Asked is when the question was sent, not when the answer came.
	Asked time.Time
	// Primary says that the node is one (role:master).
	Primary bool
	// History is the id of what it has (master_replid): offsets of two histories are not compared. Empty = it did not answer.
	History string
	// Offset is how far it has got: master_repl_offset of a primary, slave_repl_offset of a replica.
	Offset int64
	// Linked says that a replica hears its primary (master_link_status:up). Not asked of a primary.
	Linked bool
}

// Look takes what a node says about itself. All nodes should be looked at every second, the primary first. A replica that is not linked, has
// another history than the primary, says that it is none, or did not answer holds nothing that is known of. What unknown nodes say does not
// matter.
func (s *Set) Look(id string, l Look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view.Load()
	m := v.find(id)
	if m == nil {
		return
	}
	at := s.since(l.Asked)
	said := l.History != "" && l.Primary == m.Primary && (l.Primary || l.Linked)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !said:
		m.health.well = never
	case m.health.well == never && at > m.doubted:
		m.health.well = at
	}
	if m.Primary {
		if said && s.offsets.add(at, l.History, l.Offset) {
			v.doubtAll()
		}
		return
	}
	until := int64(never)
	if said && at > m.doubted {
		until = s.offsets.held(l.History, l.Offset)
	}
	if at < m.asked { // heard of late: it was perhaps another node then, or had another file
		until = min(until, m.current.Load())
	}
	m.asked = max(m.asked, at)
	m.holdsOnly(until)
}

// doubtAll: nothing is known of what replicas hold of a new history.
func (v *view) doubtAll() {
	for i := range v.members {
		v.members[i].holdsOnly(never)
	}
}

const (
	// offsetsKept reach back a minute. A replica that is further behind is not asked, whatever the bound: it does not keep up.
	offsetsKept  = 64
	offsetsApart = int64(900 * time.Millisecond)
)

// offsets remember how far the primary was at which time.
type offsets struct {
	history string
	ring    [offsetsKept]offset
	n       int // noted since the history began
}

type offset struct{ at, offset int64 }

func (o *offsets) entry(i int) *offset { return &o.ring[i%offsetsKept] }

// add notes that the primary had got so far at a time, or was further already. It says whether a new history begins: another id, or a primary
// that has less than it had.
func (o *offsets) add(at int64, history string, to int64) (began bool) {
	if o.n > 0 && o.history == history {
		last := o.entry(o.n - 1)
		if to >= last.offset {
			if to > last.offset && (o.n == 1 || last.at-o.entry(o.n-2).at >= offsetsApart) {
				o.n++
			}
			// else who has got to last.offset is taken to be as far as the one before: older than he is, never newer
			*o.entry(o.n - 1) = offset{at, to}
			return false
		}
	}
	o.history, o.n = history, 1
	o.ring[0] = offset{at, to}
	return true
}

// held is the last time of which a node that has got so far holds all that the primary had; never = it is not known.
func (o *offsets) held(history string, to int64) int64 {
	if o.n == 0 || history != o.history {
		return never
	}
	for i := o.n - 1; i >= max(o.n-offsetsKept, 0); i-- {
		if e := o.entry(i); e.offset <= to {
			return e.at
		}
	}
	return never
}
