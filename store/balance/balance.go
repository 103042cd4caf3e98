// Package balance chooses which node of a shard answers a read: the replicas that hold what the caller must see, and the primary.
//
// It promises:
//
//   - Nobody is sent to a replica that does not hold all that the primary had when the caller's bound began (see Read.Within): what is not known
//     is not held.
//   - Of two nodes that are looked at the one that answers sooner is chosen: by its times, by what is under way to it, and by its weight,
//     which errors, slowness and the time since then lower (see health).
//   - A node that does not answer is left alone, and tried with one read at a time until it is well. One that is only slow gets a read now and
//     then, at most one of a thousand, so that it is noticed when it is well again.
//   - As long as a primary is known somebody is chosen, even if all nodes seem to be down.
//   - Choosing and recording take some atomic operations and a lock that only those share who have just been answered by the same node. They
//     allocate nothing and look at no clock.
//
// It knows neither Redis nor HTTP, and starts nothing: the time, chance and what nodes say about themselves are passed in.
package balance

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Most is the number of nodes that a Set holds.
const Most = 64

// primaryWeight is what the primary counts for beside replicas: it has the writes to do as well.
const primaryWeight = .5

// Node is one of those that are chosen among.
type Node struct {
	// ID tells it from the others; what was learnt about a node is kept by it.
	ID string
	// Primary says that it is the one with the writes, which holds everything.
	Primary bool
	// Via is what the user of the package sends reads by. The package only carries it.
	Via any
}

// Class says what kind of command a read is, because a node is not slow if it is asked for more.
type Class uint8

// The classes.
const (
	Point  Class = iota // one value
	Multi               // some values
	Range               // part of something large
	Script              // whatever a script does
	classes
)

// Read is what a node is wanted for.
type Read struct {
	// Within is how long ago what is read may have been the truth; 0 = LeastWithin. One that is smaller is kept too, mostly by the primary.
	Within time.Duration
	Class  Class
	// Not is the ID of a node that has just failed this read; empty = none. Such a read is not used to try nodes.
	Not string
}

// Set is the nodes of one shard. It is safe for concurrent use.
type Set struct {
	began  time.Time
	random func() uint64
	view   atomic.Pointer[view]
	next   atomic.Int64 // when refresh is due
	due    atomic.Pointer[member]
	base   atomic.Uint64          // bits: what the middle node takes, in scales
	scale  [classes]atomic.Uint64 // bits: ns that a command of the class takes in the middle; 0 = not known
	total  atomic.Uint64          // choices, at the last refresh
	tried  atomic.Uint64          // total when the last idle node was tried
	_      [64]byte

	ejecting sync.Mutex // the share of nodes that may be ejected is counted under it; comes after a member's
	mu       sync.Mutex // what follows; comes before a member's
	turn     int
	offsets  offsets
}

// view is the nodes at one moment. It does not change.
type view struct{ members []member }

// member is a node as it is now, with what is known of it.
type member struct {
	Node
	*record
}

// record is what is known of a node, whatever its role.
type record struct {
	// cost is the bits of what a read costs if nothing is under way: time, in scales, over weight. ejected = none is sent.
	cost    atomic.Uint64
	current atomic.Int64  // it holds all that the primary had at that time; never = not known
	doubts  atomic.Uint64 // how often current has gone back; see record.holdsOnly
	reads   reads
	hard    atomic.Bool // what it did last was to refuse: it is not just slow or wrong
	_       [64]byte    // every choice reads what is above of all nodes, and an answer writes what is below of one

	mu      sync.Mutex
	health  health
	medians [classes]median
	doubted int64  // when it broke a connection last; never = it did not
	asked   int64  // when the latest look that was heard of was asked for; never = none was
	seen    uint64 // picks at the last refresh
	idle    int64  // since when it was not chosen
}

// reads counts those of a node in one word, as each change of it may wait for other processors: below 20 bits what is under way, above them all.
type reads struct{ atomic.Uint64 }

const underWayBits = 20

func (r *reads) begin()          { r.Add(1<<underWayBits | 1) }
func (r *reads) end()            { r.Add(^uint64(0)) }
func (r *reads) underWay() int64 { return int64(r.Load() & (1<<underWayBits - 1)) }
func (r *reads) all() uint64     { return r.Load() >> underWayBits }

var ejected = math.Float64bits(math.Inf(1))

// never is a time before all others.
const never = math.MinInt64

// New makes a set without nodes. random nil = math/rand/v2's; it must be safe for concurrent use if the set is used so.
func New(now time.Time, random func() uint64) *Set {
	if random == nil {
		random = rand.Uint64
	}
	s := &Set{began: now, random: random}
	s.view.Store(&view{})
	s.base.Store(math.Float64bits(1))
	return s
}

// Update says which nodes there are. What is known of those that stay is kept, also if their role or way changes. Of two with the same ID the
// first counts, and none beyond Most. nodes is not kept.
func (s *Set) Update(now time.Time, nodes []Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.since(now)
	old, v := s.view.Load(), &view{}
	for _, n := range nodes {
		if v.find(n.ID) != nil || len(v.members) == Most {
			continue
		}
		m := member{Node: n}
		if known := old.find(n.ID); known != nil {
			m.record = known.record
			if known.Primary && !n.Primary {
				m.holdsOnly(never) // what it has that nobody else got will be taken from it
			}
		} else {
			m.record = &record{doubted: never, asked: never, idle: at, health: newHealth(at)}
			m.current.Store(never)
		}
		v.members = append(v.members, m)
	}
	for i := range old.members {
		if m := &old.members[i]; v.find(m.ID) == nil {
			m.holdsOnly(never) // nothing will be learnt of it any more
		}
	}
	s.view.Store(v)
	s.due.Store(nil)
	s.refreshAll(v, at)
}

func (v *view) find(id string) *member {
	for i := range v.members {
		if v.members[i].ID == id {
			return &v.members[i]
		}
	}
	return nil
}

func (s *Set) since(now time.Time) int64 { return int64(now.Sub(s.began)) }

// holds says whether all is there that the primary had at a time.
func (m *member) holds(at int64) bool { return m.Primary || m.current.Load() >= at }

// holdsOnly notes until when the node is known to hold everything. If that is less than what was said of it, reads that were sent because of
// that may have been answered by less.
func (r *record) holdsOnly(until int64) {
	if r.current.Swap(until) > until {
		r.doubts.Add(1)
	}
}

// Reason says why a node was chosen.
type Reason uint8

// The reasons.
const (
	Best     Reason = iota // it answers sooner than another
	Idle                   // it has not been asked for long, and may have become better
	Trial                  // it was ejected, and may be well again
	Panicked               // no node is well
)

// Choice is the node of one read. The zero value is none.
type Choice struct {
	set    *Set
	member *member
	at     int64
	doubts uint64
	held   bool // what is wanted, when doubts were counted
	class  Class
	Reason Reason
}

// Node is the one that is chosen.
func (c Choice) Node() Node { return c.member.Node }

// Holds says whether nothing was learnt since the choice that makes what the node has answered too old: that it had less than was known of
// it, as after a restart with an old file. It is to be asked when the answer has come, and needs each new connection to have been looked at
// before it carries a read.
func (c Choice) Holds() bool {
	return c.member.Primary || c.held && c.member.doubts.Load() == c.doubts
}

// Pick chooses the node for a read that begins now; Done must be called once for it. ok is false if no node may be asked: no primary is known and
// no replica holds enough, or none is left but Read.Not.
func (s *Set) Pick(now time.Time, r Read) (c Choice, ok bool) {
	at := s.since(now)
	if at >= s.next.Load() {
		s.refresh(at)
	}
	if r.Within == 0 {
		r.Within = LeastWithin
	}
	from := at - int64(r.Within)
	if d := s.due.Load(); d != nil && r.Not == "" && d.holds(from) && s.due.CompareAndSwap(d, nil) {
		if reason, ok := s.try(d, at); ok {
			return s.choose(d, at, from, r.Class, reason), true
		}
	}
	v := s.view.Load()
	var usable [Most]uint8
	n := 0
	for i := range v.members {
		m := &v.members[i]
		if m.cost.Load() != ejected && m.holds(from) && (r.Not == "" || m.ID != r.Not) {
			usable[n] = uint8(i)
			n++
		}
	}
	if n == 0 {
		if m := s.last(v, from, r.Not); m != nil {
			return s.choose(m, at, from, r.Class, Panicked), true
		}
		return Choice{}, false
	}
	return s.choose(s.best(v, usable[:n]), at, from, r.Class, Best), true
}

// choose takes m. That it holds enough is looked at again behind the count of doubts, so that none between is missed.
func (s *Set) choose(m *member, at, from int64, class Class, why Reason) Choice {
	m.reads.begin()
	doubts := m.doubts.Load()
	return Choice{s, m, at, doubts, m.holds(from), min(class, classes-1), why}
}

// fewNodes is up to how many nodes are all compared. Of more two are: to compare all would send all gateways to the same one.
const fewNodes = 3

// best is the cheapest of two nodes, or of a few.
func (s *Set) best(v *view, usable []uint8) *member {
	n := uint64(len(usable))
	if n == 1 {
		return &v.members[usable[0]]
	}
	u := s.random()
	first := u >> 32 * n >> 32
	m := &v.members[usable[first]]
	if n > fewNodes {
		second := u & math.MaxUint32 * (n - 1) >> 32
		if second >= first {
			second++
		}
		if o := &v.members[usable[second]]; o.price() < m.price() {
			return o
		}
		return m
	}
	price := m.price()
	for i := uint64(1); i < n; i++ { // beginning by chance, so that ties are no order
		if o := &v.members[usable[(first+i)%n]]; o.price() < price {
			m, price = o, o.price()
		}
	}
	return m
}

// price is what a read costs now.
func (m *member) price() float64 {
	return math.Float64frombits(m.cost.Load()) * float64(m.reads.underWay()+1)
}

// last is whom to ask when no node is well: one that does not just refuse, else the primary, else anyone who holds enough. nil = nobody. Whoever
// has failed already is not asked again.
func (s *Set) last(v *view, from int64, not string) *member {
	if not != "" {
		return nil
	}
	var soft, primary, other *member
	for i := range v.members {
		m := &v.members[i]
		switch {
		case !m.holds(from):
		case !m.hard.Load() && (soft == nil || m.reads.underWay() < soft.reads.underWay()):
			soft = m
		case m.Primary:
			primary = m
		case other == nil || m.reads.underWay() < other.reads.underWay():
			other = m
		}
	}
	switch {
	case soft != nil:
		return soft
	case primary != nil:
		return primary
	}
	return other
}
