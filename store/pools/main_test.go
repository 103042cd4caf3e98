package pools_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/pools"
	"github.com/slotgate/slotgate/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// gateway is the pools of one gateway on the shared cluster.
type gateway struct {
	*pools.Pools
	t        testing.TB
	store    *counting
	ahead    atomic.Int64 // ns that its own clock has gone on
	clock    atomic.Int64 // us that scripts are told, 0 = the time of Redis
	registry *prometheus.Registry
}

// counting is a store that counts scripts, and can fail.
type counting struct {
	*store.Store
	asked  atomic.Int64
	fails  atomic.Pointer[store.Error]
	before func(n int64) // is called before the nth script; nil = nothing is
}

func (c *counting) RunScript(ctx context.Context, id *acl.Identity, command string, sc *store.Script, keys []string, argv ...any) ([]any, error) {
	n := c.asked.Add(1)
	if c.before != nil {
		c.before(n)
	}
	if e := c.fails.Load(); e != nil {
		return nil, e
	}
	return c.Store.RunScript(ctx, id, command, sc, keys, argv...)
}

// newGateway makes one that waits longer for Redis than one in use does: what a busy machine needs is not what is tested.
func newGateway(t testing.TB, change ...func(*store.Config)) *gateway {
	t.Helper()
	change = append(change, func(c *store.Config) { c.Overload.Off, c.Redis.PoolTimeout = true, 20*time.Second })
	g := &gateway{t: t, store: &counting{Store: storetest.New(t, change...)}, registry: prometheus.NewRegistry()}
	start := time.Now() // its own clock stands still but for what a test says
	g.Pools = pools.New(pools.Config{
		Redis: g.store, Timeout: 5 * time.Second, Members: 256, Registry: g.registry,
		Clock: g.clock.Load, Draw: func() float64 { return 0 },
		Now: func() time.Time { return start.Add(time.Duration(g.ahead.Load())) },
	})
	return g
}

// pass lets the gateway's own clock go on; that of Redis does not care.
func (g *gateway) pass(d time.Duration) { g.ahead.Add(int64(d)) }

func newApp(t testing.TB, permissions ...string) *acl.Identity {
	t.Helper()
	if permissions == nil {
		permissions = []string{"pools:*"}
	}
	return storetest.App(t, permissions...)
}

func (g *gateway) define(id *acl.Identity, d pool.Definition) *pools.Defined {
	g.t.Helper()
	got, err := g.Define(g.t.Context(), id, "p", d, store.Condition{})
	if err != nil {
		g.t.Fatal(err)
	}
	return got
}

// defined is an app with a pool p of members.
func (g *gateway) defined(d pool.Definition, members ...string) *acl.Identity {
	g.t.Helper()
	id := newApp(g.t)
	g.define(id, d)
	list := make([]pool.Member, len(members))
	for i := range list {
		list[i].Member = members[i]
	}
	if _, err := g.PutMembers(g.t.Context(), id, "p", list, pool.Bulk{}); err != nil {
		g.t.Fatal(err)
	}
	return id
}

func (g *gateway) allocate(id *acl.Identity, r pool.Request, key ...string) pools.Allocation {
	g.t.Helper()
	var once store.Idempotency
	if len(key) > 0 {
		once.Key = key[0]
	}
	a, err := g.Allocate(g.t.Context(), id, "p", &r, once)
	if err != nil {
		g.t.Fatal(err)
	}
	return a
}

// picks are the members that n allocations give, or why there was nobody.
func (g *gateway) picks(id *acl.Identity, n int) string {
	g.t.Helper()
	list := make([]string, n)
	for i := range list {
		a := g.allocate(id, pool.Request{})
		if list[i] = string(a.Reason); a.Reason == "" {
			list[i] = a.Allocated[0].Member
		}
	}
	return strings.Join(list, " ")
}

// hold leases a member.
func (g *gateway) hold(id *acl.Identity, leaseMS int64) (pool.Claim, string) {
	g.t.Helper()
	a := g.allocate(id, pool.Request{LeaseMS: leaseMS})
	if a.Reason != "" {
		g.t.Fatal(a.Reason)
	}
	return pool.Claim{ID: a.Allocated[0].Lease.ID, Fence: a.Allocated[0].Lease.Fence}, a.Allocated[0].Member
}

func wantCode(t testing.TB, err error, code store.Code) *store.Error {
	t.Helper()
	e, ok := errors.AsType[*store.Error](err)
	if !ok || e.Code != code {
		t.Errorf("got %v, want %s", err, code)
		return &store.Error{}
	}
	return e
}

// pointers are the places where an error finds fault.
func pointers(err error) string {
	e, ok := errors.AsType[*store.Error](err)
	if !ok {
		return fmt.Sprint(err)
	}
	var list []string
	for _, f := range e.Fields {
		list = append(list, f.Pointer)
	}
	return strings.Join(list, " ")
}

func second[A any](_ A, err error) error { return err }

func ptr[T any](v T) *T { return &v }

func rawClient(t testing.TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: clustertest.Shared(t).Addrs(), DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// figures are the values that a metric has, by the values of its labels, without those that are 0.
func (g *gateway) figures(m metric.Metric) map[string]float64 {
	g.t.Helper()
	families, err := g.registry.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		if f.GetName() != m.Name {
			continue
		}
		for _, one := range f.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if v := one.GetCounter().GetValue() + one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount()); v != 0 {
				found[strings.Join(labels, " ")] = v
			}
		}
	}
	return found
}

func zed(member string, score float64) redis.Z { return redis.Z{Member: member, Score: score} }
