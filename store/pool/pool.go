package pool

import (
	"context"
	"embed"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// The rows of the command table that operations need.
const (
	CommandShow     = "POOL|SHOW"     // reads
	CommandAllocate = "POOL|ALLOCATE" // writes, as do the others
	CommandLease    = "POOL|LEASE"    // renew and complete
	CommandReport   = "POOL|REPORT"
	CommandDefine   = "POOL|DEFINE" // definitions and members
)

// Runner runs a script on keys of one slot; *store.Store is one.
type Runner interface {
	// RecordTTL is how long the repetition of an allocation is known, at least a millisecond.
	RecordTTL() time.Duration
	RunScript(ctx context.Context, id *acl.Identity, command string, sc *store.Script, keys []string, argv ...any) ([]any, error)
}

var _ Runner = (*store.Store)(nil)

// Config is what Pools need to know.
type Config struct {
	Redis Runner
	Clock func() int64   // the time in us, for tests; nil = that of the Redis node
	Draw  func() float64 // 0 to 1 without 1, of weighted_random; nil = math/rand/v2. It must be safe for concurrent use.
	// Reaped is told of leases that an allocation has found expired; nil = nobody is.
	Reaped func(id *acl.Identity, name string, r Reaped)
	Log    *slog.Logger // of panics; nil = none
}

// Pools are those of all apps. They are safe for concurrent use.
type Pools struct {
	Config
	planning singleflight.Group
	views    *views
}

// New makes Pools.
func New(cfg Config) *Pools {
	if cfg.Clock == nil {
		cfg.Clock = func() int64 { return 0 }
	}
	if cfg.Draw == nil {
		cfg.Draw = rand.Float64 // a forecast of it gains nothing
	}
	if cfg.Reaped == nil {
		cfg.Reaped = func(*acl.Identity, string, Reaped) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Pools{Config: cfg, views: newViews()}
}

// Pool is a pool as it is for a request: its name, and a valid definition.
type Pool struct {
	Name       string
	Definition *Definition
	Version    int64 // of the definition, up to 2^53
}

//go:embed scripts/*.lua
var files embed.FS

func text(name string) string {
	b, err := files.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("pool: no script " + name)
	}
	return string(b)
}

// allocator is the script that allocates by policies.
func allocator(policies ...string) *store.Script { return store.NewScript(allocatorText(policies...)) }

func allocatorText(policies ...string) string {
	all := text("head")
	for _, name := range policies {
		all += text(name)
	}
	return all + text("tail")
}

var (
	scriptLeastUsed     = allocator("least_used")
	scriptRoundRobin    = allocator("round_robin")
	scriptSmooth        = allocator("small", "weights", "smooth")
	scriptClassic       = allocator("small", "weights", "classic")
	scriptSchedule      = allocator("schedule") // of both, for more than 64 members
	scriptPlan          = store.NewScript(text("plan"))
	scriptPlanned       = store.NewScript(text("planned"))
	scriptRandom        = allocator("small", "search", "random")
	scriptLeastInflight = allocator("least_inflight")
	scriptAdaptive      = allocator("small", "adaptive", "health", "search", "adaptive_choose")
	scriptGiven         = allocator("given") // of both, for more than 64 members
	scriptView          = store.NewScript(text("view"))
	scriptReport        = store.NewScript(text("report_head") + text("health") + text("failed") + text("report"))
	scriptReap          = store.NewScript(text("reap_head") + text("health") + text("failed") + text("reap"))
	scriptMembers       = store.NewScript(text("members"))
	scriptLease         = store.NewScript(text("lease"))
	scriptLeases        = store.NewScript(text("leases"))
	scriptShow          = store.NewScript(text("show"))
	scriptRebase        = store.NewScript(text("rebase"))
)

// ErrNoPool is the error of everything that is done with a pool that is not defined, or is not any more.
var ErrNoPool = errors.New("pool: there is no such pool")

// run runs a script that says so when there is no such pool. Errors: ErrNoPool, forbidden, or an outcome.
func (p *Pools) run(ctx context.Context, id *acl.Identity, command string, sc *store.Script, names []string, argv ...any) ([]any, error) {
	values, err := p.Redis.RunScript(ctx, id, command, sc, names, argv...)
	if err == nil && values[0] == any(int64(statusNone)) {
		return nil, ErrNoPool
	}
	return values, err
}

// Rebase takes the least count of the eligible members from all counts, which keep their order, and returns it: numbers stay readable, and
// one that is restored with its own count has less to catch up. It takes Redis some 2 ms for the largest pools. Errors: ErrNoPool, forbidden,
// or an outcome.
func (p *Pools) Rebase(ctx context.Context, id *acl.Identity, name string) (int64, error) {
	if err := CheckName(name); err != nil {
		return 0, err
	}
	k := keysOf(id, name)
	values, err := p.run(ctx, id, CommandDefine, scriptRebase, []string{k.state(), k.counts(), k.off()})
	if err != nil {
		return 0, err
	}
	least, ok := values[0].(int64)
	if !ok || least < 0 {
		return 0, badReply()
	}
	return least, nil
}

// recordVersion is the format of what is kept for an Idempotency-Key.
const recordVersion = "1"

// keep adds what a script needs to remember its answer.
func (p *Pools) keep(k keys, i store.Idempotency, names []string, argv []any) ([]string, []any) {
	if i.Key == "" {
		return names, argv
	}
	return append(names, k.record(i.Key)), append(argv, recordVersion+string(i.Fingerprint[:]), p.Redis.RecordTTL().Milliseconds())
}

// Statuses of the scripts beside those of their own.
const (
	statusReplay   = -20
	statusMismatch = -21
	statusCooled   = -22
	statusExpired  = -23
	statusNone     = -24
	statusSize     = -25 // the pool is large, or not any more: it is another script's
	statusPlan     = -26 // there is no good schedule
	statusFar      = -27 // who is not excluded is too far away in it
	statusStale    = -28 // who was drawn may not be chosen any more
)

// answer is the reply of a script that keeps its answer: a string, now or as it was the first time, or a status that is not 0 and
// what belongs to it. Errors: idempotency_mismatch; backend_error for what no script of ours returns.
type answer struct {
	text     string
	replayed bool
	status   int64
	wait     int64 // ms
}

func readAnswer(values []any) (a answer, err error) {
	switch first := values[0].(type) {
	case string:
		a.text = first
		return a, nil
	case int64:
		a.status = first
	}
	if len(values) > 1 {
		a.text, a.replayed = values[1].(string)
		a.wait, _ = values[1].(int64)
	}
	switch {
	case a.status == statusMismatch:
		return a, store.OtherRequest()
	case a.status == statusReplay && a.replayed:
		a.status = 0
	case a.status >= 0 || a.status == statusReplay:
		return a, badReply()
	}
	return a, nil
}

var errBadReply = errors.New("pool: the script returned something else than it does")

func badReply() error { return store.NewError(store.CodeBackendError, "").WithCause(errBadReply) }
