package handlers_test

import (
	"fmt"
	"strings"
	"testing"
)

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
