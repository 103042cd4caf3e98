package ratelimit

import (
	"context"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestServerTime reports what a take costs Redis beside a script that runs INCRBY alone, as the node itself counts it. Rounds of all
// scripts take turns, and the best of each counts: others use the machine too. It asserts no time:
//
//	go test ./store/ratelimit -run TestServerTime -v -args -rounds=50
func TestServerTime(t *testing.T) {
	c := client(t)
	ctx := testContext(t)
	node, err := c.MasterForKey(ctx, "{cost}")
	if err != nil {
		t.Fatal(err)
	}
	bucket := bucketOf("minute", 60_000_000, 60_000, 60_000_000)
	fixed := Rule{ID: "total", Algorithm: FixedWindow, Limit: MaxCount, PeriodMS: 60_000}
	sliding := Rule{ID: "day", Algorithm: SlidingWindow, Limit: 1_000_000_000, PeriodMS: 86_400_000}
	total := fixed
	total.Scope = PerLimit
	rows := []struct {
		name   string
		rules  []Rule
		mode   mode
		target float64
		text   string
		args   []any
		micros float64
	}{
		{name: "INCRBY", target: 1, text: "return redis.call('INCRBY', KEYS[1], ARGV[1])", args: []any{1, "{cost}:i", 1}},
		{name: "the commands of 1 rule alone", target: 3.5, text: `redis.call('TIME') redis.call('GET', KEYS[1])
			redis.call('SET', KEYS[1], ARGV[1], 'PX', '60000') return ARGV[1]`, args: []any{1, "{cost}:c", string(make([]byte, 40))}},
		{name: "1 rule, a token bucket", rules: []Rule{bucket}, mode: take, target: 3.5},
		{name: "1 rule, a fixed window", rules: []Rule{fixed}, mode: take, target: 3.5},
		{name: "1 rule, a sliding window", rules: []Rule{sliding}, mode: take, target: 3.5},
		{name: "2 rules", rules: []Rule{bucket, sliding}, mode: take, target: 5},
		{name: "3 rules, one key", rules: []Rule{bucket, sliding, fixed}, mode: take, target: 6.5},
		{name: "3 rules, one of them a total", rules: []Rule{bucket, sliding, total}, mode: take, target: 6.5},
		{name: "1 rule, a peek", rules: []Rule{bucket}, mode: peek, target: 3.5},
		{name: "1 rule, refused", rules: []Rule{bucketOf("r", 1, MaxPeriodMS, 1)}, mode: take, target: 3.5},
	}
	for i := range rows {
		if r := &rows[i]; r.rules != nil {
			r.text, r.args = source, scriptArgs(valid(t, r.rules...), r.mode, strconv.Itoa(i))
		}
	}
	for range *rounds {
		for i := range rows {
			micros := serverTime(ctx, t, node, rows[i].text, rows[i].args)
			if rows[i].micros == 0 || micros < rows[i].micros {
				rows[i].micros = micros
			}
		}
	}
	for _, r := range rows {
		t.Logf("%-30s %6.2f us, %4.1f times INCRBY (target %.1f)", r.name, r.micros, r.micros/rows[0].micros, r.target)
	}
}

// scriptArgs are the arguments of EVALSHA from the number of keys on.
func scriptArgs(rules []Rule, m mode, subject string) []any {
	rules, first := sorted(rules)
	names := []string{"{cost}:s:" + subject, "{cost}:t"}[:min(2, 1+len(rules)-first)]
	var l Limiter
	names, argv := l.arguments(call{mode: m, cost: 1, least: 1}, names, first, rules)
	args := []any{len(names)}
	for _, name := range names {
		args = append(args, name)
	}
	return append(args, argv...)
}

var usecPerCall = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// serverTime is the mean time of EVALSHA on the node, in us, of calls one by one: in a pipeline its caches would be warmer than they ever are.
func serverTime(ctx context.Context, t *testing.T, node *redis.Client, text string, args []any) float64 {
	t.Helper()
	sha, err := node.ScriptLoad(ctx, text).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := node.Do(ctx, append([]any{"EVALSHA", sha}, args...)...).Err(); err != nil {
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
