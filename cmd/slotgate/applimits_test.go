package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
)

// pair is two gateways on one cluster that know of each other.
type pair struct {
	vars     []string
	gateways []*running
}

// startPair starts them. Redis gets more time to answer than it needs, because a busy machine is not what is tested.
func startPair(t *testing.T, args ...string) pair {
	t.Helper()
	return startPairOn(t, clusterVars(t), args...)
}

// startPairOn starts them on the cluster of vars.
func startPairOn(t *testing.T, vars []string, args ...string) pair {
	t.Helper()
	p := pair{vars: append(vars, "SLOTGATE_RATELIMITS_GATEWAYS=2", "SLOTGATE_RATELIMITS_TIMEOUT_MS=20000", "SLOTGATE_LIMITS_DEADLINE_MS=5000",
		"SLOTGATE_AUTH_FAILURES_PER_MINUTE=1000000", "SLOTGATE_AUTH_BURST=1000000")}
	for range 2 {
		p.gateways = append(p.gateways, startGateway(t, p.vars, args...))
	}
	for _, g := range p.gateways {
		g.waitReady(t)
	}
	return p
}

// app makes an app with these limits, and a key, which gateways learn soon.
func (p pair) app(t *testing.T, id string, limits ...string) (token string) {
	t.Helper()
	args := []string{"app", "create", id, "--permission", "strings:*"}
	for _, l := range limits {
		args = append(args, "--limit", l)
	}
	mustRun(t, p.vars, args...)
	return p.key(t, id)
}

func (p pair) key(t *testing.T, app string) (token string) {
	t.Helper()
	return tokenForm.FindString(mustRun(t, p.vars, "key", "create", app).stdout)
}

// ask sends a request, again while the gateway does not know the key yet: such a request takes nothing of a limit.
func (g *running) ask(t *testing.T, method, path, token, body string) answer {
	t.Helper()
	var got answer
	eventually(t, func() bool { got = call(t, method, g.api+path, token, body); return got.StatusCode != 401 })
	return got
}

// passes sends so many requests, to both gateways in turn, and counts those that are let through. Others must be refused in this way.
func (p pair) passes(t *testing.T, n int, method, path, token, body, refusal string) (passed int) {
	t.Helper()
	for i := range n {
		got := p.gateways[i%len(p.gateways)].ask(t, method, path, token, body)
		switch {
		case got.StatusCode < 400, got.StatusCode == 404:
			passed++
		case strings.Contains(got.body, `"code":"`+refusal+`"`):
		default:
			t.Fatalf("%s %s: %d %s", method, path, got.StatusCode, got.body)
		}
	}
	return passed
}

const read, quota = "/v1/strings/a", "quota_exceeded"

func TestGatewaysShareLimits(t *testing.T) {
	p := startPair(t)
	hour := ",period_ms=3600000"
	t.Run("an exact one admits exactly the limit", func(t *testing.T) {
		key := p.app(t, "exact", "id=a,limit=30,mode=exact"+hour)
		if n := p.passes(t, 60, "GET", read, key, "", quota); n != 30 {
			t.Errorf("%d passed, want 30", n)
		}
	})
	t.Run("one that is too small to be drawn ahead too", func(t *testing.T) {
		key := p.app(t, "small", "id=a,limit=30"+hour)
		if n := p.passes(t, 60, "GET", read, key, "", quota); n != 30 {
			t.Errorf("%d passed, want 30", n)
		}
	})
	t.Run("one that is drawn ahead admits 2 % more at the most", func(t *testing.T) {
		key := p.app(t, "prepaid", "id=a,limit=600"+hour)
		if n := p.passes(t, 900, "GET", read, key, "", quota); n > 612 || n < 588 {
			t.Errorf("%d passed, want 600 and not more than 612", n)
		}
	})
	t.Run("100 a second, two gateways", func(t *testing.T) {
		key := p.app(t, "rate", "id=a,limit=100,period_ms=1000")
		began, passed := time.Now(), 0
		var mu sync.Mutex
		var callers sync.WaitGroup
		for _, g := range p.gateways {
			callers.Go(func() {
				for range 300 {
					if got := g.ask(t, "GET", read, key, ""); got.StatusCode != 429 {
						mu.Lock()
						passed++
						mu.Unlock()
					}
				}
			})
		}
		callers.Wait()
		if most := 102 + int(102*time.Since(began).Seconds()); passed > most || passed < 100 {
			t.Errorf("%d passed, want 100 and at most %d", passed, most)
		}
	})
	t.Run("windows", func(t *testing.T) {
		for _, algorithm := range []string{"fixed_window", "sliding_window"} {
			key := p.app(t, strings.ReplaceAll(algorithm, "_", "-"), "id=a,limit=20,period_ms=86400000,algorithm="+algorithm)
			if n := p.passes(t, 40, "GET", read, key, "", quota); n != 20 {
				t.Errorf("%s: %d passed, want 20", algorithm, n)
			}
		}
	})
	t.Run("each key its own, and all keys together", func(t *testing.T) {
		key := p.app(t, "keys", "id=each,per=key,limit=10"+hour, "id=all,limit=15"+hour)
		other := p.key(t, "keys")
		first, second := p.passes(t, 20, "GET", read, key, "", quota), p.passes(t, 20, "GET", read, other, "", quota)
		if first != 10 || second != 5 {
			t.Errorf("%d and %d passed, want 10 and the 5 that are left for all", first, second)
		}
	})
	t.Run("a token counts as the key it was made with", func(t *testing.T) {
		key := p.app(t, "tokens", "id=each,per=key,limit=10,route=/v1/strings/:key"+hour)
		p.passes(t, 2, "GET", "/v1/whoami", key, "", quota)
		token := p.gateways[0].exchange(t, key, "")
		if a, b := p.passes(t, 8, "GET", read, key, "", quota), p.passes(t, 8, "GET", read, token, "", quota); a+b != 10 {
			t.Errorf("%d and %d passed, want 10 together", a, b)
		}
	})
	t.Run("a class", func(t *testing.T) {
		key := p.app(t, "class", "id=a,limit=10,class=strings:write"+hour)
		if n := p.passes(t, 20, "PUT", read, key, `{"value":"x"}`, quota); n != 10 {
			t.Errorf("%d writes passed, want 10", n)
		}
		if n := p.passes(t, 20, "GET", read, key, "", quota); n != 20 {
			t.Errorf("%d reads passed, want all", n)
		}
	})
	t.Run("a route, and each item of a batch", func(t *testing.T) {
		key := p.app(t, "route", "id=a,limit=10,route=/v1/mget"+hour)
		if n := p.passes(t, 10, "POST", "/v1/mget", key, `{"keys":["a","b"]}`, quota); n != 5 {
			t.Errorf("%d passed, want 5 of 2 each", n)
		}
		if n := p.passes(t, 20, "GET", read, key, "", quota); n != 20 {
			t.Errorf("%d of another route passed, want all", n)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		key := p.app(t, "volume", "id=a,of=bytes,limit=10000,mode=exact"+hour)
		body := `{"value":"` + strings.Repeat("x", 990) + `"}` // 1002, and some 50 for the answer
		if n := p.passes(t, 20, "PUT", read, key, body, quota); n < 8 || n > 10 {
			t.Errorf("%d bodies of 1002 bytes passed, want 9", n)
		}
		got := call(t, "PUT", p.gateways[0].api+read, key, `{"value":"`+strings.Repeat("x", 20_000)+`"}`)
		expect(t, got, 429, `"retryable":false`, "costs 20012 bytes")
		if got.Header.Get("Retry-After") != "" || !strings.Contains(got.Header.Get("RateLimit-Policy"), `"a";q=10000;qu="content-bytes";w=3600`) {
			t.Error(got.Header)
		}
	})
	t.Run("requests under way are each gateway's own", func(t *testing.T) {
		key := p.app(t, "at-once", "id=a,of=concurrency,limit=1")
		p.passes(t, 2, "GET", read, key, "", quota)
		slow := p.gateways[0].slowly(t, key)
		busy := func() bool { return call(t, "GET", p.gateways[0].api+read, key, "").StatusCode == 429 }
		eventually(t, busy)
		if got := call(t, "GET", p.gateways[1].api+read, key, ""); got.StatusCode != 404 {
			t.Errorf("the other gateway says %d", got.StatusCode)
		}
		slow()
		eventually(t, func() bool { return !busy() })
	})
	t.Run("an app with one limit that is met", func(t *testing.T) {
		key := p.app(t, "all-or-none", "id=narrow,limit=1,class=strings:write"+hour, "id=wide,limit=20"+hour)
		p.passes(t, 30, "PUT", read, key, `{"value":"x"}`, quota)
		if n := p.passes(t, 30, "GET", read, key, "", quota); n != 19 {
			t.Errorf("%d reads passed, want 19: what the narrow one refused took nothing of the wide one", n)
		}
	})
	t.Run("an edit is followed", func(t *testing.T) {
		key := p.app(t, "edited", "id=a,limit=5,mode=exact"+hour)
		if n := p.passes(t, 10, "GET", read, key, "", quota); n != 5 {
			t.Errorf("%d passed, want 5", n)
		}
		mustRun(t, p.vars, "app", "set", "edited", "--limit", "none")
		for _, g := range p.gateways {
			eventually(t, func() bool { return call(t, "GET", g.api+read, key, "").StatusCode == 404 })
		}
		mustRun(t, p.vars, "app", "set", "edited", "--limit", "id=b,limit=7,mode=exact"+hour)
		for _, g := range p.gateways {
			eventually(t, func() bool {
				return strings.Contains(call(t, "GET", g.api+"/v1/whoami", key, "").Header.Get("RateLimit-Policy"), `"b";q=7`)
			})
		}
		if n := p.passes(t, 20, "GET", read, key, "", quota); n > 5 {
			t.Errorf("%d passed, want at most the 5 that two looks have left", n)
		}
	})
	t.Run("what lies in Redis is the gateway's own and dies", func(t *testing.T) {
		left := p.limitKeys(t)
		for _, want := range []string{"slotgate:l:{exact/a}", "slotgate:l:{prepaid/a}", "slotgate:l:{keys/all}"} {
			if ttl := left[want]; ttl <= 0 {
				t.Errorf("%s lives for %v", want, ttl)
			}
		}
		each := 0
		for key := range left {
			if strings.HasPrefix(key, "slotgate:l:{keys/each|") {
				each++
			}
		}
		if each != 2 {
			t.Errorf("%d keys have a limit of their own, want 2: %v", each, left)
		}
	})
}

// slowly begins a request whose body does not come; the function that is returned ends it.
func (g *running) slowly(t *testing.T, token string) func() {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.api, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "PUT /v1/strings/slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{", token)
	return func() {
		fmt.Fprint(conn, `"value":"x"}`)
		_, _ = bufio.NewReader(conn).ReadString('\n')
	}
}

// limitKeys are the keys of shared limits in the cluster, with what they have left to live.
func (p pair) limitKeys(t *testing.T) map[string]time.Duration {
	t.Helper()
	var mu sync.Mutex
	left := map[string]time.Duration{}
	err := redisClient(t).ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		all := node.Scan(ctx, 0, "slotgate:l:*", 1000).Iterator()
		for all.Next(ctx) {
			ttl := node.PTTL(ctx, all.Val()).Val()
			mu.Lock()
			left[all.Val()] = ttl
			mu.Unlock()
		}
		return all.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func TestGatewaysShareCeilings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slotgate.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ceilings: {top: {limit: 30, period_ms: 3600000, mode: exact, route: '/v1/strings/:key'}}\n")
	p := startPair(t, "--config", file)
	key, other := p.app(t, "shop", "id=a,limit=1000,period_ms=1000"), p.app(t, "depot")
	first, second := p.passes(t, 20, "GET", read, key, "", "overloaded"), p.passes(t, 20, "GET", read, other, "", "overloaded")
	if first != 20 || second != 10 {
		t.Errorf("%d and %d passed, want 20 and the 10 that are left for all apps", first, second)
	}
	got := call(t, "PUT", p.gateways[0].api+read, other, `{"value":"x"}`)
	expect(t, got, 503, `"outcome":"not_applied"`, `"retryable":true`)
	if got.Header.Get("Retry-After") == "" {
		t.Error("when to come back is not said")
	}
	expect(t, call(t, "GET", p.gateways[0].admin+"/metrics", "", ""), 200, `slotgate_ceiling_rejections_total{ceiling="top"}`)

	write("ceilings: {ours: {cluster: default, limit: 10, period_ms: 3600000, class: 'strings:read'}, theirs: {cluster: elsewhere, limit: 1, period_ms: 3600000}}\n")
	for _, g := range p.gateways {
		c := configured{running: g, file: file}
		if r := c.mustReload(t); len(r.NeedsRestart) > 0 || !strings.Contains(fmt.Sprint(r.Changed), "ceilings.ours.limit") {
			t.Errorf("the reload did %+v", r)
		}
	}
	if n := p.passes(t, 20, "GET", read, key, "", "overloaded"); n != 10 {
		t.Errorf("%d passed, want the 10 of the cluster's ceiling", n)
	}
	if n := p.passes(t, 5, "PUT", read, key, `{"value":"x"}`, "overloaded"); n != 5 {
		t.Errorf("%d writes passed, want all", n)
	}
	write("limits: {mode: 'off'}\nceilings: {top: {limit: 1}}\n")
	for _, g := range p.gateways {
		c := configured{running: g, file: file}
		c.mustReload(t)
	}
	if n := p.passes(t, 20, "GET", read, key, "", quota); n != 20 {
		t.Errorf("%d passed with limits off, want all", n)
	}
}

func TestBadCeilings(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"no limit":                  {"top: {of: bytes}", "ceilings.top.limit: 0 must be 1 to"},
		"a negative limit":          {"top: {limit: -1}", "ceilings.top.limit: -1 must be 1 to"},
		"a limit over 2^53":         {"top: {limit: 9007199254740993}", "ceilings.top.limit: 9007199254740993 must be 1 to 9007199254740992"},
		"a limit in words":          {"top: {limit: many}", `ceilings.top.limit: "many" is not a whole number`},
		"a negative period":         {"top: {limit: 1, period_ms: -1}", "ceilings.top.period_ms: -1 must be 1 to 86400000"},
		"a period over a day":       {"top: {limit: 1, period_ms: 86400001}", "ceilings.top.period_ms: 86400001 must be"},
		"a negative burst":          {"top: {limit: 1, burst: -1}", "ceilings.top.burst: -1 must be"},
		"a burst of a window":       {"top: {limit: 1, burst: 1, algorithm: fixed_window}", "ceilings.top.burst: belongs to a token_bucket"},
		"of cats":                   {"top: {limit: 1, of: cats}", `ceilings.top.of: "cats" must be requests`},
		"of requests under way":     {"top: {limit: 1, of: concurrency}", `ceilings.top.of: "concurrency" is no ceiling`},
		"another class":             {"top: {limit: 1, class: string}", `ceilings.top.class: "string" is not a class`},
		"another route":             {"top: {limit: 1, route: /v1/string/:key}", `ceilings.top.route: "/v1/string/:key" is no route`},
		"another algorithm":         {"top: {limit: 1, algorithm: leaky}", `ceilings.top.algorithm: "leaky" must be token_bucket`},
		"another mode":              {"top: {limit: 1, mode: fast}", `ceilings.top.mode: "fast" must be prepaid`},
		"another on_error":          {"top: {limit: 1, on_error: maybe}", `ceilings.top.on_error: "maybe" must be local`},
		"a bad name of a cluster":   {"top: {limit: 1, cluster: A B}", `ceilings.top.cluster: "A B" is not the name of a cluster`},
		"a setting that is not one": {"top: {limit: 1, per: key}", "ceilings.top.per: is no setting"},
		"a bad name":                {"Top: {limit: 1}", `"Top" is not a name`},
	} {
		file := filepath.Join(t.TempDir(), "slotgate.yaml")
		if err := os.WriteFile(file, []byte("clusters: {default: {addrs: ['a:1']}}\nsecret_file: testdata/secret\nceilings: {"+c.yaml+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got := slotgate(t, nil, "config", "check", "-c", file)
		if got.code != exitCheck || strings.Count(got.stderr, "ceilings.") != 1 {
			t.Errorf("%s: code %d, %s; want one fault", name, got.code, got.stderr)
		}
		contains(t, name, got.stderr, c.want)
	}
	var many []string
	for i := range 11 {
		many = append(many, fmt.Sprintf("--set=ceilings.c%d.limit=1", i))
	}
	contains(t, "eleven", slotgate(t, nil, append([]string{"config", "check"}, many...)...).stderr, "ceilings: there are 11")
	contains(t, "a mode", slotgate(t, nil, "config", "check", "--set=limits.mode=none").stderr, `limits.mode: "none" is none; write shared, local, off`)
}

func TestACeilingOfAllAppsIsSharedInAClusterThatThereIs(t *testing.T) {
	some := func(names ...string) map[string]Cluster {
		m := map[string]Cluster{}
		for _, name := range names {
			m[name] = Cluster{}
		}
		return m
	}
	for name, c := range map[string]struct {
		control  Control
		clusters map[string]Cluster
		want     string
	}{
		"apps are in a cluster":              {Control{Cluster: "main"}, some("default", "main"), "main"},
		"apps are in default":                {Control{}, some("default", "main"), "default"},
		"apps are in a file":                 {Control{File: "apps.yaml"}, some("default", "cache"), "default"},
		"apps are in a file, and no default": {Control{File: "apps.yaml"}, some("main", "cache"), "cache"},
	} {
		cfg := Config{Control: c.control, Clusters: c.clusters, Ceilings: map[string]Ceiling{"top": {Limit: 1}, "own": {Limit: 1, Cluster: "main"}}}
		s := limiterSettings(cfg, nil)
		if own, top := s.Ceilings[0].Kept, s.Ceilings[1].Kept; top != c.want || own != "main" {
			t.Errorf("%s: %s and %s, want %s and main", name, top, own, c.want)
		}
	}
}

func TestLimitsOnTheCommandLine(t *testing.T) {
	vars := clusterVars(t)
	mustRun(t, vars, "app", "create", "shop",
		"--limit", "id=each,per=key,limit=10,period_ms=60000,class=strings:write,mode=exact,on_error=closed",
		"--limit", "id=volume,of=bytes,limit=1000000,period_ms=1000,burst=5000000,route=/v1/bytes/:key",
		"--limit", "id=at-once,of=concurrency,limit=20",
		"--limit", "id=day,limit=1000,period_ms=86400000,algorithm=fixed_window")
	want := []acl.Limit{
		{ID: "each", Per: "key", Of: "requests", Limit: 10, PeriodMS: 60_000, Class: "strings:write", Mode: "exact", OnError: "closed"},
		{ID: "volume", Per: "app", Of: "bytes", Limit: 1_000_000, PeriodMS: 1000, Burst: 5_000_000, Route: "/v1/bytes/:key"},
		{ID: "at-once", Per: "app", Of: "concurrency", Limit: 20},
		{ID: "day", Per: "app", Of: "requests", Limit: 1000, PeriodMS: 86_400_000, Algorithm: "fixed_window"},
	}
	if got := showApp(t, vars, "shop").Limits; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the app has %+v", got)
	}
	contains(t, "app show", mustRun(t, vars, "app", "show", "shop").stdout,
		"each: 10 requests per 1m0s, at once 10, each key, strings:write, exact, on error closed",
		"volume: 1000000 bytes per 1s, at once 5000000, /v1/bytes/:key",
		"at-once: 20 requests at once in each gateway", "day: 1000 requests per 24h0m0s, fixed_window")
}
