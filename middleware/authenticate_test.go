package middleware_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl/tokens"
	"github.com/slotgate/slotgate/middleware"
)

func basic(s string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(s))
}

// whole is all a caller can see of an answer, without what differs for every request.
func whole(a answer) string {
	id := a.header.Get("X-Request-Id")
	h := a.header.Clone()
	h.Del("X-Request-Id")
	h.Del("Date")
	var b strings.Builder
	_ = h.Write(&b)
	return strconv.Itoa(a.status) + "\n" + b.String() + "\n" + strings.ReplaceAll(a.body, id, "ID")
}

func TestOneAnswerForEveryBadKey(t *testing.T) {
	clock := newClock()
	g := start(t, func(c *middleware.Config) { c.Clock = clock.now }, keyRoutes)
	var first string
	for _, c := range []struct {
		name    string
		path    string
		headers []string
	}{
		{"missing", "", nil},
		{"unknown", "", []string{"Authorization: Bearer sg_unknown"}},
		{"malformed", "", []string{"Authorization: Bearer ####"}},
		{"truncated", "", []string{"Authorization: Bearer " + goodKey[:len(goodKey)-1]}},
		{"with more behind it", "", []string{"Authorization: Bearer " + goodKey + "123"}},
		{"case flipped", "", []string{"Authorization: Bearer " + strings.ToUpper(goodKey)}},
		{"spaces inside", "", []string{"Authorization: Bearer sg _good"}},
		{"two spaces", "", []string{"Authorization: Bearer  " + goodKey}},
		{"empty", "", []string{"Authorization: "}},
		{"scheme only", "", []string{"Authorization: Bearer"}},
		{"no scheme", "", []string{"Authorization: " + goodKey}},
		{"lower-case scheme, bad key", "", []string{"Authorization: bearer sg_unknown"}},
		{"another scheme", "", []string{"Authorization: Token " + goodKey}},
		{"two good headers", "", []string{"Authorization: Bearer " + goodKey, "Authorization: Bearer " + goodKey}},
		{"in the query", "?_token=" + goodKey + "&access_token=" + goodKey, nil},
		{"in another header", "", []string{"X-Api-Key: " + goodKey, "Cookie: token=" + goodKey, "Proxy-Authorization: Bearer " + goodKey}},
		{"basic, as the user", "", []string{basic(goodKey + ":")}},
		{"basic, no base64", "", []string{"Authorization: Basic ####"}},
		{"basic, wrong", "", []string{basic(":sg_unknown")}},
		{"very long", "", []string{"Authorization: Bearer " + strings.Repeat("a", 4000)}},
		{"a megabyte of dots is net/http's 431, a few thousand ours", "", []string{"Authorization: Bearer " + strings.Repeat(".", 8000)}},
	} {
		clock.advance(time.Minute) // so that the throttle stays out of it
		a := g.do(t, "GET", "/v1/strings/a"+c.path, nil, c.headers...)
		got := whole(a)
		if first == "" {
			first = got
			if a.status != 401 || a.code(t) != "unauthenticated" {
				t.Fatalf("%s", got)
			}
			if ch := a.header.Values("Www-Authenticate"); len(ch) != 2 || ch[0] != `Bearer realm="slotgate"` || !strings.HasPrefix(ch[1], "Basic ") {
				t.Errorf("challenges %q", ch)
			}
		}
		if got != first {
			t.Errorf("%s: the answer differs:\n%s\nfrom\n%s", c.name, got, first)
		}
	}
}

func TestGoodKeysInEveryForm(t *testing.T) {
	g := start(t, nil, keyRoutes)
	for _, h := range []string{
		"Authorization: Bearer " + goodKey, "Authorization: bearer " + goodKey, basic(":" + goodKey), basic("slotgate:" + goodKey),
	} {
		if a := g.do(t, "GET", "/v1/strings/a", nil, h); a.status != 200 {
			t.Errorf("%s: %d", h, a.status)
		}
	}
}

func throttled(n int64) func(*middleware.Config) {
	return func(c *middleware.Config) {
		c.Throttle = middleware.ThrottleConfig{Failures: n, Period: time.Minute}
	}
}

func TestThrottleOfFailuresOnly(t *testing.T) {
	clock := newClock()
	g := start(t, func(c *middleware.Config) { throttled(3)(c); c.Clock = clock.now }, keyRoutes)
	fail := func() answer { return g.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer sg_unknown") }
	for range 3 {
		if a := fail(); a.status != 401 {
			t.Fatalf("within the limit: %d", a.status)
		}
	}
	a := fail()
	if a.status != 429 || a.code(t) != "too_many_failures" || a.header.Get("Retry-After") != "20" {
		t.Fatalf("over the limit: %d, Retry-After %q, %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	if a.header.Get("Www-Authenticate") != "" {
		t.Error("429 is no challenge")
	}
	for range 50 {
		if a := g.get(t, "/v1/strings/a"); a.status != 200 {
			t.Fatalf("a good key from the same peer: %d", a.status)
		}
	}
	for _, token := range []string{"sg_suspended", "sg_expired"} {
		if a := g.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer "+token); a.status != 403 {
			t.Errorf("%s holds a good key: %d", token, a.status)
		}
	}
	clock.advance(20 * time.Second)
	if a := fail(); a.status != 401 {
		t.Errorf("after Retry-After: %d", a.status)
	}
	if a := fail(); a.status != 429 {
		t.Errorf("and again: %d", a.status)
	}
}

func TestRotatingForwardedForDoesNotHelp(t *testing.T) {
	g := start(t, throttled(3), keyRoutes)
	refused := 0
	for i := range 200 {
		a := g.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer sg_unknown", "X-Forwarded-For: 198.51.100."+strconv.Itoa(i),
			"Forwarded: for=198.51.100."+strconv.Itoa(i), "X-Real-Ip: 198.51.100."+strconv.Itoa(i))
		if a.status == 429 {
			refused++
		}
	}
	if refused < 190 {
		t.Errorf("only %d of 200 were refused", refused)
	}
}

func TestTrustedProxyTellsPeersApart(t *testing.T) {
	g := start(t, func(c *middleware.Config) {
		throttled(3)(c)
		c.TrustedProxies = prefixes(t, "127.0.0.0/8", "::1/128")
	}, keyRoutes)
	fail := func(xff string) int {
		return g.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer sg_unknown", "X-Forwarded-For: "+xff).status
	}
	for range 3 {
		fail("198.51.100.1")
	}
	if s := fail("198.51.100.1"); s != 429 {
		t.Errorf("the first client: %d", s)
	}
	if s := fail("198.51.100.2"); s != 401 {
		t.Errorf("the second client: %d", s)
	}
	if s := fail("198.51.100.3, 198.51.100.1"); s != 429 {
		t.Errorf("the first client with an invented hop: %d", s)
	}
	for range 4 {
		fail("2001:db8::1")
	}
	if s := fail("2001:db8::ffff:1"); s != 429 {
		t.Errorf("the same /64: %d", s)
	}
}

func TestThrottleForgetsTheLeastRecent(t *testing.T) {
	clock := newClock()
	th := middleware.NewThrottle(middleware.ThrottleConfig{Failures: 1, Period: time.Hour, Peers: 160}, clock.now)
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for i := range 100_000 {
		th.Fail(addr(i))
	}
	if n := th.Peers(); n > 160 || n < 100 {
		t.Errorf("%d peers are remembered, the cap is 160", n)
	}
	if _, over := th.Fail(addr(99_999)); !over {
		t.Error("the most recent peer was forgotten")
	}
	if _, over := th.Fail(addr(0)); over {
		t.Error("the least recent peer was not forgotten")
	}
}

func TestFailuresAreCountedByReason(t *testing.T) {
	g := start(t, throttled(1), keyRoutes)
	for _, token := range []string{"sg_unknown", "sg_suspended", "sg_expired", "sg_early", "sg_unknown"} {
		g.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer "+token)
	}
	for _, reason := range []string{"bad_key", "app_suspended", "app_expired", "not_ready", "throttled"} {
		if n := g.metric(t, "slotgate_auth_failures_total", map[string]string{"reason": reason}); n != 1 {
			t.Errorf("%s: %v, want 1", reason, n)
		}
	}
}

func TestRefusedTokensAreCountedAndThrottledAsBadKeysAre(t *testing.T) {
	g := start(t, throttled(2), keyRoutes)
	g.auth["e.x.p"], g.auth["f.o.rged"] = tokens.Expired, tokens.BadSignature
	first := g.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer e.x.p")
	second := g.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer f.o.rged")
	if whole(first) != whole(second) || first.code(t) != "unauthenticated" {
		t.Errorf("the reason is told: %s %s", first.body, second.body)
	}
	if a := g.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer e.x.p"); a.status != 429 {
		t.Errorf("%d after as many failures as are allowed", a.status)
	}
	for _, reason := range []string{"token_expired", "token_bad_signature", "throttled"} {
		if n := g.metric(t, "slotgate_auth_failures_total", map[string]string{"reason": reason}); n != 1 {
			t.Errorf("%s: %v, want 1", reason, n)
		}
	}
}

// net/http refuses such a header before it gets here; this is for a server that does not.
func TestAMegabyteOfDotsIsOneMore401(t *testing.T) {
	e := benchChain(people{goodKey: identity("shop")})
	req := httptest.NewRequest("GET", "/v1/strings/a", nil)
	req.Header.Set("Authorization", "Bearer "+strings.Repeat(".", 1<<20))
	fresh := *req
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w := httptest.NewRecorder()
			*req = fresh // the chain leaves its state in it
			e.ServeHTTP(w, req)
			if w.Code != 401 && w.Code != 429 {
				b.Fatal(w.Code)
			}
		}
	})
	if n := result.AllocedBytesPerOp(); n > 64<<10 {
		t.Errorf("it costs %d bytes", n)
	}
}

func TestNotReadyIsRetryable(t *testing.T) {
	g := start(t, nil, keyRoutes)
	a := g.do(t, "PUT", "/v1/strings/a", http.NoBody, "Authorization: Bearer sg_early")
	p := a.problem(t)
	if a.status != 503 || p["retryable"] != true || p["outcome"] != "not_applied" || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	benchmarkGuards(b, middleware.Authenticate(people{goodKey: identity("shop")}, middleware.AuthConfig{}))
}
