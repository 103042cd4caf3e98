package prepaid

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/ratelimit"
	"github.com/slotgate/slotgate/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// world is a Redis of the model and a clock, for the gateways of one test.
type world struct {
	mu     sync.Mutex
	now    int64 // ns
	limits map[string]*ratelimit.One
	down   error
	lose   bool   // answers are
	during func() // a question is under way
	// What has happened.
	takes, refunds  int
	charged, undone int64
}

func newWorld() *world { return &world{now: int64(time.Hour), limits: map[string]*ratelimit.One{}} }

func (w *world) clock() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now += int64(d)
}

var errDown = errors.New("down")

func (w *world) setDown(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = err
}

func (w *world) one(l *Limit) *ratelimit.One {
	o := w.limits[l.Key]
	if o == nil {
		o = &ratelimit.One{}
		w.limits[l.Key] = o
	}
	o.Set(l.Rule)
	return o
}

// Take implements Redis.
func (w *world) Take(_ context.Context, l *Limit, cost, least int64) (ratelimit.Grant, error) {
	if w.during != nil {
		w.during()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.takes++
	if w.down != nil {
		return ratelimit.Grant{}, w.down
	}
	g := w.one(l).Take(w.now/1000, cost, least)
	w.charged += g.Granted
	if w.lose {
		return ratelimit.Grant{}, errDown
	}
	return g, nil
}

// Refund implements Redis.
func (w *world) Refund(_ context.Context, l *Limit, n int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refunds++
	if w.down != nil {
		return w.down
	}
	w.one(l).Refund(w.now/1000, n)
	w.undone += n
	return nil
}

// rule fills in the defaults.
func rule(t testing.TB, r ratelimit.Rule) ratelimit.Rule {
	t.Helper()
	r.ID = "r"
	if r.Algorithm == "" {
		r.Algorithm = ratelimit.TokenBucket
	}
	d := ratelimit.Definition{Rules: []ratelimit.Rule{r}}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	return d.Rules[0]
}

func perSecond(t testing.TB, n int64) ratelimit.Rule {
	return rule(t, ratelimit.Rule{Limit: n, PeriodMS: 1000})
}

// live is a pool as a gateway has it, on the clock of the world.
func (w *world) live(t testing.TB, gateways int) *Pool {
	t.Helper()
	p := New(Config{Redis: w, Now: w.clock, Gateways: gateways, Timeout: 5 * time.Second})
	t.Cleanup(p.Close)
	return p
}

// gateway is a pool whose work in the background is done when the test says so.
type gateway struct {
	*Pool
	t    testing.TB
	todo []func()
}

func (w *world) gateway(t testing.TB, gateways int) *gateway {
	g := &gateway{Pool: newPool(Config{Redis: w, Now: w.clock, Gateways: gateways}), t: t}
	g.start = func(work func()) bool {
		g.todo = append(g.todo, work)
		return true
	}
	return g
}

// work does what was started.
func (g *gateway) work() {
	for len(g.todo) > 0 {
		work := g.todo[0]
		g.todo = g.todo[1:]
		work()
	}
}

// take is Take, and says whether it had to wait.
func (g *gateway) take(a *Allowance, n int64) (d Decision, waited bool) {
	g.t.Helper()
	if d = a.Try(g.Now(), n); d.Verdict != Ask {
		return d, false
	}
	w, d, _ := a.join(g.t.Context(), g.Now(), n)
	if w == nil {
		return d, false
	}
	g.work()
	select {
	case d = <-w.decision:
		return d, true
	default:
		g.t.Fatal("a take was forgotten")
		return d, true
	}
}

// all takes one after the other until one is refused, and counts those that were not.
func (g *gateway) all(a *Allowance) (allowed int64) {
	for {
		d, _ := g.take(a, 1)
		if d.Verdict != Allowed {
			return allowed
		}
		allowed++
		g.work()
	}
}

func limitOf(r ratelimit.Rule) Limit { return Limit{Cluster: "c", Key: Key("ns", "l", ""), Rule: r} }
