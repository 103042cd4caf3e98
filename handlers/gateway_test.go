package handlers_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/tokens"
	"github.com/slotgate/slotgate/handlers"
	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/openapi/openapitest"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/pools"
	"github.com/slotgate/slotgate/store/ratelimit"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	store.LogDriver(slog.New(slog.DiscardHandler))
	clustertest.Main(m,
		// Cools down for 200 ms after a reload and cannot be stopped (go-redis v9.23.0, clusterStateHolder.LazyReload).
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*clusterStateHolder).LazyReload.func1"),
	)
}

// directory is an Authenticator of fixed tokens; any other token is nobody's.
type directory map[string]any // *acl.Identity or error

func (d directory) Authenticate(token string) (*acl.Identity, error) {
	switch v := d[token].(type) {
	case *acl.Identity:
		return v, nil
	case error:
		return nil, v
	}
	return nil, acl.ErrUnauthenticated
}

// gateway is a server with all guards and resources on a real cluster.
type gateway struct {
	*httptest.Server
	people directory
	redis  *redis.ClusterClient // knows nothing of the gateway
	ready  error
	bytes  *middleware.BytesInFlight
	clock  atomic.Int64                   // of the scripts of rate limits and pools, in us; 0 = that of the Redis nodes
	draw   atomic.Pointer[func() float64] // what pools draw, 0 to 1; nil = by chance
	routes gin.RoutesInfo
}

// Sizes of the tests' apps: small, so that going over them is cheap.
var testSizes = acl.Sizes{KeyMaxBytes: 256, ValueMaxBytes: 64 << 10, RequestMaxBytes: 1 << 20, ResponseMaxBytes: 128 << 10}

// start starts a gateway; change may alter the configuration of its store.
func start(t testing.TB, change ...func(*store.Config)) *gateway {
	t.Helper()
	cluster := clustertest.Shared(t)
	cfg := store.Config{
		Clusters:  map[string]store.ClusterConfig{"default": {Addrs: cluster.Addrs()}},
		CursorKey: []byte(strings.Repeat("k", 32)),
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := store.New(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{people: directory{"sg_suspended": acl.ErrAppSuspended, "sg_expired": acl.ErrAppExpired}}
	g.redis = redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	g.Server = httptest.NewServer(g.engine(t, s))
	t.Cleanup(func() {
		g.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_ = g.redis.Close()
	})
	return g
}

func (g *gateway) engine(t testing.TB, s *store.Store) http.Handler {
	registry, limiter := prometheus.NewRegistry(), middleware.NewLimiter(nil)
	inFlight := middleware.NewBytesInFlight(64 << 20)
	g.bytes = inFlight
	global, v1 := middleware.Chain(middleware.Config{
		Log: slog.New(slog.DiscardHandler), Authenticator: g.people, Limiter: limiter, BytesInFlight: inFlight, Drain: &middleware.Drain{},
		Metrics:  middleware.NewMetrics(registry, middleware.MetricsConfig{Bytes: inFlight, Limiter: limiter}),
		Deadline: middleware.DeadlineConfig{Default: 10 * time.Second}, Reads: handlers.Reads,
	})
	e := gin.New()
	e.UseEscapedPath, e.UnescapePathValues, e.HandleMethodNotAllowed = true, false, true
	e.RedirectTrailingSlash, e.RedirectFixedPath = false, false
	e.Use(global...)
	handlers.New(handlers.Config{
		Store: s, Limits: testLimits(s, &g.clock), Pools: g.testPools(s), Commands: store.Command, Tokens: issuer(t), Ready: func(context.Context) error { return g.ready },
	}).Register(e, e.Group("/v1", v1...))
	g.routes = e.Routes()
	e.NoRoute(middleware.NoRoute(middleware.KeyedPrefixes(e.Routes())))
	e.NoMethod(middleware.NoMethod())
	return e
}

// testLimits wait longer for Redis than a gateway does: what a busy machine needs is not what is tested.
func testLimits(s *store.Store, clock *atomic.Int64) *limits.Limits {
	return limits.New(limits.Config{Redis: s, Decide: ratelimit.New(clocked{s, clock}), Timeout: 2 * time.Second})
}

// testPools wait longer too. Their clock and their chance are those of the gateway.
func (g *gateway) testPools(s *store.Store) *pools.Pools {
	return pools.New(pools.Config{Redis: s, Timeout: 2 * time.Second, Clock: g.clock.Load, Draw: func() float64 {
		if draw := g.draw.Load(); draw != nil {
			return (*draw)()
		}
		return rand.Float64()
	}})
}

// clocked gives the script of rate limits a clock, which no request can.
type clocked struct {
	*store.Store
	clock *atomic.Int64
}

func (c clocked) RunLimit(ctx context.Context, id *acl.Identity, access acl.Access, sc *store.Script, keys []string, argv []any) ([]any, error) {
	if now := c.clock.Load(); now != 0 && len(argv) > 0 {
		// The first argument is doubles, and the fourth of them the clock, see ratelimit.lua.
		binary.LittleEndian.PutUint64(argv[0].([]byte)[3*8:], math.Float64bits(float64(now)))
	}
	return c.Store.RunLimit(ctx, id, access, sc, keys, argv)
}

// issuer makes tokens that nobody here can verify: the gateway's people are a fixed list.
func issuer(t testing.TB) *tokens.Issuer {
	t.Helper()
	secret, err := acl.NewSecret([]byte(strings.Repeat("s", 32)))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := tokens.DeriveKeys(tokens.EdDSA, secret)
	if err != nil {
		t.Fatal(err)
	}
	return &tokens.Issuer{Realm: tokens.Realm{Issuer: "slotgate", Audience: "slotgate"}, Keys: keys, Commands: store.Command}
}

var appCount atomic.Int64

// app is one tenant of the gateway, of its own to the test, and a client with its key.
type app struct {
	*gateway
	token    string
	identity *acl.Identity
}

// app makes a tenant; change may alter it first.
func (g *gateway) app(t testing.TB, change ...func(*acl.App)) *app {
	t.Helper()
	a := &acl.App{
		ID: fmt.Sprintf("app%d", appCount.Add(1)), Name: "Test", Layout: acl.Spread, Cluster: "default", State: acl.Active,
		Permissions: []string{"strings:*", "keys:*"}, Sizes: testSizes,
	}
	a.Namespace = a.ID
	for _, f := range change {
		f(a)
	}
	permissions, err := acl.CompilePermissions(a.Permissions)
	if err != nil {
		t.Fatal(err)
	}
	id := &acl.Identity{
		App: a, Key: &acl.Key{ID: "key" + a.ID, App: a.ID, CreatedAt: time.Now()}, Permissions: permissions,
		Prefix: a.Prefix(), Sizes: a.Sizes, CompressMinBytes: 512,
	}
	token := "sg_" + a.ID
	g.people[token] = id
	return &app{g, token, id}
}

// stored is the key as Redis has it.
func (a *app) stored(key string) string { return a.identity.Prefix + key }

// answer is a response, read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// call sends one request. A header is a line "Name: value". The path is sent as it is written.
func (a *app) call(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, a.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	if body != "" && (strings.HasPrefix(body, "{") || strings.HasPrefix(body, "[")) {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if value == "" {
			req.Header.Del(name)
		} else {
			req.Header.Set(name, value)
		}
	}
	return a.send(t, req)
}

func (g *gateway) send(t testing.TB, req *http.Request) answer {
	t.Helper()
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	openapitest.Check(t, req, resp, body)
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// want fails unless the answer has the status, and gives its body as JSON.
func (r answer) want(t testing.TB, status int) map[string]any {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	if r.body == "" || !strings.Contains(r.header.Get("Content-Type"), "json") {
		return nil
	}
	var m map[string]any
	d := json.NewDecoder(strings.NewReader(r.body))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%v in %s", err, r.body)
	}
	return m
}

// wantBody fails unless the answer is a 200 with this JSON.
func (r answer) wantBody(t testing.TB, body string) {
	t.Helper()
	if r.status != http.StatusOK || r.body != body {
		t.Fatalf("status %d, %s; want %s", r.status, r.body, body)
	}
}

// refused fails unless the answer is a problem of the code that points at the place; "" is no place.
func (r answer) refused(t testing.TB, status int, code, pointer string) {
	t.Helper()
	m := r.want(t, status)
	if m["code"] != code {
		t.Fatalf("code %v, want %s: %s", m["code"], code, r.body)
	}
	if pointer == "" {
		return
	}
	list, _ := m["errors"].([]any)
	for _, e := range list {
		if e.(map[string]any)["pointer"] == pointer {
			return
		}
	}
	t.Fatalf("points at %v, want %s", list, pointer)
}

// octets calls a door that takes and gives bytes.
func (a *app) octets(t testing.TB, method, path string, body []byte, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, a.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return a.send(t, req)
}

// keys lists all keys of the app, as a foreign client sees them, without the prefix.
func (a *app) keys(t testing.TB) []string {
	t.Helper()
	var keys []string
	cursor := ""
	for {
		page := a.call(t, "GET", "/v1/keys?limit=1000&key_encoding=base64url"+cursor, "").want(t, 200)
		for _, item := range page["items"].([]any) {
			keys = append(keys, unbase64(t, item.(map[string]any)["key_base64url"].(string)))
		}
		next, more := page["next_cursor"].(string)
		if !more {
			return keys
		}
		cursor = "&cursor=" + url.QueryEscape(next)
	}
}

// chunked sends a body whose length is not told.
func (a *app) chunked(t testing.TB, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, a.URL+path, io.NopCloser(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return a.send(t, req)
}

// wire sends a request as it is written, byte for byte, and reads the answer. It is for what no client library would send.
func (g *gateway) wire(t testing.TB, request string) answer { return g.exchange(t, request, false) }

// cut is wire for a client that sends no more, though it said it would.
func (g *gateway) cut(t testing.TB, request string) answer { return g.exchange(t, request, true) }

func (g *gateway) exchange(t testing.TB, request string, leave bool) answer {
	t.Helper()
	conn, err := net.Dial("tcp", g.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if leave {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// line is a request without a body, its target exactly as given.
func (a *app) line(method, target string) string {
	return method + " " + target + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + a.token + "\r\n\r\n"
}
