package prepaid

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/ratelimit"
)

func TestMain(m *testing.M) {
	store.LogDriver(slog.New(slog.DiscardHandler))
	clustertest.Main(m,
		// See store's own TestMain: both end by themselves and cannot be stopped (go-redis v9.23.0).
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*clusterStateHolder).LazyReload.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
	)
}

// world is a Redis of the model and a clock, for the gateways of one test.
type world struct {
	mu       sync.Mutex
	now      int64 // ns
	limits   map[string]*ratelimit.One
	down     error
	gateways int64
	// What has happened.
	takes, refunds  int
	charged, undone int64
	latest          time.Duration // that an answer takes
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
	w.mu.Lock()
	defer w.mu.Unlock()
	w.takes++
	if w.down != nil {
		return ratelimit.Grant{}, w.down
	}
	g := w.one(l).Take(w.now/1000, cost, least)
	w.charged += g.Granted
	w.now += int64(w.latest)
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

// Meet implements Place.
func (w *world) Meet(context.Context, string, string, bool) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gateways, w.down
}
