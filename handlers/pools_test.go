package handlers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/acl"
)

const (
	poolPath     = "/v1/pools/proxies"
	membersPath  = poolPath + "/members"
	allocatePath = poolPath + "/allocations"
	leasesPath   = poolPath + "/leases"
	leastUsed    = `{"policy":"least_used"}`
	inflightOne  = `{"policy":"least_inflight","lease":{"max_ms":60000,"max_per_member":1}}`
)

// pooler is an app that may use pools, with one defined that has these members.
func pooler(t testing.TB, g *gateway, definition string, members ...string) *app {
	t.Helper()
	a := g.app(t, func(app *acl.App) { app.Permissions = []string{"pools:*"} })
	a.call(t, "PUT", poolPath, definition).want(t, 200)
	if len(members) > 0 {
		a.putMembers(t, members...)
	}
	return a
}

// putMembers adds members to the pool, each by a body of its own: a name, or JSON.
func (a *app) putMembers(t testing.TB, members ...string) {
	t.Helper()
	for i, m := range members {
		if !strings.HasPrefix(m, "{") {
			members[i] = fmt.Sprintf(`{"member":%q}`, m)
		}
	}
	m := a.call(t, "PUT", membersPath, `{"members":[`+strings.Join(members, ",")+`]}`).want(t, 200)
	if m["errors"] != false {
		t.Fatalf("%v", m)
	}
}

// allocate gives the answer to one allocation.
func (a *app) allocate(t testing.TB, body string, headers ...string) map[string]any {
	t.Helper()
	return a.call(t, "POST", allocatePath, body, headers...).want(t, 200)
}

func members(t testing.TB, a *app) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, item := range a.call(t, "GET", membersPath, "").want(t, 200)["items"].([]any) {
		m := item.(map[string]any)
		all[m["member"].(string)] = m
	}
	return all
}

func number(v any) string { return fmt.Sprint(v) }

func TestAPoolIsDefinedReadChangedAndDeleted(t *testing.T) {
	a := start(t).app(t, func(app *acl.App) { app.Permissions = []string{"pools:*"} })
	a.call(t, "GET", poolPath, "").refused(t, 404, "pool_not_found", "")
	a.call(t, "PATCH", poolPath, leastUsed).refused(t, 404, "pool_not_found", "")
	a.call(t, "PUT", poolPath, leastUsed, "If-Match: *").refused(t, 412, "precondition_failed", "")

	made := a.call(t, "PUT", poolPath, leastUsed, "If-None-Match: *")
	first := made.want(t, 200)
	lease := first["lease"].(map[string]any)
	if first["name"] != "proxies" || first["policy"] != "least_used" || first["restore"] != "catchup" || number(lease["default_ms"]) != "30000" || number(lease["max_ms"]) != "43200000" {
		t.Errorf("%v", first)
	}
	tag := made.header.Get("ETag")
	again := a.call(t, "PUT", poolPath, leastUsed, "If-None-Match: *")
	if again.refused(t, 412, "precondition_failed", ""); tag == "" || again.header.Get("ETag") != tag {
		t.Errorf("ETag %q, then %q", tag, again.header.Get("ETag"))
	}
	read := a.call(t, "GET", poolPath, "")
	if read.body != made.body || read.header.Get("ETag") != tag {
		t.Errorf("read %s, want %s", read.body, made.body)
	}
	if got := a.call(t, "GET", poolPath, "", "If-None-Match: "+tag); got.status != 304 || got.body != "" {
		t.Errorf("%d %s", got.status, got.body)
	}

	changed := a.call(t, "PATCH", poolPath, `{"lease":{"max_ms":60000}}`, "If-Match: "+tag)
	now := changed.want(t, 200)
	if lease := now["lease"].(map[string]any); number(lease["max_ms"]) != "60000" || number(lease["default_ms"]) != "30000" || now["policy"] != "least_used" {
		t.Errorf("%v", now)
	}
	if now["version"].(json.Number) <= first["version"].(json.Number) {
		t.Errorf("version %v after %v", now["version"], first["version"])
	}
	a.call(t, "PATCH", poolPath, leastUsed, "If-Match: "+tag).refused(t, 412, "precondition_failed", "")
	a.call(t, "PUT", poolPath, leastUsed, "If-Match: "+tag).refused(t, 412, "precondition_failed", "")
	a.call(t, "DELETE", poolPath, "", "If-Match: "+tag).refused(t, 412, "precondition_failed", "")
	a.call(t, "DELETE", poolPath, "", "If-Match: "+changed.header.Get("ETag")).want(t, 204)
	a.call(t, "DELETE", poolPath, "").refused(t, 404, "pool_not_found", "")
	a.call(t, "POST", allocatePath, `{}`).refused(t, 404, "pool_not_found", "")
}

func TestEverySettingOfAPoolIsKept(t *testing.T) {
	a := start(t).app(t, func(app *acl.App) { app.Permissions = []string{"pools:*"} })
	for _, definition := range []string{
		`"policy":"weighted_round_robin","variant":"classic","restore":"min","sticky_ms":1,"lease":{"default_ms":1,"max_ms":2}`,
		`"policy":"weighted_random","restore":"zero","sticky_ms":2592000000,"lease":{"default_ms":43200000,"max_ms":43200000}`,
		`"policy":"least_inflight","restore":"keep","sticky_ms":5,"lease":{"default_ms":3,"max_ms":3,"max_per_member":1000000}`,
		`"policy":"adaptive","restore":"catchup","sticky_ms":5,"lease":{"default_ms":3,"max_ms":3,"max_per_member":4,"abandoned":"failure"},` +
			`"adaptive":{"half_life_ms":101,"floor":0.25,"recover_ms":102,"fail_threshold":3,"fail_span_ms":103,"eject_ms":104,"eject_max_ms":105,"panic":0.75,` +
			`"degrade_latency_factor":1.5,"degrade_error_rate":0.125,"baseline_ms":106}`,
	} {
		a.call(t, "PUT", poolPath, "{"+definition+"}").want(t, 200)
		if got := a.call(t, "GET", poolPath, "").body; !strings.HasSuffix(got, ","+definition+"}") {
			t.Errorf("of %s there is %s", definition, got)
		}
	}
}

func TestPoolsAreListedByPages(t *testing.T) {
	a := start(t).app(t, func(app *acl.App) { app.Permissions = []string{"pools:*"} })
	if m := a.call(t, "GET", "/v1/pools", "").want(t, 200); len(m["items"].([]any)) != 0 || m["next_cursor"] != nil {
		t.Errorf("%v", m)
	}
	for _, name := range []string{"c", "a", "e", "b", "d"} {
		a.call(t, "PUT", "/v1/pools/"+name, leastUsed).want(t, 200)
	}
	var got []string
	for cursor, pages := "", 0; pages < 5; pages++ {
		page := a.call(t, "GET", "/v1/pools?limit=2"+cursor, "").want(t, 200)
		for _, item := range page["items"].([]any) {
			got = append(got, item.(map[string]any)["name"].(string))
		}
		next, more := page["next_cursor"].(string)
		if !more {
			break
		}
		cursor = "&cursor=" + next
	}
	if strings.Join(got, "") != "abcde" {
		t.Errorf("%v", got)
	}
	a.call(t, "DELETE", "/v1/pools/c", "").want(t, 204)
	if m := a.call(t, "GET", "/v1/pools?limit=0", "").want(t, 200); len(m["items"].([]any)) != 1 {
		t.Errorf("a page of none: %v", m)
	}
	if m := a.call(t, "GET", "/v1/pools?limit=101", "").want(t, 200); len(m["items"].([]any)) != 4 {
		t.Errorf("a large page: %v", m)
	}
}

func TestAnAllocationHasAllThatBelongsToIt(t *testing.T) {
	a := pooler(t, start(t), leastUsed, `{"member":"p1","meta":{"url":"http://10.0.0.1:3128","tags":["a","b"]}}`, `{"member":"p2","initial_count":1}`)
	version := number(a.call(t, "GET", poolPath, "").want(t, 200)["version"])
	got := a.call(t, "POST", allocatePath, `{}`)
	got.want(t, 200)
	want := `{"member":"p1","allocations":1,"meta":{"url":"http://10.0.0.1:3128","tags":["a","b"]},"policy":"least_used","pool_version":` + version + `}`
	if got.body != want {
		t.Errorf("%s, want %s", got.body, want)
	}
	three := a.allocate(t, `{"count":3,"lease_ms":5000}`)
	var names []string
	for _, item := range three["items"].([]any) {
		m := item.(map[string]any)
		names = append(names, m["member"].(string)+number(m["allocations"]))
		if m["lease"].(map[string]any)["id"] == "" {
			t.Errorf("no lease: %v", m)
		}
	}
	if strings.Join(names, " ") != "p12 p22 p13" {
		t.Errorf("%v", names)
	}
	if three["member"] != "p1" || number(three["allocations"]) != "2" || fmt.Sprint(three["lease"]) != fmt.Sprint(three["items"].([]any)[0].(map[string]any)["lease"]) {
		t.Errorf("the first is not that of the list: %v", three)
	}
}

func TestNobodyIsAnAnswer(t *testing.T) {
	a := pooler(t, start(t), inflightOne)
	strict := "Prefer: respond-async, status=strict"
	nobody := func(reason string, body string, status int, code string) {
		t.Helper()
		before := a.call(t, "GET", membersPath, "").body
		got := a.call(t, "POST", allocatePath, body)
		m := got.want(t, 200)
		if member, there := m["member"]; !there || member != nil || m["reason"] != reason || m["lease"] != nil || m["allocations"] != nil {
			t.Errorf("%s: %s", reason, got.body)
		}
		refused := a.call(t, "POST", allocatePath, body, strict)
		refused.refused(t, status, code, "")
		if wait := m["retry_after_ms"]; (wait != nil) != (refused.header.Get("Retry-After") != "") {
			t.Errorf("%s: retry_after_ms %v, Retry-After %q", reason, wait, refused.header.Get("Retry-After"))
		}
		if after := a.call(t, "GET", membersPath, "").body; after != before {
			t.Errorf("%s: it was %s, it is %s", reason, before, after)
		}
	}
	nobody("empty", `{}`, 409, "pool_empty")
	a.putMembers(t, "p1")
	nobody("excluded", `{"exclude":["p1"]}`, 409, "pool_empty")
	if m := a.allocate(t, `{}`, strict); m["member"] != "p1" || m["lease"] == nil {
		t.Errorf("%v", m)
	}
	nobody("saturated", `{}`, 429, "pool_saturated")
	a.call(t, "PATCH", poolPath, `{"policy":"weighted_random"}`).want(t, 200)
	a.call(t, "PATCH", membersPath+"/p1", `{"weight":0}`).want(t, 200)
	nobody("no_weight", `{}`, 409, "pool_empty")
	a.call(t, "PATCH", membersPath+"/p1", `{"weight":1,"cooldown_ms":3600000}`).want(t, 200)
	nobody("cooling", `{}`, 409, "pool_empty")
}

func TestPermissionsOfPools(t *testing.T) {
	g := start(t)
	with := func(permissions ...string) *app {
		return g.app(t, func(app *acl.App) { app.Permissions = permissions })
	}
	lease := leasesPath + "/Zk3Vb1uT0hYw8mQe2nLxRA"
	reads := []bad{{method: "GET", path: "/v1/pools"}, {method: "GET", path: poolPath}, {method: "GET", path: membersPath}, {method: "GET", path: membersPath + "/p1"}, {method: "GET", path: leasesPath}}
	writes := []bad{
		{method: "PUT", path: poolPath, body: leastUsed}, {method: "PATCH", path: poolPath, body: leastUsed}, {method: "DELETE", path: poolPath},
		{method: "PUT", path: membersPath, body: `{"members":[]}`}, {method: "PUT", path: membersPath + "/p1", body: `{}`},
		{method: "PATCH", path: membersPath + "/p1", body: `{}`}, {method: "DELETE", path: membersPath + "/p1"}, {method: "POST", path: poolPath + "/rebase"},
		{method: "POST", path: allocatePath, body: `{}`}, {method: "POST", path: poolPath + "/reports", body: `{"reports":[{"member":"p1","outcome":"failure"}]}`},
		{method: "PATCH", path: lease, body: `{"fence":1,"lease_ms":1}`}, {method: "POST", path: lease + "/complete", body: `{"fence":1}`},
	}
	for _, b := range append(reads, writes...) {
		with("strings:*", "ratelimits:*").call(t, b.method, b.path, b.body).refused(t, 403, "forbidden", "")
	}
	reader := with("pools:read")
	for _, b := range writes {
		reader.call(t, b.method, b.path, b.body).refused(t, 403, "forbidden", "")
	}
	reader.call(t, "GET", "/v1/pools", "").want(t, 200)
	reader.call(t, "GET", membersPath, "").refused(t, 404, "pool_not_found", "")
	owner := pooler(t, g, inflightOne, "p1")
	worker := g.app(t, func(app *acl.App) {
		app.Permissions, app.Namespace = []string{"commands:POOL|ALLOCATE", "commands:POOL|LEASE"}, owner.identity.App.Namespace
	})
	worker.allocate(t, `{}`)
	worker.call(t, "POST", lease+"/complete", `{"fence":1}`).refused(t, 404, "lease_not_found", "")
	worker.call(t, "POST", lease+"/complete", `{"fence":1,"outcome":"success"}`).refused(t, 403, "forbidden", "")
	worker.call(t, "POST", poolPath+"/reports", reportsOf(1)).refused(t, 403, "forbidden", "")
	worker.call(t, "PUT", poolPath, leastUsed).refused(t, 403, "forbidden", "")
}

func TestAnAppNeverSeesThePoolsOfAnother(t *testing.T) {
	g := start(t)
	mine := pooler(t, g, inflightOne, "p1")
	lease := mine.allocate(t, `{}`)["lease"].(map[string]any)
	theirs := g.app(t, func(app *acl.App) { app.Permissions = []string{"pools:*"} })
	if m := theirs.call(t, "GET", "/v1/pools", "").want(t, 200); len(m["items"].([]any)) != 0 {
		t.Errorf("%v", m)
	}
	for _, path := range []string{poolPath, membersPath, leasesPath} {
		theirs.call(t, "GET", path, "").refused(t, 404, "pool_not_found", "")
	}
	theirs.call(t, "DELETE", poolPath, "").refused(t, 404, "pool_not_found", "")
	theirs.call(t, "PUT", poolPath, leastUsed).want(t, 200)
	if m := theirs.allocate(t, `{}`); m["reason"] != "empty" {
		t.Errorf("%v", m)
	}
	theirs.call(t, "POST", leasesPath+"/"+lease["id"].(string)+"/complete", `{"fence":`+number(lease["fence"])+`}`).refused(t, 404, "lease_not_found", "")
	theirs.call(t, "DELETE", poolPath, "").want(t, 204)
	if all := members(t, mine); number(all["p1"]["inflight"]) != "1" {
		t.Errorf("%v", all)
	}
}

// What is one request of many things costs as many requests.
func TestEachOfManyCountsAgainstTheQuota(t *testing.T) {
	g := start(t)
	for path, ask := range map[string]struct{ method, body string }{
		allocatePath:          {"POST", `{"count":6}`},
		poolPath + "/reports": {"POST", reportsOf(6)},
		membersPath:           {"PUT", candidates(6)},
	} {
		owner := pooler(t, g, leastUsed, "p1")
		before := owner.call(t, "GET", membersPath, "").body
		poor := g.app(t, func(app *acl.App) {
			app.Permissions, app.Namespace = []string{"pools:*"}, owner.identity.App.Namespace
			app.Limits = []acl.Limit{{ID: "r", Per: "app", Of: "requests", Limit: 5, PeriodMS: 3600_000, Burst: 5}}
		})
		poor.call(t, ask.method, path, ask.body).refused(t, 429, "quota_exceeded", "")
		if path == allocatePath { // more than any quota could allow is not for trying again
			poor.call(t, "POST", path, `{"count":17}`).refused(t, 422, "validation_failed", "/count")
		}
		if after := owner.call(t, "GET", membersPath, "").body; after != before {
			t.Errorf("%s: it was %s, it is %s", path, before, after)
		}
	}
}
