package pool

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/packed"
)

const (
	// viewMicros is how long a gateway draws by what it has read of a large pool: as long as the sums of scripts/adaptive.lua are good.
	viewMicros = 200_000
	// nobodyTime is how long it believes that all members have as many leases as they may. What ends here it knows at once; others may end
	// some, and whoever asks in a loop must not read a large pool each time.
	nobodyTime = 20 * time.Millisecond
	// mostViewed bytes of pools are kept in mind: 300 pools of 1,000 members.
	mostViewed = 64 << 20
	// mostLarge pools are known to be large. To forget one costs a script that says so.
	mostLarge = 10_000
)

// views are what a gateway knows of pools that are too large for scripts that look at all members.
type views struct {
	reading singleflight.Group

	mu    sync.Mutex
	large map[string]int64 // how often this gateway has changed members or health
	views map[string]*view
	size  int
}

func newViews() *views { return &views{large: map[string]int64{}, views: map[string]*view{}} }

// isLarge says whether a pool was large when it was last asked.
func (s *views) isLarge(pool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, yes := s.large[pool]
	return yes
}

func (s *views) setLarge(pool string, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !yes {
		delete(s.large, pool)
		return
	}
	if len(s.large) >= mostLarge {
		clear(s.large)
	}
	s.large[pool] += 0
}

func (s *views) find(pool string) (v *view, changes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views[pool], s.large[pool]
}

// keep remembers a view that was read since changes, unless there were others meanwhile.
func (s *views) keep(pool string, v *view, changes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.large[pool] != changes {
		return
	}
	s.drop(pool)
	for other := range s.views {
		if s.size+v.size <= mostViewed {
			break
		}
		s.drop(other) // whichever: it costs one question
	}
	s.views[pool] = v
	s.size += v.size
}

func (s *views) drop(pool string) {
	if v := s.views[pool]; v != nil {
		s.size -= v.size
		delete(s.views, pool)
	}
}

// changed forgets what was read of a pool, and what is being read.
func (s *views) changed(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.large[pool]; ok {
		s.large[pool] = n + 1
	}
	s.drop(pool)
	for _, kind := range kinds {
		s.reading.Forget(pool + kind)
	}
}

// view is a large pool as it was read. Its lists do not change.
type view struct {
	large bool
	at    int64     // by the clock of Redis, in us
	taken time.Time // by that of the gateway
	epoch int64
	size  int // bytes, about

	names   []string // the ring
	index   map[string]int
	weights []float64
	health  []string // nil = it was not asked for
	kind    string   // what it was read for

	mu      sync.Mutex
	full    map[int]bool // who has all the leases that it may have
	trials  map[int]int64
	tallied [2]*tally // of all members, for allocations without a lease and with one
}

// poolOf is the name of a pool among all that a gateway knows.
func poolOf(id *acl.Identity, k keys) string { return id.App.Cluster + "/" + string(k) }

// needs are what a view is read for.
type needs struct {
	command string
	health  bool
	most    int64 // leases of a member, 0 = any number
	newest  bool
}

var kinds = [...]string{"", "health", "leases", "health leases"}

func (n *needs) kind() string {
	i := 0
	if n.health {
		i = 1
	}
	if n.most > 0 {
		i |= 2
	}
	return kinds[i]
}

// now is the time of Redis in us, as far as the gateway knows it.
func (p *Pools) now(v *view) int64 {
	if now := p.Clock(); now > 0 {
		return now
	}
	return v.at + time.Since(v.taken).Microseconds()
}

// view is a large pool as it was at most 200 ms ago; of one that is not large it says that alone. Errors: forbidden, or an outcome.
func (p *Pools) view(ctx context.Context, id *acl.Identity, k keys, n needs) (*view, error) {
	pool := poolOf(id, k)
	if was, _ := p.views.find(pool); p.good(was, n) {
		return was, nil
	}
	return together(ctx, p.Log, &p.views.reading, pool+n.kind(), func(ctx context.Context) (*view, error) {
		was, changes := p.views.find(pool)
		if p.good(was, n) { // somebody has just read it
			return was, nil
		}
		v, err := p.read(ctx, id, k, n, was)
		if err == nil {
			p.views.setLarge(pool, v.large)
			if v.large {
				p.views.keep(pool, v, changes)
			}
		}
		return v, err
	})
}

// good says whether what was read is what is needed; v may be nil.
func (p *Pools) good(v *view, n needs) bool {
	if v == nil || n.newest || v.kind != n.kind() {
		return false
	}
	age := p.now(v) - v.at
	return age >= 0 && age < viewMicros
}

// read reads a pool; of one whose members are as they were, what may be different.
func (p *Pools) read(ctx context.Context, id *acl.Identity, k keys, n needs, was *view) (*view, error) {
	known, adapts := int64(-1), int64(0)
	if was != nil {
		known = was.epoch
	}
	names := []string{k.state(), k.ring(), k.weights()}
	if n.health {
		adapts = 1
		names = append(names, k.health())
	}
	if n.most > 0 {
		names = append(names, k.inflight())
	}
	values, err := p.run(ctx, id, n.command, scriptView, names, packed.Append(nil, p.Clock(), known, adapts, n.most))
	if err != nil {
		return nil, err
	}
	v := &view{kind: n.kind(), taken: time.Now()}
	return v, v.fill(values, n, was)
}

// fill reads the reply of scripts/view.lua.
func (v *view) fill(values []any, n needs, was *view) error {
	text := make([]string, len(values))
	for i := range values {
		text[i], _ = values[i].(string)
	}
	q := packed.Reader{Rest: text[len(text)-1]}
	v.at, v.large, v.epoch = q.Number(), q.Number() == 1, q.Number()
	health, full, ring := q.Number(), q.Number(), q.Number()
	if !v.large {
		return whole(&q)
	}
	rest := int64(len(text) - 1)
	if ring > 0 {
		rest--
	}
	if q.Err != nil || health < 0 || full < 0 || ring < 0 || health%2 != 0 || health+full+ring != rest || ring == 0 && was == nil {
		return badReply()
	}
	if ring == 0 {
		v.names, v.index, v.weights = was.names, was.index, was.weights
	} else if err := v.members(text[health+full:rest], text[rest]); err != nil {
		return err
	}
	for _, m := range v.names {
		v.size += len(m) + 200 // what names and numbers need beside
	}
	if n.health {
		v.health = make([]string, len(v.names))
		for i := int64(0); i < health; i += 2 {
			if at, ok := v.index[text[i]]; ok {
				v.health[at] = text[i+1]
				v.size += len(text[i+1])
			}
		}
	}
	v.full, v.trials = map[int]bool{}, map[int]int64{}
	for _, m := range text[health : health+full] {
		if at, ok := v.index[m]; ok {
			v.full[at] = true
		}
	}
	return nil
}

func (v *view) members(names []string, weights string) error {
	v.names, v.index = names, make(map[string]int, len(names))
	q := packed.Reader{Rest: weights}
	for i, m := range names {
		v.index[m] = i
		v.weights = append(v.weights, q.Fraction())
		q.Fraction() // its credit
	}
	return whole(&q)
}

// freed says that a lease of a member has ended.
func (s *views) freed(pool, member string) {
	v, _ := s.find(pool)
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if at, ok := v.index[member]; ok {
		delete(v.full, at)
		v.tallied[1] = nil
	}
}
