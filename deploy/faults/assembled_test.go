package faults

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/tokens"
	"github.com/slotgate/slotgate/handlers"
	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
)

// assembly says how to make a gateway inside this program, for what a process cannot be given: another clock, a way to the nodes or to
// the control store that has faults. Zero fields mean what the program does by default.
type assembly struct {
	addrs    []string
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	redis    store.RedisConfig
	deadline time.Duration
	clock    func() time.Time
	limits   []acl.Limit // of the one app
	storage  acl.Storage // nil: one app and one key, which the assembled gateway has
}

// assembled is such a gateway, put together from the same parts as the program's.
type assembled struct {
	host, key string
	registry  *prometheus.Registry
}

// testSecret is the gateways'.
func testSecret(t *testing.T) acl.Secret {
	t.Helper()
	secret, err := acl.NewSecret([]byte(strings.Repeat("s", 32)))
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// assemble starts a gateway that ends with the test.
func assemble(t *testing.T, o assembly) *assembled {
	t.Helper()
	if o.clock == nil {
		o.clock = time.Now
	}
	g := &assembled{registry: prometheus.NewRegistry()}
	secret, log := testSecret(t), slog.New(slog.DiscardHandler)
	if o.storage == nil {
		o.storage, g.key = oneApp(t, secret, o)
	}
	directory := acl.NewDirectory(o.storage, secret, acl.Defaults{Sizes: acl.Sizes{
		KeyMaxBytes: 1024, ValueMaxBytes: 1 << 20, RequestMaxBytes: 8 << 20, ResponseMaxBytes: 16 << 20,
	}}, log, o.clock)
	if err := directory.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	followed := make(chan error, 1)
	go func() { followed <- directory.Run(ctx) }()
	s, err := store.New(store.Config{
		Clusters: map[string]store.ClusterConfig{"default": {Addrs: o.addrs, Dialer: o.dial}},
		Redis:    o.redis, CursorKey: secret.Sub(acl.LabelCursorMAC),
	}, g.registry, log)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.engine(t, o, s, directory, secret))
	g.host = strings.TrimPrefix(server.URL, "http://")
	t.Cleanup(func() {
		server.Close()
		cancel()
		if err := <-followed; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *assembled) engine(t *testing.T, o assembly, s *store.Store, directory *acl.Directory, secret acl.Secret) http.Handler {
	t.Helper()
	keys, err := tokens.DeriveKeys(tokens.EdDSA, secret)
	if err != nil {
		t.Fatal(err)
	}
	realm, log := tokens.Realm{Issuer: "slotgate", Audience: "slotgate"}, slog.New(slog.DiscardHandler)
	verifier, err := tokens.NewVerifier(tokens.VerifierConfig{Directory: directory, Realm: realm, Keys: keys, Log: log, Now: o.clock})
	if err != nil {
		t.Fatal(err)
	}
	limiter, bytes := middleware.NewLimiter(o.clock), middleware.NewBytesInFlight(256<<20)
	global, v1 := middleware.Chain(middleware.Config{
		Log: log, Authenticator: verifier, Limiter: limiter, BytesInFlight: bytes, Drain: &middleware.Drain{}, Clock: o.clock,
		Metrics:  middleware.NewMetrics(g.registry, middleware.MetricsConfig{Bytes: bytes, Limiter: limiter}),
		Deadline: middleware.DeadlineConfig{Default: o.deadline}, Throttle: middleware.ThrottleConfig{Failures: 100, Period: time.Minute},
	})
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.UseEscapedPath, e.UnescapePathValues = true, false
	e.Use(global...)
	handlers.New(handlers.Config{
		Store: s, Commands: store.Command, Now: o.clock,
		Tokens: &tokens.Issuer{Realm: realm, Keys: keys, Commands: store.Command, Now: o.clock},
	}).Register(e, e.Group("/v1", v1...))
	return e
}

// oneApp is a storage of the app that all scenarios call as, and the key that opens it.
func oneApp(t *testing.T, secret acl.Secret, o assembly) (acl.Storage, string) {
	t.Helper()
	token, key, err := acl.NewKey(secret, namespace, o.clock(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	app := acl.App{ID: namespace, Namespace: namespace, Cluster: "default", Permissions: []string{"*"}, Limits: o.limits}.WithDefaults()
	return fixedApps{&acl.Set{
		Version: "1", Apps: map[string]*acl.App{app.ID: &app}, Keys: map[string]*acl.Key{key.ID: key}, Clusters: map[string]*acl.Cluster{},
	}}, token
}

// fixedApps is a storage that never changes.
type fixedApps struct{ set *acl.Set }

func (f fixedApps) Load(context.Context) (*acl.Set, error)            { return f.set, nil }
func (f fixedApps) Watch(ctx context.Context, _ func()) error         { <-ctx.Done(); return nil }
func (f fixedApps) Apply(context.Context, acl.Change) error           { return acl.ErrReadOnly }
func (f fixedApps) Touch(context.Context, map[string]time.Time) error { return nil }

// caller is a client with the gateway's key.
func (g *assembled) caller(t *testing.T) *caller { return g.callerWith(t, g.key) }

// callerWith is a client with another key or token.
func (g *assembled) callerWith(t *testing.T, credential string) *caller {
	return newCaller(t, "http://"+g.host, credential)
}

// load returns clients of the gateway with a ledger of their own.
func (g *assembled) load(clients int) *load {
	return &load{ledger: newLedger(), token: g.key, target: func() string { return g.host }, clients: clients}
}

// metric sums the samples of a metric that have all of the labels, each "name=value".
func (g *assembled) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := g.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	samples:
		for _, m := range f.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetName()+"="+l.GetValue()] = true
			}
			for _, l := range labels {
				if !has[l] {
					continue samples
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// redisOf is a client of a cluster that knows nothing of gateways, with go-redis' defaults.
func redisOf(t *testing.T, c *localcluster.Cluster) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
