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
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

var rounds = flag.Int("rounds", 1, "of the scripts whose time is reported")

// clocked knows how long records live; it runs nothing.
type clocked struct{ Runner }

func (clocked) RecordTTL() time.Duration { return time.Hour }

// TestServerTime reports what an allocation costs Redis beside a script that runs ZINCRBY alone, as the node itself counts it. Rounds of
// all scripts take turns, and the best of each counts: others use the machine too. It asserts no time:
//
//	go test ./store/pool -run TestServerTime -v -args -rounds=30
func TestServerTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: clustertest.Shared(t).Addrs()})
	t.Cleanup(func() { _ = c.Close() })
	type row struct {
		name   string
		d      Definition
		r      Request
		n      int
		target string
		text   string
		micros float64
	}
	rows := []row{{name: "ZINCRBY", text: "return redis.call('ZINCRBY', KEYS[1], ARGV[1], ARGV[2])", target: "1"}}
	for _, n := range []int{8, 64, 1000} {
		for _, r := range []row{
			{name: "least_used", d: Definition{Policy: LeastUsed}, target: "2.5", text: allocatorText("least_used")},
			{name: "round_robin", d: Definition{Policy: RoundRobin}, target: "4", text: allocatorText("round_robin")},
			{name: "least_inflight", d: Definition{Policy: LeastInflight}, target: "5", text: allocatorText("least_inflight")},
			{name: "least_used with a lease", d: Definition{Policy: LeastUsed}, r: Request{LeaseMS: 60_000}, target: "5", text: allocatorText("least_used")},
			{name: "smooth", d: Definition{Policy: WeightedRoundRobin}, target: "-", text: allocatorText("weights", "smooth")},
			{name: "classic", d: Definition{Policy: WeightedRoundRobin, Variant: Classic}, target: "-", text: allocatorText("weights", "classic")},
			{name: "weighted_random", d: Definition{Policy: WeightedRandom}, target: "-", text: allocatorText("search", "random")},
			{name: "adaptive", d: Definition{Policy: AdaptivePolicy}, target: "-", text: allocatorText("adaptive", "health", "search", "adaptive_choose")},
		} {
			r.n = n
			rows = append(rows, r)
		}
	}
	p := New(Config{Redis: clocked{}})
	for range *rounds {
		for i := range rows {
			r := &rows[i]
			k := keys(fmt.Sprintf("slotgate:p:{cost/%d-%d}:", i, r.n))
			if r.micros == 0 {
				fill(ctx, t, c, p, k, r.n)
			}
			node, err := c.MasterForKey(ctx, k.state())
			if err != nil {
				t.Fatal(err)
			}
			calls := 200
			if r.d.Policy == WeightedRoundRobin && r.n > 64 {
				calls = 10
			}
			micros := serverTime(ctx, t, node, r.text, calls, func() []any {
				if r.n == 0 {
					return []any{1, k.counts(), 1, "m1"}
				}
				if err := r.d.Validate(); err != nil {
					t.Fatal(err)
				}
				ch := choiceOf(&r.d, &r.r)
				return arguments(ch.keys(k), p.arguments(ch, &r.r))
			})
			if r.micros == 0 || micros < r.micros {
				r.micros = micros
			}
		}
	}
	for _, r := range rows {
		t.Logf("%-25s %4d members %7.2f us, %6.2f times ZINCRBY (target %s)", r.name, r.n, r.micros, r.micros/rows[0].micros, r.target)
	}
}

// fill gives a pool n members of different weights.
func fill(ctx context.Context, t *testing.T, c *redis.ClusterClient, p *Pools, k keys, n int) {
	t.Helper()
	if err := c.Set(ctx, k.state(), Blank, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for from := 0; from < n; from += chunk {
		var b []byte
		for i := from; i < min(n, from+chunk); i++ {
			w := int64(i%10 + 1)
			one := change{put, Member{Member: "m" + strconv.Itoa(i), Weight: &w}}
			b = one.append(b)
		}
		args := append([]any{"EVAL", text("members")}, arguments(k.membership(), p.restoring(&Definition{}), b)...)
		if err := c.Do(ctx, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// arguments are the words of EVALSHA from the number of keys on.
func arguments(names []string, argv ...[]byte) []any {
	args := []any{len(names)}
	for _, name := range names {
		args = append(args, name)
	}
	for _, a := range argv {
		args = append(args, a)
	}
	return args
}

var usecPerCall = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// serverTime is the mean time of EVALSHA on the node, in us, of calls one by one: in a pipeline its caches would be warmer than they ever are.
func serverTime(ctx context.Context, t *testing.T, node *redis.Client, text string, calls int, args func() []any) float64 {
	t.Helper()
	sha, err := node.ScriptLoad(ctx, text).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	for range calls {
		if err := node.Do(ctx, append([]any{"EVALSHA", sha}, args()...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	found := usecPerCall.FindStringSubmatch(node.Info(ctx, "commandstats").Val())
	if found == nil {
		t.Fatal("no statistics of EVALSHA")
	}
	n, _ := strconv.ParseFloat(found[1], 64)
	usec, _ := strconv.ParseFloat(found[2], 64)
	return usec / n
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
