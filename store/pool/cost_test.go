package pool

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/storetest"
)

var repeats = flag.Int("rounds", 1, "of the scripts whose time is reported")

// cost is what is measured: n calls of run on a pool of members.
type cost struct {
	name    string
	d       Definition
	r       Request
	members int
	calls   int                                    // 0 = 200
	run     func(p *Pools, pool Pool, i int) error // nil = an allocation
	target  string
	micros  float64 // of Redis, per call
	scripts float64 // that it has run, per call
}

// TestServerTime reports what an operation costs Redis beside a script that runs ZINCRBY alone, as the node itself counts it. Rounds of all
// take turns, and the best of each counts: others use the machine too. So what a large pool needs now and then, a view or a schedule, is
// mostly not in it, as the number of scripts says; these have rows of their own. It asserts no time:
//
//	go test ./store/pool -run TestServerTime -v -args -rounds=30
func TestServerTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: clustertest.Shared(t).Addrs()})
	t.Cleanup(func() { _ = c.Close() })
	id := storetest.App(t, "pools:*")
	rows := costs(ctx, id)
	p := New(Config{Redis: storetest.New(t, func(c *store.Config) { c.Overload.Off = true })})
	for range *repeats {
		for i := range rows {
			row := &rows[i]
			pool := Pool{Name: fmt.Sprint("p", i), Definition: &row.d}
			if row.micros == 0 {
				row.prepare(ctx, t, c, p, id, pool)
			}
			node, err := c.MasterForKey(ctx, keysOf(id, pool.Name).state())
			if err != nil {
				t.Fatal(err)
			}
			row.measure(ctx, t, node, func(i int) error {
				if row.run != nil {
					return row.run(p, pool, i)
				}
				_, _, err := p.Allocate(ctx, id, pool, &row.r, store.Idempotency{})
				return err
			})
		}
	}
	for _, r := range rows {
		t.Logf("%-26s %4d members %8.2f us, %6.2f times ZINCRBY (target %s), %.3f scripts", r.name, r.members, r.micros, r.micros/rows[0].micros, r.target, r.scripts)
	}
}

// costs are what is measured; the first of them is what the others are compared with.
func costs(ctx context.Context, id *acl.Identity) []cost {
	step := store.NewScript("return redis.call('ZINCRBY', KEYS[1], ARGV[1], ARGV[2])")
	rows := []cost{{name: "ZINCRBY", d: Definition{Policy: LeastUsed}, target: "1", run: func(p *Pools, pool Pool, _ int) error {
		_, err := p.Redis.RunScript(ctx, id, CommandAllocate, step, []string{keysOf(id, pool.Name).counts()}, 1, "m1")
		return err
	}}}
	report := func(p *Pools, pool Pool, i int) error {
		_, err := p.Report(ctx, id, pool, []Report{{Member: fmt.Sprint("m", i%8), Outcome: Success, LatencyMS: float64(90 + i%20)}})
		return err
	}
	for _, n := range []int{8, 64, 1000} {
		for _, r := range []cost{
			{name: "least_used", d: Definition{Policy: LeastUsed}, target: "2.5"},
			{name: "round_robin", d: Definition{Policy: RoundRobin}, target: "4"},
			{name: "least_inflight", d: Definition{Policy: LeastInflight}, target: "5"},
			{name: "least_used with a lease", d: Definition{Policy: LeastUsed}, r: Request{LeaseMS: 60_000}, target: "5"},
			{name: "smooth", d: Definition{Policy: WeightedRoundRobin}},
			{name: "smooth, two excluded", d: Definition{Policy: WeightedRoundRobin}, r: Request{Exclude: []string{"m1", "m2"}}},
			{name: "classic", d: Definition{Policy: WeightedRoundRobin, Variant: Classic}},
			{name: "weighted_random", d: Definition{Policy: WeightedRandom}},
			{name: "adaptive", d: Definition{Policy: AdaptivePolicy}},
			{name: "adaptive, two excluded", d: Definition{Policy: AdaptivePolicy}, r: Request{Exclude: []string{"m1", "m2"}}},
			{name: "a report", d: Definition{Policy: AdaptivePolicy}, run: report},
		} {
			r.members = n
			rows = append(rows, r)
		}
	}
	return append(rows, slow(ctx, id)...)
}

// slow are operations that look at all members. What counts there is how long one script blocks Redis: us per call through scripts per call.
func slow(ctx context.Context, id *acl.Identity) []cost {
	d := Definition{Policy: AdaptivePolicy}
	put := func(p *Pools, pool Pool, i int) error {
		list := members(MaxMembers)
		for m := range list {
			*list[m].Weight += int64(i%2) + 1
		}
		_, err := p.Put(ctx, id, pool, list)
		return err
	}
	return []cost{
		{name: "all weights", d: d, members: 1000, calls: 4, run: put},
		{name: "a view", d: d, members: 1000, calls: 20, run: func(p *Pools, pool Pool, _ int) error {
			n := pool.Definition.needs(CommandAllocate)
			n.newest = true
			_, err := p.view(ctx, id, keysOf(id, pool.Name), n)
			return err
		}},
		{name: "a first view", d: d, members: 1000, calls: 20, run: func(p *Pools, pool Pool, _ int) error {
			k := keysOf(id, pool.Name)
			p.views.changed(poolOf(id, k))
			_, err := p.view(ctx, id, k, pool.Definition.needs(CommandAllocate))
			return err
		}},
		{name: "a schedule", d: Definition{Policy: WeightedRoundRobin}, members: 1000, calls: 20, run: func(p *Pools, pool Pool, _ int) error {
			return p.plan(ctx, id, keysOf(id, pool.Name), Smooth, true)
		}},
		{name: "show", d: d, members: 1000, calls: 20, run: func(p *Pools, pool Pool, _ int) error {
			_, err := p.Show(ctx, id, pool.Name)
			return err
		}},
		{name: "leases", d: Definition{Policy: LeastInflight, Lease: Lease{DefaultMS: MaxLeaseMS}}, members: 1000, calls: 20, run: func(p *Pools, pool Pool, _ int) error {
			_, err := p.Leases(ctx, id, pool.Name)
			return err
		}},
	}
}

// members are n of different weights.
func members(n int) []Member {
	list := make([]Member, n)
	for i := range list {
		w := int64(i%10 + 1)
		list[i] = Member{Member: fmt.Sprint("m", i), Weight: &w}
	}
	return list
}

// prepare defines the pool, and fills it.
func (r *cost) prepare(ctx context.Context, t *testing.T, c *redis.ClusterClient, p *Pools, id *acl.Identity, pool Pool) {
	t.Helper()
	if err := r.d.Validate(); err != nil {
		t.Fatal(err)
	}
	k := keysOf(id, pool.Name)
	if err := c.Set(ctx, k.state(), Blank, 0).Err(); err != nil {
		t.Fatal(err)
	}
	list := members(r.members)
	if _, err := p.Put(ctx, id, pool, list); err != nil {
		t.Fatal(err)
	}
	if r.d.Policy == AdaptivePolicy { // something is known of each
		for from := 0; from < len(list); from += MaxReports {
			var reports []Report
			for _, m := range list[from:min(from+MaxReports, len(list))] {
				reports = append(reports, Report{Member: m.Member, Outcome: Success, LatencyMS: 100})
			}
			if _, err := p.Report(ctx, id, pool, reports); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range map[bool]int{true: 1000}[r.name == "leases"] {
		if _, _, err := p.Allocate(ctx, id, pool, &Request{}, store.Idempotency{}); err != nil {
			t.Fatal(err)
		}
	}
}

var evalsha = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// measure runs calls one by one: in a pipeline the caches of Redis would be warmer than they ever are.
func (r *cost) measure(ctx context.Context, t *testing.T, node *redis.Client, run func(i int) error) {
	t.Helper()
	if err := run(0); err != nil { // the node knows the script then
		t.Fatalf("%s, %d members: %v", r.name, r.members, err)
	}
	if err := node.ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	calls := max(r.calls, 1)
	if r.calls == 0 {
		calls = 200
	}
	for i := range calls {
		if err := run(i); err != nil {
			t.Fatalf("%s, %d members: %v", r.name, r.members, err)
		}
	}
	found := evalsha.FindStringSubmatch(node.Info(ctx, "commandstats").Val())
	if found == nil {
		t.Fatal("no statistics of EVALSHA")
	}
	n, _ := strconv.ParseFloat(found[1], 64)
	usec, _ := strconv.ParseFloat(found[2], 64)
	if micros := usec / float64(calls); r.micros == 0 || micros < r.micros {
		r.micros, r.scripts = micros, n/float64(calls)
	}
}

// TestKeysOfAPoolAreInOneSlot: all keys of a pool are in its slot, whatever its members are called.
func TestKeysOfAPoolAreInOneSlot(t *testing.T) {
	id := &acl.Identity{App: &acl.App{Namespace: "shop"}}
	k := keysOf(id, "proxies")
	for _, key := range append(k.all(), k.record("job-{1}")) {
		if !strings.HasPrefix(key, "slotgate:p:{shop/proxies}:") {
			t.Errorf("%s is elsewhere", key)
		}
	}
}
