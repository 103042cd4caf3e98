package ratelimit

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

const (
	// maxRemembered subjects and totals are what a Memory keeps, about 300 bytes each.
	maxRemembered = 100_000
	// rememberFor is how long one is kept after its last take. A Memory is for the time of a failover; it shall not weigh on the gateway after.
	rememberFor = time.Minute
)

// Memory decides in this process alone, by the same arithmetic, while Redis cannot be asked. It knows nothing of what was taken before, or
// elsewhere: each of so many gateways gives its share of every rule, so that together they give no more than the limit, plus one token per gateway
// and rule where shares are smaller than that. When it is full, an app with more than an equal part of it forgets what it has used least: nobody
// loses a count because another app has many subjects. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	entries map[string]*remembered
	used    list.List // of all, the most recent first: *remembered
	apps    map[string]*tenant
	larger  *tenant // has had more than an equal part; nil = not known who has
}

// tenant is an app, as a Memory knows it.
type tenant struct {
	name string
	used list.List // the most recent first: *remembered
}

type remembered struct {
	key      string
	at       time.Time
	states   map[int64]state // by the tag of the rule
	app      *tenant
	inAll    *list.Element
	inTenant *list.Element
}

// Share is what a take is a part of while Redis cannot be asked.
type Share struct {
	App      string // whose limit it is: a name no other app has
	Gateways int    // that share the limit; less than 1 is 1
}

// NewMemory makes an empty Memory.
func NewMemory() *Memory {
	return &Memory{entries: map[string]*remembered{}, apps: map[string]*tenant{}}
}

// Take is Limiter.Take for a limit of an app. Errors: those of Request.Validate. A refusal that the share makes final says
// RetryAfterMS 1000: Redis may be there again then.
func (m *Memory) Take(now time.Time, share Share, lim Limit, r *Request) (Result, error) {
	whole := lim.Definition.RulesFor(lim.Override, now)
	if err := r.Validate(whole); err != nil {
		return Result{}, err
	}
	gateways := int64(max(share.Gateways, 1))
	rules := slices.Clone(whole)
	numbers, order := make([]exact, len(rules)), make([]string, len(rules))
	for i := range rules {
		rules[i].Limit = max(rules[i].Limit/gateways, 1)
		if rules[i].Burst > 0 {
			rules[i].Burst = max(rules[i].Burst/gateways, 1)
		}
		numbers[i], order[i] = rules[i].exactly(r.MaxWaitMS*1000), rules[i].ID
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	states := make([]state, len(rules))
	own, total := m.entry(share.App, lim.Name+" s "+r.Subject, now), m.entry(share.App, lim.Name+" t", now)
	of := func(rule *Rule) map[int64]state {
		if rule.Scope == PerLimit {
			return total.states
		}
		return own.states
	}
	for i := range rules {
		states[i] = of(&rules[i])[numbers[i].tag]
	}
	out := reply{verdict: decide(now.UnixMicro(), take, r.cost(), r.least(), numbers, states), order: order}
	for i := range rules {
		of(&rules[i])[numbers[i].tag] = states[i]
	}
	res := out.result(rules, take)
	res.Source = FromLocal
	if res.RetryAfterMS < 0 {
		res.RetryAfterMS = time.Second.Milliseconds()
	}
	if lim.Definition.Shadow && !res.Allowed {
		res.Allowed, res.Granted, res.Shadowed = true, r.cost(), true
	}
	return res, nil
}

// Forget drops what is old, and says how much is left. Who has used a Memory calls it from time to time, or what was taken last stays.
func (m *Memory) Forget(now time.Time) (left int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	return len(m.entries)
}

// entry finds what is remembered of a subject or a total of an app, or begins it.
func (m *Memory) entry(app, key string, now time.Time) *remembered {
	key = app + "/" + key
	if found := m.entries[key]; found != nil {
		m.used.MoveToFront(found.inAll)
		found.app.used.MoveToFront(found.inTenant)
		found.at = now
		return found
	}
	t := m.apps[app]
	if t == nil {
		t = &tenant{name: app}
		m.apps[app] = t
	}
	made := &remembered{key: key, at: now, states: map[int64]state{}, app: t}
	made.inAll, made.inTenant = m.used.PushFront(made), t.used.PushFront(made)
	m.entries[key] = made
	return made
}

// forget drops what is old, and what is too much.
func (m *Memory) forget(now time.Time) {
	for e := m.used.Back(); e != nil && now.Sub(e.Value.(*remembered).at) >= rememberFor; e = m.used.Back() {
		m.drop(e.Value.(*remembered))
	}
	for len(m.entries) >= maxRemembered {
		m.drop(m.largest().used.Back().Value.(*remembered))
	}
}

// largest is an app with more than an equal part, or the one with the most if all have that. All are looked through when the last one
// found has no more than that.
func (m *Memory) largest() *tenant {
	if m.larger != nil && m.larger.used.Len() > len(m.entries)/len(m.apps) {
		return m.larger
	}
	m.larger = nil
	for _, t := range m.apps {
		if m.larger == nil || t.used.Len() > m.larger.used.Len() {
			m.larger = t
		}
	}
	return m.larger
}

func (m *Memory) drop(r *remembered) {
	delete(m.entries, r.key)
	m.used.Remove(r.inAll)
	if r.app.used.Remove(r.inTenant); r.app.used.Len() == 0 {
		delete(m.apps, r.app.name)
		if m.larger == r.app {
			m.larger = nil
		}
	}
}
