package handlers_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
)

// numbers is an override of perMinute.
func numbers(burst int) string {
	return fmt.Sprintf(`{"rules":[{"id":"minute","algorithm":"token_bucket","limit":60,"period_ms":60000,"burst":%d}]}`, burst)
}

const vip = limitPath + "/overrides/vip%2F1"

func TestAnOverrideIsReadChangedAndDeletedConditionally(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	a.call(t, "GET", vip, "").refused(t, 404, "override_not_found", "")
	a.call(t, "PUT", vip, numbers(50), "If-Match: *").refused(t, 412, "precondition_failed", "")
	a.call(t, "DELETE", vip, "", "If-Match: *").refused(t, 412, "precondition_failed", "")

	made := a.call(t, "PUT", vip, numbers(50), "If-None-Match: *")
	made.want(t, 204)
	tag := made.header.Get("ETag")
	read := a.call(t, "GET", vip, "")
	m := read.want(t, 200)
	if tag == "" || read.header.Get("ETag") != tag || m["etag"] != tag || m["subject"] != "vip/1" || !strings.Contains(read.body, `"burst":50`) {
		t.Errorf("ETag %q; %v %s", tag, read.header, read.body)
	}
	if got := a.call(t, "GET", vip, "", "If-None-Match: "+tag); got.status != 304 || got.body != "" {
		t.Errorf("%d %s", got.status, got.body)
	}
	again := a.call(t, "PUT", vip, numbers(60), "If-None-Match: *")
	again.refused(t, 412, "precondition_failed", "")
	if again.header.Get("ETag") != tag {
		t.Errorf("the refusal has the ETag %q", again.header.Get("ETag"))
	}

	changed := a.call(t, "PUT", vip, numbers(60), "If-Match: "+tag)
	changed.want(t, 204)
	a.call(t, "PUT", vip, numbers(70), "If-Match: "+tag).refused(t, 412, "precondition_failed", "")
	a.call(t, "DELETE", vip, "", "If-Match: "+tag).refused(t, 412, "precondition_failed", "")
	// What happens to others is no reason to refuse.
	a.call(t, "PUT", limitPath+"/overrides/other", numbers(9)).want(t, 204)
	a.call(t, "PUT", limitPath, strings.Replace(perMinute, "3}", "4}", 1)).want(t, 200)
	a.call(t, "DELETE", vip, "", "If-Match: "+changed.header.Get("ETag")).want(t, 204)
	a.call(t, "GET", vip, "").refused(t, 404, "override_not_found", "")
	a.call(t, "GET", limitPath+"/overrides/other", "").want(t, 200)
}

// An override that has expired is none, although it is still stored.
func TestAnOverrideThatHasExpiredIsNone(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	soon := strings.TrimSuffix(numbers(50), "}") + `,"expires_at":"` + time.Now().Add(200*time.Millisecond).UTC().Format(time.RFC3339Nano) + `"}`
	tag := a.call(t, "PUT", vip, soon)
	tag.want(t, 204)
	eventually(t, "it expires", func() bool { return a.call(t, "GET", vip, "").status == 404 })
	if list := a.call(t, "GET", limitPath, "").want(t, 200)["overrides"].([]any); len(list) != 0 {
		t.Errorf("it is still listed: %v", list)
	}
	a.call(t, "PUT", vip, numbers(9), "If-Match: "+tag.header.Get("ETag")).refused(t, 412, "precondition_failed", "")
	a.call(t, "PUT", vip, numbers(9), "If-None-Match: *").want(t, 204)
}

// TestOfManyWhoChangeOneOverrideOneWins: each has read the same.
func TestOfManyWhoChangeOneOverrideOneWins(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	made := a.call(t, "PUT", vip, numbers(10))
	made.want(t, 204)
	const many = 8
	got := make([]answer, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() { got[i] = a.call(t, "PUT", vip, numbers(20+i), "If-Match: "+made.header.Get("ETag")) })
	}
	all.Wait()
	won := 0
	for i, g := range got {
		switch g.status {
		case 204:
			won++
			if read := a.call(t, "GET", vip, ""); read.header.Get("ETag") != g.header.Get("ETag") {
				t.Errorf("%d has won, but there is %s", i, read.body)
			}
		case 412:
		default:
			t.Errorf("%d %s", g.status, g.body)
		}
	}
	if won != 1 {
		t.Errorf("%d have won", won)
	}
}

func TestASubjectThatIsNoTextHasAnOverrideToo(t *testing.T) {
	a := limiter(t, start(t), perMinute)
	path := limitPath + "/overrides/_w?key_encoding=base64url"
	a.call(t, "PUT", path, numbers(50)).want(t, 204)
	for _, where := range []string{path, limitPath + "/overrides/%FF"} {
		if m := a.call(t, "GET", where, "").want(t, 200); m["subject_base64url"] != "_w" || m["subject"] != nil {
			t.Errorf("%v", m)
		}
	}
	a.call(t, "GET", limitPath+"/overrides/_w", "").refused(t, 404, "override_not_found", "")
}

func TestBadOverridesAreRefused(t *testing.T) {
	definition := strings.TrimSuffix(perMinute, "]}") + `,{"id":"total","scope":"limit","algorithm":"token_bucket","limit":9,"period_ms":1000}]}`
	g := start(t)
	a := limiter(t, g, definition)
	before := a.call(t, "GET", limitPath, "").body
	with := func(old, new string) string { return strings.Replace(numbers(5), old, new, 1) }
	twice := strings.Replace(numbers(5), `[{`, `[{"id":"minute","algorithm":"gcra","limit":1,"period_ms":1000},{`, 1)
	for _, b := range []bad{
		{"a limit that is not defined", "PUT", "/v1/ratelimits/none/overrides/u", numbers(5), nil, 404, "limit_not_found", ""},
		{"to be read, of a limit that is not defined", "GET", "/v1/ratelimits/none/overrides/u", "", nil, 404, "limit_not_found", ""},
		{"to be deleted, of a limit that is not defined", "DELETE", "/v1/ratelimits/none/overrides/u", "", nil, 404, "limit_not_found", ""},
		{"a rule that the limit has not", "PUT", vip, with("minute", "second"), nil, 422, "validation_failed", "/rules/0/id"},
		{"the total", "PUT", vip, with("minute", "total"), nil, 422, "validation_failed", "/rules/0/scope"},
		{"a rule that becomes a total", "PUT", vip, with(`"id"`, `"scope":"limit","id"`), nil, 422, "validation_failed", "/rules/0/scope"},
		{"two rules with one id", "PUT", vip, twice, nil, 422, "validation_failed", "/rules/1/id"},
		{"11 rules", "PUT", vip, rules(11), nil, 422, "validation_failed", "/rules"},
		{"no rules", "PUT", vip, `{"rules":[]}`, nil, 422, "validation_failed", "/rules"},
		{"rules missing", "PUT", vip, `{"expires_at":"2999-01-01T00:00:00Z"}`, nil, 422, "validation_failed", "/rules"},
		{"limit 0", "PUT", vip, with(`"limit":60`, `"limit":0`), nil, 422, "validation_failed", "/rules/0/limit"},
		{"period 0", "PUT", vip, with(`60000`, `0`), nil, 422, "validation_failed", "/rules/0/period_ms"},
		{"unknown algorithm", "PUT", vip, with(`token_bucket`, `bucket`), nil, 422, "validation_failed", "/rules/0/algorithm"},
		{"an end that has passed", "PUT", vip, with(`{"rules"`, `{"expires_at":"1999-01-01T00:00:00Z","rules"`), nil, 422, "validation_failed", "/expires_at"},
		{"an end that is no time", "PUT", vip, with(`{"rules"`, `{"expires_at":"soon","rules"`), nil, 422, "validation_failed", "/expires_at"},
		{"unknown member", "PUT", vip, with(`{"rules"`, `{"limit":1,"rules"`), nil, 422, "validation_failed", "/limit"},
		{"a subject over 256 bytes", "PUT", limitPath + "/overrides/" + strings.Repeat("s", 257), numbers(5), nil, 422, "validation_failed", "path:subject"},
		{"a subject over 256 bytes that is read", "GET", limitPath + "/overrides/" + strings.Repeat("s", 257), "", nil, 422, "validation_failed", "path:subject"},
		{"a subject that is no base64url", "GET", limitPath + "/overrides/a=?key_encoding=base64url", "", nil, 422, "validation_failed", "path:subject"},
		{"an empty subject", "PUT", limitPath + "/overrides/", numbers(5), nil, 404, "not_found", ""},
		{"both conditions", "PUT", vip, numbers(5), []string{`If-Match: "a"`, "If-None-Match: *"}, 422, "validation_failed", "header:If-None-Match"},
		{"a condition that is no tag", "PUT", vip, numbers(5), []string{"If-Match: a"}, 400, "invalid_request", "header:If-Match"},
		{"If-None-Match of a delete", "DELETE", vip, "", []string{"If-None-Match: *"}, 422, "validation_failed", "header:If-None-Match"},
		{"an Idempotency-Key", "PUT", vip, numbers(5), []string{"Idempotency-Key: k"}, 422, "idempotency_unsupported", "header:Idempotency-Key"},
	} {
		t.Run(b.why, func(t *testing.T) {
			a.call(t, b.method, b.path, b.body, b.headers...).refused(t, b.status, b.code, b.pointer)
		})
	}
	if after := a.call(t, "GET", limitPath, "").body; after != before {
		t.Errorf("it was %s, it is %s", before, after)
	}
	reader := g.app(t, func(app *acl.App) { app.Permissions = []string{"ratelimits:read"} })
	reader.call(t, "PUT", vip, numbers(5)).refused(t, 403, "forbidden", "")
	reader.call(t, "DELETE", vip, "").refused(t, 403, "forbidden", "")
	reader.call(t, "GET", vip, "").refused(t, 404, "limit_not_found", "")
}
