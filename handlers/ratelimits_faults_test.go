package handlers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
)

// on is a definition with a way to fail.
func on(mode string) string { return `{"on_error":"` + mode + `",` + perMinute[1:] }

// behindProxies is an app that may use rate limits, and a call that breaks every node.
func behindProxies(t *testing.T, break_ func(*faultproxy.Proxy)) (*app, func()) {
	c := clustertest.Shared(t)
	proxies := clustertest.Proxied(t, c)
	g := start(t, func(cfg *store.Config) {
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: proxies.Dial}
		cfg.Circuit.OpenAfter = 100 * time.Millisecond
	})
	a := g.app(t, func(app *acl.App) { app.Permissions = []string{"ratelimits:*"} })
	return a, func() {
		for _, addr := range c.Addrs() {
			break_(proxies.Proxy(addr))
		}
	}
}

// TestADeadShardIsAnsweredAsTheLimitIsDefined: never 500, whatever the nodes do.
func TestADeadShardIsAnsweredAsTheLimitIsDefined(t *testing.T) {
	for name, break_ := range map[string]func(*faultproxy.Proxy){
		"silent":  (*faultproxy.Proxy).BlackHole,
		"refuses": func(p *faultproxy.Proxy) { p.Refuse(); p.ResetAll() },
	} {
		t.Run(name, func(t *testing.T) {
			a, broken := behindProxies(t, break_)
			path := func(mode string) string { return "/v1/ratelimits/" + mode }
			for _, mode := range []string{"open", "closed", "local"} {
				a.call(t, "PUT", path(mode), on(mode)).want(t, 200)
				a.call(t, "POST", path(mode)+"/take", `{"subject":"u"}`).want(t, 200)
			}
			broken()

			open := a.call(t, "POST", path("open")+"/take", `{"subject":"u","cost":2}`)
			if m := open.want(t, 200); m["allowed"] != true || m["source"] != "fail_open" || fmt.Sprint(m["granted"], m["rules"]) != "2[]" {
				t.Errorf("open: %s", open.body)
			}
			if open.header.Get("RateLimit") != "" {
				t.Errorf("open tells what is left: %v", open.header)
			}
			closed := a.call(t, "POST", path("closed")+"/take", `{"subject":"u"}`)
			closed.refused(t, 503, "limiter_unavailable", "")
			if closed.header.Get("Retry-After") == "" || closed.want(t, 503)["outcome"] == nil {
				t.Errorf("closed: %s", closed.body)
			}
			var allowed []string
			for range 4 { // of a burst of 3, none of which this gateway has counted
				m := a.call(t, "POST", path("local")+"/take", `{"subject":"u"}`).want(t, 200)
				allowed = append(allowed, fmt.Sprint(m["source"], m["allowed"]))
			}
			if got := strings.Join(allowed, " "); got != "localtrue localtrue localtrue localfalse" {
				t.Errorf("local: %s", got)
			}

			for what, got := range map[string]answer{
				"a take of a limit that was never seen": a.call(t, "POST", "/v1/ratelimits/unseen/take", `{"subject":"u"}`),
				"a definition":                          a.call(t, "PUT", path("open"), perMinute),
				"a refund":                              a.call(t, "POST", path("open")+"/refund", `{"subject":"u","cost":1}`),
				"a reset":                               a.call(t, "DELETE", path("open")+"/subjects/u", ""),
				"an override's end":                     a.call(t, "DELETE", path("open")+"/overrides/u", ""),
				"a deletion":                            a.call(t, "DELETE", path("open"), ""),
			} {
				if got.status != 503 && got.status != 504 {
					t.Errorf("%s: status %d: %s", what, got.status, got.body)
				} else if got.want(t, got.status)["outcome"] == nil {
					t.Errorf("%s has no outcome: %s", what, got.body)
				}
			}
			batch := a.call(t, "POST", "/v1/ratelimits/take", `{"items":[{"name":"open","subject":"u"},{"name":"closed","subject":"u"}]}`).want(t, 200)
			if batch["errors"] != true || !strings.Contains(fmt.Sprint(batch["items"]), "fail_open") || !strings.Contains(fmt.Sprint(batch["items"]), "limiter_unavailable") {
				t.Errorf("%v", batch)
			}
		})
	}
}

// TestAChangeIsSeenByOtherGateways: this one knows at once, others when they ask again.
func TestAChangeIsSeenByOtherGateways(t *testing.T) {
	one, two := start(t), start(t)
	a := limiter(t, one, perMinute)
	two.people[a.token] = a.identity
	b := &app{two, a.token, a.identity}
	b.take(t, "u")
	a.call(t, "PUT", limitPath, strings.Replace(perMinute, `"burst":3`, `"burst":1`, 1)).want(t, 200)
	if m := a.call(t, "POST", limitPath+"/peek", `{"subject":"u","min_grant":1,"cost":3}`).want(t, 200); m["allowed"] != false {
		t.Errorf("the gateway that changed it: %v", m)
	}
	eventually(t, "the other gateway follows", func() bool {
		return b.call(t, "POST", takePath, `{"subject":"v","cost":3}`).status == 422
	})
	a.call(t, "DELETE", limitPath, "").want(t, 204)
	eventually(t, "the other gateway forgets", func() bool {
		return b.call(t, "POST", takePath, `{"subject":"v"}`).status == 404
	})
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}
