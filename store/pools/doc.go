// Package pools keeps the pools that apps define, by name, and looks after them. How a member is chosen is the business of package pool, how
// definitions are stored and followed that of package definitions.
//
// It promises that a pool which is deleted is gone with all that callers know of it, also under load; that leases outlive a change of the
// definition; and that work which was abandoned is noticed within seconds while a gateway that has served the pool runs.
//
// It refuses to invent a member: while Redis does not answer nobody is allocated.
package pools

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/definitions"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/pool"
)

const (
	// DefaultTimeout is how long what workers wait for waits for Redis, which answers in a fraction of a millisecond: they have no other way
	// to go on, as a request that asks a rate limit has, so it is ten times as long.
	DefaultTimeout = 50 * time.Millisecond
	// MaxPools is how many pools an app has at most: their names are read at once.
	MaxPools = 1000
	// MaxPage is how many pools are listed at once, each in a slot of its own.
	MaxPage = 100
)

// Config is what Pools need to know.
type Config struct {
	Redis    pool.Runner
	Clock    func() int64          // of pool.Config
	Draw     func() float64        // of pool.Config
	Timeout  time.Duration         // for one allocation, report, renewal or completion; 0 = DefaultTimeout
	Now      func() time.Time      // of the gateway, not of scripts; nil = time.Now
	Members  int                   // how many members have metrics of their own, all pools together, up to metric.MaxMembers; 0 = none
	Log      *slog.Logger          // of panics; nil = none
	Registry prometheus.Registerer // of the metrics; nil = they are nowhere
}

// Pools are those of all apps. They are safe for concurrent use.
type Pools struct {
	Config
	choose  *pool.Pools
	defined *definitions.Definitions[Defined]
	metrics *metrics
	watch   *watch
}

// New makes Pools that know nothing yet. Run looks after them.
func New(cfg Config) *Pools {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Members = min(cfg.Members, metric.MaxMembers)
	p := &Pools{Config: cfg, metrics: newMetrics(cfg.Registry), watch: newWatch()}
	p.choose = pool.New(pool.Config{Redis: cfg.Redis, Clock: cfg.Clock, Draw: cfg.Draw, Reaped: p.metrics.reaped, Log: cfg.Log})
	p.defined = definitions.New(definitions.Config[Defined]{
		Kind: definitions.Kind[Defined]{
			What: "pool", None: store.CodePoolNotFound, Command: pool.CommandDefine,
			Hash: pool.DefinitionKey, With: pool.Keys, First: pool.Blank, Read: read,
		},
		Redis: cfg.Redis, Wait: cfg.Timeout, Now: cfg.Now, Log: cfg.Log,
	})
	return p
}

// may says whether the caller may do what a row of the command table stands for, with a pool of this name. Errors: forbidden, validation_failed.
func may(id *acl.Identity, command, name string) error {
	if err := store.Allow(id, command); err != nil {
		return err
	}
	return pool.CheckName(name)
}

// at is a pool as it holds for a request. Errors: those of may, pool_not_found, and those of a command while the pool is not known here.
func (p *Pools) at(ctx context.Context, id *acl.Identity, command, name string) (pool.Pool, error) {
	if err := may(id, command, name); err != nil {
		return pool.Pool{}, err
	}
	d, err := p.defined.Lookup(ctx, id, command, name)
	if err != nil {
		return pool.Pool{}, err
	}
	return pool.Pool{Name: name, Definition: &d.Definition, Version: d.Version}, nil
}

// problem is what callers are told of an error of package pool.
func (p *Pools) problem(id *acl.Identity, name string, err error) error {
	switch {
	case errors.Is(err, pool.ErrNoPool):
		p.defined.Forget(id, name) // what is known here is older than that
		return store.NewError(store.CodePoolNotFound, "there is no such pool")
	case errors.Is(err, pool.ErrNoLease):
		return store.NewError(store.CodeLeaseNotFound, "there is no such lease: it was completed, or it expired and its member was given to others")
	case errors.Is(err, pool.ErrOtherFence):
		return store.NewError(store.CodeFenceMismatch, "the lease has another fence")
	case errors.Is(err, pool.ErrLost):
		return store.NewError(store.CodeLeaseLost, "the lease has expired")
	}
	return err
}

func noMember() error { return store.NewError(store.CodeMemberNotFound, "the pool has no such member") }
