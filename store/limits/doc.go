// Package limits keeps the rate limits that apps define, and answers for them also while their shard does not.
//
// It promises that a definition is stored once, beside the state it is about, that every gateway follows a change within Fresh, and that
// a take never fails because Redis does: what is answered then is a part of the definition. Decisions are those of package ratelimit.
// How definitions are stored and followed is the business of package definitions.
package limits

import (
	"embed"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/definitions"
	"github.com/slotgate/slotgate/store/ratelimit"
)

const (
	// Fresh is how long a limit is believed without a question to Redis.
	Fresh = definitions.Fresh
	// MaxOverrides of one limit: all are loaded with it, at most 1.5 KB each.
	MaxOverrides = 1000
	// MaxBatch is how many takes one request may have.
	MaxBatch = 100
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

// Config is what Limits need to know.
type Config struct {
	Redis    definitions.Runner
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
	defined *definitions.Definitions[Defined]
	local   *ratelimit.Memory
	blocked *blocked
	metrics *metrics
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
	l := &Limits{
		Config: cfg, local: ratelimit.NewMemory(), blocked: newBlocked(min(cfg.Blocked, MostBlocked)), metrics: newMetrics(cfg.Registry),
	}
	l.defined = definitions.New(definitions.Config[Defined]{
		Kind: definitions.Kind[Defined]{
			What: "rate limit", None: store.CodeLimitNotFound, Command: commandDefine, Hash: definitionKey, Read: read,
			Asking: func(now time.Time) {
				l.local.Forget(now) // here, as it is done once in Fresh for each limit in use
				l.blocked.forget(now)
			},
			Answered: func(id *acl.Identity, d *Defined) {
				if d.OnError == ratelimit.Local {
					l.Gateways(id.App.Cluster) // who counts them begins with the first question, and cannot when the cluster has failed
				}
			},
		},
		Redis: cfg.Redis, Wait: cfg.Timeout, Now: cfg.Now, Log: cfg.Log,
	})
	return l
}

//go:embed scripts/*.lua
var scriptFiles embed.FS

var scriptOverride = loadScript("override")

func loadScript(name string) *store.Script {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("limits: no script " + name)
	}
	return store.NewScript(string(text))
}
