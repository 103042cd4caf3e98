package handlers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
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

// picks are who n allocations give, one after the other; of nobody the reason.
func (a *app) picks(t testing.TB, n int) string {
	t.Helper()
	list := make([]string, n)
	for i := range list {
		if m := a.allocate(t, `{}`); m["member"] == nil {
			list[i] = m["reason"].(string)
		} else {
			list[i] = m["member"].(string)
		}
	}
	return strings.Join(list, " ")
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

func TestMembersArePutReadChangedAndRemoved(t *testing.T) {
	a := pooler(t, start(t), leastUsed)
	path := membersPath + "/p1"
	a.call(t, "GET", path, "").refused(t, 404, "member_not_found", "")
	a.call(t, "PATCH", path, `{"weight":2}`).refused(t, 404, "member_not_found", "")
	a.call(t, "DELETE", path, "").refused(t, 404, "member_not_found", "")
	for _, step := range []struct{ method, body, outcome string }{
		{"PUT", `{"initial_count":7,"meta":{ "url" : "http://10.0.0.1:3128" }}`, "added"},
		{"PUT", `{"weight":1}`, "unchanged"},
		{"PATCH", `{"weight":3}`, "changed"},
		{"PATCH", `{"weight":3,"available":true}`, "unchanged"},
		{"PATCH", `{"available":false,"cooldown_ms":60000}`, "changed"},
	} {
		if m := a.call(t, step.method, path, step.body).want(t, 200); m["outcome"] != step.outcome || m["member"] != "p1" {
			t.Errorf("%s %s: %v", step.method, step.body, m)
		}
	}
	one := a.call(t, "GET", path, "")
	m := one.want(t, 200)
	if m["member"] != "p1" || number(m["weight"]) != "3" || m["available"] != false || number(m["allocations"]) != "7" || m["cooling_until_ms"] == nil ||
		!strings.Contains(one.body, `"meta":{"url":"http://10.0.0.1:3128"}`) {
		t.Errorf("%s", one.body)
	}
	if all := a.call(t, "GET", membersPath, ""); !strings.Contains(all.body, `"items":[`+one.body+`]`) {
		t.Errorf("%s is not in %s", one.body, all.body)
	}
	a.call(t, "DELETE", path, "").want(t, 204)
	a.call(t, "PUT", path, `{}`).want(t, 200)
	if m := members(t, a)["p1"]; number(m["allocations"]) != "7" || m["meta"] != nil {
		t.Errorf("its history is not kept, or more than that: %v", m)
	}
	a.call(t, "DELETE", path+"?history=drop", "").want(t, 204)
	a.call(t, "PUT", path, `{}`).want(t, 200)
	if m := members(t, a)["p1"]; number(m["allocations"]) != "0" {
		t.Errorf("its history is kept: %v", m)
	}
}

func TestAListOfMembersIsMergedOrReplacesAnother(t *testing.T) {
	a := pooler(t, start(t), leastUsed)
	put := func(mode string, dry bool, names ...string) string {
		t.Helper()
		list := make([]string, len(names))
		for i, n := range names {
			list[i] = `{"member":"` + n + `"}`
		}
		m := a.call(t, "PUT", membersPath, fmt.Sprintf(`{"mode":%q,"dry_run":%v,"members":[%s]}`, mode, dry, strings.Join(list, ","))).want(t, 200)
		var out []string
		for _, item := range m["items"].([]any) {
			out = append(out, item.(map[string]any)["member"].(string)+":"+item.(map[string]any)["outcome"].(string))
		}
		return strings.Join(out, " ")
	}
	for _, step := range []struct{ got, want string }{
		{put("merge", true, "b", "a"), "b:added a:added"},
		{put("merge", false, "b", "a"), "b:added a:added"},
		{put("merge", false, "c", "a"), "c:added a:unchanged"},
		{put("replace", true, "c", "d"), "c:unchanged d:added b:removed a:removed"},
		{put("replace", false, "c", "d"), "c:unchanged d:added b:removed a:removed"},
		{put("replace", false), "c:removed d:removed"},
		{put("merge", false), ""},
	} {
		if step.got != step.want {
			t.Errorf("got %q, want %q", step.got, step.want)
		}
	}
}

// anyBytes are members that a path, JSON or a script could spoil.
var anyBytes = []string{"a/b", "{}:%", "%2F", ".", "..", "é", "\x00", " ", "+", "\"\\\n", "\xff\xfe", strings.Repeat("m", 256), strings.Repeat("\xff", 256)}

func TestAMemberMayBeAnyBytes(t *testing.T) {
	a := pooler(t, start(t), leastUsed)
	for i, m := range anyBytes {
		encoded := base64url(m)
		for _, path := range []string{membersPath + "/" + percent(m), membersPath + "/" + encoded + "?key_encoding=base64url"} {
			put := a.call(t, "PUT", path, fmt.Sprintf(`{"initial_count":%d}`, i)).want(t, 200)
			read := a.call(t, "GET", path, "").want(t, 200)
			for _, got := range []map[string]any{put, read} {
				name, text := got["member"].(string)
				if !text {
					name = unbase64(t, got["member_base64url"].(string))
				}
				if name != m {
					t.Errorf("%q comes back as %q", m, name)
				}
			}
		}
		mine := a.allocate(t, `{"exclude":[],"key_encoding":"base64url"}`)
		if i == 0 && mine["member_base64url"] != encoded {
			t.Errorf("%q: %v", m, mine)
		}
		rest := a.call(t, "POST", allocatePath, `{"exclude":["`+encoded+`"],"key_encoding":"base64url"}`).want(t, 200)
		if rest["member_base64url"] == encoded || i == 0 && rest["reason"] != "excluded" {
			t.Errorf("%q is excluded: %v", m, rest)
		}
		reported := a.call(t, "POST", poolPath+"/reports", `{"key_encoding":"base64url","reports":[{"member":"`+encoded+`","outcome":"success","latency_ms":1}]}`).want(t, 200)
		if item := reported["items"].([]any)[0].(map[string]any); item["member_base64url"] != encoded || item["state"] != "healthy" {
			t.Errorf("%q: %v", m, item)
		}
	}
	bulk := make([]string, len(anyBytes))
	for i, m := range anyBytes {
		bulk[i] = `{"member":"` + base64url(m) + `"}`
	}
	m := a.call(t, "PUT", membersPath, `{"key_encoding":"base64url","mode":"replace","members":[`+strings.Join(bulk, ",")+`]}`).want(t, 200)
	for i, item := range m["items"].([]any) {
		if item := item.(map[string]any); item["outcome"] != "unchanged" || item["member_base64url"] != base64url(anyBytes[i]) {
			t.Errorf("%q: %v", anyBytes[i], item)
		}
	}
	if n := len(m["items"].([]any)); n != len(anyBytes) {
		t.Errorf("%d members", n)
	}
	for _, m := range anyBytes {
		a.call(t, "DELETE", membersPath+"/"+percent(m), "").want(t, 204)
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

func TestALeaseIsRenewedAndCompleted(t *testing.T) {
	g := start(t)
	a := pooler(t, g, inflightOne, "p1")
	const t0 int64 = vectorStart
	g.clock.Store(t0)
	lease := func() (path, fence string) {
		l := a.allocate(t, `{"lease_ms":30000}`)["lease"].(map[string]any)
		return leasesPath + "/" + l["id"].(string), number(l["fence"])
	}
	path, fence := lease()
	if list := a.call(t, "GET", leasesPath, "").want(t, 200)["items"].([]any); len(list) != 1 || !strings.HasSuffix(path, list[0].(map[string]any)["id"].(string)) {
		t.Errorf("%v", list)
	}
	g.clock.Store(t0 + 10e6)
	m := a.call(t, "PATCH", path, `{"fence":`+fence+`,"lease_ms":30000}`).want(t, 200)
	if m["member"] != "p1" || number(m["held_ms"]) != "10000" || number(m["expires_at_ms"]) != fmt.Sprint((t0+40e6)/1000) {
		t.Errorf("%v", m)
	}
	a.call(t, "PATCH", path, `{"fence":1,"lease_ms":30000}`).refused(t, 409, "fence_mismatch", "")
	a.call(t, "POST", path+"/complete", `{"fence":1}`).refused(t, 409, "fence_mismatch", "")
	done := a.call(t, "POST", path+"/complete", `{"fence":`+fence+`,"outcome":"success","latency_ms":10}`).want(t, 200)
	if done["late"] != false || done["member"] != "p1" || done["health"].(map[string]any)["state"] != "healthy" {
		t.Errorf("%v", done)
	}
	a.call(t, "POST", path+"/complete", `{"fence":`+fence+`}`).refused(t, 404, "lease_not_found", "")

	path, fence = lease()
	g.clock.Store(t0 + 41e6)
	a.call(t, "PATCH", path, `{"fence":`+fence+`,"lease_ms":30000}`).refused(t, 409, "lease_lost", "")
	for query, n := range map[string]int{"?expired=true": 1, "?expired=false": 0, "?member=p1": 1, "?member=p2": 0, "?member=" + base64url("p1") + "&key_encoding=base64url": 1} {
		if list := a.call(t, "GET", leasesPath+query, "").want(t, 200)["items"].([]any); len(list) != n {
			t.Errorf("%s: %v", query, list)
		}
	}
	if late := a.call(t, "POST", path+"/complete", `{"fence":`+fence+`}`).want(t, 200); late["late"] != true || late["health"] != nil {
		t.Errorf("%v", late)
	}
}

func TestAnAllocationIsRepeatedSafely(t *testing.T) {
	a := pooler(t, start(t), inflightOne, "p1", "p2")
	one, two := a.call(t, "POST", allocatePath, `{}`, "Idempotency-Key: k1"), a.call(t, "POST", allocatePath, `{}`, "Idempotency-Key: k1")
	if m := one.want(t, 200); m["member"] != "p1" || two.body != one.body || two.header.Get("Idempotency-Replayed") != "true" || one.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%s, then %s %v", one.body, two.body, two.header)
	}
	if m := a.allocate(t, `{}`); m["member"] != "p2" {
		t.Errorf("the repetition has allocated too: %v", m)
	}
	a.call(t, "POST", allocatePath, `{"count":1}`, "Idempotency-Key: k1").refused(t, 422, "idempotency_mismatch", "header:Idempotency-Key")
	if m := a.allocate(t, `{}`, "Idempotency-Key: k2"); m["reason"] != "saturated" {
		t.Errorf("%v", m)
	}
	lease := one.want(t, 200)["lease"].(map[string]any)
	complete, body := leasesPath+"/"+lease["id"].(string)+"/complete", `{"fence":`+number(lease["fence"])+`}`
	first, again := a.call(t, "POST", complete, body, "Idempotency-Key: k3"), a.call(t, "POST", complete, body, "Idempotency-Key: k3")
	if first.want(t, 200); again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s, then %d %s", first.body, again.status, again.body)
	}
	if m := a.allocate(t, `{}`, "Idempotency-Key: k2"); m["member"] != "p1" { // that there was nobody is not kept
		t.Errorf("%v", m)
	}
	for path, methods := range map[string][]string{poolPath: {"PUT", "PATCH", "DELETE", "GET"}, membersPath: {"PUT"}, membersPath + "/p1": {"PUT", "PATCH", "DELETE"}, poolPath + "/reports": {"POST"}, strings.TrimSuffix(complete, "/complete"): {"PATCH"}, poolPath + "/rebase": {"POST"}} {
		for _, method := range methods {
			a.call(t, method, path, "", "Idempotency-Key: k").refused(t, 422, "idempotency_unsupported", "header:Idempotency-Key")
		}
	}
}

func TestReportsTellTheStateOfMembers(t *testing.T) {
	a := pooler(t, start(t), `{"policy":"adaptive"}`, "p1", "p2")
	m := a.call(t, "POST", poolPath+"/reports", `{"reports":[{"member":"p1","outcome":"success","latency_ms":12.5,"saturation":0.5},{"member":"gone","outcome":"failure"},{"member":"p2","outcome":"timeout","latency_ms":100}]}`).want(t, 200)
	var got []string
	for _, item := range m["items"].([]any) {
		got = append(got, fmt.Sprint(item.(map[string]any)["member"], " ", item.(map[string]any)["state"]))
	}
	if len(got) != 3 || got[0] != "p1 healthy" || got[1] != "gone unknown" || !strings.HasPrefix(got[2], "p2 ") {
		t.Errorf("%q", got)
	}
	all := members(t, a)
	if all["gone"] != nil || all["p1"]["health"].(map[string]any)["state"] != "healthy" {
		t.Errorf("%v", all)
	}
}

func TestCountsAreRebased(t *testing.T) {
	a := pooler(t, start(t), leastUsed, `{"member":"p1","initial_count":41}`, `{"member":"p2","initial_count":43}`)
	if m := a.call(t, "POST", poolPath+"/rebase", "").want(t, 200); number(m["subtracted"]) != "41" {
		t.Errorf("%v", m)
	}
	if all := members(t, a); number(all["p1"]["allocations"]) != "0" || number(all["p2"]["allocations"]) != "2" {
		t.Errorf("%v", all)
	}
}

// The policy may be changed while leases are out.
func TestLeasesSurviveAChangeOfThePolicy(t *testing.T) {
	a := pooler(t, start(t), inflightOne, "p1", "p2")
	lease := a.allocate(t, `{}`)["lease"].(map[string]any)
	for _, policy := range []string{"round_robin", "adaptive", "weighted_round_robin", "least_used"} {
		a.call(t, "PATCH", poolPath, `{"policy":"`+policy+`"}`).want(t, 200)
		if m := a.allocate(t, `{}`); m["policy"] != policy || m["member"] == nil {
			t.Errorf("%s: %v", policy, m)
		}
	}
	path, fence := leasesPath+"/"+lease["id"].(string), number(lease["fence"])
	a.call(t, "PATCH", path, `{"fence":`+fence+`,"lease_ms":1000}`).want(t, 200)
	if m := a.call(t, "POST", path+"/complete", `{"fence":`+fence+`}`).want(t, 200); m["member"] != "p1" || m["late"] != false {
		t.Errorf("%v", m)
	}
	for name, m := range members(t, a) {
		if number(m["inflight"]) != "0" {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// Who allocates while the pool is deleted has a member or is told that there is no pool, and nothing is left behind.
func TestAPoolIsDeletedUnderLoad(t *testing.T) {
	a := pooler(t, start(t), inflightOne, "p1")
	a.call(t, "PATCH", poolPath, `{"lease":{"max_per_member":0}}`).want(t, 200)
	for range 5 {
		var all sync.WaitGroup
		deleted := make(chan struct{})
		for range 8 {
			all.Go(func() {
				for over := false; !over; {
					select {
					case <-deleted:
						over = true
					default:
					}
					switch got := a.call(t, "POST", allocatePath, `{}`); got.status {
					case 200:
						if over && !strings.Contains(got.body, `"reason":"empty"`) {
							t.Errorf("after the deletion: %s", got.body)
						}
					case 404:
						if !strings.Contains(got.body, `"code":"pool_not_found"`) {
							t.Errorf("%s", got.body)
						}
					default:
						t.Errorf("%d %s", got.status, got.body)
					}
				}
			})
		}
		eventually(t, "allocations", func() bool { return len(a.call(t, "GET", leasesPath, "").want(t, 200)["items"].([]any)) >= 8 })
		a.call(t, "DELETE", poolPath, "").want(t, 204)
		close(deleted)
		all.Wait()
		a.call(t, "PUT", poolPath, inflightOne).want(t, 200)
		if m := a.call(t, "GET", membersPath, "").want(t, 200); len(m["items"].([]any)) != 0 || len(a.call(t, "GET", leasesPath, "").want(t, 200)["items"].([]any)) != 0 {
			t.Errorf("left behind: %v", m)
		}
		a.call(t, "PATCH", poolPath, `{"lease":{"max_per_member":0}}`).want(t, 200)
		a.putMembers(t, "p1")
	}
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
