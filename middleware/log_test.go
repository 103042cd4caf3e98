package middleware_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
)

func lines(t testing.TB, log string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(log) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, m)
	}
	return all
}

func TestOneLinePerRequest(t *testing.T) {
	clock := newClock()
	g := start(t, func(c *middleware.Config) { c.Clock = clock.now }, func(_, v1 gin.IRouter) {
		v1.PUT("/strings/:key", func(c *gin.Context) {
			b, _ := io.ReadAll(c.Request.Body)
			clock.advance(1500 * time.Microsecond)
			c.String(200, string(b)+string(b))
		})
	})
	g.do(t, "PUT", "/v1/strings/secret-key?secret=query", strings.NewReader("hello"), "Authorization: Bearer "+goodKey, "X-Request-Id: r1")
	eventually(t, "the line is written", func() bool { return g.log.String() != "" })
	got := lines(t, g.log.String())
	if len(got) != 1 {
		t.Fatalf("%d lines", len(got))
	}
	delete(got[0], "time")
	want := map[string]any{"level": "INFO", "msg": "request", "request_id": "r1", "app": "shop", "key_id": "key0shop", "route": "/v1/strings/:key",
		"method": "PUT", "status": 200., "code": "", "dur_us": 1500., "bytes_in": 5., "bytes_out": 10.}
	for k, v := range want {
		if got[0][k] != v {
			t.Errorf("%s is %v, want %v", k, got[0][k], v)
		}
	}
	if len(got[0]) != len(want) {
		t.Errorf("fields beyond the known ones: %v", got[0])
	}
}

func TestTheLineSaysWhoHasAnsweredARead(t *testing.T) {
	g := start(t, nil, func(_, v1 gin.IRouter) {
		v1.GET("/strings/:key", func(c *gin.Context) {
			c.Header("Gateway-Served-By", `replica;node="07c37dfe"`)
			c.String(200, "value")
		})
	})
	g.do(t, "GET", "/v1/strings/k", nil, "Authorization: Bearer "+goodKey)
	eventually(t, "the line is written", func() bool { return g.log.String() != "" })
	if got := lines(t, g.log.String())[0]["served_by"]; got != `replica;node="07c37dfe"` {
		t.Errorf("served by %v", got)
	}
}

// No key, value, token, path or query may reach the log, whatever becomes of the request.
func TestLogHoldsNoSecret(t *testing.T) {
	g := start(t, nil, func(public, v1 gin.IRouter) {
		keyRoutes(public, v1)
		panics(nil, v1.Group("/p"))
	})
	const key = "Authorization: Bearer " + goodKey
	body := func() io.Reader { return strings.NewReader("canary-of-a-value") }
	g.do(t, "PUT", "/v1/strings/canary-of-a-key?q=canary-of-a-query", body(), key)
	g.do(t, "PUT", "/v1/strings/canary-of-a-key", body(), "Authorization: Bearer sg_canary-of-a-token")
	g.do(t, "PUT", "/canary-of-a-path", body(), key)
	g.do(t, "CANARY-OF-A-METHOD", "/v1/strings/a", nil, key)
	g.do(t, "GET", "/v1/p/text", nil, key, "X-Request-Id: not safe canary")
	g.do(t, "PUT", "/v1/strings/a", strings.NewReader(strings.Repeat("canary", 1000)), key)
	g.do(t, "PUT", "/v1/strings/a", nil, key, "X-Request-Deadline-Ms: canary")
	eventually(t, "all are logged", func() bool { return strings.Count(g.log.String(), `"msg":"request"`) == 7 })
	if log := strings.ToLower(g.log.String()); strings.Contains(log, "canary") || strings.Contains(log, goodKey) {
		t.Errorf("a secret in the log:\n%s", log)
	}
}

func TestWhichRequestsAreLogged(t *testing.T) {
	ev := func(status int, took time.Duration) *middleware.Event {
		return &middleware.Event{Status: status, Duration: took, Route: "/x", Method: "GET"}
	}
	for name, c := range map[string]struct {
		cfg   middleware.LogConfig
		event *middleware.Event
		of100 int
		level string
	}{
		"all that is fine":         {middleware.LogConfig{SampleOneIn: 1}, ev(200, 0), 100, "INFO"},
		"one in ten":               {middleware.LogConfig{SampleOneIn: 10}, ev(200, 0), 10, "INFO"},
		"client mistakes likewise": {middleware.LogConfig{SampleOneIn: 10}, ev(401, 0), 10, "INFO"},
		"none":                     {middleware.LogConfig{}, ev(404, 0), 0, ""},
		"failures always":          {middleware.LogConfig{}, ev(500, 0), 100, "ERROR"},
		"slow ones always":         {middleware.LogConfig{Slow: time.Second}, ev(200, time.Second), 100, "WARN"},
		"not quite slow":           {middleware.LogConfig{Slow: time.Second}, ev(200, time.Second-1), 0, ""},
	} {
		var b syncBuffer
		sink := middleware.Log(slog.New(slog.NewJSONHandler(&b, nil)), middleware.NewLive(middleware.Settings{AccessLog: c.cfg}))
		for range 100 {
			sink(c.event)
		}
		got := lines(t, b.String())
		if len(got) != c.of100 {
			t.Errorf("%s: %d of 100", name, len(got))
		}
		if len(got) > 0 && got[0]["level"] != c.level {
			t.Errorf("%s: level %v", name, got[0]["level"])
		}
	}
}

// A node that is dead gives every request the same line; what is rarer must not drown in them.
func TestFailuresOfOneCodeFillNoDisk(t *testing.T) {
	var b syncBuffer
	sink := middleware.Log(slog.New(slog.NewJSONHandler(&b, nil)), middleware.NewLive(middleware.Settings{AccessLog: middleware.LogConfig{
		Slow: time.Minute, FailuresPerS: 10,
	}}))
	start := time.Unix(1_800_000_000, 0)
	fail := func(second int, code store.Code, n int) {
		for i := range n {
			at := start.Add(time.Duration(second)*time.Second + time.Duration(i)*time.Millisecond)
			sink(&middleware.Event{Start: at, Status: 503, Code: code})
		}
	}
	fail(0, store.CodeClusterDown, 500)
	fail(0, store.CodeInternal, 1)
	fail(1, store.CodeClusterDown, 30)
	fail(2, store.CodeClusterDown, 3)
	count, leftOut := map[any]int{}, []any{}
	for _, l := range lines(t, b.String()) {
		count[l["code"]]++
		if n, ok := l["left_out"]; ok {
			leftOut = append(leftOut, n)
		}
	}
	if count["cluster_down"] != 10+10+3 || count["internal"] != 1 {
		t.Errorf("lines by code: %v; want 23 of cluster_down, 1 of internal", count)
	}
	if !reflect.DeepEqual(leftOut, []any{490., 20.}) {
		t.Errorf("left out, as told: %v; want 490 and 20", leftOut)
	}
}

func TestCauseIsLoggedForFailuresOnly(t *testing.T) {
	for status, want := range map[int]bool{404: false, 502: true} {
		var b syncBuffer
		cause := store.NewError(store.CodeBackendError, "the shard").WithCause(errors.New("connection reset " + strings.Repeat("x", 1000)))
		middleware.Log(slog.New(slog.NewJSONHandler(&b, nil)), middleware.NewLive(middleware.Settings{AccessLog: middleware.LogConfig{SampleOneIn: 1}}))(
			&middleware.Event{Status: status, Code: store.CodeBackendError, Err: cause})
		got, ok := lines(t, b.String())[0]["cause"].(string)
		if ok != want || ok && (!strings.Contains(got, "connection reset") || len(got) > 512) {
			t.Errorf("%d: cause %q", status, got)
		}
	}
}

func TestUnsampledRequestsFormatNothing(t *testing.T) {
	sink := middleware.Log(slog.New(slog.NewJSONHandler(io.Discard, nil)), middleware.NewLive(middleware.Settings{AccessLog: middleware.LogConfig{SampleOneIn: 1 << 30}}))
	e := &middleware.Event{Status: 200}
	sink(e)
	if n := testing.AllocsPerRun(100, func() { sink(e) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
