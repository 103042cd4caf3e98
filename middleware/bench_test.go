package middleware_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store/prepaid"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// discard is a ResponseWriter that costs nothing, used again for every request.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func benchmarkEngine(b *testing.B, e http.Handler) {
	b.Helper()
	w := &discard{h: http.Header{}}
	req := &http.Request{
		Method: "GET", URL: &url.URL{Path: "/v1/strings/user:1"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Authorization": {"Bearer " + goodKey}}, Body: http.NoBody, RemoteAddr: "192.0.2.1:4711",
	}
	fresh := *req
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		*req = fresh // the chain leaves its state in it
		e.ServeHTTP(w, req)
	}
}

func benchmarkGuards(b *testing.B, guards ...gin.HandlerFunc) {
	b.Helper()
	e := gin.New()
	e.GET("/v1/strings/:key", append(guards, func(*gin.Context) {})...)
	benchmarkEngine(b, e)
}

func BenchmarkBareGin(b *testing.B) { benchmarkGuards(b) }

func BenchmarkChain(b *testing.B) {
	for name, limits := range map[string][]acl.Limit{
		"unlimited": nil,
		"limited":   {perApp("app-rps", 1_000_000_000, time.Second, 1_000_000_000)},
	} {
		b.Run(name, func(b *testing.B) { benchmarkEngine(b, benchChain(people{goodKey: identity("shop", limits...)})) })
	}
	b.Run("unguarded", func(b *testing.B) { // the difference to "unlimited" is what the guard against overload costs
		benchmarkEngine(b, guardedChain(people{goodKey: identity("shop")}, middleware.NewLimiter(nil), nil))
	})
	for name, limits := range map[string][]acl.Limit{
		"shared unlimited": nil,
		"shared":           {perApp("app-rps", 1_000_000_000, time.Second, 1_000_000_000)},
		"shared of a route": {
			of(func(l *acl.Limit) { l.Limit, l.PeriodMS, l.Route = 1_000_000_000, 1000, "/v1/strings/:key" }),
		},
		"shared requests, bytes and concurrency": {
			perApp("app-rps", 1_000_000_000, time.Second, 1_000_000_000),
			of(func(l *acl.Limit) { l.ID, l.Of, l.Limit, l.PeriodMS = "bytes", "bytes", 1_000_000_000, 1000 }),
			of(func(l *acl.Limit) { l.ID, l.Of, l.Limit, l.PeriodMS = "at-once", "concurrency", 1_000_000_000, 0 }),
		},
	} {
		b.Run(name, func(b *testing.B) {
			limiter := middleware.NewLimiter(nil)
			pool := prepaid.New(prepaid.Config{Redis: generous{}, Now: limiter.Now, Timeout: time.Minute})
			defer pool.Close()
			limiter.Set(middleware.LimiterSettings{Shared: pool})
			benchmarkEngine(b, chainOf(people{goodKey: identity("shop", limits...)}, limiter))
		})
	}
}

// generous is a Redis that gives whatever is asked.
type generous struct{}

func (generous) Take(_ context.Context, l *prepaid.Limit, cost, _ int64) (ratelimit.Grant, error) {
	return ratelimit.Grant{Granted: cost, Remaining: l.Rule.Limit, Reset: time.Second}, nil
}

func (generous) Refund(context.Context, *prepaid.Limit, int64) error { return nil }

// One allocation carries the whole request (see request).
func TestTheChainAllocatesOnce(t *testing.T) {
	e := benchChain(people{goodKey: identity("shop", perApp("app-rps", 1_000_000_000, time.Second, 1_000_000_000))})
	w := &discard{h: http.Header{}}
	req := &http.Request{
		Method: "GET", URL: &url.URL{Path: "/v1/strings/user:1"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Authorization": {"Bearer " + goodKey}}, Body: http.NoBody, RemoteAddr: "192.0.2.1:4711",
	}
	fresh := *req
	serve := func() {
		clear(w.h)
		*req = fresh // the chain leaves its state in it
		e.ServeHTTP(w, req)
	}
	serve() // makes what is kept
	if n := testing.AllocsPerRun(1000, serve); n < 1 || n > 1+forgotten {
		t.Errorf("%v allocations", n)
	}
}

// Each request is another app's, so what is kept of an app is out of the nearer caches.
func BenchmarkChainOfManyApps(b *testing.B) {
	many := make(people, 10_000)
	var keys []string
	for i := range 10_000 {
		key := fmt.Sprintf("sg_%05d", i)
		keys, many[key] = append(keys, "Bearer "+key), identity(fmt.Sprintf("app-%05d", i), perApp("app-rps", 1_000_000_000, time.Second, 1_000_000_000))
	}
	e := benchChain(many)
	w := &discard{h: http.Header{}}
	values := []string{""}
	req := &http.Request{
		Method: "GET", URL: &url.URL{Path: "/v1/strings/user:1"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Authorization": values}, Body: http.NoBody, RemoteAddr: "192.0.2.1:4711",
	}
	fresh := *req
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		clear(w.h)
		*req = fresh
		values[0] = keys[i*7919%len(keys)]
		e.ServeHTTP(w, req)
	}
}

func benchChain(auth people) http.Handler { return chainOf(auth, middleware.NewLimiter(nil)) }

func chainOf(auth people, limiter *middleware.Limiter) http.Handler {
	return guardedChain(auth, limiter, middleware.NewOverload(middleware.OverloadConfig{}))
}

// guardedChain is the chain with a guard against overload, or with none.
func guardedChain(auth people, limiter *middleware.Limiter, overload *middleware.Overload) http.Handler {
	bytes := middleware.NewBytesInFlight(1 << 30)
	if overload != nil {
		overload.Feel(middleware.Pressure{}) // as a gateway that runs
	}
	return engine(middleware.Config{
		Log:           slog.New(slog.NewJSONHandler(io.Discard, nil)),
		Authenticator: auth,
		Metrics:       middleware.NewMetrics(prometheus.NewRegistry(), middleware.MetricsConfig{Bytes: bytes, Limiter: limiter, Overload: overload}),
		Limiter:       limiter,
		Overload:      overload,
		BytesInFlight: bytes,
		Drain:         &middleware.Drain{},
		AccessLog:     middleware.LogConfig{SampleOneIn: 1000, Slow: time.Second},
	}, func(_, v1 gin.IRouter) { v1.GET("/strings/:key", func(*gin.Context) {}) })
}

// What a refusal costs besides net/http's part: it must be cheap when there are many.
func BenchmarkRefusalOfAFullGateway(b *testing.B) {
	overload := middleware.NewOverload(middleware.OverloadConfig{MemoryMax: 1})
	overload.Feel(middleware.Pressure{Memory: 1})
	limiter := middleware.NewLimiter(nil)
	e := engine(middleware.Config{
		Log:           slog.New(slog.NewJSONHandler(io.Discard, nil)),
		Authenticator: people{goodKey: identity("shop")},
		Metrics:       middleware.NewMetrics(prometheus.NewRegistry(), middleware.MetricsConfig{}),
		Limiter:       limiter,
		Overload:      overload,
		BytesInFlight: middleware.NewBytesInFlight(1 << 30),
		Drain:         &middleware.Drain{},
		AccessLog:     middleware.LogConfig{SampleOneIn: 1000, Slow: time.Second, FailuresPerS: 10},
	}, func(_, v1 gin.IRouter) { v1.GET("/strings/:key", func(*gin.Context) { b.Fatal("served") }) })
	benchmarkEngine(b, e)
}
