package middleware

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/prepaid"
)

const (
	// MaxCeilings bounds those that concern one app, because each of them costs every request.
	MaxCeilings = 10
	maxRules    = acl.MaxLimits + MaxCeilings
	// ceilingsNamespace is no app's: theirs do not begin so.
	ceilingsNamespace = "slotgate"
)

// Limiter knows the limits of apps and keys and the operator's ceilings, and what is used up of them. That belongs to (app id, key id, limit id)
// and outlives every reload of the directory. The state of a bucket is a time, so when the numbers change, the part of it that was used
// stays used.
type Limiter struct {
	clock Clock
	start time.Time

	records  atomic.Pointer[limit] // of every app
	settings atomic.Pointer[LimiterSettings]

	mu       sync.Mutex
	apps     map[string]*appState
	ceilings map[string]*ledger // by id and cluster
}

// LimiterSettings are those that change while the gateway runs. They are not changed after they were given.
type LimiterSettings struct {
	// Shared is where gateways share what is not of mode local; its clock is the limiter's Now. nil = each gateway keeps all limits alone, as token
	// buckets.
	Shared   *prepaid.Pool
	Off      bool // no limit of any app is enforced; ceilings are
	Ceilings []Ceiling
}

// Ceiling is a limit of the operator, over all apps or those of one cluster. Its Per says nothing; it is of requests or bytes.
type Ceiling struct {
	acl.Limit
	Cluster string // "" = over all apps together
	Kept    string // the cluster in which gateways share it
}

// appState is what the limiter keeps of one app.
type appState struct {
	app      *acl.App // the newest that came by
	settled  bool     // for so long that one with a lower revision is no late request, but of a store that was brought back from a copy
	record   *bucket  // of idempotency records
	ledgers  map[ledgerKey]*ledger
	compiled map[string]*callerLimits // by key id, "" = all that have no limits of their own
}

type ledgerKey struct{ limit, key string }

// NewLimiter makes a limiter of which nothing is used up.
func NewLimiter(clock Clock) *Limiter {
	clock = clock.orReal()
	l := &Limiter{clock: clock, start: clock(), apps: map[string]*appState{}, ceilings: map[string]*ledger{}}
	l.LimitRecords(DefaultRecordsPerSecond)
	l.Set(LimiterSettings{})
	return l
}

// Set changes the settings, from the next request on. What is used up of a ceiling that stays is still used up.
func (l *Limiter) Set(s LimiterSettings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	keep := map[string]*ledger{}
	for _, c := range s.Ceilings {
		keep[c.name()] = cmp.Or(l.ceilings[c.name()], &ledger{})
	}
	l.ceilings = keep
	l.settings.Store(&s)
}

func (c *Ceiling) name() string { return c.ID + " " + c.Cluster }

// callerLimits are the limits of one app, or one key of it, as of one directory and settings.
type callerLimits struct {
	app      *acl.App
	settings *LimiterSettings
	record   *bucket
	rules    []rule
	whole    *view                   // of the requests that all rules concern; nil = some concern a part of the routes only
	views    atomic.Pointer[[]*view] // where whole is nil: the views that were needed so far
	making   sync.Mutex
}

// forCaller returns the limits of a key of an app, compiled when the app or the settings are new.
func (l *Limiter) forCaller(app *acl.App, key string) *callerLimits {
	l.mu.Lock()
	defer l.mu.Unlock()
	state := l.apps[app.ID]
	if state == nil {
		state = &appState{record: &new(ledger).bucket, ledgers: map[ledgerKey]*ledger{}, compiled: map[string]*callerLimits{}}
		l.apps[app.ID] = state
	}
	if state.app == nil || state.settled || app.Revision >= state.app.Revision {
		state.app, state.settled = app, false
	} else {
		app = state.app // a request that was let in before an edit must not bring back what held then
	}
	if !slices.ContainsFunc(app.Limits, func(spec acl.Limit) bool { return spec.Per == acl.PerKey }) {
		key = ""
	}
	settings := l.settings.Load()
	if old := state.compiled[key]; old != nil && old.app == app && old.settings == settings {
		return old
	}
	compiled := l.compile(app, key, state, settings) // with the same ledgers
	state.compiled[key] = compiled
	return compiled
}

func (l *Limiter) compile(app *acl.App, key string, state *appState, settings *LimiterSettings) *callerLimits {
	c := &callerLimits{app: app, settings: settings, record: state.record}
	for _, spec := range app.Limits {
		if !spec.Known() || settings.Off {
			continue // not known: stored by a newer gateway beside this one
		}
		at := ledgerKey{limit: spec.ID}
		if spec.Per == acl.PerKey {
			at.key = key
		}
		if state.ledgers[at] == nil {
			state.ledgers[at] = &ledger{}
		}
		kept := place{app.Cluster, prepaid.Key(app.Namespace, spec.ID, at.key)}
		c.rules = append(c.rules, newRule(spec, state.ledgers[at], settings.Shared, kept))
	}
	for _, ceiling := range settings.Ceilings {
		if ceiling.Cluster == "" || ceiling.Cluster == app.Cluster {
			kept := place{ceiling.Kept, prepaid.Key(ceilingsNamespace, ceiling.ID, "")}
			r := newRule(ceiling.Limit, l.ceilings[ceiling.name()], settings.Shared, kept)
			r.ceiling = true
			c.rules = append(c.rules, r)
		}
	}
	// What no request is part of yet must come last, so that nothing that goes wrong between leaves it counted.
	slices.SortStableFunc(c.rules, func(a, b rule) int { return a.rank() - b.rank() })
	if all := uint64(1)<<len(c.rules) - 1; !slices.ContainsFunc(c.rules, func(r rule) bool { return !r.everything() }) {
		c.whole = newView(c.rules, all)
	}
	return c
}

// Keep is to be called every few seconds, so seldom that no request lasts from one call to the next. It drops all that is known of keys and apps
// of which lives says that they are no more, and what was used of limits that nobody has any more.
func (l *Limiter) Keep(lives func(app, key string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for app, state := range l.apps {
		if !lives(app, "") {
			delete(l.apps, app)
			continue
		}
		state.keep(func(key string) bool { return lives(app, key) })
	}
}

// has says whether the app still has a limit of this id.
func (s *appState) has(limit string) bool {
	return slices.ContainsFunc(s.app.Limits, func(spec acl.Limit) bool { return spec.ID == limit })
}

func (s *appState) keep(lives func(key string) bool) {
	s.settled = true
	used := map[*ledger]bool{}
	for key, c := range s.compiled {
		if key != "" && !lives(key) {
			delete(s.compiled, key)
			continue
		}
		for i := range c.rules {
			used[c.rules[i].ledger] = true
		}
	}
	maps.DeleteFunc(s.ledgers, func(_ ledgerKey, st *ledger) bool { return !used[st] })
}

// Callers is of how many apps, and keys with limits of their own, something is known.
func (l *Limiter) Callers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, state := range l.apps {
		n += len(state.compiled)
	}
	return n
}

// Classes says what the requests of a route do: the class of commands, 0 for none, and whether they change anything.
type Classes func(method, route string) (acl.Class, acl.Access)

// view returns the rules that concern a request. Rules are few and compared one by one: no map is touched.
func (c *callerLimits) view(method, route string, classes Classes) *view {
	if c.whole != nil {
		return c.whole
	}
	var class acl.Class
	var access acl.Access
	if classes != nil {
		class, access = classes(method, route)
	}
	mask := uint64(0)
	for i := range c.rules {
		if c.rules[i].concerns(route, class, access) {
			mask |= 1 << i
		}
	}
	if known := c.views.Load(); known != nil {
		for _, v := range *known {
			if v.mask == mask {
				return v
			}
		}
	}
	return c.makeView(mask)
}

// makeView adds a view. There are at most as many as routes and methods.
func (c *callerLimits) makeView(mask uint64) *view {
	c.making.Lock()
	defer c.making.Unlock()
	var known []*view
	if p := c.views.Load(); p != nil {
		known = *p
	}
	if i := slices.IndexFunc(known, func(v *view) bool { return v.mask == mask }); i >= 0 {
		return known[i]
	}
	made := newView(c.rules, mask)
	grown := append(slices.Clone(known), made)
	c.views.Store(&grown)
	return made
}

// policyWindow writes quota, unit and window. The window is whole seconds and at least one (draft -11), so 10 per 500 ms is 20 per second.
func policyWindow(n int64, period time.Duration, unit string) string {
	w := seconds(int64(period))
	q := n
	if whole := time.Duration(w) * time.Second; whole != period {
		q = int64(float64(n) * float64(whole) / float64(period))
	}
	return ";q=" + strconv.FormatInt(q, 10) + unit + ";w=" + strconv.FormatInt(w, 10)
}

// sfString writes a String of RFC 9651. Limit ids need no escape; anything else must not break the header.
func sfString(s string) string {
	b := []byte{'"'}
	for i := range len(s) {
		switch ch := s[i]; {
		case ch == '"' || ch == '\\':
			b = append(b, '\\', ch)
		case ch < ' ' || ch > '~':
			b = append(b, '?')
		default:
			b = append(b, ch)
		}
	}
	return string(append(b, '"'))
}

// Now is the limiter's clock: nanoseconds since it was made, monotonic as long as the clock is.
func (l *Limiter) Now() int64 { return l.at(l.clock()) }

func (l *Limiter) at(t time.Time) int64 { return int64(t.Sub(l.start)) }

// Remaining calls quota with the share of every limit that is left, from 0 to 1, of a limit per key that of the key that has the least, but of
// none that an app no longer has; and
// ceiling with those of ceilings that an app has met.
func (l *Limiter) Remaining(quota func(app, policy string, ratio float64), ceiling func(id string, ratio float64)) {
	type share struct{ app, policy string }
	least, ceilings := map[share]float64{}, map[string]float64{}
	settings := l.settings.Load()
	l.mu.Lock()
	now := l.Now()
	for app, state := range l.apps {
		for _, c := range state.compiled {
			for i := range c.rules {
				r, at := &c.rules[i], share{app, c.rules[i].id}
				if r.ceiling {
					if c.settings == settings {
						ceilings[r.id] = r.left(now)
					}
					continue
				}
				if !state.has(r.id) { // what is compiled for a key that has not come since
					continue
				}
				if had, seen := least[at]; !seen || r.left(now) < had {
					least[at] = r.left(now)
				}
			}
		}
	}
	l.mu.Unlock()
	for at, ratio := range least {
		quota(at.app, at.policy, ratio)
	}
	for id, ratio := range ceilings {
		ceiling(id, ratio)
	}
}
