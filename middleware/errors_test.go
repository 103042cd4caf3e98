package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
)

// fail runs one request through the renderer alone, with the middle of the jitter.
func fail(method string, before func(*gin.Context), err error) *httptest.ResponseRecorder {
	e := gin.New()
	e.Use(middleware.RequestID(nil), middleware.Errors(func() float64 { return 0.5 }, nil))
	e.Handle(method, "/", func(c *gin.Context) {
		if before != nil {
			before(c)
		}
		_ = c.Error(err)
	})
	req := httptest.NewRequest(method, "/", nil)
	req.Header.Set("X-Request-Id", "r1")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, req)
	return w
}

func TestProblems(t *testing.T) {
	const head = `{"type":"/problems/`
	for name, c := range map[string]struct {
		method string
		err    error
		status int
		body   string
	}{
		"the least": {"GET", store.NewError(store.CodeKeyNotFound, ""), 404,
			head + `key_not_found","title":"Key not found","status":404,"code":"key_not_found","request_id":"r1","retryable":false}`},
		"a field": {"PUT", store.Invalid("/ttl_ms", "must be at least 1"), 422,
			head + `validation_failed","title":"Validation failed","status":422,"detail":"must be at least 1","code":"validation_failed","request_id":"r1",` +
				`"retryable":false,"errors":[{"pointer":"/ttl_ms","code":"validation_failed","detail":"must be at least 1"}]}`},
		"wrapped": {"GET", fmt.Errorf("getting: %w", store.NewError(store.CodeForbidden, "no")), 403,
			head + `forbidden","title":"Forbidden","status":403,"detail":"no","code":"forbidden","request_id":"r1","retryable":false}`},
		"a cause is not told": {"GET", store.NewError(store.CodeBackendError, "the shard").WithCause(errors.New("10.0.0.1 secret")), 502,
			head + `backend_error","title":"Backend error","status":502,"detail":"the shard","code":"backend_error","request_id":"r1","retryable":true}`},
		"a stranger, in a read": {"GET", errors.New("10.0.0.1 secret"), 500,
			head + `internal","title":"Internal error","status":500,"code":"internal","request_id":"r1","retryable":false}`},
		"a stranger, in a write": {"POST", errors.New("10.0.0.1 secret"), 500,
			head + `internal","title":"Internal error","status":500,"code":"internal","request_id":"r1","retryable":false,"outcome":"unknown"}`},
		"an increment that may have been applied": {"POST", &store.Error{Code: store.CodeBackendTimeout, Outcome: store.Unknown}, 504,
			head + `backend_timeout","title":"Backend timeout","status":504,"code":"backend_timeout","request_id":"r1","retryable":false,"outcome":"unknown"}`},
		"a PUT that may have been applied": {"PUT", &store.Error{Code: store.CodeBackendTimeout, Outcome: store.Unknown}, 504,
			head + `backend_timeout","title":"Backend timeout","status":504,"code":"backend_timeout","request_id":"r1","retryable":true,"outcome":"unknown"}`},
		"a PATCH that may have been applied": {"PATCH", &store.Error{Code: store.CodeBackendTimeout, Outcome: store.Unknown}, 504,
			head + `backend_timeout","title":"Backend timeout","status":504,"code":"backend_timeout","request_id":"r1","retryable":true,"outcome":"unknown"}`},
		"a wrong type": {"GET", &store.Error{Code: store.CodeWrongType, RedisError: "WRONGTYPE"}, 409,
			head + `wrong_type","title":"Wrong type","status":409,"code":"wrong_type","request_id":"r1","retryable":false,"redis_error":"WRONGTYPE"}`},
		"a batch": {"POST", &store.Error{Code: store.CodeBatchIncomplete, Outcome: store.Unknown, Items: []store.ItemOutcome{{Key: "a", Outcome: store.Applied}, {Key: "b", Outcome: store.Unknown}}}, 504,
			head + `batch_incomplete","title":"Batch incomplete","status":504,"code":"batch_incomplete","request_id":"r1","retryable":true,` +
				`"outcome":"unknown","items":[{"key":"a","outcome":"applied"},{"key":"b","outcome":"unknown"}]}`},
		"a precondition": {"PUT", &store.Error{Code: store.CodePreconditionFailed, ETag: `"s1-00"`}, 412,
			head + `precondition_failed","title":"Precondition failed","status":412,"code":"precondition_failed","request_id":"r1","retryable":false,"etag":"\"s1-00\""}`},
		"a deadline in the gateway": {"GET", fmt.Errorf("waiting: %w", http.ErrHandlerTimeout), 500,
			head + `internal","title":"Internal error","status":500,"code":"internal","request_id":"r1","retryable":false}`},
	} {
		w := fail(c.method, nil, c.err)
		if w.Code != c.status || w.Body.String() != c.body+"\n" {
			t.Errorf("%s:\n%d %s\nwant\n%d %s", name, w.Code, w.Body, c.status, c.body)
		}
	}
}

func TestProblemsAreValidJSONWhateverIsInThem(t *testing.T) {
	nasty := "\"\\\x00\x1f\u2028\xff\xfe</script>\n{\"level\":\"admin\"}"
	w := fail("POST", nil, &store.Error{Code: store.CodeBatchIncomplete, Detail: nasty, RedisError: nasty, ETag: "x", Policies: []string{nasty, nasty},
		Fields: []store.FieldError{{Pointer: nasty, Code: nasty, Detail: nasty}, {}}, Items: []store.ItemOutcome{{Key: nasty}, {Key: ""}}})
	var p struct {
		Detail string
		Errors []store.FieldError
		Items  []store.ItemOutcome
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%v in %q", err, w.Body)
	}
	if want := strings.ToValidUTF8(nasty, "\ufffd\ufffd"); p.Detail != want || len(p.Errors) != 2 || len(p.Items) != 2 || p.Items[0].Key != want {
		t.Errorf("got %+v", p)
	}
	if strings.Count(strings.TrimSuffix(w.Body.String(), "\n"), "\n") != 0 {
		t.Error("a newline was not escaped")
	}
}

func TestProblemHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		err  *store.Error
		want map[string]string // "" = absent
	}{
		"401 challenges":                {store.NewError(store.CodeUnauthenticated, ""), map[string]string{"Www-Authenticate": `Bearer realm="slotgate"`, "Retry-After": ""}},
		"403 does not":                  {store.NewError(store.CodeForbidden, ""), map[string]string{"Www-Authenticate": ""}},
		"405 lists":                     {&store.Error{Code: store.CodeMethodNotAllowed, Allow: "GET, PUT"}, map[string]string{"Allow": "GET, PUT"}},
		"412 gives the tag":             {&store.Error{Code: store.CodePreconditionFailed, ETag: `"x"`}, map[string]string{"Etag": `"x"`}},
		"412 of an absent key":          {&store.Error{Code: store.CodePreconditionFailed}, map[string]string{"Etag": ""}},
		"429 rounds up":                 {&store.Error{Code: store.CodeQuotaExceeded, RetryAfter: 1100 * time.Millisecond}, map[string]string{"Retry-After": "2"}},
		"429 that never passes":         {&store.Error{Code: store.CodeQuotaExceeded}, map[string]string{"Retry-After": ""}},
		"503 always says when":          {store.NewError(store.CodeClusterDown, ""), map[string]string{"Retry-After": "2"}},
		"503 that knows":                {&store.Error{Code: store.CodeDraining, RetryAfter: 5 * time.Second}, map[string]string{"Retry-After": "6"}},
		"504 does not":                  {store.NewError(store.CodeBackendTimeout, ""), map[string]string{"Retry-After": ""}},
		"what a handler had begun goes": {store.NewError(store.CodeInternal, ""), map[string]string{"Content-Disposition": "", "Content-Length": "", "Etag": "", "Content-Type": "application/problem+json"}},
		"416 keeps the range":           {store.NewError(store.CodeRangeNotSatisfiable, ""), map[string]string{"Content-Range": "bytes */5"}},
	} {
		w := fail("GET", func(c *gin.Context) {
			for _, h := range []string{"Content-Disposition", "Etag", "Content-Length"} {
				c.Header(h, "5")
			}
			c.Header("Content-Type", "text/plain")
			c.Header("Content-Range", "bytes */5")
		}, c.err)
		for h, want := range c.want {
			if got := w.Header().Get(h); got != want {
				t.Errorf("%s: %s is %q, want %q", name, h, got, want)
			}
		}
	}
}

func TestRetryAfterIsSpread(t *testing.T) {
	for name, c := range map[string]struct {
		code  store.Code
		after time.Duration
		seen  []string // each as often as the others
	}{
		"down, nobody knows for how long":  {store.CodeClusterDown, 0, []string{"1", "2", "3"}},
		"overloaded":                       {store.CodeOverloaded, time.Second, []string{"1", "2", "3"}},
		"down for ten seconds":             {store.CodeClusterDown, 10 * time.Second, []string{"10", "11", "12", "13", "14", "15"}},
		"a batch that was not all written": {store.CodeBatchIncomplete, time.Second, []string{"1", "2", "3"}},
		"a quota of a second is exact":     {store.CodeQuotaExceeded, 300 * time.Millisecond, []string{"1"}},
		"a quota is never early":           {store.CodeQuotaExceeded, 9001 * time.Millisecond, []string{"10"}},
		"a quota of a day":                 {store.CodeQuotaExceeded, 60 * time.Second, []string{"60", "61", "62", "63", "64", "65", "66"}},
	} {
		const rounds = 420 // a multiple of each number of values
		got, next := map[string]int{}, 0
		e := gin.New()
		e.Use(middleware.Errors(func() float64 { next++; return float64(next-1) / rounds }, nil))
		e.GET("/", func(g *gin.Context) { _ = g.Error(&store.Error{Code: c.code, RetryAfter: c.after}) })
		for range rounds {
			w := httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			got[w.Header().Get("Retry-After")]++
		}
		want := map[string]int{}
		for _, v := range c.seen {
			want[v] = rounds / len(c.seen)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestWhatBecameOfAWriteIsAlwaysTold(t *testing.T) {
	shared := store.NewError(store.CodeClusterDown, "")
	for name, c := range map[string]struct {
		method, route string
		err           error
		outcome       any
	}{
		"a stranger's error":                     {"PUT", "/w", errors.New("x"), "unknown"},
		"an end of the deadline":                 {"PUT", "/w", context.DeadlineExceeded, "unknown"},
		"an error that forgot it":                {"DELETE", "/w", shared, "unknown"},
		"one that knows":                         {"POST", "/w", &store.Error{Code: store.CodeClusterDown, Outcome: store.NotApplied}, "not_applied"},
		"a read":                                 {"GET", "/w", shared, nil},
		"a read by POST":                         {"POST", "/r", shared, nil},
		"a refusal for a reason of the caller's": {"PUT", "/w", store.NewError(store.CodeInvalidKey, ""), nil},
	} {
		e := gin.New()
		e.Use(middleware.Errors(nil, func(route string) bool { return route == "/r" }))
		e.Handle(c.method, c.route, func(g *gin.Context) { _ = g.Error(c.err) })
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(c.method, c.route, nil))
		var p map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p["outcome"] != c.outcome {
			t.Errorf("%s: %v %s", name, err, w.Body)
		}
	}
	if shared.Outcome != store.NoOutcome {
		t.Error("an error that others may hold was changed")
	}
}

func TestEveryCodeIsRenderedWithItsStatus(t *testing.T) {
	for _, code := range store.Codes() {
		w := fail("GET", nil, store.NewError(code, "x"))
		var p struct{ Type, Title, Code string }
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != code.Status() || p.Code != string(code) || p.Type != code.Type() || p.Title != code.Title() {
			t.Errorf("%s: %v %d %s", code, err, w.Code, w.Body)
		}
	}
}

func TestOnlyTheLastErrorIsWrittenAndOnce(t *testing.T) {
	e := gin.New()
	e.Use(middleware.Errors(nil, nil))
	e.GET("/", func(c *gin.Context) {
		_ = c.Error(store.NewError(store.CodeForbidden, "first"))
		_ = c.Error(store.NewError(store.CodeKeyNotFound, "last"))
	})
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 404 || strings.Contains(w.Body.String(), "first") || strings.Count(w.Body.String(), "{") != 1 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// An error after the answer has begun can be told only by cutting it off: it must not look complete.
func TestAnErrorInTheMiddleOfAnAnswerCutsItOff(t *testing.T) {
	g := start(t, nil, func(_, v1 gin.IRouter) {
		v1.GET("/stream", func(c *gin.Context) {
			c.String(200, `{"items":[`)
			c.Writer.Flush()
			_ = c.Error(store.NewError(store.CodeClusterDown, ""))
		})
	})
	req, _ := http.NewRequest("GET", g.URL+"/v1/stream", nil)
	req.Header.Set("Authorization", "Bearer "+goodKey)
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer looks complete: %s", b)
	}
	eventually(t, "it is logged as what it was", func() bool { return strings.Contains(g.log.String(), `"status":503`) })
	eventually(t, "and counted out", func() bool { return g.cfg.Drain.InFlight() == 0 })
}

func TestHeadHasTheHeadersOfTheProblem(t *testing.T) {
	g := start(t, nil, keyRoutes)
	a := g.do(t, "HEAD", "/v1/strings/a", nil)
	if a.status != 405 || a.body != "" || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %q %v", a.status, a.body, a.header)
	}
}
