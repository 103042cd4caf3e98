package handlers_test

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

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
// does not answer; the others let a take pass. They are defined through another gateway, on which all is well.
func TestEveryFailedWriteOfARateLimitSaysWhatBecameOfIt(t *testing.T) {
	good := start(t)
	for name, f := range faults(t) {
		t.Run(name, func(t *testing.T) {
			well := f.elsewhere(good)
			for n, route := range slices.Sorted(maps.Keys(limitWrites)) {
				own := "l" + strconv.Itoa(n)
				path := "/v1/ratelimits/" + own
				well.call(t, "PUT", path, on("closed")).want(t, 200)
				well.call(t, "PUT", path+"/overrides/"+own, numbers(1)).want(t, 204)
				well.call(t, "POST", path+"/take", `{"subject":"`+own+`"}`).want(t, 200)
				f.try(t, attempt{
					route: route, body: limitWrites[route], known: path,
					with:   strings.NewReplacer(":name", own, ":subject", own, "KEY", own),
					stored: func() string { return f.stored(t, own) },
				})
			}
		})
	}
}

// attempt is a write that is tried on a gateway on which it fails.
type attempt struct {
	route  string // as gin has it, with the method
	with   *strings.Replacer
	body   string
	known  string        // the path of what it is about, which the gateway has seen before it fails
	stored func() string // what there is of that, to compare
}

// try makes the attempt, and fails unless the answer says what became of it. Where anything may have become of it, that nothing has is an
// answer too, and compared as every other.
func (f fault) try(t *testing.T, w attempt) {
	t.Helper()
	if f.bodyOnly && w.body == "" {
		return
	}
	before := w.stored()
	if f.break_ != nil {
		f.break_(w.known)
	}
	method, path, _ := strings.Cut(w.with.Replace(w.route), " ")
	a := f.app.call(t, method, path, w.with.Replace(w.body), "X-Request-Deadline-Ms: 200")
	outcomes := told(t, w.route, a)
	for _, o := range outcomes {
		if f.outcome != "" && o != f.outcome && (f.outcome != "unknown" || o != "not_applied") || o == "" {
			t.Errorf("%s: outcome %q, want %q: %d %s", w.route, o, f.outcome, a.status, a.body)
		}
	}
	if f.code != "" && !strings.Contains(a.body, `"code":"`+f.code+`"`) {
		t.Errorf("%s: want the code %s: %s", w.route, f.code, a.body)
	}
	if a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "" {
		t.Errorf("%s: 503 without Retry-After", w.route)
	}
	if after := w.stored(); after != before && !slices.Contains(outcomes, "unknown") {
		t.Errorf("%s: %v, but it was %q and is %q", w.route, outcomes, before, after)
	}
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

// elsewhere is the app on another gateway, which knows its cluster.
func (f fault) elsewhere(g *gateway) *app {
	identity, tenant := *f.app.identity, *f.app.identity.App
	tenant.Cluster, identity.App = "default", &tenant
	g.people[f.app.token] = &identity
	return &app{g, f.app.token, &identity}
}
