package handlers_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

func (g *gateway) public(t testing.TB, path string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return g.send(t, req)
}

func TestPublicPages(t *testing.T) {
	g := start(t)
	for path, kind := range map[string]string{
		"/openapi.yaml": "application/yaml", "/openapi.json": "application/json", "/docs": "text/html", "/docs/reference": "text/html",
		"/docs/docs.css": "text/css", "/problems/key_not_found": "text/html", "/problems/quota_exceeded": "text/html",
	} {
		r := g.public(t, path)
		if r.status != 200 || !strings.HasPrefix(r.header.Get("Content-Type"), kind) || r.body == "" {
			t.Errorf("%s: %d %s", path, r.status, r.header.Get("Content-Type"))
		}
	}
	etag := g.public(t, "/openapi.json").header.Get("ETag")
	g.public(t, "/openapi.json", "If-None-Match: "+etag).want(t, 304)
	for _, path := range []string{"/problems/nothing", "/docs/nothing", "/", "/nothing"} {
		g.public(t, path).refused(t, 404, "not_found", "")
	}
}

func TestReadiness(t *testing.T) {
	g := start(t)
	g.public(t, "/readyz").wantBody(t, `{"ready":true}`)
	g.ready = errors.New("no cluster can be reached")
	g.public(t, "/readyz").refused(t, 503, "cluster_down", "")
	g.ready = store.NewError(store.CodeDraining, "going down")
	g.public(t, "/readyz").refused(t, 503, "draining", "")
}

func TestWhoami(t *testing.T) {
	g := start(t)
	t.Run("of an app without policies", func(t *testing.T) {
		a := g.app(t)
		m := a.call(t, "GET", "/v1/whoami", "").want(t, 200)
		app, key, sizes := m["app"].(map[string]any), m["key"].(map[string]any), m["sizes"].(map[string]any)
		if app["id"] != a.identity.App.ID || app["namespace"] != a.identity.App.Namespace || app["layout"] != "spread" || app["state"] != "active" ||
			key["id"] != a.identity.Key.ID || len(m["permissions"].([]any)) != 2 || len(m["limits"].([]any)) != 0 || len(m["ttl"].(map[string]any)) != 0 ||
			sizes["key_max_bytes"].(interface{ String() string }).String() != "256" {
			t.Error(m)
		}
	})
	t.Run("of an app with some", func(t *testing.T) {
		expires := time.Now().Add(time.Hour)
		a := g.app(t, func(app *acl.App) {
			app.Limits = []acl.Limit{{ID: "r", Per: "app", Of: "requests", Limit: 10, PeriodMS: 1000}}
			app.DefaultTTLMS, app.MaxTTLMS, app.ExpiresAt, app.Layout = 5, 7, &expires, acl.Together
		})
		r := a.call(t, "GET", "/v1/whoami", "")
		r.want(t, 200)
		for _, part := range []string{
			`"ttl":{"default_ms":5,"max_ms":7}`, `"limits":[{"id":"r","per":"app","of":"requests","limit":10,"period_ms":1000}]`, `"expires_at":"`, `"layout":"together"`,
		} {
			if !strings.Contains(r.body, part) {
				t.Errorf("%s lacks %s", r.body, part)
			}
		}
		if strings.Contains(r.body, "hash") {
			t.Errorf("%s tells too much", r.body)
		}
	})
	t.Run("of a key narrower than its app", func(t *testing.T) {
		a := g.app(t)
		own, _ := acl.CompilePermissions([]string{"strings:read"})
		a.identity.Permissions = a.identity.Permissions.Intersect(own)
		m := a.call(t, "GET", "/v1/whoami", "").want(t, 200)
		if p := m["permissions"].([]any); len(p) != 1 || p[0] != "strings:read" {
			t.Error(p)
		}
	})
}

func TestPermissions(t *testing.T) {
	g := start(t)
	reader := g.app(t, func(app *acl.App) { app.Permissions = []string{"strings:read"} })
	reader.redis.Set(t.Context(), reader.stored("k"), "v", 0)
	reader.call(t, "GET", "/v1/strings/k", "").want(t, 200)
	for _, r := range []answer{
		reader.call(t, "GET", "/v1/strings/k?ttl_ms=1", ""),
		reader.call(t, "PUT", "/v1/strings/k", `{"value":"x"}`),
		reader.call(t, "DELETE", "/v1/strings/k", ""),
		reader.call(t, "POST", "/v1/strings/k/append", `{"value":"x"}`),
		reader.call(t, "PUT", "/v1/strings/k/range", `{"offset":0,"value":"x"}`),
		reader.call(t, "POST", "/v1/counters/k/add", `{"delta":1}`),
		reader.call(t, "GET", "/v1/keys", ""),
		reader.call(t, "GET", "/v1/keys/k", ""),
		reader.call(t, "DELETE", "/v1/keys/k", ""),
		reader.call(t, "PUT", "/v1/keys/k/ttl", `{"ttl_ms":1}`),
		reader.call(t, "DELETE", "/v1/keys/k/ttl", ""),
		reader.call(t, "POST", "/v1/mset", `{"items":[{"key":"k","value":"x"}]}`),
		reader.call(t, "POST", "/v1/mdelete", `{"keys":["k"]}`),
		reader.call(t, "POST", "/v1/mexists", `{"keys":["k"]}`),
	} {
		r.refused(t, 403, "forbidden", "")
	}
	if v := reader.redis.Get(t.Context(), reader.stored("k")).Val(); v != "v" {
		t.Errorf("the value is %q", v)
	}
}
