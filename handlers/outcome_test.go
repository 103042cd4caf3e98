package handlers_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/handlers"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
)

// writes are a request to each route that changes data; KEY is its key.
var writes = map[string]string{
	"PUT /v1/strings/:key":         `{"value":"v"}`,
	"DELETE /v1/strings/:key":      "",
	"POST /v1/strings/:key/append": `{"value":"v"}`,
	"PUT /v1/strings/:key/range":   `{"offset":0,"value":"v"}`,
	"PUT /v1/bytes/:key":           "v",
	"DELETE /v1/bytes/:key":        "",
	"POST /v1/bytes/:key/append":   "v",
	"PUT /v1/bytes/:key/range":     "v",
	"PUT /v1/counters/:key":        `{"value":1}`,
	"POST /v1/counters/:key/add":   `{"delta":1}`,
	"DELETE /v1/keys/:key":         "",
	"PUT /v1/keys/:key/ttl":        `{"ttl_ms":1000}`,
	"DELETE /v1/keys/:key/ttl":     "",
	"POST /v1/mset":                `{"items":[{"key":"KEY","value":"v"},{"key":"l","value":"v"}]}`,
	"POST /v1/mdelete":             `{"keys":["KEY","l"]}`,
}

// fault is a gateway on which every write fails.
type fault struct {
	app    *app
	break_ func(known string) // once that can be read, by its path
	// What is to be answered; "" = any. A command that waits for its connection in a pipe counts as sent, so where nodes cannot be
	// reached "unknown" is what may be told too. bodyOnly: requests without a body pass.
	code, outcome string
	bodyOnly      bool
}

// faulty makes an app behind proxies; break_ is called when the gateway knows the cluster and its connections are made.
func faulty(t *testing.T, break_ func(*faultproxy.Proxy), code, outcome string) fault {
	c := clustertest.Shared(t)
	proxies := clustertest.Proxied(t, c)
	g := start(t, func(cfg *store.Config) {
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: proxies.Dial}
	})
	a := g.app(t, mayAll)
	return fault{app: a, code: code, outcome: outcome, break_: func(known string) {
		proxies.Pass()
		end := time.Now().Add(20 * time.Second) // a circuit may be open
		for a.call(t, "GET", known, "").status != http.StatusOK {
			if time.Now().After(end) {
				t.Fatal("the gateway does not come back")
			}
			time.Sleep(5 * time.Millisecond)
		}
		for _, addr := range c.Addrs() {
			break_(proxies.Proxy(addr))
		}
	}}
}

// mayAll lets an app do whatever is tried here.
func mayAll(a *acl.App) { a.Permissions = []string{"strings:*", "keys:*", "ratelimits:*", "pools:*"} }

func faults(t *testing.T) map[string]fault {
	unreachable := start(t, func(cfg *store.Config) {
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: []string{"127.0.0.1:1"}, Dialer: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("nobody is there")}
		}}
	})
	g, full := start(t), start(t)
	full.bytes.TryAcquire(64 << 20)
	early := full.app(t, mayAll)
	early.people[early.token] = acl.ErrNotReady
	panicking := &gateway{people: g.people, redis: g.redis}
	panicking.Server = httptest.NewServer(panicking.engine(t, nil))
	t.Cleanup(panicking.Close)
	closed, err := store.New(store.Config{
		Clusters:  map[string]store.ClusterConfig{"default": {Addrs: clustertest.Shared(t).Addrs()}},
		CursorKey: []byte(strings.Repeat("k", 32)),
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	closing := &gateway{people: g.people, redis: g.redis}
	closing.Server = httptest.NewServer(closing.engine(t, closed))
	t.Cleanup(closing.Close)
	return map[string]fault{
		"the app's cluster is not configured": {app: g.app(t, mayAll, func(a *acl.App) { a.Cluster = "nowhere" }), code: "cluster_down", outcome: "not_applied"},
		"no node can be reached":              {app: unreachable.app(t, mayAll), outcome: "not_applied"},
		"the gateway has been closed":         {app: closing.app(t, mayAll), code: "draining", outcome: "not_applied"},
		"apps are not loaded":                 {app: early, code: "cluster_down", outcome: "not_applied"},
		"too many bytes are in flight":        {app: full.app(t, mayAll), code: "overloaded", outcome: "not_applied", bodyOnly: true},
		"the handler panics":                  {app: panicking.app(t, mayAll), code: "internal", outcome: "unknown"},
		"replies are lost": faulty(t, func(p *faultproxy.Proxy) {
			p.ResetReplies(100, "SET", "EVALSHA", "EVAL", "UNLINK", "INCRBY")
		}, "", "unknown"),
		"nodes are silent":           faulty(t, (*faultproxy.Proxy).BlackHole, "", ""),
		"nodes refuse":               faulty(t, (*faultproxy.Proxy).Refuse, "", ""),
		"connections are cut before": faulty(t, func(p *faultproxy.Proxy) { p.Refuse(); p.ResetAll() }, "", ""),
	}
}

// TestEveryFailedWriteSaysWhatBecameOfIt goes over all routes that write and the ways in which the layers fail. The outcome is compared
// with the data.
func TestEveryFailedWriteSaysWhatBecameOfIt(t *testing.T) {
	faults := faults(t)
	for _, r := range start(t).routes {
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !handlers.Reads(r.Path) && !postOnly(r) {
			tried := false
			for _, table := range []map[string]string{writes, limitWrites, poolWrites} {
				_, there := table[r.Method+" "+r.Path]
				tried = tried || there
			}
			if !tried {
				t.Errorf("%s %s writes, and is not tried", r.Method, r.Path)
			}
		}
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			for n, route := range slices.Sorted(maps.Keys(writes)) {
				// Each has a key of its own: what a silent node was sent may be executed later.
				own := "k" + strconv.Itoa(n)
				body := strings.Replace(writes[route], "KEY", own, 1)
				if f.bodyOnly && body == "" {
					continue
				}
				key := f.app.stored(own)
				if err := f.app.redis.Set(t.Context(), key, "7", time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
				if f.break_ != nil {
					f.break_("/v1/strings/" + own)
				}
				method, path, _ := strings.Cut(strings.Replace(route, ":key", own, 1), " ")
				if strings.HasSuffix(path, "/range") && strings.HasPrefix(path, "/v1/bytes") {
					path += "?offset=0"
				}
				headers := []string{"X-Request-Deadline-Ms: 200"}
				if strings.HasPrefix(path, "/v1/bytes") {
					headers = append(headers, "Content-Type: application/octet-stream")
				}
				a := f.app.call(t, method, path, body, headers...)
				outcomes := told(t, route, a)
				for _, o := range outcomes {
					if f.outcome != "" && o != f.outcome || o == "" {
						t.Errorf("%s: outcome %q, want %q: %d %s", route, o, f.outcome, a.status, a.body)
					}
				}
				if f.code != "" && route != "POST /v1/mset" && !strings.Contains(a.body, `"code":"`+f.code+`"`) {
					t.Errorf("%s: want the code %s: %s", route, f.code, a.body)
				}
				if a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "" {
					t.Errorf("%s: 503 without Retry-After", route)
				}
				value, life := f.app.redis.Get(t.Context(), key).Val(), f.app.redis.TTL(t.Context(), key).Val()
				if unchanged := value == "7" && life > time.Minute; !unchanged && !slices.Contains(outcomes, "unknown") {
					t.Errorf("%s: %v, but there is %q for %v", route, outcomes, value, life)
				}
			}
		})
	}
}

// told are the outcomes in an answer: that of the whole, or those of items.
func told(t *testing.T, route string, a answer) (outcomes []string) {
	t.Helper()
	text := func(v any) string { s, _ := v.(string); return s }
	if (route == "POST /v1/mdelete" || route == "POST /v1/ratelimits/take") && a.status == http.StatusOK {
		m := a.want(t, http.StatusOK)
		for _, item := range m["items"].([]any) {
			problem, _ := item.(map[string]any)["problem"].(map[string]any)
			outcomes = append(outcomes, text(problem["outcome"]))
		}
		return outcomes
	}
	if a.status < 500 {
		t.Fatalf("%s: %d %s", route, a.status, a.body)
	}
	m := a.want(t, a.status)
	outcomes = []string{text(m["outcome"])}
	items, _ := m["items"].([]any)
	for _, item := range items {
		outcomes = append(outcomes, text(item.(map[string]any)["outcome"]))
	}
	return outcomes
}
