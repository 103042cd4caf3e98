package prepaid

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// DefaultTimeout is how long a request waits for Redis: some 20 round trips.
const DefaultTimeout = 5 * time.Millisecond

const (
	// sweepEvery is how often allowances are looked through for what has died, what is owed and what nobody uses.
	sweepEvery = 250 * time.Millisecond
	// forgetAfter is how long an allowance is kept that nobody uses.
	forgetAfter = time.Minute
	// maxAllowances is how many are kept, about 600 bytes each. For more limits than that Redis is asked each time.
	maxAllowances = 100_000
	// closing is how long Close gives back and pays.
	closing = time.Second
)

// Redis is where limits are kept; NewRedis makes one of a store. Each call ends with its context.
type Redis interface {
	// Take takes up to cost tokens, and at least so many or none.
	Take(ctx context.Context, l *Limit, cost, least int64) (ratelimit.Grant, error)
	// Refund gives tokens back.
	Refund(ctx context.Context, l *Limit, n int64) error
}

// Place is a Redis where gateways can count each other.
type Place interface {
	Redis
	// Meet says how many gateways there are in a cluster, the one of this name included unless it leaves.
	Meet(ctx context.Context, cluster, name string, leave bool) (int64, error)
}

// Config is what a Pool needs. Zero fields mean the defaults beside them.
type Config struct {
	Redis   Redis         // required
	Timeout time.Duration // the longest wait of a request; 0 = DefaultTimeout
	// Gateways is how many gateways share the limits; 0 = they count each other in each cluster, if Redis is a Place, else 1. If they count, a gateway holds nothing for its first
	// three seconds, and one that goes is missed for ten. Too small a number lets through more: each takes the share of a larger part.
	Gateways int
	// Now is the clock of all takes, in nanoseconds since any moment; it never goes back. nil = one of the pool's own, see Pool.Now.
	Now func() int64
	Log *slog.Logger // nil = none
}

// Pool has the allowances of one gateway. It is safe for concurrent use.
type Pool struct {
	name  string // among the gateways
	cfg   Config
	ctx   context.Context //nolint:containedctx // of the work in the background, which ends with the pool
	stop  context.CancelFunc
	draws sync.WaitGroup
	// sweeper is what goes on until Close, which ends it before the draws.
	sweeper struct {
		ctx  context.Context //nolint:containedctx // as above
		stop context.CancelFunc
		done sync.WaitGroup
	}
	// start runs work in the background, unless the pool is closed; tests of this package run it themselves.
	start func(work func()) bool

	mu     sync.Mutex
	byKey  map[string]*Allowance
	peers  map[string]*peers // by cluster
	closed bool
}

// New makes a pool. Close must be called.
func New(cfg Config) *Pool {
	p := newPool(cfg)
	p.sweeper.done.Go(func() { alive.Loop(p.sweeper.ctx, p.cfg.Log, "limits drawn ahead", p.sweeping) })
	return p
}

// newPool is New without the sweeper.
func newPool(cfg Config) *Pool {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		began := time.Now()
		cfg.Now = func() int64 { return int64(time.Since(began)) }
	}
	p := &Pool{cfg: cfg, name: newName(), byKey: map[string]*Allowance{}, peers: map[string]*peers{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.sweeper.ctx, p.sweeper.stop = context.WithCancel(p.ctx)
	p.start = p.goes
	return p
}

// Now is the time that takes are given.
func (p *Pool) Now() int64 { return p.cfg.Now() }

// Allowance is this gateway's part in a limit: one for each Limit.Key of a cluster. One that is known takes over what has changed of l. It can be
// kept as long as it is of use; Take finds its way if the pool has forgotten it meanwhile.
func (p *Pool) Allowance(l Limit) *Allowance {
	name := l.Cluster + " " + l.Key
	p.mu.Lock()
	a := p.byKey[name]
	p.mu.Unlock()
	if a != nil {
		a.change(l)
		return a
	}
	return p.add(name, l)
}

// add makes the allowance of a name that has none.
func (p *Pool) add(name string, l Limit) *Allowance {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.byKey[name]
	switch {
	case a != nil: // made meanwhile; who made it knows the limit as well
	case len(p.byKey) < maxAllowances:
		a = newAllowance(p, name, newTerms(l), p.of(l.Cluster))
		p.byKey[name] = a
	default:
		l.Mode = Exact
		a = newAllowance(p, name, newTerms(l), p.of(l.Cluster))
	}
	return a
}

// Len is how many allowances there are.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byKey)
}

// adopt returns the allowance that has a's name: a itself, if there is none.
func (p *Pool) adopt(a *Allowance) *Allowance {
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.byKey[a.name]; other != nil {
		return other
	}
	p.byKey[a.name] = a
	return a
}

// forget takes an allowance out. It must not be used but through adopt from then on.
func (p *Pool) forget(a *Allowance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey[a.name] == a {
		delete(p.byKey, a.name)
	}
}

// all appends the allowances to list.
func (p *Pool) all(list []*Allowance) []*Allowance {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.byKey {
		list = append(list, a)
	}
	return list
}

func (p *Pool) sweeping(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	var list []*Allowance
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			list = p.sweep(p.Now(), list[:0])
			clear(list)
		}
	}
}

// sweep needs memory for a list of all.
func (p *Pool) sweep(now int64, list []*Allowance) []*Allowance {
	list = p.all(list)
	for _, a := range list {
		a.sweep(now)
	}
	return list
}

// goes is start.
func (p *Pool) goes(work func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.draws.Go(func() { alive.Once(p.cfg.Log, "drawing from a limit", work) })
	return true
}

// Close gives back what is held and pays what is owed, as far as a second suffices, and waits for all that is under way. Takes after it are
// answered as if Redis did not answer.
func (p *Pool) Close() {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return
	}
	p.sweeper.stop()
	p.sweeper.done.Wait()
	p.draws.Wait() // each ends by itself
	ctx, cancel := context.WithTimeout(p.ctx, closing)
	defer cancel()
	p.settleAll(ctx)
	p.stop()
}
