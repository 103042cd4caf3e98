package openapitest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/slotgate/slotgate/openapi"
	"github.com/slotgate/slotgate/openapi/openapitest"
)

// recorder is a test that only notes what it is told.
type recorder struct {
	testing.TB
	errs []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.errs = append(r.errs, fmt.Sprintf(format, args...))
}

// exchange sends a request (lines: "PUT /path", headers, "", body) through Transport to a server that answers so (lines: status, headers,
// "", body) and returns the complaints.
func exchange(t *testing.T, request, answer string) []string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		head, body, _ := strings.Cut(answer, "\n\n")
		lines := strings.Split(head, "\n")
		w.Header()["Date"] = nil
		for _, line := range lines[1:] {
			name, value, _ := strings.Cut(line, ": ")
			w.Header().Set(name, value)
		}
		var status int
		if _, err := fmt.Sscan(lines[0], &status); err != nil {
			t.Errorf("%q: %v", lines[0], err)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()

	head, body, _ := strings.Cut(request, "\n\n")
	lines := strings.Split(head, "\n")
	method, path, _ := strings.Cut(lines[0], " ")
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	notes := &recorder{TB: t}
	client := &http.Client{Transport: openapitest.Transport(notes, &http.Transport{DisableKeepAlives: true})}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if _, want, _ := strings.Cut(answer, "\n\n"); method != http.MethodHead && string(got) != want {
		t.Errorf("the body arrived as %q, want %q", got, want)
	}
	return notes.errs
}

const (
	common   = "X-Request-Id: r1\nCache-Control: no-store\nX-Content-Type-Options: nosniff\n"
	jsonHead = "200\n" + common + "Content-Type: application/json\n\n"
	tagged   = "200\n" + common + "ETag: \"s1-2cf24dba5fb0a30e26e83b2ac5b9e29e\"\nContent-Type: application/json\n\n"
	text     = `{"value":"hello","encoding":"utf8","etag":"\"s1-2cf24dba5fb0a30e26e83b2ac5b9e29e\""}`
	notFound = `{"type":"/problems/key_not_found","title":"Key not found","status":404,"code":"key_not_found","request_id":"r1","retryable":false}`
)

func problem(status, code, rest string) string {
	return status + "\n" + common + "Content-Type: application/problem+json\n\n" + `{"type":"/problems/` + code + `","title":"T","status":` + status + `,"code":"` + code +
		`","request_id":"r1","retryable":false` + rest + `}`
}

func TestWhatTheDocumentAllowsPasses(t *testing.T) {
	for name, c := range map[string]struct{ request, answer string }{
		"a value":                      {"GET /v1/strings/k", tagged + text},
		"a key with a slash":           {"GET /v1/strings/a%2Fb", tagged + text},
		"a key of two dots":            {"GET /v1/strings/%2E%2E", tagged + text},
		"a key that is not UTF-8":      {"GET /v1/strings/%FF", tagged + text},
		"a key with a plus":            {"GET /v1/strings/a+b?key_encoding=base64url", tagged + text},
		"a 64-bit counter":             {"GET /v1/counters/k", jsonHead + `{"value":9223372036854775807}`},
		"a fractional counter":         {"GET /v1/counters/k", jsonHead + `{"value":-1.5}`},
		"a counter as a string":        {"GET /v1/counters/k?int64=string", jsonHead + `{"value":"-9223372036854775808"}`},
		"a problem":                    {"GET /v1/strings/k", "404\n" + common + "Content-Type: application/problem+json\n\n" + notFound},
		"HEAD without a body":          {"HEAD /v1/keys/k", "200\n" + common + "Gateway-Type: string\nGateway-Ttl-Ms: 5\n\n"},
		"HEAD of nothing":              {"HEAD /v1/keys/k", "404\n" + common + "Content-Type: application/problem+json\n\n"},
		"not modified":                 {"GET /v1/strings/k\nIf-None-Match: *", "304\n" + common + "ETag: \"s1-2cf24dba5fb0a30e26e83b2ac5b9e29e\"\n\n"},
		"octets":                       {"GET /v1/bytes/k", "206\n" + common + "Accept-Ranges: bytes\nContent-Range: bytes 0-1/2\nContent-Disposition: attachment\nContent-Type: application/octet-stream\n\n\x00\xff"},
		"octets of another media type": {"PUT /v1/bytes/k?ttl_ms=5\nContent-Type: image/png\n\nx", "204\n" + common + "ETag: \"s1-2cf24dba5fb0a30e26e83b2ac5b9e29e\"\n\n"},
		"a body":                       {"PUT /v1/strings/k\nContent-Type: application/json\n\n{\"value\":\"hello\"}", tagged + `{"etag":"\"s1-2cf24dba5fb0a30e26e83b2ac5b9e29e\""}`},
		"a bad body, refused":          {"PUT /v1/strings/k\nContent-Type: application/json\n\n{\"valve\":1}", problem("422", "validation_failed", `,"errors":[{"pointer":"/valve","code":"validation_failed","detail":"unknown member"}]`)},
		"no such path":                 {"GET /v2/strings/k", problem("404", "not_found", "")},
		"no such method":               {"PATCH /v1/strings/k", problem("405", "method_not_allowed", "")},
		"a page":                       {"GET /docs/reference", "200\nContent-Type: text/html; charset=utf-8\n\n<p>"},
		"an asset":                     {"GET /docs/a.css", "200\nContent-Type: text/css\nETag: \"x\"\n\np{}"},
	} {
		if errs := exchange(t, c.request, c.answer); len(errs) != 0 {
			t.Errorf("%s: %q", name, errs)
		}
	}
}

func TestWhatTheDocumentDoesNotAllowFails(t *testing.T) {
	for name, c := range map[string]struct{ request, answer, complaint string }{
		"an undocumented status":         {"GET /v1/strings/k", problem("418", "internal", ""), "does not document this status"},
		"an undocumented status to HEAD": {"HEAD /v1/keys/k", "416\n" + common + "\n", "does not document this status"},
		"an undocumented header":         {"GET /v1/strings/k", strings.Replace(tagged, "ETag", "X-New: 1\nETag", 1) + text, "the header X-New is not documented"},
		"a missing header":               {"GET /v1/strings/k", jsonHead + text, "the header ETag is missing"},
		"a missing header on HEAD":       {"HEAD /v1/keys/k", "200\n" + common + "\n", "the header Gateway-Type is missing"},
		"a header of the wrong form":     {"GET /v1/strings/k", strings.Replace(tagged, `"s1-2cf`, `"s2-2cf`, 1) + text, "ETag"},
		"a header that is no number":     {"HEAD /v1/keys/k", "200\n" + common + "Gateway-Type: string\nGateway-Ttl-Ms: soon\n\n", "Gateway-Ttl-Ms"},
		"an answer that may be cached":   {"GET /v1/strings/k", strings.Replace(tagged, "no-store", "private", 1) + text, "the header Cache-Control is"},
		"an undocumented member":         {"GET /v1/strings/k", tagged + strings.Replace(text, "{", `{"new":1,`, 1), "new"},
		"an undocumented nested member":  {"POST /v1/mget\nContent-Type: application/json\n\n{\"keys\":[\"k\"]}", jsonHead + `{"items":[{"key":"k","found":false,"new":1}],"errors":false}`, "new"},
		"a missing member":               {"GET /v1/strings/k", tagged + `{"value":"hello","encoding":"utf8"}`, "etag"},
		"a member of the wrong type":     {"POST /v1/strings/k/append\nContent-Type: application/json\n\n{\"value\":\"x\"}", jsonHead + `{"length":"12"}`, "/length"},
		"a counter that is an object":    {"GET /v1/counters/k", jsonHead + `{"value":{}}`, "/value"},
		"a counter that is any string":   {"GET /v1/counters/k", jsonHead + `{"value":"many"}`, "/value"},
		"another media type":             {"GET /v1/strings/k", strings.Replace(tagged, "application/json", "text/json", 1) + text, "Content-Type is"},
		"a body that is not JSON":        {"GET /v1/strings/k", tagged + text + "x", "not one JSON value"},
		"a code of another status":       {"GET /v1/strings/k", problem("404", "forbidden", ""), "the code forbidden is not one of"},
		"a code that is not known":       {"GET /v1/strings/k", problem("404", "nope", ""), "/code"},
		"a status that contradicts":      {"GET /v1/strings/k", strings.Replace(problem("404", "key_not_found", ""), `:404`, `:500`, 1), "the problem says 500"},
		"two request ids":                {"GET /v1/strings/k", strings.Replace(problem("404", "key_not_found", ""), `"r1"`, `"r2"`, 1), "the request id"},
		"a type of another code":         {"GET /v1/strings/k", strings.Replace(problem("404", "key_not_found", ""), `/problems/key`, `/problems/no`, 1), "the type is"},
		"an accepted unknown parameter":  {"GET /v1/strings/k?ttl=5", tagged + text, "the query parameter ttl is accepted"},
		"an accepted bad parameter":      {"GET /v1/strings/k?ttl_ms=0", tagged + text, "ttl_ms"},
		"an accepted bad body":           {"PUT /v1/strings/k\nContent-Type: application/json\n\n{\"value\":\"x\",\"valve\":1}", tagged + `{"etag":"\"s1-2cf24dba5fb0a30e26e83b2ac5b9e29e\""}`, "valve"},
		"an answer from nowhere":         {"GET /v2/strings/k", tagged + text, "no such operation"},
		"a refusal that is no problem":   {"GET /v2/strings/k", "404\nContent-Type: text/plain\n\nno", "want JSON"},
	} {
		errs := exchange(t, c.request, c.answer)
		if len(errs) == 0 || !strings.Contains(strings.Join(errs, "\n"), c.complaint) {
			t.Errorf("%s: complaints %q, want one with %q", name, errs, c.complaint)
		}
	}
}

func ginRoutes(t *testing.T) []openapitest.Route {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Document())
	if err != nil {
		t.Fatal(err)
	}
	var routes []openapitest.Route
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			routes = append(routes, openapitest.Route{Method: method, Path: strings.NewReplacer("{", ":", "}", "").Replace(path)})
		}
	}
	return routes
}

func TestRoutesAreComparedBothWays(t *testing.T) {
	routes := ginRoutes(t)
	same := &recorder{TB: t}
	openapitest.Routes(same, routes)
	if len(same.errs) != 0 {
		t.Errorf("the same routes: %q", same.errs)
	}
	more := &recorder{TB: t}
	openapitest.Routes(more, append(routes, openapitest.Route{Method: "GET", Path: "/v1/secret/:key"}))
	if len(more.errs) != 1 || !strings.Contains(more.errs[0], "GET /v1/secret/{key} is served") {
		t.Errorf("one route more: %q", more.errs)
	}
	fewer := &recorder{TB: t}
	openapitest.Routes(fewer, routes[1:])
	if len(fewer.errs) != 1 || !strings.Contains(fewer.errs[0], "not served") {
		t.Errorf("one route fewer: %q", fewer.errs)
	}
}
