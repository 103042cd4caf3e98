package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
)

// traceWith starts a gateway whose spans are kept.
func traceWith(t *testing.T, sampler sdktrace.Sampler, routes func(public, v1 gin.IRouter)) (*gateway, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sampler))
	return start(t, func(c *middleware.Config) { c.Tracer = provider.Tracer("test") }, routes), spans
}

// ended waits for n spans.
func ended(t *testing.T, spans *tracetest.SpanRecorder, n int) []sdktrace.ReadOnlySpan {
	t.Helper()
	eventually(t, fmt.Sprint(n, " spans have ended"), func() bool { return len(spans.Ended()) >= n })
	return spans.Ended()
}

func attributes(s sdktrace.ReadOnlySpan) map[string]string {
	m := map[string]string{}
	for _, a := range s.Attributes() {
		m[string(a.Key)] = a.Value.Emit()
	}
	return m
}

func wantAttributes(t *testing.T, s sdktrace.ReadOnlySpan, want map[string]string) {
	t.Helper()
	got := attributes(s)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %s is %q, want %q", s.Name(), k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s has %v, want %v", s.Name(), got, want)
	}
}

const (
	theirTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	theirSpan   = "00f067aa0ba902b7"
	traceparent = "traceparent: 00-" + theirTrace + "-" + theirSpan + "-01"
)

func TestTraceContext(t *testing.T) {
	const goesOn, begins = true, false
	for name, c := range map[string]struct {
		goesOn  bool
		headers []string
	}{
		"a good one is gone on with":                {goesOn, []string{traceparent}},
		"so is one of a later version":              {goesOn, []string{"traceparent: 01-" + theirTrace + "-" + theirSpan + "-01-more"}},
		"and one with a malformed tracestate":       {goesOn, []string{traceparent, "tracestate: =;,"}},
		"without one a trace begins":                {begins, nil},
		"with a tracestate alone too":               {begins, []string{"tracestate: a=b"}},
		"two are none":                              {begins, []string{traceparent, traceparent}},
		"an empty one is none":                      {begins, []string{"traceparent: "}},
		"one without a trace is none":               {begins, []string{"traceparent: 00-" + strings.Repeat("0", 32) + "-" + theirSpan + "-01"}},
		"one without a parent is none":              {begins, []string{"traceparent: 00-" + theirTrace + "-0000000000000000-01"}},
		"one in capitals is none":                   {begins, []string{"traceparent: 00-" + strings.ToUpper(theirTrace) + "-" + theirSpan + "-01"}},
		"one that is too long is none":              {begins, []string{traceparent + "-01"}},
		"one that is too short is none":             {begins, []string{traceparent[:len(traceparent)-1]}},
		"one that is not hexadecimal is none":       {begins, []string{"traceparent: 00-" + theirTrace[:31] + "x-" + theirSpan + "-01"}},
		"one of the version that cannot be is none": {begins, []string{"traceparent: ff-" + theirTrace + "-" + theirSpan + "-01"}},
		"nonsense is none":                          {begins, []string{"traceparent: ';DROP TABLE traces"}},
		"much nonsense is none":                     {begins, []string{"traceparent: " + strings.Repeat("-", 8000)}},
	} {
		t.Run(name, func(t *testing.T) {
			g, spans := traceWith(t, sdktrace.AlwaysSample(), keyRoutes)
			if a := g.get(t, "/v1/strings/a", c.headers...); a.status != 200 {
				t.Fatalf("status %d", a.status)
			}
			s := ended(t, spans, 1)[0]
			if on := s.SpanContext().TraceID().String() == theirTrace && s.Parent().SpanID().String() == theirSpan && s.Parent().IsRemote(); on != c.goesOn {
				t.Errorf("goes on: %v; parent %v", on, s.Parent())
			}
			if !s.SpanContext().TraceID().IsValid() || !c.goesOn && s.Parent().IsValid() {
				t.Errorf("trace %v, parent %v", s.SpanContext().TraceID(), s.Parent())
			}
		})
	}
}

func TestTracestateIsPassedOn(t *testing.T) {
	g, spans := traceWith(t, sdktrace.AlwaysSample(), keyRoutes)
	g.get(t, "/v1/strings/a", traceparent, "tracestate: vendor=opaque,other=1")
	if got := ended(t, spans, 1)[0].SpanContext().TraceState().String(); got != "vendor=opaque,other=1" {
		t.Errorf("tracestate %q", got)
	}
}

// told is a handler that sends nothing to Redis, but tells the observer what it would have sent.
func told(sent ...store.Sent) gin.HandlerFunc {
	return func(c *gin.Context) {
		_, _ = io.ReadAll(c.Request.Body)
		o, ok := c.Request.Context().Value(store.ObserverKey()).(store.Observer)
		for _, s := range sent {
			if ok {
				o.Sent(s)
			}
		}
		c.String(200, "hello")
	}
}

func TestSpansOfARequest(t *testing.T) {
	at := time.Now()
	g, spans := traceWith(t, sdktrace.AlwaysSample(), func(_, v1 gin.IRouter) {
		v1.PUT("/strings/:key", told(
			store.Sent{Cluster: "default", Node: "10.0.0.1:6379", Command: "SET", Commands: 1, Start: at, End: at.Add(time.Millisecond)},
			store.Sent{Cluster: "default", Replica: true, Command: "GET", Commands: 50, Start: at, End: at.Add(2 * time.Millisecond)},
			store.Sent{Cluster: "default", Command: "GET", Commands: 1, Start: at, End: at.Add(time.Second), Code: store.CodeWrongType, RedisError: "WRONGTYPE"},
			store.Sent{Cluster: "default", Command: "GET", Commands: 1, Start: at, End: at, Code: store.CodeBackendTimeout},
		))
	})
	g.do(t, "PUT", "/v1/strings/canary-key?q=canary", strings.NewReader("canary"), "Authorization: Bearer "+goodKey, "X-Request-Id: r1")
	all := ended(t, spans, 5)
	set, pipeline, refused, late, request := all[0], all[1], all[2], all[3], all[4]

	if request.Name() != "PUT /v1/strings/:key" || request.SpanKind() != trace.SpanKindServer || request.Status().Code != codes.Unset {
		t.Errorf("%q is a %v with the status %v", request.Name(), request.SpanKind(), request.Status())
	}
	wantAttributes(t, request, map[string]string{
		"http.request.method": "PUT", "http.route": "/v1/strings/:key", "http.response.status_code": "200", "url.scheme": "http",
		"network.protocol.version": "1.1", "http.request.body.size": "6", "http.response.body.size": "5", "slotgate.app": "shop", "slotgate.request_id": "r1",
	})
	wantAttributes(t, set, map[string]string{"db.system.name": "redis", "db.operation.name": "SET", "slotgate.cluster": "default",
		"server.address": "10.0.0.1", "server.port": "6379"})
	wantAttributes(t, pipeline, map[string]string{"db.system.name": "redis", "db.operation.name": "PIPELINE GET", "db.operation.batch.size": "50", "slotgate.cluster": "default", "slotgate.replica": "true"})
	wantAttributes(t, refused, map[string]string{"db.system.name": "redis", "db.operation.name": "GET", "slotgate.cluster": "default",
		"db.response.status_code": "WRONGTYPE", "error.type": "WRONGTYPE"})
	wantAttributes(t, late, map[string]string{"db.system.name": "redis", "db.operation.name": "GET", "slotgate.cluster": "default", "error.type": "backend_timeout"})
	for _, s := range all[:4] {
		if s.Parent().SpanID() != request.SpanContext().SpanID() || s.SpanKind() != trace.SpanKindClient || s.Name() != attributes(s)["db.operation.name"] {
			t.Errorf("%q is a %v below %v", s.Name(), s.SpanKind(), s.Parent().SpanID())
		}
		if failed := s == refused || s == late; failed != (s.Status().Code == codes.Error) {
			t.Errorf("%q has the status %v", s.Name(), s.Status())
		}
	}
	if took := refused.EndTime().Sub(refused.StartTime()); took != time.Second {
		t.Errorf("a command of a second took %v", took)
	}
	if text := fmt.Sprintf("%+v", tracetest.SpanStubsFromReadOnlySpans(all)); strings.Contains(text, "canary") {
		t.Error("a key, a value or a query is in a span")
	}
}

func TestSpansOfFailures(t *testing.T) {
	g, spans := traceWith(t, sdktrace.AlwaysSample(), func(public, v1 gin.IRouter) {
		v1.GET("/fails", func(c *gin.Context) {
			_ = c.Error(store.NewError(store.CodeClusterDown, "x").WithCause(errors.New("canary")))
		})
		v1.GET("/panics", func(*gin.Context) { panic("canary") })
		v1.GET("/refuses", func(c *gin.Context) { _ = c.Error(store.NewError(store.CodeKeyNotFound, "canary")) })
	})
	for i, c := range []struct {
		method, path, key, name string
		want                    map[string]string
		failed                  bool
	}{
		{"GET", "/v1/fails", goodKey, "GET /v1/fails", map[string]string{"http.response.status_code": "503", "slotgate.code": "cluster_down", "error.type": "cluster_down"}, true},
		{"GET", "/v1/panics", goodKey, "GET /v1/panics", map[string]string{"http.response.status_code": "500", "slotgate.code": "internal", "error.type": "internal"}, true},
		{"GET", "/v1/refuses", goodKey, "GET /v1/refuses", map[string]string{"http.response.status_code": "404", "slotgate.code": "key_not_found", "error.type": ""}, false},
		{"GET", "/v1/refuses", "sg_bad", "GET /v1/refuses", map[string]string{"http.response.status_code": "401", "slotgate.code": "unauthenticated", "slotgate.app": ""}, false},
		{"GET", "/canary", goodKey, "GET", map[string]string{"http.response.status_code": "404", "slotgate.code": "not_found", "http.route": ""}, false},
		{"CANARY", "/v1/refuses", goodKey, "HTTP", map[string]string{"http.response.status_code": "405", "http.request.method": "_OTHER"}, false},
	} {
		g.do(t, c.method, c.path, nil, "Authorization: Bearer "+c.key)
		s := ended(t, spans, i+1)[i]
		got := attributes(s)
		for k, v := range c.want {
			if got[k] != v {
				t.Errorf("%s %s: %s is %q, want %q", c.method, c.path, k, got[k], v)
			}
		}
		if s.Name() != c.name || (s.Status().Code == codes.Error) != c.failed {
			t.Errorf("%s %s: %q with the status %v", c.method, c.path, s.Name(), s.Status())
		}
	}
	if text := fmt.Sprintf("%+v", tracetest.SpanStubsFromReadOnlySpans(spans.Ended())); strings.Contains(strings.ToLower(text), "canary") {
		t.Error("what a client sent, or a cause, is in a span")
	}
}

// The caller's decision holds, and what is not sampled costs no spans of commands; the log names the trace all the same.
func TestSampling(t *testing.T) {
	routes := func(_, v1 gin.IRouter) { v1.GET("/strings/:key", told(store.Sent{Command: "GET", Commands: 1})) }
	for name, c := range map[string]struct {
		sampler sdktrace.Sampler
		flags   string
		spans   int
	}{
		"the caller's yes":        {sdktrace.ParentBased(sdktrace.NeverSample()), "-01", 2},
		"the caller's no":         {sdktrace.ParentBased(sdktrace.AlwaysSample()), "-00", 0},
		"a sampler of our own no": {sdktrace.NeverSample(), "-01", 0},
	} {
		t.Run(name, func(t *testing.T) {
			g, spans := traceWith(t, c.sampler, routes)
			g.get(t, "/v1/strings/a", strings.TrimSuffix(traceparent, "-01")+c.flags)
			eventually(t, "the line is written", func() bool { return g.log.String() != "" })
			ended(t, spans, c.spans)
			if n := len(spans.Ended()); n != c.spans {
				t.Errorf("%d spans, want %d", n, c.spans)
			}
			if got := lines(t, g.log.String())[0]["trace_id"]; got != theirTrace {
				t.Errorf("the log says trace %v", got)
			}
		})
	}
}

func TestSampledRequestsAreExemplars(t *testing.T) {
	for flags, want := range map[string]bool{"-01": true, "-00": false} {
		g, _ := traceWith(t, sdktrace.ParentBased(sdktrace.NeverSample()), keyRoutes)
		g.get(t, "/v1/strings/a", strings.TrimSuffix(traceparent, "-01")+flags)
		eventually(t, "it is counted", func() bool { return g.metric(t, "slotgate_http_requests_total", nil) == 1 })
		families, err := g.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, b := range m.GetHistogram().GetBucket() {
					if e := b.GetExemplar(); e != nil && e.GetLabel()[0].GetName() == "trace_id" && e.GetLabel()[0].GetValue() == theirTrace {
						found = append(found, f.GetName())
					}
				}
			}
		}
		slices.Sort(found)
		if wanted := []string{"slotgate_app_request_duration_seconds", "slotgate_http_request_duration_seconds"}; want && !slices.Equal(found, wanted) || !want && found != nil {
			t.Errorf("flags %s: exemplars in %v", flags, found)
		}
	}
}

func TestWithoutATracerNobodyWatches(t *testing.T) {
	watched := false
	g := start(t, nil, func(_, v1 gin.IRouter) {
		v1.GET("/strings/:key", func(c *gin.Context) { watched = c.Request.Context().Value(store.ObserverKey()) != nil })
	})
	g.get(t, "/v1/strings/a", traceparent, "Prefer: return=minimal, server-timing2")
	if watched {
		t.Error("a request that nobody traces or times is watched")
	}
}

// BenchmarkTrace is what a request with one command costs when it is traced: without a tracer, with one that does not sample it, and
// with one that does (without the export, which other goroutines do).
func BenchmarkTrace(b *testing.B) {
	for _, c := range []struct {
		name   string
		guards []gin.HandlerFunc
	}{
		{"off", nil},
		{"not sampled", []gin.HandlerFunc{middleware.Trace(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("x"), nil)}},
		{"sampled", []gin.HandlerFunc{middleware.Trace(sdktrace.NewTracerProvider().Tracer("x"), nil)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := gin.New()
			e.GET("/v1/strings/:key", append(append([]gin.HandlerFunc{middleware.RequestID(nil)}, c.guards...), middleware.Events(nil),
				told(store.Sent{Cluster: "default", Node: "10.0.0.1:6379", Command: "GET", Commands: 1}))...)
			benchmarkEngine(b, e)
		})
	}
}
