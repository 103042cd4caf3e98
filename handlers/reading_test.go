package handlers_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// reads are all reads of keys.
var reads = []struct {
	method, path, query, body string
	header                    string
	status                    int
}{
	{"GET", "/v1/strings/k", "include=ttl", "", "", 200},
	{"GET", "/v1/strings/k", "", "", `If-None-Match: "other"`, 200},
	{"GET", "/v1/strings/k", "", "", "If-None-Match: *", 304},
	{"GET", "/v1/strings/k/range", "start=1&end=2", "", "", 200},
	{"GET", "/v1/bytes/k", "", "", "", 200},
	{"GET", "/v1/bytes/k", "", "", "Range: bytes=1-2", 206},
	{"GET", "/v1/bytes/k", "", "", "Range: bytes=5000-", 416},
	{"HEAD", "/v1/bytes/k", "", "", "", 200},
	{"GET", "/v1/counters/n", "", "", "", 200},
	{"GET", "/v1/keys/k", "", "", "", 200},
	{"HEAD", "/v1/keys/k", "", "", "", 200},
	{"POST", "/v1/mget", "", `{"keys":["k","n"]}`, "", 200},
	{"POST", "/v1/mexists", "", `{"keys":["k","n"]}`, "", 200},
}

var servedBy = regexp.MustCompile(`^((replica|primary)(;node="[0-9a-f]{8}")?|replica;items=2|primary;items=2|replica;items=1, primary;items=1)$`)

// byReplica repeats a read until a replica answers.
func (a *app) byReplica(t *testing.T, read func() answer) answer {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got := read()
		switch who := got.header.Get("Gateway-Served-By"); {
		case !servedBy.MatchString(who):
			t.Fatalf("served by %q: status %d, %s", who, got.status, got.body)
		case strings.HasPrefix(who, "replica"):
			return got
		case time.Now().After(end):
			t.Fatalf("served by %q", who)
		}
	}
}

func TestReadsFromReplicas(t *testing.T) {
	g := start(t)
	a := g.app(t)
	stale := g.app(t, func(app *acl.App) { app.Read, app.MaxStalenessMS = acl.ReadReplica, 3000 })
	value := strings.Repeat("0123456789", 100)
	for _, app := range []*app{a, stale} {
		app.call(t, "PUT", "/v1/strings/k", `{"value":"`+value+`"}`).want(t, 200)
		app.call(t, "PUT", "/v1/counters/n", `{"value":42}`).want(t, 200)
		app.byReplica(t, func() answer { return app.call(t, "GET", "/v1/strings/k?read=replica", "") })
		app.byReplica(t, func() answer { return app.call(t, "GET", "/v1/counters/n?read=replica", "") })
	}
	for _, r := range reads {
		ask := func(a *app, more string) answer {
			var headers []string
			if r.header != "" {
				headers = append(headers, r.header)
			}
			return a.call(t, r.method, r.path+"?"+r.query+more, r.body, headers...)
		}
		t.Run(r.method+" "+r.path+" "+r.query+" "+r.header, func(t *testing.T) {
			primary := ask(a, "")
			if primary.status != r.status || len(primary.header["Gateway-Served-By"]) > 0 {
				t.Fatalf("status %d, served by %q", primary.status, primary.header["Gateway-Served-By"])
			}
			got := a.byReplica(t, func() answer { return ask(a, "&read=replica&max_staleness_ms=60000") })
			for _, name := range []string{"Etag", "Content-Range", "Content-Length", "Content-Type", "Gateway-Type"} {
				if got.header.Get(name) != primary.header.Get(name) {
					t.Errorf("%s is %q, of the primary %q", name, got.header.Get(name), primary.header.Get(name))
				}
			}
			if got.status != primary.status || r.status < 300 && got.body != primary.body {
				t.Errorf("status %d, %s; of the primary %d, %s", got.status, got.body, primary.status, primary.body)
			}
			stale.byReplica(t, func() answer { return ask(stale, "") })
			if got := ask(stale, "&read=primary"); got.status != r.status || len(got.header["Gateway-Served-By"]) > 0 {
				t.Errorf("the request does not go before the app: %d, served by %q", got.status, got.header["Gateway-Served-By"])
			}
		})
	}
	t.Run("a key that is not there is the primary's to say", func(t *testing.T) {
		got := a.call(t, "GET", "/v1/strings/none?read=replica", "")
		if got.refused(t, 404, "key_not_found", ""); !strings.HasPrefix(got.header.Get("Gateway-Served-By"), "primary") {
			t.Errorf("served by %q", got.header.Get("Gateway-Served-By"))
		}
	})
	t.Run("whoami tells the app's default", func(t *testing.T) {
		m := stale.call(t, "GET", "/v1/whoami", "").want(t, 200)
		if m["read"] != "replica" || m["max_staleness_ms"].(interface{ String() string }).String() != "3000" {
			t.Errorf("%v", m)
		}
	})
	t.Run("a read that moves the expiry is the primary's, whatever the app's default", func(t *testing.T) {
		got := stale.call(t, "GET", "/v1/strings/k?ttl_ms=60000", "")
		if got.want(t, 200); len(got.header["Gateway-Served-By"]) > 0 {
			t.Errorf("served by %q", got.header["Gateway-Served-By"])
		}
	})
	t.Run("so is the reading that belongs to a write", func(t *testing.T) {
		for range 20 {
			etag := stale.call(t, "PUT", "/v1/strings/w", `{"value":"`+value+`"}`).header.Get("Etag")
			got := stale.call(t, "PUT", "/v1/strings/w", `{"value":"x","return_previous":true}`, "If-Match: "+etag)
			if got.want(t, 200); len(got.header["Gateway-Served-By"]) > 0 {
				t.Fatalf("served by %q", got.header["Gateway-Served-By"])
			}
		}
	})
}

func TestBadReadsFromReplicas(t *testing.T) {
	g := start(t)
	a := g.app(t)
	stale := g.app(t, func(app *acl.App) { app.Read = acl.ReadReplica })
	for _, app := range []*app{a, stale} {
		app.call(t, "PUT", "/v1/strings/k", `{"value":"v"}`).want(t, 200)
		app.call(t, "PUT", "/v1/counters/n", `{"value":42}`).want(t, 200)
	}
	for _, r := range reads {
		ask := func(a *app, query string) answer { return a.call(t, r.method, r.path+"?"+query, r.body) }
		refused := func(query, pointer string) {
			t.Helper()
			if got := ask(a, query); r.method == http.MethodHead {
				got.want(t, 422)
			} else {
				got.refused(t, 422, "validation_failed", pointer)
			}
		}
		for _, word := range []string{"", "Replica", "any", "secondary", "1"} {
			refused("read="+word, "query:read")
		}
		refused("read=replica&read=replica", "query:read")
		for _, ms := range []string{"0", "1999", "-1", "60001", "9223372036854775807"} {
			refused("read=replica&max_staleness_ms="+ms, "query:max_staleness_ms")
		}
		refused("max_staleness_ms=3000", "query:max_staleness_ms")
		refused("read=primary&max_staleness_ms=3000", "query:max_staleness_ms")
		for _, ms := range []string{"", "x", "2e3", "2000.5"} {
			ask(a, "read=replica&max_staleness_ms="+ms).want(t, 400)
		}
		if got := ask(stale, "max_staleness_ms=3000"); got.status >= 300 {
			t.Errorf("%s %s: %d, though the app reads from replicas", r.method, r.path, got.status)
		}
	}
	t.Run("writes know no replicas", func(t *testing.T) {
		for _, w := range singleWrites {
			path := w.path + "?" + w.query + "&read=replica"
			if strings.HasPrefix(path, "/v1/bytes") && w.body != "" {
				a.octets(t, w.method, path, []byte(w.body)).refused(t, 422, "validation_failed", "query:read")
			} else {
				a.call(t, w.method, path, w.body).refused(t, 422, "validation_failed", "query:read")
			}
		}
		for path, body := range map[string]string{"/v1/mset": `{"items":[{"key":"k","value":"w"}]}`, "/v1/mdelete": `{"keys":["k"]}`} {
			a.call(t, "POST", path+"?read=replica", body).refused(t, 422, "validation_failed", "query:read")
		}
		a.call(t, "GET", "/v1/keys?read=replica", "").refused(t, 422, "validation_failed", "query:read")
		a.call(t, "GET", "/v1/strings/k?ttl_ms=60000&read=replica", "").refused(t, 422, "validation_failed", "query:read")
		a.call(t, "GET", "/v1/bytes/k?ttl_ms=60000&read=replica&max_staleness_ms=3000", "").refused(t, 422, "validation_failed", "query:read")
		stale.call(t, "GET", "/v1/bytes/k?ttl_ms=60000&max_staleness_ms=3000", "").refused(t, 422, "validation_failed", "query:max_staleness_ms")
		a.call(t, "GET", "/v1/strings/k?ttl_ms=60000&read=primary", "").want(t, 200)
	})
}

func TestReplicaReadsAreAnsweredByPrimariesWhereTheyAreOff(t *testing.T) {
	a := start(t, func(cfg *store.Config) { cfg.Replicas.Off = true }).app(t)
	a.call(t, "PUT", "/v1/strings/k", `{"value":"v"}`).want(t, 200)
	for range 10 {
		got := a.call(t, "GET", "/v1/strings/k?read=replica", "")
		if got.want(t, 200); got.header.Get("Gateway-Served-By") != "primary" {
			t.Errorf("served by %q", got.header.Get("Gateway-Served-By"))
		}
	}
}
