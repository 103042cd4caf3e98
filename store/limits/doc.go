// Package limits keeps the rate limits that apps define, and answers for them also while their shard does not.
//
// It promises that a definition is stored once, beside the state it is about, that every gateway follows a change within Fresh, and that
// a take never fails because Redis does: what is answered then is a part of the definition. Decisions are those of package ratelimit.
//
// It refuses to keep a definition nobody has asked for, and to guess one: a limit whose definition this gateway has never seen is an
// error while its shard is down.
package limits

import (
	"context"
	"embed"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/ratelimit"
)

const (
	// Fresh is how long a definition is believed without a question to Redis. The question costs one round trip per limit, gateway and
	// second, and is answered with the version alone while nothing has changed.
	Fresh = time.Second
	// MaxOverrides of one limit: all are loaded with it, at most 1.5 KB each.
	MaxOverrides = 1000
	// MaxBatch is how many takes one request may have.
	MaxBatch = 100
	// maxKnown is how many definitions a gateway keeps in mind, some KB each.
	maxKnown = 10_000
	// DefaultTimeout is how long a take waits for Redis. A limit in the way of a request must cost it less than the request itself does;
	// Redis answers in a fraction of a millisecond.
	DefaultTimeout = 5 * time.Millisecond
)

// The rows of the command table that operations need.
const (
	commandShow   = "RATELIMIT|SHOW"
	commandDefine = "RATELIMIT|DEFINE"
	commandTake   = "RATELIMIT|TAKE"
	commandPeek   = "RATELIMIT|PEEK"
	commandRefund = "RATELIMIT|REFUND"
	commandReset  = "RATELIMIT|RESET"
)

// Runner runs a script on keys of one slot; *store.Store does.
type Runner interface {
	RunScript(ctx context.Context, id *acl.Identity, command string, script *store.Script, keys []string, argv ...any) ([]any, error)
}

// Config is what Limits need to know.
type Config struct {
	Redis    Runner
	Decide   *ratelimit.Limiter
	Timeout  time.Duration            // for one take, and before it for a change of its definition once in Fresh; 0 = DefaultTimeout
	Gateways func(cluster string) int // how many share the limits of a cluster, for on_error: local; it shall know before the cluster fails; nil = 1
	Now      func() time.Time         // nil = time.Now
	Blocked  time.Duration            // how long a refusal is believed, up to MostBlocked; 0 = not at all
	Log      *slog.Logger             // of panics in a batch or a question; nil = none
	Registry prometheus.Registerer    // of the metrics; nil = they are nowhere
}

// Limits are the rate limits of all apps. They are safe for concurrent use.
type Limits struct {
	Config
	local   *ratelimit.Memory
	blocked *blocked
	metrics *metrics
	asking  singleflight.Group

	mu        sync.Mutex
	known     map[string]*known      // by cluster, namespace and name
	questions map[string][]*question // that are under way, by the same
}

// New makes Limits that know nothing yet.
func New(cfg Config) *Limits {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Gateways == nil {
		cfg.Gateways = func(string) int { return 1 }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Limits{
		Config: cfg, known: map[string]*known{}, questions: map[string][]*question{}, local: ratelimit.NewMemory(),
		blocked: newBlocked(min(cfg.Blocked, MostBlocked)), metrics: newMetrics(cfg.Registry),
	}
}

//go:embed scripts/*.lua
var scriptFiles embed.FS

var (
	scriptLoad     = loadScript("load")
	scriptDefine   = loadScript("define")
	scriptDelete   = loadScript("delete")
	scriptOverride = loadScript("override")
)

func loadScript(name string) *store.Script {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("limits: no script " + name)
	}
	return store.NewScript(string(text))
}
