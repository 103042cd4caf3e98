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
// and rule where shares are smaller than that. It is safe for concurrent use.
type Memory struct {
	gateways int64
	mu       sync.Mutex
	entries  map[string]*list.Element // of *remembered
	used     list.List                // the most recent first
}

type remembered struct {
	key    string
	at     time.Time
	states map[int64]state // by the tag of the rule
}

// NewMemory makes an empty Memory of one of so many gateways, at least 1.
func NewMemory(gateways int) *Memory {
	return &Memory{gateways: int64(max(gateways, 1)), entries: map[string]*list.Element{}}
}

// Take is Limiter.Take for the limit that is called key, a name no other limit of any app has. Errors: those of Request.Validate. A refusal
// that the share makes final says RetryAfterMS 1000: Redis may be there again then.
func (m *Memory) Take(now time.Time, key string, lim Limit, r *Request) (Result, error) {
	whole := lim.Definition.RulesFor(lim.Override, now)
	if err := r.Validate(whole); err != nil {
		return Result{}, err
	}
	rules := slices.Clone(whole)
	numbers, order := make([]exact, len(rules)), make([]string, len(rules))
	for i := range rules {
		rules[i].Limit = max(rules[i].Limit/m.gateways, 1)
		if rules[i].Burst > 0 {
			rules[i].Burst = max(rules[i].Burst/m.gateways, 1)
		}
		numbers[i], order[i] = rules[i].exactly(r.MaxWaitMS*1000), rules[i].ID
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	states := make([]state, len(rules))
	own, total := m.entry(key+" s "+r.Subject, now), m.entry(key+" t", now)
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

// entry finds what is remembered of a subject or a total, or begins it.
func (m *Memory) entry(key string, now time.Time) *remembered {
	if e := m.entries[key]; e != nil {
		m.used.MoveToFront(e)
		found := e.Value.(*remembered)
		found.at = now
		return found
	}
	made := &remembered{key, now, map[int64]state{}}
	m.entries[key] = m.used.PushFront(made)
	return made
}

// forget drops what is old, and what is too much.
func (m *Memory) forget(now time.Time) {
	for e := m.used.Back(); e != nil; e = m.used.Back() {
		if last := e.Value.(*remembered); len(m.entries) < maxRemembered && now.Sub(last.at) < rememberFor {
			return
		}
		delete(m.entries, m.used.Remove(e).(*remembered).key)
	}
}
