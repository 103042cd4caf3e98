package middleware_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/middleware"
)

// Every guard against every kind of route: what a request that breaks one rule is answered, where the rule holds.
func TestGuardsAgainstRoutes(t *testing.T) {
	g := start(t, nil, func(public, v1 gin.IRouter) {
		public.GET("/openapi.yaml", ok)
		keyRoutes(public, v1)
		v1.GET("/panic", func(*gin.Context) { panic("boom") })
		v1.GET("/foreign", func(c *gin.Context) { _ = c.Error(http.ErrNoCookie) })
	})
	g.auth["sg_poor"] = identity("poor", perApp("app-rps", 1, time.Hour, 1))
	if a := g.do(t, "GET", "/v1/keys", nil, "Authorization: Bearer sg_poor"); a.status != 200 {
		t.Fatalf("the first request of the poor: %d", a.status)
	}
	const key = "Authorization: Bearer " + goodKey
	big := strings.Repeat("x", 1025)
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		code               string
	}{
		"public, no key":                       {"GET", "/openapi.yaml", "", nil, 200, ""},
		"public, wrong key":                    {"GET", "/openapi.yaml", "", []string{"Authorization: Bearer x"}, 200, ""},
		"public, dot segment":                  {"GET", "/./openapi.yaml", "", nil, 400, "invalid_request"},
		"public, wrong method":                 {"PUT", "/openapi.yaml", "", nil, 405, "method_not_allowed"},
		"v1, good":                             {"GET", "/v1/strings/a", "", []string{key}, 200, ""},
		"v1, good write":                       {"PUT", "/v1/strings/a", "x", []string{key}, 200, ""},
		"v1, no key":                           {"GET", "/v1/strings/a", "", nil, 401, "unauthenticated"},
		"v1, suspended app":                    {"GET", "/v1/strings/a", "", []string{"Authorization: Bearer sg_suspended"}, 403, "app_suspended"},
		"v1, expired app":                      {"GET", "/v1/strings/a", "", []string{"Authorization: Bearer sg_expired"}, 403, "app_expired"},
		"v1, directory not loaded":             {"GET", "/v1/strings/a", "", []string{"Authorization: Bearer sg_early"}, 503, "cluster_down"},
		"v1, quota used up":                    {"GET", "/v1/strings/a", "", []string{"Authorization: Bearer sg_poor"}, 429, "quota_exceeded"},
		"v1, no such route":                    {"GET", "/v1/nothing", "", []string{key}, 404, "not_found"},
		"v1, no such route and no key":         {"GET", "/v1/nothing", "", nil, 404, "not_found"},
		"v1, wrong method":                     {"DELETE", "/v1/mget", "", []string{key}, 405, "method_not_allowed"},
		"v1, wrong method, unknown to HTTP":    {"BREW", "/v1/mget", "", []string{key}, 405, "method_not_allowed"},
		"v1, empty key at the end":             {"GET", "/v1/strings/", "", []string{key}, 400, "invalid_key"},
		"v1, empty key at the end, no key":     {"GET", "/v1/bytes/", "", nil, 400, "invalid_key"},
		"v1, empty key in the middle":          {"PUT", "/v1/keys//ttl", "", []string{key}, 400, "invalid_key"},
		"v1, trailing slash behind a key":      {"GET", "/v1/strings/a/", "", []string{key}, 404, "not_found"},
		"v1, trailing slash behind no key":     {"POST", "/v1/mget/", "", []string{key}, 404, "not_found"},
		"v1, raw double slash":                 {"GET", "/v1//strings/a", "", []string{key}, 400, "invalid_request"},
		"v1, raw dot segment":                  {"GET", "/v1/strings/..", "", []string{key}, 400, "invalid_request"},
		"v1, body over the limit":              {"PUT", "/v1/strings/a", big, []string{key}, 413, "payload_too_large"},
		"v1, body over the limit, no key":      {"PUT", "/v1/strings/a", big, nil, 401, "unauthenticated"},
		"v1, encoded body":                     {"PUT", "/v1/strings/a", "x", []string{key, "Content-Encoding: gzip"}, 415, "unsupported_media_type"},
		"v1, encoding that is none":            {"PUT", "/v1/strings/a", "x", []string{key, "Content-Encoding: identity"}, 200, ""},
		"v1, deadline lowered":                 {"GET", "/v1/strings/a", "", []string{key, "X-Request-Deadline-Ms: 500"}, 200, ""},
		"v1, deadline raised":                  {"GET", "/v1/strings/a", "", []string{key, "X-Request-Deadline-Ms: 1001"}, 400, "invalid_request"},
		"v1, deadline zero":                    {"GET", "/v1/strings/a", "", []string{key, "X-Request-Deadline-Ms: 0"}, 400, "invalid_request"},
		"v1, deadline is no number":            {"GET", "/v1/strings/a", "", []string{key, "X-Request-Deadline-Ms: 1s"}, 400, "invalid_request"},
		"v1, deadline with a sign":             {"GET", "/v1/strings/a", "", []string{key, "X-Request-Deadline-Ms: +5"}, 400, "invalid_request"},
		"v1, two deadlines":                    {"GET", "/v1/strings/a", "", []string{key, "X-Request-Deadline-Ms: 5", "X-Request-Deadline-Ms: 5"}, 400, "invalid_request"},
		"v1, panic":                            {"GET", "/v1/panic", "", []string{key}, 500, "internal"},
		"v1, an error that is not the store's": {"GET", "/v1/foreign", "", []string{key}, 500, "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			var a answer
			if c.body == "" {
				a = g.do(t, c.method, c.path, nil, c.headers...)
			} else {
				a = g.do(t, c.method, c.path, strings.NewReader(c.body), c.headers...)
			}
			if a.status != c.status || a.code(t) != c.code {
				t.Fatalf("got %d %s, want %d %s", a.status, a.body, c.status, c.code)
			}
			if a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers %v", a.header)
			}
			id := a.header.Get("X-Request-Id")
			if id == "" || c.code != "" && a.problem(t)["request_id"] != id {
				t.Errorf("request id %q, body %s", id, a.body)
			}
		})
	}
	if used := g.cfg.BytesInFlight.Used(); used != 0 {
		t.Errorf("%d bytes are still reserved", used)
	}
}

func TestEveryKeyByteReachesTheHandler(t *testing.T) {
	g := start(t, nil, keyRoutes)
	for _, segment := range []string{"%2E%2E", "%2e", "a%2Fb", "%2F%2F", "%00%0D%0A", "a+b", "%7B%7D:", "%25", "%FF"} {
		a := g.get(t, "/v1/strings/"+segment)
		if a.status != 200 || a.body != segment+" " {
			t.Errorf("%s: %d %q", segment, a.status, a.body)
		}
	}
}

func TestMethodNotAllowedSaysWhatIs(t *testing.T) {
	g := start(t, nil, keyRoutes)
	a := g.do(t, "DELETE", "/v1/strings/a", nil)
	if allow := a.header.Get("Allow"); a.status != 405 || allow != "GET, PUT" {
		t.Errorf("%d, Allow %q", a.status, allow)
	}
}

func TestRequestID(t *testing.T) {
	g := start(t, nil, func(_, v1 gin.IRouter) {
		v1.GET("/id", func(c *gin.Context) { c.String(200, middleware.RequestIDFrom(c.Request.Context())) })
	})
	for name, c := range map[string]struct {
		sent  []string
		taken bool
	}{
		"none":           {nil, false},
		"safe":           {[]string{"abc-DEF_1.2"}, true},
		"128 characters": {[]string{strings.Repeat("a", 128)}, true},
		"129 characters": {[]string{strings.Repeat("a", 129)}, false},
		"a space":        {[]string{"a b"}, false},
		"a quote":        {[]string{`a"b`}, false},
		"not ASCII":      {[]string{"é"}, false},
		"two":            {[]string{"a", "b"}, false},
		"an empty one":   {[]string{""}, false},
	} {
		var headers []string
		for _, s := range c.sent {
			headers = append(headers, "X-Request-Id: "+s)
		}
		a := g.get(t, "/v1/id", headers...)
		id := a.header.Get("X-Request-Id")
		if a.body != id {
			t.Errorf("%s: the context says %q, the header %q", name, a.body, id)
		}
		if c.taken && id != c.sent[0] {
			t.Errorf("%s: %q was not taken but %q", name, c.sent[0], id)
		}
		if !c.taken && (len(id) != 36 || id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19]))) {
			t.Errorf("%s: %q is no UUIDv7", name, id)
		}
	}
	if g.get(t, "/v1/id").body == g.get(t, "/v1/id").body {
		t.Error("two requests got the same id")
	}
}

func TestIdentityIsInTheRequestsContext(t *testing.T) {
	g := start(t, nil, func(_, v1 gin.IRouter) {
		v1.GET("/me", func(c *gin.Context) { c.String(200, acl.FromContext(c.Request.Context()).App.ID) })
	})
	if a := g.get(t, "/v1/me"); a.body != "shop" {
		t.Errorf("got %q", a.body)
	}
}

func TestDrainClosesConnectionsAndRefusesNothing(t *testing.T) {
	g := start(t, nil, func(_, v1 gin.IRouter) {
		v1.GET("/running", func(c *gin.Context) {})
	})
	if a := g.get(t, "/v1/running"); a.header.Get("Connection") != "" {
		t.Error("closed before draining")
	}
	g.cfg.Drain.Start()
	req, _ := http.NewRequest("GET", g.URL+"/v1/running", nil)
	req.Header.Set("Authorization", "Bearer "+goodKey)
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || !resp.Close {
		t.Errorf("status %d, close %v", resp.StatusCode, resp.Close)
	}
	eventually(t, "nothing is in flight", func() bool { return g.cfg.Drain.InFlight() == 0 })
	if !g.cfg.Drain.Draining() {
		t.Error("not draining")
	}
}

func TestDrainCountsWhatRuns(t *testing.T) {
	arrived, leave := make(chan struct{}), make(chan struct{})
	g := start(t, nil, func(_, v1 gin.IRouter) {
		v1.GET("/running", func(*gin.Context) { close(arrived); <-leave })
	})
	done := make(chan answer)
	go func() { done <- g.get(t, "/v1/running") }()
	<-arrived
	if n := g.cfg.Drain.InFlight(); n != 1 {
		t.Errorf("%d in flight, want 1", n)
	}
	if n := g.metric(t, "slotgate_http_in_flight_requests", map[string]string{"app": "shop"}); n != 1 {
		t.Errorf("the gauge says %v, want 1", n)
	}
	close(leave)
	<-done
	eventually(t, "the gauge is back at 0", func() bool {
		return g.cfg.Drain.InFlight() == 0 && g.metric(t, "slotgate_http_in_flight_requests", map[string]string{"app": "shop"}) == 0
	})
}

// A handler must be able to rely on the identity: the routes behind the chain never run without one.
func TestNoHandlerRunsForAStranger(t *testing.T) {
	ran := false
	g := start(t, nil, func(_, v1 gin.IRouter) {
		v1.Any("/x/:key", func(*gin.Context) { ran = true })
	})
	for _, m := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"} {
		g.do(t, m, "/v1/x/a", nil, "X-HTTP-Method-Override: GET", "X-Original-URL: /openapi.yaml")
	}
	if ran {
		t.Error("a handler ran")
	}
}
