package middleware_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
)

// limited starts a gateway whose good key belongs to an app with these limits. /v1/batch/:key charges that many items.
func limited(t testing.TB, clock *fakeClock, limits ...acl.Limit) *gateway {
	t.Helper()
	g := start(t, func(c *middleware.Config) { c.Clock = clock.now }, func(public, v1 gin.IRouter) {
		keyRoutes(public, v1)
		v1.POST("/batch/:key", func(c *gin.Context) {
			if err := store.Charge(c.Request.Context(), int64(len(c.Param("key")))-1); err != nil {
				_ = c.Error(err)
				return
			}
			c.Status(204)
		})
	})
	g.auth[goodKey] = identity("shop", limits...)
	return g
}

func batch(t testing.TB, g *gateway, n int) answer {
	t.Helper()
	return g.do(t, "POST", "/v1/batch/"+strings.Repeat("k", n), nil, "Authorization: Bearer "+goodKey)
}

func TestRateLimitHeaders(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		limits []acl.Limit
		take   int
		policy string
		state  string
	}{
		"none":                          {nil, 1, "", ""},
		"one":                           {[]acl.Limit{perApp("app-rps", 5000, time.Second, 0)}, 1, `"app-rps";q=5000;w=1`, `"app-rps";r=4999;t=1`},
		"used up":                       {[]acl.Limit{perApp("minute", 3, time.Minute, 0)}, 3, `"minute";q=3;w=60`, `"minute";r=0;t=20`},
		"a burst above the rate":        {[]acl.Limit{perApp("a", 10, time.Second, 50)}, 1, `"a";q=10;w=1`, `"a";r=49;t=1`},
		"two":                           {[]acl.Limit{perApp("minute", 60, time.Minute, 0), perApp("day", 10000, day, 0)}, 2, `"minute";q=60;w=60, "day";q=10000;w=86400`, `"minute";r=58;t=1, "day";r=9998;t=9`},
		"half a second becomes a whole": {[]acl.Limit{perApp("a", 10, 500*time.Millisecond, 0)}, 1, `"a";q=20;w=1`, `"a";r=9;t=1`},
		"what a newer gateway stored is left out":  {[]acl.Limit{{ID: "x", Per: "team", Of: "requests", Limit: 1, PeriodMS: 1000}, perApp("a", 5, time.Second, 0)}, 1, `"a";q=5;w=1`, `"a";r=4;t=1`},
		"only what a newer gateway stored: no one": {[]acl.Limit{{ID: "x", Per: "team", Of: "requests", Limit: 1, PeriodMS: 1000}}, 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := limited(t, newClock(), c.limits...)
			var a answer
			for range c.take {
				a = g.get(t, "/v1/strings/a")
			}
			if a.status != 200 || a.header.Get("RateLimit-Policy") != c.policy || a.header.Get("RateLimit") != c.state {
				t.Errorf("%d, RateLimit-Policy: %s, RateLimit: %s", a.status, a.header.Get("RateLimit-Policy"), a.header.Get("RateLimit"))
			}
		})
	}
}

func TestQuotaExceeded(t *testing.T) {
	clock := newClock()
	g := limited(t, clock, perApp("minute", 60, time.Minute, 2), perApp("day", 3, 24*time.Hour, 0))
	get := func() answer { return g.get(t, "/v1/strings/a", "X-Request-Id: r1") }
	get()
	get()
	a := get()
	want := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
		`"detail":"the app has used up its quota","code":"quota_exceeded","request_id":"r1","retryable":true,"violated-policies":["minute"]}` + "\n"
	if a.status != 429 || a.body != want {
		t.Errorf("%d\n%s\nwant\n%s", a.status, a.body, want)
	}
	if h := a.header; h.Get("Retry-After") != "1" || h.Get("RateLimit") != `"minute";r=0;t=1, "day";r=1;t=28800` ||
		h.Get("RateLimit-Policy") != `"minute";q=60;w=60, "day";q=3;w=86400` {
		t.Errorf("headers %v", h)
	}
	clock.advance(time.Second)
	if a := get(); a.status != 200 {
		t.Errorf("after Retry-After: %d", a.status)
	}
	// The day is used up by three, not by the refusal in between; and it does not take from the minute.
	clock.advance(10 * time.Second)
	for range 3 {
		a = get()
	}
	after, _ := strconv.Atoi(a.header.Get("Retry-After"))
	if a.status != 429 || after < 28789 || after > 28789*11/10 || a.header.Get("RateLimit") != `"minute";r=2;t=1, "day";r=0;t=28789` {
		t.Errorf("the day: %d %s %s", a.status, a.header.Get("Retry-After"), a.header.Get("RateLimit"))
	}
	if n := g.metric(t, "slotgate_quota_rejections_total", map[string]string{"app": "shop", "policy": "minute"}); n != 1 {
		t.Errorf("%v rejections by the minute, want 1", n)
	}
	if n := g.metric(t, "slotgate_quota_rejections_total", map[string]string{"app": "shop", "policy": "day"}); n != 3 {
		t.Errorf("%v rejections by the day, want 3", n)
	}
	if n := g.metric(t, "slotgate_quota_remaining_ratio", map[string]string{"app": "shop", "policy": "minute"}); n != 1 {
		t.Errorf("the minute has %v left, want 1", n)
	}
}

func TestEachItemOfABatchCounts(t *testing.T) {
	clock := newClock()
	g := limited(t, clock, perApp("a", 10, 10*time.Second, 0))
	if a := batch(t, g, 4); a.status != 204 || a.header.Get("RateLimit") != `"a";r=6;t=1` {
		t.Errorf("four: %d %s", a.status, a.header.Get("RateLimit"))
	}
	a := batch(t, g, 8) // one is taken for the request, five are left for the other seven
	if a.status != 429 || a.header.Get("Retry-After") != "2" || a.header.Get("RateLimit") != `"a";r=5;t=1` || a.problem(t)["retryable"] != true {
		t.Errorf("eight: %d, Retry-After %s, RateLimit %s, %s", a.status, a.header.Get("Retry-After"), a.header.Get("RateLimit"), a.body)
	}
	a = batch(t, g, 11)
	if a.status != 429 || a.header.Get("Retry-After") != "" || a.problem(t)["retryable"] != false ||
		!strings.Contains(a.body, `costs 11 requests, and policy \"a\" never has more than 10`) {
		t.Errorf("more than there ever is: %d, Retry-After %q, %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	if a := batch(t, g, 1); a.status != 204 {
		t.Errorf("one: %d", a.status)
	}
	clock.advance(time.Minute)
	if a := batch(t, g, 10); a.status != 204 {
		t.Errorf("the whole burst: %d %s", a.status, a.body)
	}
}

func TestWithoutLimitsChargingIsFree(t *testing.T) {
	g := limited(t, newClock())
	if a := batch(t, g, 200); a.status != 204 {
		t.Errorf("%d", a.status)
	}
}

// A reload gives every app a new pointer and perhaps new numbers; what was used stays used.
func TestBucketsSurviveReloads(t *testing.T) {
	clock := newClock()
	g := limited(t, clock, perApp("a", 10, 10*time.Second, 0))
	batch(t, g, 5)
	steps := []struct {
		name   string
		limits []acl.Limit
		status int
		want   string
	}{
		{"the same numbers", []acl.Limit{perApp("a", 10, 10*time.Second, 0)}, 200, `"a";r=4;t=1`},
		{"another limit beside it", []acl.Limit{perApp("b", 100, time.Second, 0), perApp("a", 10, 10*time.Second, 0)}, 200, `"b";r=99;t=1, "a";r=3;t=1`},
		{"ten times the rate and burst: the same share", []acl.Limit{perApp("a", 100, 10*time.Second, 0)}, 200, `"a";r=29;t=1`},
		{"a smaller burst: used up, for no longer than it takes to fill", []acl.Limit{perApp("a", 10, 10*time.Second, 2)}, 429, `"a";r=0;t=1`},
		{"another name: a full bucket", []acl.Limit{perApp("c", 10, 10*time.Second, 0)}, 200, `"c";r=9;t=1`},
		{"no limits", nil, 200, ""},
	}
	for _, s := range steps {
		g.auth[goodKey] = identity("shop", s.limits...)
		if a := g.get(t, "/v1/strings/a"); a.status != s.status || a.header.Get("RateLimit") != s.want {
			t.Errorf("%s: %d %s, want %d %s", s.name, a.status, a.header.Get("RateLimit"), s.status, s.want)
		}
	}
}

func TestAppsDoNotShareBuckets(t *testing.T) {
	g := limited(t, newClock(), perApp("a", 1, time.Hour, 0))
	g.auth["sg_other"] = identity("other", perApp("a", 1, time.Hour, 0))
	g.auth["sg_second_key"] = &acl.Identity{App: identity("shop", perApp("a", 1, time.Hour, 0)).App, Key: &acl.Key{ID: "second"}}
	for _, c := range []struct {
		token  string
		status int
	}{{goodKey, 200}, {goodKey, 429}, {"sg_other", 200}, {"sg_second_key", 429}} {
		if a := g.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer "+c.token); a.status != c.status {
			t.Errorf("%s: %d, want %d", c.token, a.status, c.status)
		}
	}
}

func TestChargeReturnsAPlainNil(t *testing.T) {
	var got error = errors.New("not called")
	g := start(t, nil, func(_, v1 gin.IRouter) {
		v1.GET("/charge", func(c *gin.Context) { got = store.Charge(c.Request.Context(), 5) })
	})
	g.auth[goodKey] = identity("shop", perApp("a", 100, time.Second, 0))
	g.get(t, "/v1/charge")
	if got != nil {
		t.Errorf("got %v", got)
	}
}
