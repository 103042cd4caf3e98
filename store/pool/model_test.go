package pool_test

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slotgate/slotgate/store/pool"
)

// model is a pool as the scripts should keep it, written for the eye.
type model struct {
	d         pool.Definition
	members   map[string]*entry
	history   map[string]*entry // counts of who was removed, and leases; the rest of them means nothing
	leases    map[string]*loan
	last      int64 // position
	cursor    int64
	place     int
	level     int64
	fence     int64
	abandoned int64
	sticky    map[string]string // key -> member
}

type entry struct {
	name          string
	weight, pos   int64
	available     bool
	cools         int64 // until; 0 = it does not
	eligible      bool
	counted       bool // it has a count
	count, credit int64
	inflight      int64
}

type loan struct {
	id                 string
	fence, start, ends int64
	member             string
}

func newModel() *model {
	return &model{members: map[string]*entry{}, history: map[string]*entry{}, leases: map[string]*loan{}, sticky: map[string]string{}}
}

// ring are the eligible by position.
func (m *model) ring() (list []*entry) {
	for _, e := range m.members {
		if e.eligible {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.pos, b.pos) })
	return list
}

func (m *model) lowest() (least int64) {
	for i, e := range m.ring() {
		if i == 0 || e.count < least {
			least = e.count
		}
	}
	return least
}

func (m *model) reset() { m.place, m.level = 0, 0 }

// review lets e enter or leave.
func (m *model) review(e *entry, now int64, said bool) {
	if e.cools != 0 && e.cools <= now {
		e.cools = 0
	}
	free := e.available && e.cools == 0
	switch {
	case free && !e.eligible:
		least := m.lowest()
		switch {
		case said:
		case !e.counted:
			e.count = least
		case m.d.Restore == pool.Zero:
			e.count = 0
		case m.d.Restore == pool.Min:
			e.count = least
		case m.d.Restore == pool.CatchUp:
			e.count = max(e.count, least)
		}
		e.eligible, e.counted, e.credit = true, true, 0
		m.reset()
	case !free && e.eligible:
		e.eligible = false
		m.reset()
	}
}

func (m *model) put(p pool.Member, now int64, patch bool) pool.Outcome {
	e := m.members[p.Member]
	isNew := e == nil
	if isNew {
		if patch {
			return pool.Absent
		}
		m.last++
		e = &entry{name: p.Member, weight: 1, pos: m.last, available: true}
		if old := m.history[p.Member]; old != nil {
			e.count, e.counted, e.inflight = old.count, old.counted, old.inflight
			delete(m.history, p.Member)
		}
		m.members[p.Member] = e
	}
	before := *e
	if p.Weight != nil && *p.Weight != e.weight {
		if e.weight = *p.Weight; e.eligible {
			m.reset()
		}
	}
	if p.Available != nil {
		e.available = *p.Available
	}
	if p.CooldownMS != nil {
		e.cools = 0
		if *p.CooldownMS > 0 {
			e.cools = now + *p.CooldownMS*1000
		}
	}
	said := isNew && p.InitialCount != nil
	if said {
		e.count, e.counted = *p.InitialCount, true
	}
	m.review(e, now, said)
	switch {
	case isNew:
		return pool.Added
	case p.CooldownMS == nil && before.weight == e.weight && before.available == e.available && before.eligible == e.eligible:
		return pool.Unchanged
	}
	return pool.Changed
}

func (m *model) remove(name string, drop bool) pool.Outcome {
	e := m.members[name]
	if e == nil {
		if old := m.history[name]; old != nil && drop {
			old.counted = false
		}
		return pool.Absent
	}
	if e.eligible {
		m.reset()
	}
	delete(m.members, name)
	m.history[name] = &entry{count: e.count, counted: e.counted && !drop, inflight: e.inflight}
	return pool.Removed
}

// allocate is one after the other what the script does in one step.
func (m *model) allocate(r pool.Request, now int64, draws []float64, ids []string) (res pool.Result) {
	var cooled []*entry
	for _, e := range m.members {
		if e.cools != 0 && e.cools <= now {
			cooled = append(cooled, e)
		}
	}
	slices.SortFunc(cooled, func(a, b *entry) int { return cmp.Or(cmp.Compare(a.cools, b.cools), strings.Compare(a.name, b.name)) })
	for _, e := range cooled {
		m.review(e, now, false)
	}
	ttl := r.LeaseMS * 1000
	if ttl == 0 && m.d.Policy == pool.LeastInflight {
		ttl = m.d.Lease.DefaultMS * 1000
	}
	if ttl > 0 {
		m.reap(now)
	}
	for i := range max(r.Count, 1) {
		e, why := m.same(r), pool.Reason("")
		if e == nil {
			e, why = m.choose(r.Exclude, draws[i])
		}
		if e == nil {
			if i == 0 {
				res.Reason, res.RetryAfterMS = m.excuse(why, now)
			}
			return res
		}
		e.count++
		if r.Sticky != "" {
			m.sticky[r.Sticky] = e.name
		}
		a := pool.Allocated{Member: e.name, Allocations: e.count}
		if ttl > 0 {
			m.fence = max(m.fence+1, now)
			e.inflight++
			l := &loan{id: ids[i], fence: m.fence, start: now, ends: now + ttl, member: e.name}
			m.leases[ids[i]] = l
			a.Lease = &pool.Held{ID: l.id, Fence: l.fence, ExpiresAtMS: l.ends / 1000}
		}
		res.Allocated = append(res.Allocated, a)
	}
	return res
}

// same is whom the sticky key of r has, if it could be chosen.
func (m *model) same(r pool.Request) *entry {
	e := m.members[m.sticky[r.Sticky]]
	if r.Sticky == "" || e == nil || !e.eligible || slices.Contains(r.Exclude, e.name) {
		return nil
	}
	weighs := m.d.Policy == pool.WeightedRandom || m.d.Policy == pool.WeightedRoundRobin
	most := m.d.Lease.MaxPerMember
	if weighs && e.weight == 0 || m.d.Policy == pool.LeastInflight && most > 0 && e.inflight >= most {
		return nil
	}
	return e
}

// excuse is why nobody is there, and when that may change.
func (m *model) excuse(why pool.Reason, now int64) (pool.Reason, int64) {
	next := int64(0)
	soonest := func(at int64) {
		if at > 0 && (next == 0 || at < next) {
			next = at
		}
	}
	if len(m.ring()) == 0 {
		for _, e := range m.members {
			soonest(e.cools)
		}
		if why = pool.Empty; next > 0 {
			why = pool.Cooling
		}
	} else if why == pool.Saturated {
		for _, l := range m.leases {
			soonest(l.ends)
		}
	}
	return why, (max(next-now, 0) + 999) / 1000
}

func (m *model) sortedLeases() (list []*loan) {
	for _, l := range m.leases {
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b *loan) int { return cmp.Or(cmp.Compare(a.ends, b.ends), strings.Compare(a.id, b.id)) })
	return list
}

func (m *model) reap(now int64) {
	for i, l := range m.sortedLeases() {
		if i < 32 && l.ends <= now {
			m.end(l)
			m.abandoned++
		}
	}
}

func (m *model) end(l *loan) {
	delete(m.leases, l.id)
	if e := cmp.Or(m.members[l.member], m.history[l.member]); e != nil {
		e.inflight--
	}
}

func (m *model) choose(exclude []string, draw float64) (*entry, pool.Reason) {
	ring := m.ring()
	var list []*entry
	for _, e := range ring {
		if !slices.Contains(exclude, e.name) {
			list = append(list, e)
		}
	}
	if len(list) == 0 {
		return nil, pool.Excluded
	}
	switch m.d.Policy {
	case pool.LeastUsed:
		return slices.MinFunc(list, func(a, b *entry) int { return cmp.Or(cmp.Compare(a.count, b.count), strings.Compare(a.name, b.name)) }), ""
	case pool.LeastInflight:
		e := slices.MinFunc(list, func(a, b *entry) int {
			return cmp.Or(cmp.Compare(a.inflight, b.inflight), strings.Compare(a.name, b.name))
		})
		if most := m.d.Lease.MaxPerMember; most > 0 && e.inflight >= most {
			return nil, pool.Saturated
		}
		return e, ""
	case pool.RoundRobin:
		next := list[0]
		for _, e := range list {
			if e.pos > m.cursor {
				next = e
				break
			}
		}
		m.cursor = next.pos
		return next, ""
	}
	list = slices.DeleteFunc(list, func(e *entry) bool { return e.weight == 0 })
	if len(list) == 0 {
		return nil, pool.NoWeight
	}
	sum := int64(0)
	for _, e := range list {
		sum += e.weight
	}
	switch {
	case m.d.Policy == pool.WeightedRandom:
		rest := draw * float64(sum)
		for _, e := range list {
			if rest -= float64(e.weight); rest < 0 {
				return e, ""
			}
		}
		return list[len(list)-1], ""
	case m.d.Variant == pool.Classic:
		return m.classic(ring, list), ""
	}
	best := list[0]
	for _, e := range list {
		if e.credit += e.weight; e.credit > best.credit {
			best = e
		}
	}
	best.credit -= sum
	return best, ""
}

func (m *model) classic(ring, list []*entry) *entry {
	step, greatest := int64(0), int64(0)
	for _, e := range list {
		for a, b := step, e.weight; ; a, b = b, a%b {
			if b == 0 {
				step = a
				break
			}
		}
		greatest = max(greatest, e.weight)
	}
	m.level = min(m.level, greatest)
	for {
		if m.place = m.place%len(ring) + 1; m.place == 1 {
			if m.level -= step; m.level <= 0 {
				m.level = greatest
			}
		}
		if e := ring[m.place-1]; e.weight >= m.level && slices.Contains(list, e) {
			return e
		}
	}
}

func (m *model) overview() (o pool.Overview) {
	var all []*entry
	for _, e := range m.members {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.pos, b.pos) })
	for _, e := range all {
		s := pool.State{Member: e.name, Position: e.pos, Weight: e.weight, Available: e.available, Inflight: e.inflight, CoolsAtMS: e.cools / 1000}
		if e.counted {
			s.Allocations = e.count
		}
		o.Members = append(o.Members, s)
	}
	o.Abandoned, o.Fence = m.abandoned, m.fence
	return o
}
