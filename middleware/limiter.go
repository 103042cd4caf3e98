package middleware

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotgate/slotgate/acl"
)

// Limiter holds the token buckets of every app, in this gateway's memory: until limits are shared, each gateway enforces the app's number
// alone. A bucket belongs to (app id, limit id) and outlives every reload of the directory. Its state is a time, so when the
// numbers change, the part of the bucket that was used stays used.
type Limiter struct {
	clock Clock
	start time.Time

	records atomic.Pointer[limit] // of every app

	mu   sync.Mutex
	byID map[string]*appLimits
}

// NewLimiter makes a limiter whose buckets are full.
func NewLimiter(clock Clock) *Limiter {
	clock = clock.orReal()
	l := &Limiter{clock: clock, start: clock(), byID: map[string]*appLimits{}}
	l.LimitRecords(DefaultRecordsPerSecond)
	return l
}

// appLimits are the limits of one app as of one directory.
type appLimits struct {
	app    *acl.App
	limits []appLimit
	policy []string // the RateLimit-Policy header's value
	record *bucket  // of idempotency records
}

type appLimit struct {
	limit
	id     string // of the limit
	head   string // `"id";r=`, the beginning of its RateLimit item
	bucket *bucket
}

// forApp returns the app's limits, compiled when its pointer is new.
func (l *Limiter) forApp(app *acl.App) *appLimits {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.byID[app.ID]
	if old != nil && old.app == app {
		return old
	}
	compiled := compileLimits(app, old) // for a request that still holds an older app once more, with the same buckets
	l.byID[app.ID] = compiled
	return compiled
}

func compileLimits(app *acl.App, old *appLimits) *appLimits {
	a := &appLimits{app: app, record: &bucket{}}
	if old != nil {
		a.record = old.record
	}
	var policies []string
	for _, spec := range app.Limits {
		if !spec.Built() {
			continue // stored by a newer gateway beside this one
		}
		name := sfString(spec.ID)
		period := time.Duration(spec.PeriodMS) * time.Millisecond
		a.limits = append(a.limits, appLimit{
			limit:  newLimit(spec.Limit, period, spec.EffectiveBurst()),
			id:     spec.ID,
			head:   name + ";r=",
			bucket: old.bucket(spec.ID),
		})
		policies = append(policies, name+policyWindow(spec.Limit, period))
	}
	if len(policies) > 0 {
		a.policy = []string{strings.Join(policies, ", ")}
	}
	return a
}

// bucket returns the bucket the limit had before, or a full one.
func (a *appLimits) bucket(id string) *bucket {
	if a != nil {
		if i := slices.IndexFunc(a.limits, func(l appLimit) bool { return l.id == id }); i >= 0 {
			return a.limits[i].bucket
		}
	}
	return &bucket{}
}

// policyWindow writes quota and window. The window is whole seconds and at least one (draft -11), so 10 per 500 ms is 20 per second.
func policyWindow(n int64, period time.Duration) string {
	w := seconds(int64(period))
	q := n
	if whole := time.Duration(w) * time.Second; whole != period {
		q = int64(float64(n) * float64(whole) / float64(period))
	}
	return ";q=" + strconv.FormatInt(q, 10) + ";w=" + strconv.FormatInt(w, 10)
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

// verdict is what all limits of an app say to one request.
type verdict struct {
	ok       bool
	retry    int64    // nanoseconds; never when a limit's bucket cannot hold the cost
	violated []string // ids of the limits that refused
}

// take takes n from every limit or from none, and appends the RateLimit header's value to dst.
func (a *appLimits) take(now int64, n int64, dst []byte) (verdict, []byte) {
	v := verdict{ok: true}
	var buf [acl.MaxLimits]decision
	decisions := buf[:0]
	for i := range a.limits {
		l := &a.limits[i]
		d := l.bucket.take(now, l.limit, n)
		decisions = append(decisions, d)
		if !d.ok {
			v.refuse(l, d)
		}
	}
	for i := range a.limits {
		l, d := &a.limits[i], decisions[i]
		if !v.ok && d.ok {
			l.bucket.giveBack(l.limit, n)
			d.remaining = min(d.remaining+n, l.burst())
		}
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, l.head...)
		dst = strconv.AppendInt(dst, d.remaining, 10)
		dst = append(dst, ";t="...)
		dst = strconv.AppendInt(dst, max(seconds(d.next), 1), 10)
	}
	return v, dst
}

func (v *verdict) refuse(l *appLimit, d decision) {
	v.ok = false
	v.violated = append(v.violated, l.id)
	if d.retry == never || v.retry == never {
		v.retry = never
		return
	}
	v.retry = max(v.retry, d.retry)
}

// now is the limiter's clock: nanoseconds since it was made, monotonic as long as the clock is.
func (l *Limiter) now() int64 { return l.at(l.clock()) }

func (l *Limiter) at(t time.Time) int64 { return int64(t.Sub(l.start)) }

// Remaining calls f with the share of every bucket that is left, from 0 to 1.
func (l *Limiter) Remaining(f func(app, policy string, ratio float64)) {
	l.mu.Lock()
	apps := make([]*appLimits, 0, len(l.byID))
	for _, a := range l.byID {
		apps = append(apps, a)
	}
	l.mu.Unlock()
	now := l.now()
	for _, a := range apps {
		for i := range a.limits {
			al := &a.limits[i]
			debt := min(max(al.bucket.state.Load()-now, 0), al.depth)
			f(a.app.ID, al.id, 1-float64(debt)/float64(al.depth))
		}
	}
}
