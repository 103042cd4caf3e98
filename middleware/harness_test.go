package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/middleware"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	goleak.VerifyTestMain(m)
}

const goodKey = "sg_good"

// people is an Authenticator of fixed tokens; any other token is nobody's.
type people map[string]any // *acl.Identity or error

func (p people) Authenticate(token string) (*acl.Identity, error) {
	switch v := p[token].(type) {
	case *acl.Identity:
		return v, nil
	case error:
		return nil, v
	}
	return nil, acl.ErrUnauthenticated
}

func identity(app string, limits ...acl.Limit) *acl.Identity {
	return &acl.Identity{
		App: &acl.App{ID: app, Namespace: app, Limits: limits},
		Key: &acl.Key{ID: "key0" + app, App: app}, Memo: &acl.Memo{},
		Sizes: acl.Sizes{KeyMaxBytes: 1024, ValueMaxBytes: 1024, RequestMaxBytes: 1024,
			ResponseMaxBytes: 4096},
	}
}

func perApp(id string, n int64, period time.Duration, burst int64) acl.Limit {
	return acl.Limit{ID: id, Per: "app", Of: "requests", Limit: n, PeriodMS: period.Milliseconds(), Burst: burst}
}

// fakeClock is a clock that stands until it is moved.
type fakeClock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *fakeClock { return &fakeClock{t: time.Unix(1_800_000_000, 0)} }

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// syncBuffer is a log that handlers write while a test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// gateway is a real server with the whole chain and the routes of the test.
type gateway struct {
	*httptest.Server
	cfg  middleware.Config
	reg  *prometheus.Registry
	log  *syncBuffer
	auth people
}

// start builds it; adjust may change the configuration first, routes adds handlers behind the chain.
func start(t testing.TB, adjust func(*middleware.Config), routes func(public, v1 gin.IRouter)) *gateway {
	t.Helper()
	g := &gateway{reg: prometheus.NewRegistry(), log: &syncBuffer{}, auth: people{
		goodKey:        identity("shop"),
		"sg_suspended": acl.ErrAppSuspended,
		"sg_expired":   acl.ErrAppExpired,
		"sg_early":     acl.ErrNotReady,
	}}
	g.cfg = middleware.Config{
		Log:           slog.New(slog.NewJSONHandler(g.log, nil)),
		Authenticator: g.auth,
		BytesInFlight: middleware.NewBytesInFlight(1 << 20),
		Drain:         &middleware.Drain{},
		AccessLog:     middleware.LogConfig{SampleOneIn: 1, Slow: time.Minute},
	}
	if adjust != nil {
		adjust(&g.cfg)
	}
	g.cfg.Limiter = middleware.NewLimiter(g.cfg.Clock)
	g.cfg.Metrics = middleware.NewMetrics(g.reg, middleware.MetricsConfig{Bytes: g.cfg.BytesInFlight, Limiter: g.cfg.Limiter, Overload: g.cfg.Overload})
	g.Server = httptest.NewUnstartedServer(engine(g.cfg, routes))
	g.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelError)
	g.Start()
	t.Cleanup(g.Close)
	return g
}

func engine(cfg middleware.Config, routes func(public, v1 gin.IRouter)) *gin.Engine {
	global, v1 := middleware.Chain(cfg)
	e := gin.New()
	e.UseEscapedPath, e.UnescapePathValues = true, false
	e.RedirectTrailingSlash, e.RedirectFixedPath, e.HandleMethodNotAllowed = false, false, true
	_ = e.SetTrustedProxies(nil)
	e.Use(global...)
	group := e.Group("/v1", v1...)
	if routes != nil {
		routes(e, group)
	}
	e.NoRoute(middleware.NoRoute(middleware.KeyedPrefixes(e.Routes())))
	e.NoMethod(middleware.NoMethod())
	return e
}

// ok answers 200 with the path parameters, after reading the body.
func ok(c *gin.Context) {
	body, err := io.ReadAll(c.Request.Body)
	if err != nil {
		_ = c.Error(err)
		return
	}
	c.String(http.StatusOK, "%s %s", c.Param("key"), body)
}

func keyRoutes(_, v1 gin.IRouter) {
	v1.GET("/strings/:key", ok)
	v1.PUT("/strings/:key", ok)
	v1.POST("/strings/:key/append", ok)
	v1.GET("/bytes/:key", ok)
	v1.PUT("/keys/:key/ttl", ok)
	v1.GET("/keys", ok)
	v1.POST("/mget", ok)
}

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) problem(t testing.TB) map[string]any {
	t.Helper()
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("status %d: content type %q, body %q", a.status, ct, a.body)
	}
	var p map[string]any
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return p
}

func (a answer) code(t testing.TB) string {
	t.Helper()
	if a.status < 400 {
		return ""
	}
	code, _ := a.problem(t)["code"].(string)
	return code
}

// header is one line of a request, "Name: value".
func (g *gateway) do(t testing.TB, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, g.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	return g.send(t, req)
}

func (g *gateway) send(t testing.TB, req *http.Request) answer {
	t.Helper()
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func (g *gateway) get(t testing.TB, path string, headers ...string) answer {
	t.Helper()
	return g.do(t, http.MethodGet, path, nil, append(headers, "Authorization: Bearer "+goodKey)...)
}

// metric reads one series by its exposition, for example slotgate_x{app="a"}.
func (g *gateway) metric(t testing.TB, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := g.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for k, v := range labels {
				if have[k] != v {
					continue series
				}
			}
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

// eventually polls, because a log line or a count is written just after the answer has gone out.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func prefixes(t testing.TB, cidrs ...string) []netip.Prefix {
	t.Helper()
	var ps []netip.Prefix
	for _, s := range cidrs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}
