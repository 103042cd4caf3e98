package handlers_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/acl"
)

// bad is one request that must be refused with a code and the place of the fault, and must change nothing.
type bad struct {
	why           string
	method, path  string
	body          string
	headers       []string
	status        int
	code, pointer string
}

const (
	plainText  = "Content-Type: text/plain"
	mgetPath   = "/v1/mget"
	msetPath   = "/v1/mset"
	stringPath = "/v1/strings/k"
	countPath  = "/v1/counters/n"
)

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func quoted(n int) string { return `"` + strings.Repeat("x", n) + `"` }

func keysOf(n int) string { return `{"keys":["k"` + strings.Repeat(`,"k"`, n-1) + `]}` }

func itemsWithOneBad(n, badAt int) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(`{"key":"item%d","value":"v"}`, i)
	}
	items[badAt] = fmt.Sprintf(`{"key":"item%d","value":"not base64","encoding":"base64"}`, badAt)
	return `{"items":[` + strings.Join(items, ",") + `]}`
}

var badRequests = []bad{
	{"empty key", "GET", "/v1/strings/", "", nil, 400, "invalid_key", "path:key"},
	{"empty key in the middle", "PUT", "/v1/keys//ttl", `{"ttl_ms":1}`, nil, 400, "invalid_key", "path:key"},
	{"empty key in mget", "POST", mgetPath, `{"keys":["k",""]}`, nil, 400, "invalid_key", "/keys/1"},
	{"empty key in mset", "POST", msetPath, `{"items":[{"key":"","value":"v"}]}`, nil, 400, "invalid_key", "/items/0/key"},
	{"key over the limit", "PUT", "/v1/strings/" + strings.Repeat("k", 257), `{"value":"v"}`, nil, 400, "invalid_key", "path:key"},
	{"key over the limit when decoded", "PUT", "/v1/bytes/" + strings.Repeat("A", 344) + "?key_encoding=base64url", "v", nil, 400, "invalid_key", "path:key"},
	{"key over the limit in mget", "POST", mgetPath, `{"keys":[` + quoted(257) + `]}`, nil, 400, "invalid_key", "/keys/0"},
	{"key over the limit in mset", "POST", msetPath, `{"items":[{"key":` + quoted(257) + `,"value":"v"}]}`, nil, 400, "invalid_key", "/items/0/key"},
	{"key that is no base64url", "GET", "/v1/strings/a.b?key_encoding=base64url", "", nil, 400, "invalid_key", "path:key"},
	{"key in padded base64url", "GET", "/v1/strings/YQ==?key_encoding=base64url", "", nil, 400, "invalid_key", "path:key"},
	{"prefix that is no base64url", "GET", "/v1/keys?key_encoding=base64url&prefix=YQ==", "", nil, 400, "invalid_key", "query:prefix"},
	{"prefix over the limit", "GET", "/v1/keys?prefix=" + strings.Repeat("k", 257), "", nil, 400, "invalid_key", "query:prefix"},
	{"bad percent-escape in the query", "GET", "/v1/keys?prefix=%zz", "", nil, 400, "invalid_request", "query:prefix"},
	{"semicolon in the query", "GET", "/v1/keys?prefix=a;limit=1", "", nil, 400, "invalid_request", "query"},
	{"unknown parameter", "PUT", stringPath + "?ttl=1", `{"value":"v"}`, nil, 422, "validation_failed", "query:ttl"},
	{"parameter of another operation", "GET", stringPath + "?offset=1", "", nil, 422, "validation_failed", "query:offset"},
	{"parameter of another door", "PUT", stringPath + "?ttl_ms=1", `{"value":"v"}`, nil, 422, "validation_failed", "query:ttl_ms"},
	{"parameter twice", "PUT", "/v1/bytes/k?ttl_ms=1&ttl_ms=1", "v", nil, 422, "validation_failed", "query:ttl_ms"},
	{"unknown encoding", "GET", stringPath + "?encoding=hex", "", nil, 422, "validation_failed", "query:encoding"},
	{"unknown key encoding", "GET", stringPath + "?key_encoding=hex", "", nil, 422, "validation_failed", "query:key_encoding"},
	{"unknown include", "GET", stringPath + "?include=memory", "", nil, 422, "validation_failed", "query:include"},
	{"unknown type", "GET", "/v1/keys?type=blob", "", nil, 422, "validation_failed", "query:type"},
	{"empty type", "GET", "/v1/keys?type=", "", nil, 422, "validation_failed", "query:type"},
	{"limit that is no number", "GET", "/v1/keys?limit=ten", "", nil, 400, "invalid_request", "query:limit"},
	{"offset that is missing", "PUT", "/v1/bytes/k/range", "v", nil, 422, "validation_failed", "query:offset"},
	{"offset that is negative", "PUT", "/v1/bytes/k/range?offset=-1", "v", nil, 422, "validation_failed", "query:offset"},

	{"invalid UTF-8", "PUT", stringPath, "{\"value\":\"\xff\"}", nil, 400, "invalid_request", "/value"},
	{"invalid UTF-8 in a key", "POST", mgetPath, "{\"keys\":[\"\xfe\"]}", nil, 400, "invalid_request", "/keys/0"},
	{"lone surrogate", "PUT", stringPath, `{"value":"\ud800"}`, nil, 400, "invalid_request", "/value"},
	{"lone surrogate in a key", "POST", msetPath, `{"items":[{"key":"\udfff","value":"v"}]}`, nil, 400, "invalid_request", "/items/0/key"},
	{"invalid base64", "PUT", stringPath, `{"value":"a","encoding":"base64"}`, nil, 422, "validation_failed", "/value"},
	{"base64 with a line end", "PUT", stringPath, `{"value":"YWFh\nYWFh","encoding":"base64"}`, nil, 422, "validation_failed", "/value"},
	{"base64 in the URL's alphabet", "POST", stringPath + "/append", `{"value":"_w==","encoding":"base64"}`, nil, 422, "validation_failed", "/value"},
	{"number over 64 bits", "PUT", countPath, `{"value":9223372036854775808}`, nil, 422, "validation_failed", "/value"},
	{"delta over 64 bits", "POST", countPath + "/add", `{"delta":-9223372036854775809}`, nil, 422, "validation_failed", "/delta"},
	{"1e400", "POST", countPath + "/add", `{"delta":1e400}`, nil, 422, "validation_failed", "/delta"},
	{"fraction added to an integer", "POST", countPath + "/add", `{"delta":1.5}`, nil, 409, "not_a_number", ""},
	{"overflow", "POST", countPath + "/add", `{"delta":9223372036854775807}`, nil, 409, "out_of_range", ""},
	{"number as text", "POST", countPath + "/add", `{"delta":"1"}`, nil, 422, "validation_failed", "/delta"},
	{"member twice", "PUT", stringPath, `{"value":"v","value":"w"}`, nil, 400, "invalid_request", "/value"},
	{"member twice in an item", "POST", msetPath, `{"items":[{"key":"k","value":"v","value":"w"}]}`, nil, 400, "invalid_request", "/items/0/value"},
	{"nested 1,000 deep", "PUT", stringPath, `{"value":` + deep(1000) + `}`, nil, 400, "invalid_request", ""},
	{"nested 1,000 deep in mset", "POST", msetPath, `{"items":` + deep(1000) + `}`, nil, 400, "invalid_request", ""},
	{"trailing garbage", "PUT", stringPath, `{"value":"v"}x`, nil, 400, "invalid_request", "body"},
	{"two documents", "PUT", stringPath, `{"value":"v"}{"value":"w"}`, nil, 400, "invalid_request", "body"},
	{"not JSON", "PUT", stringPath, `{value:"v"}`, nil, 400, "invalid_request", "body"},
	{"no object", "PUT", stringPath, `["v"]`, nil, 422, "validation_failed", "body"},
	{"empty body", "PUT", stringPath, "", []string{"Content-Type: application/json"}, 400, "invalid_request", "body"},
	{"unknown field", "PUT", stringPath, `{"value":"v","ttl":5}`, nil, 422, "validation_failed", "/ttl"},
	{"unknown field in an item", "POST", msetPath, `{"items":[{"key":"k","value":"v","ttl":5}]}`, nil, 422, "validation_failed", "/items/0/ttl"},
	{"field in capitals", "PUT", stringPath, `{"Value":"v"}`, nil, 422, "validation_failed", "/Value"},

	{"no content type", "PUT", stringPath, `{"value":"v"}`, []string{"Content-Type: "}, 415, "unsupported_media_type", "header:Content-Type"},
	{"wrong content type", "PUT", stringPath, `{"value":"v"}`, []string{plainText}, 415, "unsupported_media_type", "header:Content-Type"},
	{"form", "POST", mgetPath, `{"keys":["k"]}`, []string{"Content-Type: application/x-www-form-urlencoded"}, 415, "unsupported_media_type", "header:Content-Type"},
	{"another charset", "PUT", stringPath, `{"value":"v"}`, []string{"Content-Type: application/json; charset=latin1"}, 415, "unsupported_media_type", "header:Content-Type"},
	{"broken content type", "PUT", stringPath, `{"value":"v"}`, []string{"Content-Type: application/json; charset"}, 415, "unsupported_media_type", "header:Content-Type"},
	{"a patch type", "PUT", stringPath, `{"value":"v"}`, []string{"Content-Type: application/merge-patch+json"}, 415, "unsupported_media_type", "header:Content-Type"},
	{"compressed body", "PUT", "/v1/bytes/k", "v", []string{"Content-Encoding: gzip"}, 415, "unsupported_media_type", ""},

	{"TTL 0", "PUT", stringPath, `{"value":"v","ttl_ms":0}`, nil, 422, "validation_failed", "/ttl_ms"},
	{"negative TTL", "PUT", stringPath, `{"value":"v","ttl_ms":-1}`, nil, 422, "validation_failed", "/ttl_ms"},
	{"huge TTL", "PUT", stringPath, `{"value":"v","ttl_ms":9223372036854775807}`, nil, 422, "validation_failed", "/ttl_ms"},
	{"TTL with a fraction", "PUT", stringPath, `{"value":"v","ttl_ms":1.5}`, nil, 422, "validation_failed", "/ttl_ms"},
	{"both TTLs", "PUT", stringPath, `{"value":"v","ttl_ms":5,"expires_at":"2090-01-01T00:00:00Z"}`, nil, 422, "validation_failed", "/expires_at"},
	{"TTL and keep_ttl", "PUT", countPath, `{"value":1,"ttl_ms":5,"keep_ttl":true}`, nil, 422, "validation_failed", "/keep_ttl"},
	{"expiry in the past", "PUT", stringPath, `{"value":"v","expires_at":"2001-01-01T00:00:00Z"}`, nil, 422, "validation_failed", "/expires_at"},
	{"TTL 0 of a read", "GET", stringPath + "?ttl_ms=0", "", nil, 422, "validation_failed", "query:ttl_ms"},
	{"TTL 0 in the query", "PUT", "/v1/bytes/k?ttl_ms=0", "v", nil, 422, "validation_failed", "query:ttl_ms"},
	{"both TTLs in the query", "PUT", "/v1/bytes/k?ttl_ms=5&keep_ttl=true", "v", nil, 422, "validation_failed", "query:keep_ttl"},
	{"TTL 0 of a key", "PUT", "/v1/keys/k/ttl", `{"ttl_ms":0}`, nil, 422, "validation_failed", "/ttl_ms"},
	{"no TTL for a key", "PUT", "/v1/keys/k/ttl", `{}`, nil, 422, "validation_failed", "/ttl_ms"},
	{"unknown condition of a TTL", "PUT", "/v1/keys/k/ttl", `{"ttl_ms":5,"when":"if"}`, nil, 422, "validation_failed", "/when"},
	{"TTL 0 in an item", "POST", msetPath, `{"items":[{"key":"k","value":"v","ttl_ms":0}]}`, nil, 422, "validation_failed", "/items/0/ttl_ms"},

	{"value over the limit", "PUT", stringPath, `{"value":` + quoted(64<<10+1) + `}`, nil, 413, "value_too_large", "/value"},
	{"bytes over the limit", "PUT", "/v1/bytes/k", strings.Repeat("v", 64<<10+1), nil, 413, "value_too_large", "body"},
	{"item over the limit", "POST", msetPath, `{"items":[{"key":"k","value":` + quoted(64<<10+1) + `}]}`, nil, 413, "value_too_large", "/items/0/value"},
	{"value that would grow over the limit", "POST", "/v1/bytes/full/append", "v", nil, 413, "value_too_large", ""},
	{"offset over the limit", "PUT", stringPath + "/range", `{"offset":536870911,"value":"x"}`, nil, 413, "value_too_large", "/offset"},
	{"body over the limit", "PUT", stringPath, `{"value":` + quoted(1<<20) + `}`, nil, 413, "payload_too_large", ""},
	{"5,001 keys", "POST", mgetPath, keysOf(5001), nil, 413, "batch_too_large", "/keys"},
	{"5,001 keys to delete", "POST", "/v1/mdelete", keysOf(5001), nil, 413, "batch_too_large", "/keys"},
	{"5,001 keys to ask for", "POST", "/v1/mexists", keysOf(5001), nil, 413, "batch_too_large", "/keys"},
	{"no keys", "POST", mgetPath, `{"keys":[]}`, nil, 422, "validation_failed", "/keys"},
	{"one bad item among 100 good ones", "POST", msetPath, itemsWithOneBad(101, 57), nil, 422, "validation_failed", "/items/57/value"},

	{"malformed If-Match", "PUT", stringPath, `{"value":"v"}`, []string{"If-Match: abc"}, 400, "invalid_request", "header:If-Match"},
	{"malformed If-None-Match", "GET", stringPath, "", []string{`If-None-Match: "abc`}, 400, "invalid_request", "header:If-None-Match"},
	{"ETag in If-None-Match of a write", "PUT", stringPath, `{"value":"v"}`, []string{`If-None-Match: "abc"`}, 422, "validation_failed", "header:If-None-Match"},
	{"both conditions", "PUT", stringPath, `{"value":"v"}`, []string{"If-None-Match: *", "If-Match: *"}, 422, "validation_failed", "header:If-None-Match"},
	{"condition of an append", "POST", stringPath + "/append", `{"value":"v"}`, []string{"If-Match: *"}, 422, "validation_failed", "header:If-Match"},
	{"condition of an add", "POST", countPath + "/add", `{"delta":1}`, []string{"If-None-Match: *"}, 422, "validation_failed", "header:If-None-Match"},
	{"condition of a batch", "POST", msetPath, `{"items":[{"key":"k","value":"v"}]}`, []string{"If-None-Match: *"}, 422, "validation_failed", "header:If-None-Match"},
	{"condition of deletes", "POST", "/v1/mdelete", `{"keys":["k"]}`, []string{"If-Match: *"}, 422, "validation_failed", "header:If-Match"},
	{"condition of a range", "PUT", stringPath + "/range", `{"offset":0,"value":"v"}`, []string{"If-Match: *"}, 422, "validation_failed", "header:If-Match"},
	{"condition of a range of bytes", "PUT", "/v1/bytes/k/range?offset=0", "v", []string{"If-Match: *"}, 422, "validation_failed", "header:If-Match"},
	{"condition of an append of bytes", "POST", "/v1/bytes/k/append", "v", []string{"If-Match: *"}, 422, "validation_failed", "header:If-Match"},
	{"condition of a new TTL", "PUT", "/v1/keys/k/ttl", `{"ttl_ms":5000}`, []string{"If-Match: *"}, 422, "validation_failed", "header:If-Match"},
	{"condition of a TTL", "DELETE", "/v1/keys/k/ttl", "", []string{"If-Match: *"}, 422, "validation_failed", "header:If-Match"},

	{"value of another type", "GET", "/v1/strings/list", "", nil, 409, "wrong_type", ""},
	{"bytes of another type", "GET", "/v1/bytes/list", "", nil, 409, "wrong_type", ""},
	{"part of another type", "GET", "/v1/strings/list/range", "", nil, 409, "wrong_type", ""},
	{"append to another type", "POST", "/v1/strings/list/append", `{"value":"v"}`, nil, 409, "wrong_type", ""},
	{"range of another type", "PUT", "/v1/bytes/list/range?offset=0", "v", nil, 409, "wrong_type", ""},
	{"counter of another type", "GET", "/v1/counters/list", "", nil, 409, "wrong_type", ""},
	{"add to another type", "POST", "/v1/counters/list/add", `{"delta":1}`, nil, 409, "wrong_type", ""},
	{"condition on another type", "PUT", "/v1/strings/list", `{"value":"v"}`, []string{`If-Match: "x"`}, 409, "wrong_type", ""},
	{"corrupt envelope", "GET", "/v1/strings/corrupt", "", nil, 502, "corrupt_value", ""},
	{"corrupt envelope in bytes", "GET", "/v1/bytes/corrupt", "", nil, 502, "corrupt_value", ""},
	{"part of a corrupt envelope", "GET", "/v1/bytes/corrupt", "", []string{"Range: bytes=0-1"}, 502, "corrupt_value", ""},
	{"append to a corrupt envelope", "POST", "/v1/bytes/corrupt/append", "v", nil, 502, "corrupt_value", ""},

	{"cursor that is none", "GET", "/v1/keys?cursor=abc", "", nil, 400, "invalid_request", "query:cursor"},
	{"wrong method", "PATCH", stringPath, `{"value":"v"}`, nil, 405, "method_not_allowed", ""},
	{"no such resource", "GET", "/v1/string/k", "", nil, 404, "not_found", ""},
	{"a slash in a key", "GET", "/v1/strings/a/b", "", nil, 404, "not_found", ""},
	{"trailing slash", "GET", "/v1/strings/k/", "", nil, 404, "not_found", ""},

	{"no key", "GET", stringPath, "", []string{"Authorization: "}, 401, "unauthenticated", ""},
	{"unknown key", "GET", stringPath, "", []string{"Authorization: Bearer sg_nobody"}, 401, "unauthenticated", ""},
	{"malformed key", "GET", stringPath, "", []string{"Authorization: Bearer"}, 401, "unauthenticated", ""},
	{"suspended app", "GET", stringPath, "", []string{"Authorization: Bearer sg_suspended"}, 403, "app_suspended", ""},
	{"expired app", "GET", stringPath, "", []string{"Authorization: Bearer sg_expired"}, 403, "app_expired", ""},
}

// seed puts values there that bad requests meet, and gives a function that tells what has changed.
func (a *app) seed(t testing.TB) (changed func() string) {
	t.Helper()
	ctx := t.Context()
	a.octets(t, "PUT", "/v1/bytes/corrupt", []byte(strings.Repeat("all work and no play ", 100))).want(t, 204)
	corrupt, err := a.redis.Get(ctx, a.stored("corrupt")).Bytes()
	if err != nil || len(corrupt) > 1000 {
		t.Fatalf("%v, stored in %d bytes", err, len(corrupt))
	}
	corrupt[len(corrupt)-1] ^= 1
	want := map[string]string{"corrupt": string(corrupt), "n": "10", "full": strings.Repeat("v", 64<<10), "k": "before"}
	for key, value := range want {
		if err := a.redis.Set(ctx, a.stored(key), value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a.redis.RPush(ctx, a.stored("list"), "x")
	return func() string {
		for key, value := range want {
			if got := a.redis.Get(ctx, a.stored(key)).Val(); got != value {
				return fmt.Sprintf("the value of %s is %.40q", key, got)
			}
			if ttl := a.redis.PTTL(ctx, a.stored(key)).Val(); ttl > 0 {
				return fmt.Sprintf("%s expires in %s", key, ttl)
			}
		}
		if keys := a.keys(t); len(keys) != len(want)+1 || !slices.Contains(keys, "list") {
			return fmt.Sprintf("the keys are %q", keys)
		}
		return ""
	}
}

func TestBadInputIsRefusedAndChangesNothing(t *testing.T) {
	a := start(t).app(t)
	changed := a.seed(t)
	for _, r := range badRequests {
		t.Run(r.why, func(t *testing.T) {
			got := a.call(t, r.method, r.path, r.body, r.headers...)
			got.refused(t, r.status, r.code, r.pointer)
			if got.header.Get("Content-Type") != "application/problem+json" {
				t.Error(got.header)
			}
		})
	}
	if what := changed(); what != "" {
		t.Error(what)
	}
}

// What no client library sends is written to the connection as it is.
func TestBadWireIsRefusedAndChangesNothing(t *testing.T) {
	a := start(t).app(t)
	changed := a.seed(t)
	put := func(length int, body string) string {
		return fmt.Sprintf("PUT /v1/strings/k HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			a.token, length, body)
	}
	for _, row := range []struct {
		why, request  string
		status        int
		code, pointer string
	}{
		{"raw dot segment", a.line("GET", "/v1/strings/."), 400, "invalid_request", "path"},
		{"raw dot segments", a.line("DELETE", "/v1/strings/../keys/k"), 400, "invalid_request", "path"},
		{"raw dots as the key", a.line("DELETE", "/v1/keys/.."), 400, "invalid_request", "path"},
		{"raw dots before the TTL", a.line("DELETE", "/v1/keys/../ttl"), 400, "invalid_request", "path"},
		{"double slash", a.line("GET", "/v1//strings/k"), 400, "invalid_request", "path"},
		{"double slash in front", a.line("GET", "//v1/strings/k"), 400, "invalid_request", "path"},
		{"raw braces beside an encoded slash", a.line("DELETE", "/v1/keys/{k}%2Fttl"), 400, "invalid_request", "path"},
		{"raw bytes beside an encoded slash", a.line("DELETE", "/v1/keys/\xff%2Fttl"), 400, "invalid_request", "path"},
		{"body shorter than declared", put(100, `{"value":"v"}`), 400, "invalid_request", "body"},
		{"body of nothing, declared", put(10, ``), 400, "invalid_request", "body"},
		{"bytes shorter than declared", strings.Replace(put(100, "v"), "/strings/", "/bytes/", 1), 400, "invalid_request", "body"},
		{"chunks that end too early", strings.Replace(put(0, "5\r\n{\"val"), "Content-Length: 0", "Transfer-Encoding: chunked", 1), 400, "invalid_request", "body"},
		{"chunks that are none", strings.Replace(put(0, "zz\r\n"), "Content-Length: 0", "Transfer-Encoding: chunked", 1), 400, "invalid_request", "body"},
		{"a length of 1 TB", put(1<<40, "v"), 413, "payload_too_large", ""},
		{"bytes of 1 TB", strings.Replace(put(1<<40, "v"), "/strings/", "/bytes/", 1), 413, "payload_too_large", ""},
	} {
		t.Run(row.why, func(t *testing.T) { a.cut(t, row.request).refused(t, row.status, row.code, row.pointer) })
	}
	// net/http refuses these itself, before there is a request to speak of.
	for _, target := range []string{"/v1/strings/%zz", "/v1/strings/a%2", "/v1/strings/%", "/v1/strings/a%\x00b"} {
		if r := a.wire(t, a.line("DELETE", target)); r.status != http.StatusBadRequest {
			t.Errorf("%s: %d", target, r.status)
		}
	}
	if what := changed(); what != "" {
		t.Error(what)
	}
}

func TestChunkedBodiesOverTheLimit(t *testing.T) {
	a := start(t).app(t)
	a.chunked(t, "PUT", "/v1/bytes/k", strings.NewReader(strings.Repeat("v", 64<<10+1))).refused(t, 413, "value_too_large", "body")
	a.chunked(t, "PUT", "/v1/bytes/k", strings.NewReader(strings.Repeat("v", 2<<20))).refused(t, 413, "value_too_large", "body")
	a.chunked(t, "PUT", stringPath, strings.NewReader(`{"value":"`+strings.Repeat(" ", 2<<20)), "Content-Type: application/json").refused(t, 413, "payload_too_large", "")
	if keys := a.keys(t); len(keys) != 0 {
		t.Errorf("there is %q", keys)
	}
	a.chunked(t, "PUT", "/v1/bytes/k", strings.NewReader(strings.Repeat("v", 64<<10))).want(t, 204)
}

func TestTTLPolicies(t *testing.T) {
	g := start(t)
	limited := g.app(t, func(app *acl.App) { app.MaxTTLMS = 60_000 })
	for _, r := range []bad{
		{"", "PUT", stringPath, `{"value":"v"}`, nil, 422, "ttl_required", ""},
		{"", "PUT", stringPath, `{"value":"v","ttl_ms":60001}`, nil, 422, "ttl_too_long", ""},
		{"", "PUT", "/v1/bytes/k", "v", nil, 422, "ttl_required", ""},
		{"", "POST", stringPath + "/append", `{"value":"v"}`, nil, 422, "ttl_required", ""},
		{"", "POST", countPath + "/add", `{"delta":1}`, nil, 422, "ttl_required", ""},
		{"", "PUT", countPath, `{"value":1}`, nil, 422, "ttl_required", ""},
		{"", "POST", msetPath, `{"items":[{"key":"k","value":"v"}]}`, nil, 422, "ttl_required", "/items/0/ttl_ms"},
	} {
		limited.call(t, r.method, r.path, r.body).refused(t, r.status, r.code, r.pointer)
	}
	limited.call(t, "PUT", stringPath, `{"value":"v","ttl_ms":60000}`).want(t, 200)
	limited.call(t, "DELETE", "/v1/keys/k/ttl", "").refused(t, 422, "ttl_required", "")
	limited.call(t, "PUT", "/v1/keys/k/ttl", `{"ttl_ms":60001}`).refused(t, 422, "ttl_too_long", "")

	given := g.app(t, func(app *acl.App) { app.DefaultTTLMS = 50_000 })
	if m := given.call(t, "PUT", stringPath, `{"value":"v"}`).want(t, 200); fmt.Sprint(m["ttl_ms"]) != "50000" {
		t.Error(m)
	}
}
