package handlers_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// singleWrites are all writes of one key, in an order in which each finds what it needs.
var singleWrites = []struct{ method, path, query, body string }{
	{"PUT", "/v1/strings/k", "", `{"value":"abcdef"}`},
	{"POST", "/v1/strings/k/append", "", `{"value":"2"}`},
	{"PUT", "/v1/strings/k/range", "", `{"offset":3,"value":"2"}`},
	{"PUT", "/v1/keys/k/ttl", "", `{"ttl_ms":60000}`},
	{"DELETE", "/v1/keys/k/ttl", "", ""},
	{"DELETE", "/v1/strings/k", "return=value", ""},
	{"PUT", "/v1/counters/k", "", `{"value":1}`},
	{"POST", "/v1/counters/k/add", "", `{"delta":1}`},
	{"DELETE", "/v1/keys/k", "", ""},
	{"PUT", "/v1/bytes/k", "", "abcdef"},
	{"POST", "/v1/bytes/k/append", "", "2"},
	{"PUT", "/v1/bytes/k/range", "offset=3", "2"},
	{"DELETE", "/v1/bytes/k", "", ""},
}

// said are the headers that tell the durability of an answer.
func said(h http.Header) string {
	return h.Get("Gateway-Durability") + " " + h.Get("Gateway-Acked-Replicas")
}

func TestDurability(t *testing.T) {
	g := start(t)
	a := g.app(t)
	safe := g.app(t, func(a *acl.App) { a.Durability = acl.Replica })
	write := func(a *app, i int, more string) string {
		t.Helper()
		w := singleWrites[i]
		path := w.path + "?" + w.query + "&" + more
		var got answer
		if strings.HasPrefix(path, "/v1/bytes") && w.body != "" {
			got = a.octets(t, w.method, path, []byte(w.body))
		} else {
			got = a.call(t, w.method, path, w.body)
		}
		if got.status >= 300 {
			t.Errorf("%s %s: status %d, %s", w.method, path, got.status, got.body)
		}
		return said(got.header)
	}
	t.Run("every write of one key can be durable, and says so", func(t *testing.T) {
		for i, w := range singleWrites {
			if got := write(a, i, "durability=replica"); got != "replica 1" {
				t.Errorf("%s %s: %q", w.method, w.path, got)
			}
		}
	})
	t.Run("it is async unless asked for", func(t *testing.T) {
		for _, more := range []string{"", "durability=async"} {
			for i, w := range singleWrites {
				if got := write(a, i, more); got != " " {
					t.Errorf("%s %s: %q", w.method, w.path, got)
				}
			}
		}
	})
	t.Run("or unless the app asks for it", func(t *testing.T) {
		for i, w := range singleWrites {
			if got := write(safe, i, ""); got != "replica 1" {
				t.Errorf("%s %s: %q", w.method, w.path, got)
			}
		}
		if got := said(safe.call(t, "PUT", "/v1/strings/k?durability=async", `{"value":"v"}`).header); got != " " {
			t.Errorf("the request goes before the app: %q", got)
		}
		if got := said(safe.call(t, "GET", "/v1/strings/k", "").header); got != " " {
			t.Errorf("a read says %q", got)
		}
		if got := safe.call(t, "GET", "/v1/whoami", "").want(t, 200)["durability"]; got != "replica" {
			t.Errorf("whoami says %v", got)
		}
	})
	t.Run("another word is refused, and so it is on reads", func(t *testing.T) {
		for _, word := range []string{"", "Replica", "all", "2", "wait"} {
			a.call(t, "PUT", "/v1/strings/no?durability="+word, `{"value":"v"}`).refused(t, 422, "validation_failed", "query:durability")
		}
		a.call(t, "PUT", "/v1/strings/no?durability=async&durability=replica", `{"value":"v"}`).refused(t, 422, "validation_failed", "query:durability")
		a.call(t, "GET", "/v1/strings/no?durability=replica", "").refused(t, 422, "validation_failed", "query:durability")
		a.call(t, "GET", "/v1/strings/no", "").refused(t, 404, "key_not_found", "")
	})
	t.Run("batches are async, and never without the app's knowing", func(t *testing.T) {
		for path, body := range map[string]string{"/v1/mset": `{"items":[{"key":"no","value":"v"}]}`, "/v1/mdelete": `{"keys":["no"]}`} {
			a.call(t, "POST", path+"?durability=async", body).want(t, 200)
			a.call(t, "POST", path+"?durability=replica", body).refused(t, 422, "validation_failed", "query:durability")
			safe.call(t, "POST", path, body).refused(t, 422, "validation_failed", "query:durability")
			safe.call(t, "POST", path+"?durability=async", body).want(t, 200)
		}
		safe.call(t, "POST", "/v1/mget", `{"keys":["no"]}`).want(t, 200)
	})
	t.Run("with a replica that hangs it is 504 applied", func(t *testing.T) {
		c := clustertest.Shared(t)
		if err := c.StallReplication(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.ResumeReplication(context.Background()); err != nil {
				t.Error(err)
			}
		})
		got := a.call(t, "PUT", "/v1/strings/stalled?durability=replica", `{"value":"v"}`)
		if got.refused(t, 504, "applied_not_replicated", ""); got.want(t, 504)["outcome"] != "applied" || got.want(t, 504)["retryable"] != false {
			t.Error(got.body)
		}
		a.call(t, "GET", "/v1/strings/stalled", "").want(t, 200)
	})
}

func TestDurabilityThatTheClusterCannotGiveIs501(t *testing.T) {
	a := start(t, func(cfg *store.Config) { cfg.Durability.FsyncWait = time.Second }).app(t)
	// The shared cluster has no append-only file, and Redis 7.0 no WAITAOF.
	got := a.call(t, "PUT", "/v1/strings/k?durability=fsync", `{"value":"v"}`)
	if got.refused(t, 501, "unsupported_by_cluster", ""); got.want(t, 501)["outcome"] != "not_applied" {
		t.Error(got.body)
	}
	a.call(t, "GET", "/v1/strings/k", "").refused(t, 404, "key_not_found", "")
}
