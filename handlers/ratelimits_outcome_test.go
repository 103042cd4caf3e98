package handlers_test

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

// limitWrites are a request to each route that changes a rate limit; KEY is its name, and that of its subject.
var limitWrites = map[string]string{
	"PUT /v1/ratelimits/:name":                       perMinute,
	"DELETE /v1/ratelimits/:name":                    "",
	"POST /v1/ratelimits/:name/take":                 `{"subject":"KEY"}`,
	"POST /v1/ratelimits/:name/refund":               `{"subject":"KEY","cost":1}`,
	"DELETE /v1/ratelimits/:name/subjects/:subject":  "",
	"PUT /v1/ratelimits/:name/overrides/:subject":    numbers(9),
	"DELETE /v1/ratelimits/:name/overrides/:subject": "",
	"POST /v1/ratelimits/take":                       `{"items":[{"name":"KEY","subject":"KEY"}]}`,
}

// postOnly says whether a route is one that only says so, where gin would take the path for the name of a limit.
func postOnly(r gin.RouteInfo) bool {
	return r.Path == "/v1/ratelimits/take" && r.Method != http.MethodPost
}

// TestEveryFailedWriteOfARateLimitSaysWhatBecameOfIt is TestEveryFailedWriteSaysWhatBecameOfIt for limits that are closed when Redis
// does not answer; the others let a take pass.
func TestEveryFailedWriteOfARateLimitSaysWhatBecameOfIt(t *testing.T) {
	for name, f := range faults(t) {
		t.Run(name, func(t *testing.T) {
			for n, route := range slices.Sorted(maps.Keys(limitWrites)) {
				own := "l" + strconv.Itoa(n)
				body := strings.ReplaceAll(limitWrites[route], "KEY", own)
				if f.bodyOnly && body == "" {
					continue
				}
				before := f.defined(t, own, strings.Contains(route, "/subjects/"))
				if f.break_ != nil {
					f.break_(own)
				}
				method, path, _ := strings.Cut(strings.NewReplacer(":name", own, ":subject", own).Replace(route), " ")
				a := f.app.call(t, method, path, body, "X-Request-Deadline-Ms: 200")
				outcomes := told(t, route, a)
				for _, o := range outcomes {
					if f.outcome != "" && o != f.outcome || o == "" {
						t.Errorf("%s: outcome %q, want %q: %d %s", route, o, f.outcome, a.status, a.body)
					}
				}
				if f.code != "" && !strings.Contains(a.body, `"code":"`+f.code+`"`) {
					t.Errorf("%s: want the code %s: %s", route, f.code, a.body)
				}
				if a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "" {
					t.Errorf("%s: 503 without Retry-After", route)
				}
				if after := f.stored(t, own); after != before && !slices.Contains(outcomes, "unknown") {
					t.Errorf("%s: %v, but it was %q and is %q", route, outcomes, before, after)
				}
			}
		})
	}
}

// defined stores a limit with an override as the gateway does, and the key by which strings tell that a gateway has come back. used
// gives its subject a state, which is not looked into.
func (f fault) defined(t *testing.T, name string, used bool) (stored string) {
	t.Helper()
	tag := "slotgate:r:{" + f.app.identity.App.Namespace + "/" + name + "}:"
	fields := map[string]string{
		"v": "1", "d": on("closed"), "o" + name: `{"rules":[{"id":"minute","algorithm":"token_bucket","limit":1,"period_ms":60000,"burst":1}]}`,
	}
	redis := f.app.redis
	err := redis.Del(t.Context(), tag+"d", tag+"s:"+name).Err()
	if err == nil {
		err = redis.HSet(t.Context(), tag+"d", fields).Err()
	}
	if err == nil && used {
		err = redis.Set(t.Context(), tag+"s:"+name, "used", time.Hour).Err()
	}
	if err == nil {
		err = redis.Set(t.Context(), f.app.stored(name), "7", time.Hour).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.stored(t, name)
}

// stored is all that Redis has of a limit and its subject.
func (f fault) stored(t *testing.T, name string) string {
	t.Helper()
	tag := "slotgate:r:{" + f.app.identity.App.Namespace + "/" + name + "}:"
	var parts []string
	for _, key := range []string{tag + "d", tag + "s:" + name} {
		parts = append(parts, f.app.redis.Dump(t.Context(), key).Val())
	}
	return strings.Join(parts, " ")
}
