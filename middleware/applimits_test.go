package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/prepaid"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// scopes are a gateway of strings, hashes, a route that sends its body back twice, and one that waits in its handler until released.
type scopes struct {
	*gateway
	entered chan struct{}
	release chan struct{}
}

func scoped(t testing.TB, clock *fakeClock, limits ...acl.Limit) scopes {
	t.Helper()
	s := scopes{entered: make(chan struct{}), release: make(chan struct{})}
	s.gateway = start(t, func(c *middleware.Config) {
		c.Clock = clock.now
		c.Classes = func(method, route string) (acl.Class, acl.Access) {
			access := acl.Write
			if method == "GET" {
				access = acl.Read
			}
			switch {
			case strings.HasPrefix(route, "/v1/strings"):
				return acl.Strings, access
			case strings.HasPrefix(route, "/v1/hashes"):
				return acl.Hashes, access
			}
			return 0, 0
		}
	}, func(_, v1 gin.IRouter) {
		v1.GET("/strings/:key", ok)
		v1.PUT("/strings/:key", ok)
		v1.GET("/hashes/:key", ok)
		v1.POST("/echo", func(c *gin.Context) {
			body, err := io.ReadAll(c.Request.Body)
			if err != nil {
				_ = c.Error(err)
				return
			}
			c.String(200, "%s%s", body, body)
		})
		v1.POST("/batch/:key", func(c *gin.Context) {
			if err := store.Charge(c.Request.Context(), int64(len(c.Param("key")))-1); err != nil {
				_ = c.Error(err)
				return
			}
			c.Status(204)
		})
		v1.GET("/wait", func(c *gin.Context) { s.entered <- struct{}{}; <-s.release; c.Status(204) })
		v1.GET("/panic", func(*gin.Context) { panic("of the test") })
	})
	s.auth[goodKey] = identity("shop", limits...)
	return s
}

// asks sends a request and says its status.
func (s scopes) asks(t testing.TB, method, path string, body io.Reader) int {
	t.Helper()
	return s.do(t, method, path, body, "Authorization: Bearer "+goodKey).status
}

func of(change func(*acl.Limit)) acl.Limit {
	l := acl.Limit{ID: "a", Per: "app", Of: "requests", Limit: 2, PeriodMS: 3_600_000}
	change(&l)
	return l
}

func TestALimitCountsWhatItConcerns(t *testing.T) {
	for name, c := range map[string]struct {
		limit acl.Limit
		ask   []string
		want  string // of each: . passes, x is refused
	}{
		"everything":            {of(func(*acl.Limit) {}), []string{"GET /v1/strings/a", "PUT /v1/strings/a", "GET /v1/hashes/a"}, "..x"},
		"a class":               {of(func(l *acl.Limit) { l.Class = "hashes" }), []string{"GET /v1/hashes/a", "GET /v1/strings/a", "GET /v1/hashes/a", "GET /v1/hashes/b", "GET /v1/strings/a"}, "...x."},
		"the reads of a class":  {of(func(l *acl.Limit) { l.Class = "strings:read" }), []string{"GET /v1/strings/a", "GET /v1/strings/a", "PUT /v1/strings/a", "GET /v1/strings/a"}, "...x"},
		"all writes":            {of(func(l *acl.Limit) { l.Class = "*:write" }), []string{"PUT /v1/strings/a", "PUT /v1/strings/b", "GET /v1/strings/a", "PUT /v1/strings/a"}, "...x"},
		"a route":               {of(func(l *acl.Limit) { l.Route = "/v1/hashes/:key" }), []string{"GET /v1/hashes/a", "GET /v1/hashes/b", "GET /v1/strings/a", "GET /v1/hashes/a"}, "...x"},
		"a class on its route":  {of(func(l *acl.Limit) { l.Class, l.Route = "strings:write", "/v1/strings/:key" }), []string{"PUT /v1/strings/a", "GET /v1/strings/b", "PUT /v1/strings/a", "PUT /v1/strings/a"}, "...x"},
		"a class elsewhere":     {of(func(l *acl.Limit) { l.Class, l.Route = "hashes", "/v1/strings/:key" }), []string{"GET /v1/strings/a", "GET /v1/strings/a", "GET /v1/strings/a"}, "..."},
		"a route of no class":   {of(func(l *acl.Limit) { l.Class = "strings" }), []string{"POST /v1/batch/a", "POST /v1/batch/a", "POST /v1/batch/a"}, "..."},
		"each item of a batch":  {of(func(l *acl.Limit) { l.Route = "/v1/batch/:key" }), []string{"POST /v1/batch/aa", "GET /v1/strings/a", "POST /v1/batch/a"}, "..x"},
		"what does not exist":   {of(func(l *acl.Limit) { l.Class = "vectors" }), []string{"GET /v1/strings/a", "GET /v1/strings/a", "GET /v1/strings/a"}, "..."},
		"a mode for oneself":    {of(func(l *acl.Limit) { l.Mode = "local" }), []string{"GET /v1/strings/a", "GET /v1/strings/a", "GET /v1/strings/a"}, "..x"},
		"a window without help": {of(func(l *acl.Limit) { l.Algorithm = "fixed_window" }), []string{"GET /v1/strings/a", "GET /v1/strings/a", "GET /v1/strings/a"}, "..x"},
	} {
		t.Run(name, func(t *testing.T) {
			s, got := scoped(t, newClock(), c.limit), ""
			for _, ask := range c.ask {
				method, path, _ := strings.Cut(ask, " ")
				switch status := s.asks(t, method, path, nil); status {
				case 200, 204:
					got += "."
				case 429:
					got += "x"
				default:
					t.Fatalf("%s: %d", ask, status)
				}
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestHeadersTellOfTheLimitsThatConcernARequest(t *testing.T) {
	s := scoped(t, newClock(),
		of(func(l *acl.Limit) { l.ID, l.Class = "reads", "*:read" }),
		of(func(l *acl.Limit) { l.ID, l.Of, l.Limit = "volume", "bytes", 10_000 }),
		of(func(l *acl.Limit) { l.ID, l.Of, l.Limit, l.PeriodMS = "at-once", "concurrency", 7, 0 }),
		of(func(l *acl.Limit) { l.ID, l.Route = "echo", "/v1/echo" }))
	for path, want := range map[string][2]string{
		"/v1/strings/a": {
			`"reads";q=2;w=3600, "volume";q=10000;qu="content-bytes";w=3600, "at-once";q=7;qu="concurrent-requests"`,
			`"reads";r=1;t=1800, "volume";r=9999;t=1, "at-once";r=6`,
		},
		"/v1/panic": {
			`"volume";q=10000;qu="content-bytes";w=3600, "at-once";q=7;qu="concurrent-requests"`,
			`"volume";r=9999;t=1, "at-once";r=6`,
		},
	} {
		s := scoped(t, newClock(), s.auth[goodKey].(*acl.Identity).App.Limits...)
		a := s.get(t, path)
		if got := [2]string{a.header.Get("RateLimit-Policy"), a.header.Get("RateLimit")}; got != want {
			t.Errorf("%s:\n%s\n%s", path, got[0], got[1])
		}
	}
}

func TestEachKeyHasALimitOfItsOwn(t *testing.T) {
	limits := []acl.Limit{of(func(l *acl.Limit) { l.Per = "key" }), of(func(l *acl.Limit) { l.ID, l.Limit = "all", 3 })}
	s := scoped(t, newClock(), limits...)
	first := s.auth[goodKey].(*acl.Identity)
	second, outside := *first, *first
	second.Key, second.Memo = &acl.Key{ID: "second"}, &acl.Memo{}
	outside.Key, outside.Memo = &acl.Key{}, nil
	s.auth["sg_second"], s.auth["sg_outside"] = &second, &outside
	ask := func(token string) string {
		a := s.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer "+token)
		return fmt.Sprint(a.status, " ", a.header.Get("RateLimit"))
	}
	for i, step := range []struct{ token, want string }{
		{goodKey, `200 "a";r=1;t=1800, "all";r=2;t=1200`},
		{goodKey, `200 "a";r=0;t=1800, "all";r=1;t=1200`},
		{goodKey, `429 "a";r=0;t=1800, "all";r=1;t=1200`}, // and took nothing of what all keys share
		{"sg_second", `200 "a";r=1;t=1800, "all";r=0;t=1200`},
		{"sg_outside", `429 "a";r=2;t=1800, "all";r=0;t=1200`},
	} {
		if got := ask(step.token); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	if n := s.metric(t, "slotgate_quota_remaining_ratio", map[string]string{"app": "shop", "policy": "a"}); n != 0 {
		t.Errorf("the key that has the least has %v left, want 0", n)
	}
}

func TestBytesOfBodiesAreCounted(t *testing.T) {
	clock := newClock()
	s := scoped(t, clock, of(func(l *acl.Limit) { l.Of, l.Limit, l.PeriodMS = "bytes", 300, 300_000 })) // a byte a second
	if status := s.asks(t, "POST", "/v1/echo", strings.NewReader(strings.Repeat("x", 100))); status != 200 {
		t.Fatal(status)
	}
	// 100 came, 200 went: nothing is left, and a request without a body must not pass either.
	a := s.get(t, "/v1/strings/a")
	if a.status != 429 || a.header.Get("Retry-After") != "1" || a.header.Get("RateLimit") != `"a";r=0;t=1` {
		t.Errorf("when all is used: %d, Retry-After %s, %s", a.status, a.header.Get("Retry-After"), a.header.Get("RateLimit"))
	}
	clock.advance(50 * time.Second)
	if a := s.get(t, "/v1/strings/a"); a.status != 200 {
		t.Errorf("50 bytes later: %d", a.status)
	}
}

// What is owed is owed, however large an answer was against the bucket: each request may be let through by one byte and answered with many.
func TestAnswersLargerThanTheBucketArePaid(t *testing.T) {
	clock := newClock()
	s := scoped(t, clock, of(func(l *acl.Limit) { l.Of, l.Limit, l.PeriodMS = "bytes", 100, 100_000 }))
	passed := 0
	for range 1000 { // seconds, a byte each
		if s.asks(t, "POST", "/v1/echo", strings.NewReader(strings.Repeat("x", 100))) == 200 {
			passed++ // 300 bytes
		}
		clock.advance(time.Second)
	}
	if passed < 3 || passed > 4 {
		t.Errorf("%d requests of 300 bytes passed in 1000 s at 1 B/s and 100 at once, want 3 or 4", passed)
	}
}

func TestABodyWithoutALengthIsCountedWhenItIsRead(t *testing.T) {
	clock := newClock()
	s := scoped(t, clock, of(func(l *acl.Limit) { l.Of, l.Limit, l.PeriodMS = "bytes", 300, 300_000 }))
	chunked := func() int {
		return s.asks(t, "PUT", "/v1/strings/a", io.MultiReader(strings.NewReader(strings.Repeat("x", 150)))) // answered with as many
	}
	if status := chunked(); status != 200 {
		t.Fatal(status)
	}
	if status := chunked(); status != 429 {
		t.Errorf("then: %d", status)
	}
}

// neverRead is a body that must not be read.
type neverRead struct{ t *testing.T }

func (n neverRead) Read([]byte) (int, error) { n.t.Error("the body was read"); return 0, io.EOF }

func TestABodyOverTheLimitIsRefusedBeforeItIsRead(t *testing.T) {
	s := scoped(t, newClock(), of(func(l *acl.Limit) { l.Of, l.Limit = "bytes", 100 }))
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/echo", neverRead{t})
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 101
	req.Header.Set("Authorization", "Bearer "+goodKey)
	req.Header.Set("Expect", "100-continue")
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "" || !strings.Contains(string(body), `this body costs 101 bytes, and policy \"a\" never has more than 100 at once`) {
		t.Errorf("%d, Retry-After %q, %s", resp.StatusCode, resp.Header.Get("Retry-After"), body)
	}
	if status := s.asks(t, "PUT", "/v1/strings/a", strings.NewReader(strings.Repeat("x", 100))); status != 200 {
		t.Errorf("the largest body after it: %d, as the refused one took nothing", status)
	}
}

func TestConcurrencyIsCountedWhileRequestsRun(t *testing.T) {
	s := scoped(t, newClock(), of(func(l *acl.Limit) { l.Of, l.PeriodMS = "concurrency", 0 }), perApp("rate", 10, time.Hour, 0))
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			if status := s.asks(t, "GET", "/v1/wait", nil); status != 204 {
				t.Errorf("one of two: %d", status)
			}
		})
		<-s.entered
	}
	a := s.get(t, "/v1/strings/a")
	if a.status != 429 || a.header.Get("Retry-After") != "1" || a.header.Get("RateLimit") != `"rate";r=8;t=360, "a";r=0` || !strings.Contains(a.body, `"violated-policies":["a"]`) {
		t.Errorf("a third: %d, Retry-After %s, RateLimit %s, %s", a.status, a.header.Get("Retry-After"), a.header.Get("RateLimit"), a.body)
	}
	if n := s.metric(t, "slotgate_quota_remaining_ratio", map[string]string{"app": "shop", "policy": "a"}); n != 0 {
		t.Errorf("%v is left, want 0", n)
	}
	close(s.release)
	running.Wait()
	eventually(t, "both places are free", func() bool {
		return s.metric(t, "slotgate_quota_remaining_ratio", map[string]string{"app": "shop", "policy": "a"}) == 1
	})
}

// Whatever becomes of a request, its place is free afterwards.
func TestPlacesComeBack(t *testing.T) {
	one := of(func(l *acl.Limit) { l.Of, l.PeriodMS, l.Limit = "concurrency", 0, 1 })
	for name, c := range map[string]struct {
		ask  func(*testing.T, scopes)
		more []acl.Limit
	}{
		"after a panic":          {func(t *testing.T, s scopes) { s.asks(t, "GET", "/v1/panic", nil) }, nil},
		"after an unknown route": {func(t *testing.T, s scopes) { s.asks(t, "GET", "/v1/nothing", nil) }, nil},
		"after a wrong method":   {func(t *testing.T, s scopes) { s.asks(t, "DELETE", "/v1/strings/a", nil) }, nil},
		"after a body that is large": {func(t *testing.T, s scopes) {
			s.asks(t, "PUT", "/v1/strings/a", strings.NewReader(strings.Repeat("x", 2000)))
		}, nil},
		"after another limit refused": {func(t *testing.T, s scopes) { s.asks(t, "POST", "/v1/batch/aaa", nil) }, []acl.Limit{perApp("r", 2, time.Hour, 0)}},
		"after a caller that left": {func(t *testing.T, s scopes) {
			ctx, cancel := context.WithCancel(t.Context())
			req, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/v1/wait", nil)
			req.Header.Set("Authorization", "Bearer "+goodKey)
			left := make(chan struct{})
			go func() {
				defer close(left)
				if resp, err := s.Client().Do(req); err == nil {
					resp.Body.Close()
				}
			}()
			<-s.entered
			cancel()
			<-left
			s.release <- struct{}{}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := scoped(t, newClock(), append(c.more, one)...)
			c.ask(t, s)
			eventually(t, "the place is free", func() bool { return s.asks(t, "GET", "/v1/strings/a", nil) == 200 })
		})
	}
}

func TestARefusedRequestTakesNothing(t *testing.T) {
	s := scoped(t, newClock(),
		perApp("requests", 10, time.Hour, 0), of(func(l *acl.Limit) { l.ID, l.Of, l.Limit = "bytes", "bytes", 1000 }),
		of(func(l *acl.Limit) { l.ID, l.Of, l.PeriodMS, l.Limit = "at-once", "concurrency", 0, 5 }), of(func(l *acl.Limit) { l.ID, l.Class, l.Limit = "writes", "*:write", 1 }))
	for range 5 {
		s.asks(t, "PUT", "/v1/strings/a", strings.NewReader("0123456789"))
	}
	a := s.get(t, "/v1/hashes/a")
	// One PUT passed and took 10 bytes, and 12 for its answer; four were refused. This request takes one of each.
	if got := a.header.Get("RateLimit"); got != `"requests";r=8;t=360, "bytes";r=977;t=4, "at-once";r=4` {
		t.Errorf("%d %s", a.status, got)
	}
}

func TestCeilings(t *testing.T) {
	clock := newClock()
	s := scoped(t, clock, perApp("own", 4, time.Hour, 0))
	s.auth["sg_other"], s.auth["sg_moon"] = identity("other"), identity("lunar")
	s.auth["sg_moon"].(*acl.Identity).App.Cluster = "moon"
	ceiling := func(cluster string, n int64) middleware.Ceiling {
		return middleware.Ceiling{Limit: acl.Limit{ID: "top", Per: "app", Of: "requests", Limit: n, PeriodMS: 3_600_000}, Cluster: cluster}
	}
	ask := func(token string) answer { return s.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer "+token) }
	s.cfg.Limiter.Set(middleware.LimiterSettings{Ceilings: []middleware.Ceiling{ceiling("", 2)}})
	if a := ask(goodKey); a.status != 200 || a.header.Get("RateLimit") != `"own";r=3;t=900` {
		t.Errorf("the first: %d, and the headers tell of the app's limits alone: %s", a.status, a.header.Get("RateLimit"))
	}
	if a := ask("sg_moon"); a.status != 200 {
		t.Errorf("the second, of another app and cluster: %d", a.status)
	}
	a := ask("sg_other")
	if a.status != 503 || a.problem(t)["code"] != "overloaded" || a.header.Get("Retry-After") == "" || a.header.Get("RateLimit") != "" {
		t.Errorf("the third: %d %s %v", a.status, a.body, a.header)
	}
	if a := s.do(t, "PUT", "/v1/strings/a", strings.NewReader("x"), "Authorization: Bearer "+goodKey); a.status != 503 || a.problem(t)["outcome"] != "not_applied" || a.header.Get("RateLimit") != `"own";r=3;t=900` {
		t.Errorf("a write: %d %s; it took nothing of the app's: %s", a.status, a.body, a.header.Get("RateLimit"))
	}
	s.cfg.Limiter.Set(middleware.LimiterSettings{Ceilings: []middleware.Ceiling{ceiling("", 4)}})
	if a := ask("sg_other"); a.status != 503 {
		t.Errorf("a ceiling that was raised is as used up as before: %d", a.status)
	}
	clock.advance(15 * time.Minute)
	if a := ask("sg_other"); a.status != 200 {
		t.Errorf("and fills at its new rate: %d", a.status)
	}
	s.cfg.Limiter.Set(middleware.LimiterSettings{Ceilings: []middleware.Ceiling{ceiling("moon", 1)}})
	for i, c := range []struct {
		token string
		want  int
	}{{"sg_moon", 200}, {"sg_moon", 503}, {"sg_other", 200}, {goodKey, 200}} {
		if a := ask(c.token); a.status != c.want {
			t.Errorf("one of the moon alone, step %d: %d, want %d", i, a.status, c.want)
		}
	}
	s.cfg.Limiter.Set(middleware.LimiterSettings{})
	if a := ask("sg_moon"); a.status != 200 {
		t.Errorf("without it: %d", a.status)
	}
}

// A batch that a ceiling refuses in its handler was sent nowhere.
func TestABatchOverACeiling(t *testing.T) {
	s := scoped(t, newClock())
	s.cfg.Limiter.Set(middleware.LimiterSettings{Ceilings: []middleware.Ceiling{{Limit: perApp("top", 2, time.Hour, 0)}}})
	a := batch(t, s.gateway, 3)
	if a.status != 503 || a.problem(t)["outcome"] != "not_applied" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestLimitsCanBeTurnedOff(t *testing.T) {
	s := scoped(t, newClock(), perApp("a", 1, time.Hour, 0))
	for i, step := range []struct {
		off  bool
		want int
	}{{false, 200}, {false, 429}, {true, 200}, {true, 200}, {false, 429}} {
		s.cfg.Limiter.Set(middleware.LimiterSettings{Off: step.off})
		if status := s.asks(t, "GET", "/v1/strings/a", nil); status != step.want {
			t.Errorf("step %d: %d, want %d", i, status, step.want)
		}
	}
}

func TestStateOfTheRevokedGoesAway(t *testing.T) {
	s := scoped(t, newClock(), of(func(l *acl.Limit) { l.Per = "key" }))
	first := s.auth[goodKey].(*acl.Identity)
	second := *first
	second.Key, second.Memo = &acl.Key{ID: "second"}, &acl.Memo{}
	s.auth["sg_second"], s.auth["sg_other"] = &second, identity("other")
	for _, token := range []string{goodKey, "sg_second", "sg_other"} {
		s.do(t, "GET", "/v1/strings/a", nil, "Authorization: Bearer "+token)
	}
	limiter, gone := s.cfg.Limiter, map[string]bool{}
	lives := func(app, key string) bool { return !gone[app] && !gone[key] }
	for _, step := range []struct {
		gone string
		left int
	}{{"nobody", 3}, {"second", 2}, {"other", 1}, {"shop", 0}} {
		gone[step.gone] = true
		if limiter.Keep(lives); limiter.Callers() != step.left {
			t.Errorf("after %s: %d callers are known, want %d", step.gone, limiter.Callers(), step.left)
		}
	}
}

// model is a Redis for the limits that gateways share.
type model struct {
	mu     sync.Mutex
	clock  *fakeClock
	limits map[string]*ratelimit.One
	down   error
}

func newModel(clock *fakeClock) *model {
	return &model{clock: clock, limits: map[string]*ratelimit.One{}}
}

func (m *model) one(l *prepaid.Limit) *ratelimit.One {
	name := l.Cluster + " " + l.Key
	if m.limits[name] == nil {
		m.limits[name] = &ratelimit.One{}
	}
	m.limits[name].Set(l.Rule)
	return m.limits[name]
}

// Take implements prepaid.Redis.
func (m *model) Take(_ context.Context, l *prepaid.Limit, cost, least int64) (ratelimit.Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down != nil {
		return ratelimit.Grant{}, m.down
	}
	return m.one(l).Take(m.clock.now().UnixMicro(), cost, least), nil
}

// Refund implements prepaid.Redis.
func (m *model) Refund(_ context.Context, l *prepaid.Limit, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down == nil {
		m.one(l).Refund(m.clock.now().UnixMicro(), n)
	}
	return m.down
}

// shares makes a gateway share its limits by the model, as one of two.
func (m *model) shares(t testing.TB, s scopes, ceilings ...middleware.Ceiling) *prepaid.Pool {
	pool := prepaid.New(prepaid.Config{Redis: m, Now: s.cfg.Limiter.Now, Gateways: 2, Timeout: time.Minute})
	t.Cleanup(pool.Close)
	s.cfg.Limiter.Set(middleware.LimiterSettings{Shared: pool, Ceilings: ceilings})
	return pool
}

func TestTwoGatewaysShareALimit(t *testing.T) {
	for name, c := range map[string]struct {
		limit  acl.Limit
		passes int
	}{
		"exact":                            {of(func(l *acl.Limit) { l.Mode, l.Limit = "exact", 20 }), 20},
		"prepaid, too small to be split":   {of(func(l *acl.Limit) { l.Limit = 20 }), 20},
		"a fixed window":                   {of(func(l *acl.Limit) { l.Algorithm, l.Limit = "fixed_window", 20 }), 20},
		"a sliding window":                 {of(func(l *acl.Limit) { l.Algorithm, l.Limit = "sliding_window", 20 }), 20},
		"a burst":                          {of(func(l *acl.Limit) { l.Burst, l.Limit = 30, 20 }), 30},
		"of a class":                       {of(func(l *acl.Limit) { l.Class, l.Limit = "strings", 20 }), 20},
		"each gateway alone":               {of(func(l *acl.Limit) { l.Mode, l.Limit = "local", 20 }), 40},
		"each key, which is one in both":   {of(func(l *acl.Limit) { l.Per, l.Limit = "key", 20 }), 20},
		"requests under way, which is not": {of(func(l *acl.Limit) { l.Of, l.PeriodMS, l.Limit = "concurrency", 0, 1 }), 100},
		"bytes: two answered":              {of(func(l *acl.Limit) { l.Of, l.Limit, l.Mode = "bytes", 60, "exact" }), 30},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			redis := newModel(clock)
			first, second := scoped(t, clock, c.limit), scoped(t, clock, c.limit)
			redis.shares(t, first)
			redis.shares(t, second)
			passed := 0
			for i := range 100 {
				s := first
				if i%2 == 1 {
					s = second
				}
				switch status := s.asks(t, "GET", "/v1/strings/a", nil); status {
				case 200:
					passed++
				case 429:
				default:
					t.Fatal(status)
				}
			}
			if slack := c.passes / 10; passed < c.passes-slack || passed > c.passes+slack && c.limit.Of == "bytes" || passed > c.passes && c.limit.Of != "bytes" {
				t.Errorf("%d of 100 passed, want %d", passed, c.passes)
			}
		})
	}
}

// A request that an exact limit refuses gives back what it had of the others, and the other way round.
func TestSharedLimitsAreTakenTogetherOrNotAtAll(t *testing.T) {
	clock := newClock()
	redis := newModel(clock)
	s := scoped(t, clock,
		of(func(l *acl.Limit) { l.ID, l.Mode, l.Limit = "exact", "exact", 10 }), of(func(l *acl.Limit) { l.ID, l.Limit = "whole", 10 }),
		of(func(l *acl.Limit) { l.ID, l.Limit, l.Route, l.Mode = "narrow", 1, "/v1/hashes/:key", "local" }))
	redis.shares(t, s)
	for range 20 {
		s.asks(t, "GET", "/v1/hashes/a", nil) // one passes
	}
	passed := 0
	for range 20 {
		if s.asks(t, "GET", "/v1/strings/a", nil) == 200 {
			passed++
		}
	}
	if passed != 9 {
		t.Errorf("%d passed, want the 9 that are left", passed)
	}
}

func TestWhileTheClusterDoesNotAnswer(t *testing.T) {
	for onError, want := range map[string]string{"open": "200 200 200", "closed": "503 503 503", "local": "200 429 429", "": "200 429 429"} {
		t.Run("on_error "+onError, func(t *testing.T) {
			clock := newClock()
			redis := newModel(clock)
			redis.down = store.NewError(store.CodeClusterDown, "")
			s := scoped(t, clock, of(func(l *acl.Limit) { l.OnError = onError })) // 2, of which one gateway of two has one
			redis.shares(t, s)
			var got []string
			for range 3 {
				a := s.get(t, "/v1/strings/a")
				got = append(got, fmt.Sprint(a.status))
				if a.status == 503 && (a.problem(t)["code"] != "limiter_unavailable" || a.header.Get("Retry-After") == "") {
					t.Error(a.body)
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s, want %s", got, want)
			}
			if n := s.metric(t, "slotgate_quota_unasked_total", map[string]string{"app": "shop", "policy": "a"}); n != 3 {
				t.Errorf("%v decisions without the cluster are counted, want 3", n)
			}
		})
	}
}

// A limit that is edited holds with its new number from the next request of the edited app on.
func TestSharedLimitsFollowEdits(t *testing.T) {
	clock := newClock()
	redis := newModel(clock)
	s := scoped(t, clock, of(func(l *acl.Limit) { l.Mode = "exact" }))
	redis.shares(t, s)
	count := func() (passed int) {
		for range 20 {
			if s.asks(t, "GET", "/v1/strings/a", nil) == 200 {
				passed++
			}
		}
		return passed
	}
	if n := count(); n != 2 {
		t.Errorf("%d passed, want 2", n)
	}
	s.auth[goodKey] = identity("shop", of(func(l *acl.Limit) { l.Mode, l.Limit = "exact", 10 }))
	if n := count(); n > 8 || n < 1 { // what was used stays used, as a share of the bucket or in tokens
		t.Errorf("%d more passed after the limit became 10", n)
	}
	s.auth[goodKey] = identity("shop")
	if n := count(); n != 20 {
		t.Errorf("without a limit %d passed", n)
	}
}
