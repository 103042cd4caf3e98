package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/handlers"
	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
)

const (
	limitPath = "/v1/ratelimits/api"
	takePath  = limitPath + "/take"
	perMinute = `{"rules":[{"id":"minute","algorithm":"token_bucket","limit":60,"period_ms":60000,"burst":3}]}`
)

// limiter is an app that may use rate limits, with one defined.
func limiter(t *testing.T, g *gateway, definition string) *app {
	t.Helper()
	a := g.app(t, func(app *acl.App) { app.Permissions = []string{"ratelimits:*"} })
	a.call(t, "PUT", limitPath, definition).want(t, 200)
	return a
}

func (a *app) take(t *testing.T, subject string) map[string]any {
	t.Helper()
	body, _ := json.Marshal(map[string]string{"subject": subject})
	return a.call(t, "POST", takePath, string(body)).want(t, 200)
}

func TestALimitIsDefinedReadChangedAndDeleted(t *testing.T) {
	a := start(t).app(t, func(app *acl.App) { app.Permissions = []string{"ratelimits:*"} })
	a.call(t, "GET", limitPath, "").refused(t, 404, "limit_not_found", "")
	a.call(t, "PUT", limitPath, perMinute, "If-Match: *").refused(t, 412, "precondition_failed", "")

	made := a.call(t, "PUT", limitPath, perMinute, "If-None-Match: *")
	first := made.want(t, 200)
	if first["name"] != "api" || first["on_error"] != "open" || first["isolation"] != "atomic" {
		t.Errorf("%v", first)
	}
	again := a.call(t, "PUT", limitPath, perMinute, "If-None-Match: *")
	again.refused(t, 412, "precondition_failed", "")
	tag := made.header.Get("ETag")
	if tag == "" || again.header.Get("ETag") != tag {
		t.Errorf("ETag %q, then %q", tag, again.header.Get("ETag"))
	}

	changed := a.call(t, "PUT", limitPath, strings.Replace(perMinute, "60,", "600,", 1), "If-Match: "+tag)
	if now := changed.want(t, 200); now["version"].(json.Number) <= first["version"].(json.Number) {
		t.Errorf("version %v after %v", now["version"], first["version"])
	}
	a.call(t, "PUT", limitPath, perMinute, "If-Match: "+tag).refused(t, 412, "precondition_failed", "")
	a.call(t, "DELETE", limitPath, "", "If-Match: "+tag).refused(t, 412, "precondition_failed", "")
	read := a.call(t, "GET", limitPath, "")
	if read.body != changed.body || read.header.Get("ETag") != changed.header.Get("ETag") {
		t.Errorf("read %s, want %s", read.body, changed.body)
	}
	a.call(t, "DELETE", limitPath, "", "If-Match: "+read.header.Get("ETag")).want(t, 204)
	a.call(t, "DELETE", limitPath, "").refused(t, 404, "limit_not_found", "")
	a.call(t, "POST", takePath, `{"subject":"u"}`).refused(t, 404, "limit_not_found", "")
}

func TestTakesAreCountedPerSubject(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	for i := range 3 {
		if m := a.take(t, "u"); m["allowed"] != true || m["source"] != "redis" {
			t.Fatalf("take %d: %v", i, m)
		}
	}
	denied := a.take(t, "u")
	if denied["allowed"] != false || denied["limited_by"] != "minute" || denied["granted"] != json.Number("0") {
		t.Errorf("%v", denied)
	}
	if other := a.take(t, "v"); other["allowed"] != true {
		t.Errorf("another subject: %v", other)
	}
}

func TestASubjectMayBeAnyBytes(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	for _, subject := range []string{"{}:%", "a}b{c", "é", "\x00", strings.Repeat("s", 256)} {
		body, _ := json.Marshal(map[string]any{"subject": subject, "cost": 3})
		if m := a.call(t, "POST", takePath, string(body)).want(t, 200); m["allowed"] != true {
			t.Errorf("%q: %v", subject, m)
		}
		if m := a.take(t, subject); m["allowed"] != false {
			t.Errorf("%q is another subject the second time: %v", subject, m)
		}
	}
	if m := a.call(t, "POST", takePath, `{"subject":"_w","key_encoding":"base64url","cost":3}`).want(t, 200); m["allowed"] != true {
		t.Errorf("a byte that is not text: %v", m)
	}
	a.call(t, "DELETE", limitPath+"/subjects/%FF", "").want(t, 204)
	if m := a.call(t, "POST", takePath, `{"subject":"_w","key_encoding":"base64url"}`).want(t, 200); m["allowed"] != true {
		t.Errorf("after the reset: %v", m)
	}
}

func TestPeekRefundAndReset(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	a.call(t, "POST", takePath, `{"subject":"u","cost":3}`).want(t, 200)
	peek := func() bool {
		return a.call(t, "POST", limitPath+"/peek", `{"subject":"u"}`).want(t, 200)["allowed"].(bool)
	}
	if peek() {
		t.Error("a peek sees tokens that were taken")
	}
	a.call(t, "POST", limitPath+"/refund", `{"subject":"u","cost":2}`).want(t, 200)
	if !peek() || !peek() || !peek() {
		t.Error("a peek takes, or the refund gave nothing back")
	}
	a.call(t, "POST", takePath, `{"subject":"u","cost":2}`).want(t, 200)
	a.call(t, "DELETE", limitPath+"/subjects/u", "").want(t, 204)
	if m := a.call(t, "POST", takePath, `{"subject":"u","cost":3}`).want(t, 200); m["allowed"] != true {
		t.Errorf("after the reset: %v", m)
	}
}

func TestAnOverrideHasOtherNumbersForOneSubject(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	path := limitPath + "/overrides/vip%2F1"
	rules := `{"rules":[{"id":"minute","algorithm":"token_bucket","limit":60,"period_ms":60000,"burst":50}]`
	a.call(t, "PUT", path, rules+`,"expires_at":"2999-01-01T00:00:00Z"}`).want(t, 204)
	if m := a.call(t, "POST", takePath, `{"subject":"vip/1","cost":50}`).want(t, 200); m["allowed"] != true {
		t.Errorf("%v", m)
	}
	a.call(t, "POST", takePath, `{"subject":"u","cost":50}`).refused(t, 422, "cost_exceeds_limit", "/cost")
	shown := a.call(t, "GET", limitPath, "").want(t, 200)["overrides"].([]any)
	if len(shown) != 1 || shown[0].(map[string]any)["subject"] != "vip/1" {
		t.Errorf("overrides %v", shown)
	}
	a.call(t, "DELETE", path, "").want(t, 204)
	a.call(t, "DELETE", path, "").want(t, 204)
	a.call(t, "POST", takePath, `{"subject":"vip/1","cost":50}`).refused(t, 422, "cost_exceeds_limit", "/cost")
	a.call(t, "PUT", path, strings.Replace(rules, "minute", "other", 1)+"}").refused(t, 422, "validation_failed", "/rules/0/id")
	a.call(t, "PUT", path, rules+`,"expires_at":"1999-01-01T00:00:00Z"}`).refused(t, 422, "validation_failed", "/expires_at")
	a.call(t, "PUT", "/v1/ratelimits/none/overrides/u", rules+"}").refused(t, 404, "limit_not_found", "")
}

func TestHeadersTellTheAppsLimitsFromTheOneThatWasAsked(t *testing.T) {
	g := start(t)
	a := g.app(t, func(app *acl.App) {
		app.Permissions = []string{"ratelimits:*"}
		app.Limits = []acl.Limit{{ID: "app-requests", Per: "app", Of: "requests", Limit: 5000, PeriodMS: 1000}}
	})
	a.call(t, "PUT", limitPath, perMinute).want(t, 200)
	got := a.call(t, "POST", takePath, `{"subject":"u"}`)
	got.want(t, 200)
	const pk = ";pk=:C/6TXnDDIcfK:"
	if policy := got.header["Ratelimit-Policy"]; len(policy) != 1 || policy[0] != `"app-requests";q=5000;w=1, "api/minute";q=60;w=60`+pk {
		t.Errorf("RateLimit-Policy %q", policy)
	}
	if left := got.header["Ratelimit"]; len(left) != 1 || !strings.HasPrefix(left[0], `"app-requests";r=4`) || !strings.HasSuffix(left[0], `, "api/minute";r=2;t=1`+pk) {
		t.Errorf("RateLimit %q", left)
	}
}

// A number of 16 digits is no number of a header field (RFC 9651, 3.3.1).
func TestHeadersHaveNoNumberThatClientsCannotRead(t *testing.T) {
	a := limiter(t, start(t), `{"rules":[{"id":"r","algorithm":"fixed_window","limit":9007199254740992,"period_ms":1}]}`)
	got := a.call(t, "POST", takePath, `{"subject":"u"}`)
	got.want(t, 200)
	for name, member := range map[string]string{"Ratelimit-Policy": ";q=999999999999999;", "Ratelimit": ";r=999999999999999;"} {
		if !strings.Contains(got.header.Get(name), member) {
			t.Errorf("%s %q", name, got.header[name])
		}
	}
}

// The bound of records is for those that are kept, and Redis keeps none of a take that a limit in shadow would have refused.
func TestATakeInShadowThatIsNotKeptCountsAsNoRecord(t *testing.T) {
	a := limiter(t, start(t), `{"shadow":true,"rules":[{"id":"r","algorithm":"fixed_window","limit":1,"period_ms":86400000}]}`)
	for i := range 3 * middleware.DefaultRecordsPerSecond * 10 {
		m := a.call(t, "POST", takePath, `{"subject":"u"}`, fmt.Sprint("Idempotency-Key: ", i)).want(t, 200)
		if m["allowed"] != true || i > 0 && m["shadowed"] != true {
			t.Fatalf("%d: %v", i, m)
		}
	}
}

func TestEnforceRefusesTheRequest(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	a.call(t, "POST", takePath+"?enforce=true", `{"subject":"u","cost":3}`).want(t, 200)
	refused := a.call(t, "POST", takePath+"?enforce=true", `{"subject":"u"}`)
	m := refused.want(t, 429)
	if m["code"] != "quota_exceeded" || fmt.Sprint(m["violated-policies"]) != "[api/minute]" || m["retryable"] != true {
		t.Errorf("%v", m)
	}
	if refused.header.Get("Retry-After") == "" || !strings.Contains(refused.header.Get("RateLimit"), `"api/minute";r=0`) {
		t.Errorf("%v", refused.header)
	}
	if m := a.call(t, "POST", takePath+"?enforce=false", `{"subject":"u"}`).want(t, 200); m["allowed"] != false {
		t.Errorf("%v", m)
	}
}

func TestShadowRefusesNobody(t *testing.T) {
	a := limiter(t, start(t), strings.Replace(perMinute, `{"rules"`, `{"shadow":true,"rules"`, 1))
	a.call(t, "POST", takePath, `{"subject":"u","cost":3}`).want(t, 200)
	m := a.call(t, "POST", takePath+"?enforce=true", `{"subject":"u"}`).want(t, 200)
	if m["allowed"] != true || m["shadowed"] != true || m["limited_by"] != "minute" {
		t.Errorf("%v", m)
	}
}

func TestATakeIsRepeatedSafely(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	take := func(key string) answer {
		return a.call(t, "POST", takePath, `{"subject":"u","cost":2}`, "Idempotency-Key: "+key)
	}
	one, two := take("k1"), take("k1")
	if one.want(t, 200)["allowed"] != true || two.body != one.body || two.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s, then %s %v", one.body, two.body, two.header)
	}
	if m := a.call(t, "POST", limitPath+"/peek", `{"subject":"u"}`).want(t, 200); m["allowed"] != true {
		t.Error("the repetition has taken too")
	}
	a.call(t, "POST", takePath, `{"subject":"v"}`, "Idempotency-Key: k1").refused(t, 422, "idempotency_mismatch", "header:Idempotency-Key")
	a.call(t, "POST", limitPath+"/peek", `{"subject":"u"}`, "Idempotency-Key: k1").refused(t, 422, "idempotency_unsupported", "header:Idempotency-Key")
}

// A fault of one item is that item's.
func TestBadItemsOfABatchHaveProblemsOfTheirOwn(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	items := []string{
		`{"name":"api","subject":""}`, `{"name":"api","subject":` + quoted(257) + `}`, `{"name":"api","subject":"u","cost":4}`,
		`{"name":"none","subject":"u"}`, `{"name":"api","subject":"{}:%"}`,
	}
	m := a.call(t, "POST", "/v1/ratelimits/take", `{"items":[`+strings.Join(items, ",")+`]}`).want(t, 200)
	var got []string
	for _, item := range m["items"].([]any) {
		if p, ok := item.(map[string]any)["problem"].(map[string]any); ok {
			got = append(got, p["code"].(string))
		} else {
			got = append(got, "fine")
		}
	}
	want := "validation_failed validation_failed cost_exceeds_limit limit_not_found fine"
	if strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestABatchTakesEachByItself(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	m := a.call(t, "POST", "/v1/ratelimits/take", `{"items":[{"name":"api","subject":"u","cost":3},{"name":"api","subject":"u"},{"name":"none","subject":"u"},{"name":"api","subject":"v"}]}`).want(t, 200)
	var got []string
	for _, item := range m["items"].([]any) {
		if p, ok := item.(map[string]any)["problem"].(map[string]any); ok {
			got = append(got, p["code"].(string))
			continue
		}
		got = append(got, fmt.Sprint(item.(map[string]any)["verdict"].(map[string]any)["allowed"]))
	}
	if strings.Join(got, " ") != "true false limit_not_found true" || m["errors"] != true {
		t.Errorf("%v", m)
	}
}

func TestPermissionsOfRateLimits(t *testing.T) {
	g := start(t)
	with := func(permissions ...string) *app {
		return g.app(t, func(app *acl.App) { app.Permissions = permissions })
	}
	with("strings:*").call(t, "GET", limitPath, "").refused(t, 403, "forbidden", "")
	reader := with("ratelimits:read")
	reader.call(t, "PUT", limitPath, perMinute).refused(t, 403, "forbidden", "")
	reader.call(t, "POST", takePath, `{"subject":"u"}`).refused(t, 403, "forbidden", "")
	reader.call(t, "POST", limitPath+"/peek", `{"subject":"u"}`).refused(t, 404, "limit_not_found", "")
	taker := with("commands:RATELIMIT|TAKE")
	taker.call(t, "POST", takePath, `{"subject":"u"}`).refused(t, 404, "limit_not_found", "")
	taker.call(t, "POST", limitPath+"/refund", `{"subject":"u","cost":1}`).refused(t, 403, "forbidden", "")
	taker.call(t, "DELETE", limitPath, "").refused(t, 403, "forbidden", "")
}

// rule is a definition of one rule with these members beside those that it must have.
func rule(members string) string {
	return `{"rules":[{"id":"r","algorithm":"token_bucket","limit":1,"period_ms":1000` + members + `}]}`
}

func rules(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"id":"r%d","algorithm":"token_bucket","limit":1,"period_ms":1000}`, i)
	}
	return `{"rules":[` + strings.Join(list, ",") + `]}`
}

func takes(n int) string {
	return `{"items":[` + strings.TrimSuffix(strings.Repeat(`{"name":"api","subject":"u"},`, n), ",") + `]}`
}

func TestBadRateLimitsAreRefused(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	before := a.call(t, "GET", limitPath, "").body
	with := func(old, new string) string { return strings.Replace(rule(""), old, new, 1) }
	for _, b := range []bad{
		{"a subject of a limit called take", "POST", "/v1/ratelimits/take/take", `{"subject":"u"}`, nil, 422, "validation_failed", "path:name"},
		{"limit 0", "PUT", limitPath, with(`"limit":1`, `"limit":0`), nil, 422, "validation_failed", "/rules/0/limit"},
		{"negative limit", "PUT", limitPath, with(`"limit":1`, `"limit":-1`), nil, 422, "validation_failed", "/rules/0/limit"},
		{"limit over 2^53", "PUT", limitPath, with(`"limit":1`, `"limit":9007199254740993`), nil, 422, "validation_failed", "/rules/0/limit"},
		{"limit that is a fraction", "PUT", limitPath, with(`"limit":1`, `"limit":1.5`), nil, 422, "validation_failed", "/rules/0/limit"},
		{"no limit", "PUT", limitPath, with(`"limit":1,`, ``), nil, 422, "validation_failed", "/rules/0/limit"},
		{"period 0", "PUT", limitPath, with(`"period_ms":1000`, `"period_ms":0`), nil, 422, "validation_failed", "/rules/0/period_ms"},
		{"negative period", "PUT", limitPath, with(`"period_ms":1000`, `"period_ms":-1`), nil, 422, "validation_failed", "/rules/0/period_ms"},
		{"period over a year", "PUT", limitPath, with(`"period_ms":1000`, `"period_ms":31622400001`), nil, 422, "validation_failed", "/rules/0/period_ms"},
		{"no period", "PUT", limitPath, with(`,"period_ms":1000`, ``), nil, 422, "validation_failed", "/rules/0/period_ms"},
		{"limit that is text", "PUT", limitPath, with(`"limit":1`, `"limit":"1"`), nil, 422, "validation_failed", "/rules/0/limit"},
		{"limit over 64 bits", "PUT", limitPath, with(`"limit":1`, `"limit":9223372036854775808`), nil, 422, "validation_failed", "/rules/0/limit"},
		{"negative burst", "PUT", limitPath, rule(`,"burst":-1`), nil, 422, "validation_failed", "/rules/0/burst"},
		{"burst over 2^53", "PUT", limitPath, rule(`,"burst":9007199254740993`), nil, 422, "validation_failed", "/rules/0/burst"},
		{"no algorithm", "PUT", limitPath, with(`"algorithm":"token_bucket",`, ``), nil, 422, "validation_failed", "/rules/0/algorithm"},
		{"no id", "PUT", limitPath, with(`"id":"r",`, ``), nil, 422, "validation_failed", "/rules/0/id"},
		{"burst 0", "PUT", limitPath, rule(`,"burst":0`), nil, 422, "validation_failed", "/rules/0/burst"},
		{"unknown algorithm", "PUT", limitPath, with(`token_bucket`, `bucket`), nil, 422, "validation_failed", "/rules/0/algorithm"},
		{"unknown member of a rule", "PUT", limitPath, rule(`,"rate":1`), nil, 422, "validation_failed", "/rules/0/rate"},
		{"unknown scope", "PUT", limitPath, rule(`,"scope":"app"`), nil, 422, "validation_failed", "/rules/0/scope"},
		{"mode of a bucket that has none", "PUT", limitPath, rule(`,"mode":"shaper"`), nil, 422, "validation_failed", "/rules/0/mode"},
		{"offset over 32 bits", "PUT", limitPath, rule(`,"tz_offset_min":4294967296`), nil, 422, "validation_failed", "/rules/0/tz_offset_min"},
		{"two rules with one id", "PUT", limitPath, strings.Replace(rules(2), "r1", "r0", 1), nil, 422, "validation_failed", "/rules/1/id"},
		{"id with a slash", "PUT", limitPath, with(`"r"`, `"a/b"`), nil, 422, "validation_failed", "/rules/0/id"},
		{"11 rules", "PUT", limitPath, rules(11), nil, 422, "validation_failed", "/rules"},
		{"no rules", "PUT", limitPath, `{"rules":[]}`, nil, 422, "validation_failed", "/rules"},
		{"rules missing", "PUT", limitPath, `{}`, nil, 422, "validation_failed", "/rules"},
		{"rules that are no list", "PUT", limitPath, `{"rules":{}}`, nil, 422, "validation_failed", "/rules"},
		{"a rule that is no object", "PUT", limitPath, `{"rules":[1]}`, nil, 422, "validation_failed", "/rules/0"},
		{"unknown on_error", "PUT", limitPath, `{"on_error":"maybe",` + rule("")[1:], nil, 422, "validation_failed", "/on_error"},
		{"unknown isolation", "PUT", limitPath, `{"isolation":"none",` + rule("")[1:], nil, 422, "validation_failed", "/isolation"},
		{"name of other characters", "PUT", "/v1/ratelimits/a%20b", rule(""), nil, 422, "validation_failed", "path:name"},
		{"name of 65 characters", "GET", "/v1/ratelimits/" + strings.Repeat("n", 65), "", nil, 422, "validation_failed", "path:name"},
		{"If-None-Match of a delete", "DELETE", limitPath, "", []string{"If-None-Match: *"}, 422, "validation_failed", "header:If-None-Match"},
		{"condition on a take", "POST", takePath, `{"subject":"u"}`, []string{"If-Match: *"}, 422, "validation_failed", "header:If-Match"},
		{"empty subject", "POST", takePath, `{"subject":""}`, nil, 422, "validation_failed", "/subject"},
		{"subject over 256 bytes", "POST", takePath, `{"subject":` + quoted(257) + `}`, nil, 422, "validation_failed", "/subject"},
		{"subject over 256 bytes in a path", "DELETE", limitPath + "/subjects/" + strings.Repeat("s", 257), "", nil, 422, "validation_failed", "path:subject"},
		{"subject that is no base64url", "POST", takePath, `{"subject":"a=","key_encoding":"base64url"}`, nil, 422, "validation_failed", "/subject"},
		{"no subject", "POST", takePath, `{"cost":1}`, nil, 422, "validation_failed", "/subject"},
		{"cost 0", "POST", takePath, `{"subject":"u","cost":0}`, nil, 422, "validation_failed", "/cost"},
		{"negative cost", "POST", takePath, `{"subject":"u","cost":-1}`, nil, 422, "validation_failed", "/cost"},
		{"cost over the capacity", "POST", takePath, `{"subject":"u","cost":4}`, nil, 422, "cost_exceeds_limit", "/cost"},
		{"burst below the least that is useful", "POST", takePath, `{"subject":"u","cost":9,"min_grant":4}`, nil, 422, "cost_exceeds_limit", "/cost"},
		{"cost over 2^53", "POST", takePath, `{"subject":"u","cost":9007199254740993,"min_grant":1}`, nil, 422, "validation_failed", "/cost"},
		{"peek of cost 0", "POST", limitPath + "/peek", `{"subject":"u","cost":0}`, nil, 422, "validation_failed", "/cost"},
		{"peek of a cost over the capacity", "POST", limitPath + "/peek", `{"subject":"u","cost":4}`, nil, 422, "cost_exceeds_limit", "/cost"},
		{"refund of 0", "POST", limitPath + "/refund", `{"subject":"u","cost":0}`, nil, 422, "validation_failed", "/cost"},
		{"negative refund", "POST", limitPath + "/refund", `{"subject":"u","cost":-1}`, nil, 422, "validation_failed", "/cost"},
		{"refund over 2^53", "POST", limitPath + "/refund", `{"subject":"u","cost":9007199254740993}`, nil, 422, "validation_failed", "/cost"},
		{"peek of a limit that is not defined", "POST", "/v1/ratelimits/none/peek", `{"subject":"u"}`, nil, 404, "limit_not_found", ""},
		{"refund of a limit that is not defined", "POST", "/v1/ratelimits/none/refund", `{"subject":"u","cost":1}`, nil, 404, "limit_not_found", ""},
		{"reset of a limit that is not defined", "DELETE", "/v1/ratelimits/none/subjects/u", "", nil, 404, "limit_not_found", ""},
		{"min_grant of 0", "POST", takePath, `{"subject":"u","min_grant":0}`, nil, 422, "validation_failed", "/min_grant"},
		{"wait over a minute", "POST", takePath, `{"subject":"u","max_wait_ms":60001}`, nil, 422, "validation_failed", "/max_wait_ms"},
		{"min_grant over the cost", "POST", takePath, `{"subject":"u","cost":1,"min_grant":2}`, nil, 422, "validation_failed", "/min_grant"},
		{"negative wait", "POST", takePath, `{"subject":"u","max_wait_ms":-1}`, nil, 422, "validation_failed", "/max_wait_ms"},
		{"refund without a cost", "POST", limitPath + "/refund", `{"subject":"u"}`, nil, 422, "validation_failed", "/cost"},
		{"refund with a wait", "POST", limitPath + "/refund", `{"subject":"u","cost":1,"max_wait_ms":1}`, nil, 422, "validation_failed", "/max_wait_ms"},
		{"enforce that is neither", "POST", takePath + "?enforce=1", `{"subject":"u"}`, nil, 422, "validation_failed", "query:enforce"},
		{"batch of 101", "POST", "/v1/ratelimits/take", takes(101), nil, 413, "batch_too_large", "/items"},
		{"batch of none", "POST", "/v1/ratelimits/take", takes(0), nil, 422, "validation_failed", "/items"},
		{"batch without items", "POST", "/v1/ratelimits/take", `{}`, nil, 422, "validation_failed", "/items"},
		{"batch item without a name", "POST", "/v1/ratelimits/take", `{"items":[{"subject":"u"}]}`, nil, 422, "validation_failed", "/items/0/name"},
		{"batch with an Idempotency-Key", "POST", "/v1/ratelimits/take", takes(1), []string{"Idempotency-Key: k"}, 422, "idempotency_unsupported", "header:Idempotency-Key"},
	} {
		t.Run(b.why, func(t *testing.T) {
			a.call(t, b.method, b.path, b.body, b.headers...).refused(t, b.status, b.code, b.pointer)
		})
	}
	if after := a.call(t, "GET", limitPath, "").body; after != before {
		t.Errorf("it was %s, it is %s", before, after)
	}
	if m := a.call(t, "POST", takePath, `{"subject":"u","cost":3}`).want(t, http.StatusOK); m["allowed"] != true {
		t.Errorf("something was taken: %v", m)
	}
}

// Who defines a limit called take meets the route of the batch, and is told that it is the name.
func TestALimitCalledTakeIsRefusedByItsName(t *testing.T) {
	e := gin.New()
	var got *store.Error
	e.Use(func(c *gin.Context) {
		c.Next()
		got, _ = errors.AsType[*store.Error](c.Errors.Last())
	})
	handlers.New(handlers.Config{Ready: func(context.Context) error { return nil }, Tokens: issuer(t), Limits: testLimits(nil, nil)}).Register(e, e.Group("/v1"))
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		got = nil
		e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "/v1/ratelimits/take", nil))
		if got == nil || got.Code != store.CodeMethodNotAllowed || got.Allow != "POST" || len(got.Fields) != 1 || got.Fields[0].Pointer != "path:name" || !strings.Contains(got.Detail, "take") {
			t.Errorf("%s: %+v", method, got)
		}
	}
}
