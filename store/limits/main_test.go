package limits_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/ratelimit"
	"github.com/slotgate/slotgate/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// gateway is the limits of one gateway on the shared cluster.
type gateway struct {
	*limits.Limits
	t        testing.TB
	store    *counting
	clock    atomic.Int64 // ns that its clock is ahead
	registry *prometheus.Registry
}

// counting is a store that counts scripts, and can fail.
type counting struct {
	*store.Store
	takes atomic.Int64 // scripts that decide
	asked atomic.Int64 // scripts about definitions
	fails atomic.Pointer[store.Error]
	after atomic.Pointer[func()] // is called once, behind the next script about a definition
}

func (c *counting) RunLimit(ctx context.Context, id *acl.Identity, access acl.Access, sc *store.Script, keys []string, argv []any) ([]any, error) {
	c.takes.Add(1)
	if e := c.fails.Load(); e != nil {
		return nil, e
	}
	return c.Store.RunLimit(ctx, id, access, sc, keys, argv)
}

func (c *counting) RunScript(ctx context.Context, id *acl.Identity, command string, sc *store.Script, keys []string, argv ...any) ([]any, error) {
	c.asked.Add(1)
	if e := c.fails.Load(); e != nil {
		return nil, e
	}
	reply, err := c.Store.RunScript(ctx, id, command, sc, keys, argv...)
	if f := c.after.Swap(nil); f != nil {
		(*f)()
	}
	return reply, err
}

// newGateway makes one that believes refusals for ten seconds, and waits longer for Redis than one in use does: what a busy machine
// needs is not what is tested.
func newGateway(t testing.TB, change ...func(*limits.Config)) *gateway {
	t.Helper()
	g := &gateway{t: t, store: &counting{Store: storetest.New(t)}, registry: prometheus.NewRegistry()}
	cfg := limits.Config{
		Redis: g.store, Decide: ratelimit.New(g.store), Timeout: 5 * time.Second, Blocked: limits.MostBlocked, Registry: g.registry,
		Now: func() time.Time { return time.Now().Add(time.Duration(g.clock.Load())) },
	}
	for _, f := range change {
		f(&cfg)
	}
	g.Limits = limits.New(cfg)
	return g
}

// pass lets the gateway's clock run ahead; that of Redis does not.
func (g *gateway) pass(d time.Duration) { g.clock.Add(int64(d)) }

func newApp(t testing.TB, permissions ...string) *acl.Identity {
	t.Helper()
	return storetest.App(t, permissions...)
}

// slow is a rule that gives nothing back while a test runs.
func slow(id string, limit int64) ratelimit.Rule {
	return ratelimit.Rule{ID: id, Algorithm: ratelimit.TokenBucket, Limit: limit, PeriodMS: limit * 3_600_000}
}

func total(limit int64) ratelimit.Rule {
	r := slow("total", limit)
	r.Scope = ratelimit.PerLimit
	return r
}

// defined is an app with a limit of these rules, called api.
func (g *gateway) defined(rules ...ratelimit.Rule) *acl.Identity {
	g.t.Helper()
	id := newApp(g.t, "ratelimits:*")
	g.define(id, ratelimit.Definition{Rules: rules})
	return id
}

func (g *gateway) define(id *acl.Identity, d ratelimit.Definition) {
	g.t.Helper()
	if _, err := g.Define(g.t.Context(), id, "api", d, store.Condition{}); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) take(id *acl.Identity, r ratelimit.Request, key ...string) limits.Verdict {
	g.t.Helper()
	var once store.Idempotency
	if len(key) > 0 {
		once.Key = key[0]
	}
	v, err := g.Take(g.t.Context(), id, "api", r, once)
	if err != nil {
		g.t.Fatal(err)
	}
	return v
}

// refuse takes until the subject is refused.
func (g *gateway) refuse(id *acl.Identity, r ratelimit.Request) limits.Verdict {
	g.t.Helper()
	for range 1000 {
		if v := g.take(id, r); !v.Allowed {
			return v
		}
	}
	g.t.Fatal("never refused")
	return limits.Verdict{}
}

func of(subject string) ratelimit.Request { return ratelimit.Request{Subject: subject} }

func ptr(n int64) *int64 { return &n }
