package main

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	service "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// traces is an OTLP/HTTP receiver.
type traces struct {
	*httptest.Server
	mu       sync.Mutex
	bodies   []byte // of all requests, as they came
	spans    []*otlp.Span
	resource map[string]string
}

func newTraces(t *testing.T) *traces {
	t.Helper()
	tr := &traces{}
	tr.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(r.Body); err != nil {
				t.Error(err)
				return
			}
		}
		data, err := io.ReadAll(body)
		var req service.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(data, &req) != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %q: %v, %d bytes", r.URL.Path, r.Header.Get("Content-Type"), err, len(data))
		}
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.bodies = append(tr.bodies, data...)
		for _, rs := range req.GetResourceSpans() {
			tr.resource = map[string]string{}
			for _, a := range rs.GetResource().GetAttributes() {
				tr.resource[a.GetKey()] = a.GetValue().GetStringValue()
			}
			for _, ss := range rs.GetScopeSpans() {
				tr.spans = append(tr.spans, ss.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(tr.Close)
	return tr
}

func attribute(s *otlp.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// setTracing sets the variables where the libraries look: in the process.
func setTracing(t *testing.T, vars ...string) {
	t.Helper()
	for _, pair := range vars {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

func TestServeSendsSpans(t *testing.T) {
	receiver := newTraces(t)
	setTracing(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+receiver.URL, "OTEL_SERVICE_NAME=cache", "OTEL_BSP_SCHEDULE_DELAY=50")
	vars := clusterVars(t)
	token := newToken(t, vars, "shop")
	g := startGateway(t, append(vars, "SLOTGATE_LOG_SAMPLE=1"))
	g.waitReady(t)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	send := func(method, path, body string, headers ...string) answer {
		req, err := http.NewRequestWithContext(t.Context(), method, g.api+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
		req.Header.Set("Tracestate", "vendor=opaque")
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			req.Header.Set(name, value)
		}
		return do(t, http.DefaultClient, req)
	}
	timed := send("PUT", "/v1/strings/canary-key", `{"value":"canary-value"}`, "Prefer: server-timing")
	expect(t, timed, 200)
	contains(t, "Server-Timing", timed.Header.Get("Server-Timing"), "redis;dur=", ", total;dur=")
	expect(t, send("GET", "/v1/strings/canary-key?include=ttl", ""), 200, "canary-value")
	expect(t, send("POST", "/v1/mset", `{"items":[{"key":"{canary}1","value":"canary"},{"key":"{canary}2","value":"canary"}]}`), 200)
	expect(t, send("GET", "/v1/bytes/canary-absent", "", "Traceparent: canary"), 404)

	want := []string{"PUT /v1/strings/:key", "SET", "GET /v1/strings/:key", "GET", "PTTL", "POST /v1/mset", "PIPELINE SET", "GET /v1/bytes/:key"}
	seen := map[string]*otlp.Span{}
	eventually(t, func() bool {
		receiver.mu.Lock()
		defer receiver.mu.Unlock()
		for _, s := range receiver.spans {
			if seen[s.GetName()] == nil || hex.EncodeToString(s.GetTraceId()) == trace {
				seen[s.GetName()] = s
			}
		}
		return len(seen) >= len(want)
	})
	for _, name := range want {
		s := seen[name]
		if s == nil {
			t.Errorf("no span %s; there are %v", name, slices.Sorted(maps.Keys(seen)))
			continue
		}
		if began := hex.EncodeToString(s.GetTraceId()) != trace; began != (name == "GET /v1/bytes/:key") || !began && s.GetTraceState() != "vendor=opaque" {
			t.Errorf("%s is of the trace %x with the state %q", name, s.GetTraceId(), s.GetTraceState())
		}
	}
	if put, set := seen["PUT /v1/strings/:key"], seen["SET"]; string(set.GetParentSpanId()) != string(put.GetSpanId()) || attribute(put, "slotgate.app") != "shop" ||
		attribute(set, "db.system.name") != "redis" {
		t.Errorf("spans\n%v\n%v", put, set)
	}
	receiver.mu.Lock()
	if receiver.resource["service.name"] != "cache" || receiver.resource["service.version"] == "" {
		t.Errorf("resource %v", receiver.resource)
	}
	lacks(t, "what was exported", string(receiver.bodies), "canary", token)
	receiver.mu.Unlock()

	contains(t, "the log", g.stderr.String(), `"trace_id":"`+trace+`"`)
	req, _ := http.NewRequestWithContext(t.Context(), "GET", g.admin+"/metrics", nil)
	req.Header.Set("Accept", "application/openmetrics-text")
	contains(t, "/metrics", do(t, http.DefaultClient, req).body, `# {trace_id="`+trace+`"}`)
}

// The spans of the last requests are sent before the gateway ends.
func TestTheLastSpansAreSent(t *testing.T) {
	receiver := newTraces(t)
	setTracing(t, "OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+receiver.URL+"/v1/traces", "OTEL_BSP_SCHEDULE_DELAY=3600000")
	g := startGateway(t, fileVars(t, "apps: []\nkeys: []\n"))
	expect(t, call(t, "GET", g.api+"/v1/whoami", "", ""), 401)
	g.stop()
	if code := g.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	if len(receiver.spans) != 1 || receiver.spans[0].GetName() != "GET /v1/whoami" {
		t.Errorf("spans %v", receiver.spans)
	}
}

// A collector that is not there is told in the log, in JSON, and is felt by nobody.
func TestServeWithoutACollector(t *testing.T) {
	setTracing(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY=10")
	g := startGateway(t, fileVars(t, "apps: []\nkeys: []\n"))
	eventually(t, func() bool {
		expect(t, call(t, "GET", g.api+"/v1/whoami", "", ""), 401)
		return g.logLine("tracing") != nil
	})
}

func TestWhatSwitchesTracingOn(t *testing.T) {
	for name, c := range map[string]struct {
		vars []string
		on   bool
		err  string
	}{
		"nothing":                           {nil, false, ""},
		"an endpoint":                       {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x"}, true, ""},
		"an endpoint of traces":             {[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://x"}, true, ""},
		"an exporter":                       {[]string{"OTEL_TRACES_EXPORTER=otlp"}, true, ""},
		"not the exporter none":             {[]string{"OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=http://x"}, false, ""},
		"not when the SDK is disabled":      {[]string{"OTEL_SDK_DISABLED=TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT=http://x"}, false, ""},
		"not a sampler alone":               {[]string{"OTEL_TRACES_SAMPLER=always_on"}, false, ""},
		"an exporter that there is not":     {[]string{"OTEL_TRACES_EXPORTER=zipkin"}, false, "OTEL_TRACES_EXPORTER=zipkin"},
		"a protocol that there is not":      {[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, false, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
		"the protocol of traces goes first": {[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"}, true, ""},
		"a sampler that there is not":       {[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=jaeger_remote"}, false, "OTEL_TRACES_SAMPLER=jaeger_remote"},
	} {
		on, err := wantsTracing(testEnv(c.vars, nil, nil).Getenv)
		if on != c.on || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: %v, %v", name, on, err)
		}
	}
}

func TestServeRefusesTracingItDoesNotHave(t *testing.T) {
	setTracing(t, "OTEL_TRACES_EXPORTER=zipkin")
	got := slotgate(t, fileVars(t, "apps: []\nkeys: []\n"), "serve")
	if got.code == 0 {
		t.Error("it started")
	}
	contains(t, "the error", got.stderr, "OTEL_TRACES_EXPORTER=zipkin is not supported")
}
