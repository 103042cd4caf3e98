package main

import (
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/tokens"
	"github.com/slotgate/slotgate/cmd/slotgate/falcon"
	"github.com/slotgate/slotgate/handlers"
	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/pools"
	"github.com/slotgate/slotgate/store/prepaid"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// gateway is all parts of a running gateway. newGateway starts nothing that close does not end.
type gateway struct {
	cfg    Config
	log    *slog.Logger
	certs  *certificates
	reload *reloader
	alerts *alertThresholds
	bytes  *middleware.BytesInFlight
	// connections bounds those of clients.
	connections *connections
	directory   *acl.Directory
	issuer      *tokens.Issuer
	verifier    *tokens.Verifier
	store       *store.Store
	limiter     *middleware.Limiter
	overload    *middleware.Overload
	allowances  *prepaid.Pool // this gateway's part of the limits that all share
	pools       *pools.Pools
	drain       middleware.Drain
	readiness   *readiness
	push        *falcon.Pusher
	tracing     *tracing // nil: off
	// configured are the clusters of the configuration, which go before stored ones.
	configured map[string]store.ClusterConfig
	api        *http.Server
	admin      *http.Server

	closeControl func() error
}

// newGateway makes the gateway of a configuration.
func newGateway(cfg Config, log *slog.Logger) (*gateway, error) {
	redisLog.use(log)
	certs, err := newCertificates(cfg, log, time.Now)
	if err != nil {
		return nil, err
	}
	storage, closeControl, err := openStorage(cfg, certs, log)
	if err != nil {
		return nil, err
	}
	return newGatewayOn(cfg, log, certs, storage, closeControl)
}

// newGatewayOn builds store → acl → handlers → servers, each from what was built before, on a storage of apps and keys, which it closes
// when it fails.
func newGatewayOn(cfg Config, log *slog.Logger, certs *certificates, storage acl.Storage, closeControl func() error) (*gateway, error) {
	secret, err := acl.LoadSecret(cfg.SecretFile)
	if err != nil {
		return nil, errors.Join(err, closeControl())
	}
	g := &gateway{cfg: cfg, log: log, certs: certs, closeControl: closeControl, bytes: middleware.NewBytesInFlight(cfg.Limits.BytesInFlight)}
	g.overload = newOverload(cfg.Overload)
	registry := newRegistry()
	g.connections = newConnections(cfg, registry)
	g.alerts = newAlertThresholds(cfg.Alerts)
	registry.MustRegister(certificateExpiry{g.certs}, g.alerts)
	g.reload = newReloader(g, registry)
	if g.configured, err = configuredClusters(cfg, g.certs); err != nil {
		return nil, errors.Join(err, closeControl())
	}
	if g.store, err = openStore(cfg, g.configured, secret, registry, log); err != nil {
		return nil, errors.Join(err, closeControl())
	}
	g.directory = acl.NewDirectory(storage, secret, directoryDefaults(cfg), log, time.Now)
	registry.MustRegister(directoryMetrics{g.directory})
	if g.push, err = newPusher(cfg.Push, registry, log); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if err := g.makeTokens(secret); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if g.tracing, err = newTracing(log); err != nil {
		return nil, errors.Join(err, g.close())
	}
	g.directory.OnClusters(g.followClusters)
	g.readiness = newReadiness(g.directory, g.store, &g.drain, g.log)
	g.api = g.newAPIServer(registry)
	g.admin = g.newAdminServer(registry)
	return g, nil
}

// close ends connections, after run has returned.
func (g *gateway) close() error {
	g.tracing.close(g.log)
	if g.allowances != nil {
		g.allowances.Close() // while there is a store to give back to
	}
	return errors.Join(g.closeControl(), g.store.Close())
}

// newRegistry holds what describes the process; the packages add their own.
func newRegistry() *prometheus.Registry {
	b := readBuildInfo()
	info := metric.BuildInfo.NewGaugeVec()
	info.WithLabelValues(b.Version, b.Revision, b.Go).Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// openStore makes the store that serves the apps' data. It connects on first use.
func openStore(cfg Config, clusters map[string]store.ClusterConfig, secret acl.Secret, registry prometheus.Registerer, log *slog.Logger) (*store.Store, error) {
	var others [][]byte
	for _, other := range secret.Others() {
		others = append(others, other.Sub(acl.LabelCursorMAC))
	}
	return store.New(store.Config{
		Clusters: clusters,
		Redis: store.RedisConfig{
			PoolSize:         cfg.Redis.PoolSize,
			PipelinePoolSize: cfg.Redis.PipelinePoolSize,
			PoolTimeout:      milliseconds(cfg.Redis.PoolTimeoutMS),
			DialTimeout:      milliseconds(cfg.Redis.DialTimeoutMS),
			ReadTimeout:      milliseconds(cfg.Redis.ReadTimeoutMS),
			WriteTimeout:     milliseconds(cfg.Redis.WriteTimeoutMS),
			TopologyReload:   milliseconds(cfg.Redis.TopologyReloadMS),
		},
		Retries: store.Retries{
			Read: orNone(cfg.Retries.Read), Write: orNone(cfg.Retries.Write), BudgetPercent: orNone(cfg.Retries.BudgetPercent),
		},
		Circuit: store.CircuitConfig{
			OpenAfter: milliseconds(orNone(cfg.Redis.CircuitOpenMS)),
			Probe:     milliseconds(cfg.Redis.CircuitProbeMS),
			Dials:     cfg.Redis.MaxDials,
		},
		Coalesce: store.CoalesceConfig{Off: cfg.Coalesce.Off, MaxBatch: cfg.Coalesce.MaxBatch, MaxQueued: cfg.Coalesce.MaxQueued},
		Overload: store.OverloadConfig{
			Off: !cfg.Overload.Enabled, Initial: cfg.Overload.ShardInitial, Min: cfg.Overload.ShardMin, Max: cfg.Overload.ShardMax,
		},
		Durability: store.DurabilityConfig{
			Replicas:    cfg.Durability.Replicas,
			ReplicaWait: milliseconds(cfg.Durability.ReplicaWaitMS),
			FsyncWait:   milliseconds(cfg.Durability.FsyncWaitMS),
		},
		Replicas: store.ReplicaReadsConfig{Off: !cfg.Replicas.Enabled, Within: milliseconds(cfg.Replicas.MaxStalenessMS)},
		Batch: store.BatchConfig{
			Chunk: cfg.Batch.Chunk, PerRequest: cfg.Batch.ParallelPerRequest, PerNode: cfg.Batch.ParallelPerNode,
		},
		NodePoll:        milliseconds(cfg.Metrics.RedisPollMS),
		RecordTTL:       recordTTL(cfg.Limits),
		CursorKey:       secret.Sub(acl.LabelCursorMAC),
		OtherCursorKeys: others,
	}, registry, log)
}

func recordTTL(l Limits) time.Duration { return time.Duration(l.IdempotencyTTLS) * time.Second }

// openLimits makes the rate limits that apps define, on the clusters of the store. They are shared by as many gateways as those of apps are.
func openLimits(cfg Config, s *store.Store, gateways func(cluster string) int, registry prometheus.Registerer, log *slog.Logger) *limits.Limits {
	decide := ratelimit.New(s)
	decide.Log = log
	return limits.New(limits.Config{
		Redis:    s,
		Decide:   decide,
		Timeout:  milliseconds(cfg.RateLimits.TimeoutMS),
		Gateways: gateways,
		Blocked:  milliseconds(cfg.RateLimits.BlockedMS),
		Log:      log,
		Registry: registry,
	})
}

// openPools makes the pools that apps define, on the clusters of the store.
func openPools(cfg Config, s *store.Store, registry prometheus.Registerer, log *slog.Logger) *pools.Pools {
	return pools.New(pools.Config{
		Redis:    s,
		Timeout:  milliseconds(cfg.Pools.TimeoutMS),
		Members:  cfg.Pools.MemberSeries,
		Log:      log,
		Registry: registry,
	})
}

// orNone says "none" as the store wants it: there 0 is its default.
func orNone(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

func directoryDefaults(cfg Config) acl.Defaults {
	return acl.Defaults{
		Sizes: acl.Sizes{
			KeyMaxBytes:      cfg.Limits.KeyMaxBytes,
			ValueMaxBytes:    cfg.Limits.ValueMaxBytes,
			RequestMaxBytes:  cfg.Limits.RequestMaxBytes,
			ResponseMaxBytes: cfg.Limits.ResponseMaxBytes,
		},
		CompressMinBytes: cfg.CompressMinBytes,
	}
}

// makeTokens makes what makes tokens and what verifies them.
func (g *gateway) makeTokens(secret acl.Secret) error {
	keys, err := tokens.DeriveKeys(g.cfg.JWT.Algorithm, secret, secret.Others()...)
	if err != nil {
		return err
	}
	realm := tokens.Realm{Issuer: g.cfg.JWT.Issuer, Audience: g.cfg.JWT.Audience}
	g.issuer = &tokens.Issuer{Realm: realm, Keys: keys, Commands: store.Command}
	g.verifier, err = tokens.NewVerifier(tokens.VerifierConfig{
		Directory: g.directory, Realm: realm, Keys: keys, Trusted: g.cfg.JWT.trustedIssuers(), Log: g.log,
	})
	return err
}

// newAPIHandler puts the guards before the resources.
func (g *gateway) newAPIHandler(registry prometheus.Registerer) http.Handler {
	settings := liveSettings(g.cfg)
	limiter := middleware.NewLimiter(nil)
	g.limiter = limiter
	limiter.LimitRecords(int64(g.cfg.Limits.IdempotencyRecordsPerS))
	g.allowances = prepaid.New(prepaid.Config{
		Redis:    prepaid.NewRedis(g.store),
		Timeout:  milliseconds(g.cfg.RateLimits.TimeoutMS),
		Gateways: g.cfg.RateLimits.Gateways,
		Now:      limiter.Now,
		Log:      g.log,
	})
	limiter.Set(limiterSettings(g.cfg, g.allowances))
	global, v1 := middleware.Chain(middleware.Config{
		Log:            g.log,
		Authenticator:  g.verifier,
		Metrics:        middleware.NewMetrics(registry, middleware.MetricsConfig{Bytes: g.bytes, Limiter: limiter, Overload: g.overload}),
		Limiter:        limiter,
		BytesInFlight:  g.bytes,
		Drain:          &g.drain,
		Overload:       g.overload,
		Tracer:         g.tracing.tracer(),
		Reads:          handlers.Reads,
		Classes:        handlers.Class,
		AccessLog:      settings.AccessLog,
		Deadline:       settings.Deadline,
		Live:           &g.reload.live,
		Throttle:       throttle(g.cfg.Auth),
		TrustedProxies: prefixes(g.cfg.TrustedProxies),
	})
	engine := newEngine()
	engine.Use(global...)
	g.pools = openPools(g.cfg, g.store, registry, g.log)
	resources := handlers.Config{
		Store: g.store, Limits: openLimits(g.cfg, g.store, g.allowances.Gateways, registry, g.log), Pools: g.pools,
		MaxBatchKeys: g.cfg.Batch.MaxKeys, Commands: store.Command, Tokens: g.issuer,
	}
	if g.cfg.ReadyzOnAPI {
		resources.Ready = g.readiness.ready
	}
	handlers.New(resources).Register(engine, engine.Group("/v1", v1...))
	engine.NoRoute(middleware.NoRoute(middleware.KeyedPrefixes(engine.Routes())))
	engine.NoMethod(middleware.NoMethod())
	return engine
}

// liveSettings are those of the guards that a reload changes.
func liveSettings(cfg Config) middleware.Settings {
	return middleware.Settings{
		AccessLog: middleware.LogConfig{SampleOneIn: cfg.Log.Sample, Slow: milliseconds(cfg.Log.SlowMS), FailuresPerS: cfg.Log.FailuresPerS},
		Deadline: middleware.DeadlineConfig{
			Default: milliseconds(cfg.Limits.DeadlineMS), Body: milliseconds(cfg.HTTP.BodyTimeoutMS),
			BodyRate: int64(cfg.HTTP.BodyMinBytesPerS),
		},
	}
}

// newEngine is a router that takes the path as it was sent: with Gin's defaults /v1/keys/a%2Fttl would be the TTL of
// "a", "+" a space, and X-Forwarded-For anybody's word.
func newEngine() *gin.Engine {
	gin.SetMode(gin.ReleaseMode) // otherwise it prints its routes to stdout
	engine := gin.New()
	engine.UseEscapedPath = true
	engine.UnescapePathValues = false
	engine.RedirectTrailingSlash = false
	engine.RedirectFixedPath = false
	engine.HandleMethodNotAllowed = true
	engine.ForwardedByClientIP = false
	_ = engine.SetTrustedProxies(nil) // fails only for a bad CIDR
	return engine
}

// throttle turns a rate and a burst into the bucket that has both.
func throttle(cfg Auth) middleware.ThrottleConfig {
	return middleware.ThrottleConfig{
		Failures: int64(cfg.Burst),
		Period:   time.Minute * time.Duration(cfg.Burst) / time.Duration(cfg.FailuresPerMinute),
	}
}

// prefixes parses what Validate has looked at.
func prefixes(list []string) []netip.Prefix {
	var parsed []netip.Prefix
	for _, text := range list {
		if p, err := netip.ParsePrefix(text); err == nil {
			parsed = append(parsed, p)
		}
	}
	return parsed
}
