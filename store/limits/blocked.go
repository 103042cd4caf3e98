package limits

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/slotgate/slotgate/store/ratelimit"
)

const (
	// DefaultBlocked is how long a gateway believes a refusal. What another gateway gives back is not seen meanwhile, as what another
	// one defines is not (Fresh); a subject that goes on at full speed costs each gateway one question a second.
	DefaultBlocked = time.Second
	// MostBlocked is the longest that can be set.
	MostBlocked = 10 * time.Second
	// maxBlocked subjects are kept, some 400 bytes each with one rule.
	maxBlocked = 100_000
)

// blocked are the subjects that Redis has just refused, so that those who do not stop cost it nothing.
//
// It promises that nothing is refused which Redis would grant, but for what another gateway gave back within the time that is set: an
// answer is kept for the same question only, never longer than Redis said, counted from before Redis was asked, and no longer than the
// definition and the override it was found with. What this gateway gives back makes older answers void, also those that are still
// under way. The clock of a Redis node that jumps ahead is believed with the next question.
//
// The oldest are the first to go, not the least used: all are over within the same short time.
type blocked struct {
	longest time.Duration // 0 = nothing is kept

	mu      sync.Mutex
	entries map[place]*list.Element // of *refusal
	oldest  list.List               // in the order of their making
}

// place is a subject of a limit, or with an empty subject, which no request can have, all of them.
type place struct{ limit, subject string }

// refusal is what was refused, or without a version the time of a gift, before which nothing that was asked is true any more.
type refusal struct {
	place
	asked    time.Time // before Redis decided
	answered time.Time // after
	until    time.Time
	version  int64 // of the definition; none has 0
	least    int64
	maxWait  int64
	result   ratelimit.Result
}

func newBlocked(longest time.Duration) *blocked {
	return &blocked{longest: longest, entries: map[place]*list.Element{}}
}

// find is the answer to a take, if it is known.
func (b *blocked) find(now time.Time, lim limit, r *ratelimit.Request) (ratelimit.Result, bool) {
	if b.longest == 0 {
		return ratelimit.Result{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.at(place{lim.key, r.Subject})
	if k == nil || !now.Before(k.until) || k.version != lim.version || k.least != least(r) || k.maxWait != r.MaxWaitMS {
		return ratelimit.Result{}, false
	}
	if all := b.at(place{limit: lim.key}); all != nil && !k.asked.After(all.asked) {
		return ratelimit.Result{}, false
	}
	return aged(k.result, now.Sub(k.answered)), true
}

// aged is a refusal as it is said some time later.
func aged(res ratelimit.Result, by time.Duration) ratelimit.Result {
	less := func(ms *int64, least int64) {
		if *ms > 0 {
			*ms = max(*ms-by.Milliseconds(), least)
		}
	}
	less(&res.RetryAfterMS, 1)
	res.Source = ratelimit.FromCache
	res.Rules = slices.Clone(res.Rules)
	for i := range res.Rules {
		less(&res.Rules[i].RetryAfterMS, 1)
		less(&res.Rules[i].ResetMS, 1)
	}
	return res
}

// keep remembers a refusal that Redis was asked for between two times.
func (b *blocked) keep(asked, answered time.Time, lim limit, r *ratelimit.Request, res ratelimit.Result) {
	if b.longest == 0 || !final(lim, res) {
		return
	}
	// Redis rounds up to a ms: for the last one it may grant again.
	until := asked.Add(min(b.longest, time.Duration(res.RetryAfterMS-1)*time.Millisecond))
	if o := lim.Override; o != nil && !o.ExpiresAt.IsZero() && o.ExpiresAt.After(asked) && o.ExpiresAt.Before(until) {
		until = o.ExpiresAt
	}
	if !answered.Before(until) {
		return
	}
	k := &refusal{place: place{lim.key, r.Subject}, asked: asked, answered: answered, until: until,
		version: lim.version, least: least(r), maxWait: r.MaxWaitMS, result: res}
	b.mu.Lock()
	defer b.mu.Unlock()
	if was := b.at(k.place); was != nil && !asked.After(was.asked) {
		return
	}
	b.put(answered, k)
}

// least is how much of a take would be enough.
func least(r *ratelimit.Request) int64 {
	if r.MinGrant != nil {
		return *r.MinGrant
	}
	return cost(r)
}

func cost(r *ratelimit.Request) int64 {
	if r.Cost != nil {
		return *r.Cost
	}
	return 1
}

// final says whether a refusal is one that only time or a gift can change. That of a subject's own rule is not where the total is a step
// of its own: it may be because of a take that the total is about to refuse, and that is then given back by whichever gateway it was.
func final(lim limit, res ratelimit.Result) bool {
	if res.Allowed || res.RetryAfterMS <= 1 || res.LimitedBy == nil {
		return false
	}
	if lim.Definition.Isolation != ratelimit.Partitioned || !hasTotal(lim.Definition) {
		return true
	}
	return slices.ContainsFunc(lim.Definition.Rules, func(r ratelimit.Rule) bool {
		return r.ID == *res.LimitedBy && r.Scope == ratelimit.PerLimit
	})
}

func hasTotal(d *ratelimit.Definition) bool {
	return slices.ContainsFunc(d.Rules, func(r ratelimit.Rule) bool { return r.Scope == ratelimit.PerLimit })
}

// forgive makes void what was asked about a subject until now, or with none, about any of the limit.
func (b *blocked) forgive(now time.Time, limit, subject string) {
	if b.longest == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(now, &refusal{place: place{limit, subject}, asked: now, until: now.Add(b.longest)})
}

func (b *blocked) at(p place) *refusal {
	if e := b.entries[p]; e != nil {
		return e.Value.(*refusal)
	}
	return nil
}

// put keeps an entry in place of one that may be there.
func (b *blocked) put(now time.Time, k *refusal) {
	if e := b.entries[k.place]; e != nil {
		b.oldest.Remove(e)
		delete(b.entries, k.place)
	}
	b.drop(now)
	b.entries[k.place] = b.oldest.PushBack(k)
}

// forget drops what is over; after the last refusal nothing else does.
func (b *blocked) forget(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(now)
}

// drop makes room for one by those that nobody needs any more.
func (b *blocked) drop(now time.Time) {
	for e := b.oldest.Front(); e != nil; e = b.oldest.Front() {
		old := e.Value.(*refusal)
		if len(b.entries) < maxBlocked && now.Before(old.until) {
			return
		}
		delete(b.entries, old.place)
		b.oldest.Remove(e)
	}
}
