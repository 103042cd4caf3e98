package handlers_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/middleware"
)

const once = `Idempotency-Key: "once"`

// keyedCalls are all operations that take an Idempotency-Key: what is there before, and the request.
var keyedCalls = map[string]struct{ before, method, path, body string }{
	"PUT string":                 {"", "PUT", "/v1/strings/k", `{"value":"v","ttl_ms":60000}`},
	"PUT string, previous":       {"old", "PUT", "/v1/strings/k", `{"value":"v","return_previous":true}`},
	"DELETE string":              {"old", "DELETE", "/v1/strings/k", ""},
	"DELETE string, value":       {"old", "DELETE", "/v1/strings/k?return=value", ""},
	"append to string":           {"old", "POST", "/v1/strings/k/append", `{"value":"+"}`},
	"range of string":            {"something old", "PUT", "/v1/strings/k/range", `{"offset":9,"value":"new"}`},
	"PUT bytes":                  {"", "PUT", "/v1/bytes/k?ttl_ms=60000", "v"},
	"DELETE bytes":               {"old", "DELETE", "/v1/bytes/k", ""},
	"append to bytes":            {"old", "POST", "/v1/bytes/k/append", "+"},
	"range of bytes":             {"something old", "PUT", "/v1/bytes/k/range?offset=9", "new"},
	"PUT counter":                {"7", "PUT", "/v1/counters/k", `{"value":9007199254740993}`},
	"add to counter":             {"9007199254740993", "POST", "/v1/counters/k/add", `{"delta":2}`},
	"add to counter, as text":    {"9007199254740993", "POST", "/v1/counters/k/add?int64=string", `{"delta":2}`},
	"DELETE key":                 {"old", "DELETE", "/v1/keys/k", ""},
	"PUT ttl":                    {"old", "PUT", "/v1/keys/k/ttl", `{"ttl_ms":60000}`},
	"DELETE ttl":                 {"old", "DELETE", "/v1/keys/k/ttl", ""},
	"PUT string, key in base64":  {"", "PUT", "/v1/strings/aw?key_encoding=base64url", `{"value":"v"}`},
	"PUT string, minimal answer": {"", "PUT", "/v1/strings/k", `{"value":"v"}`},
}

func headersOf(name string, more ...string) []string {
	if strings.Contains(name, "minimal") {
		more = append(more, "Prefer: return=minimal")
	}
	if strings.Contains(name, "bytes") {
		more = append(more, "Content-Type: application/octet-stream")
	}
	return more
}

func TestARepeatedRequestHasTheFirstAnswer(t *testing.T) {
	g := start(t)
	for name, c := range keyedCalls {
		t.Run(name, func(t *testing.T) {
			a, ctx := g.app(t), t.Context()
			if c.before != "" {
				g.redis.Set(ctx, a.stored("k"), c.before, 0)
			}
			first := a.call(t, c.method, c.path, c.body, headersOf(name, once)...)
			if first.status >= 300 || first.header.Get("Idempotency-Replayed") != "" {
				t.Fatalf("%d %v %s", first.status, first.header, first.body)
			}
			after := g.redis.Get(ctx, a.stored("k")).String()
			for _, key := range []string{once, "Idempotency-Key: once"} {
				again := a.call(t, c.method, c.path, c.body, headersOf(name, key)...)
				if again.header.Get("Idempotency-Replayed") != "true" {
					t.Error("it does not say that it is a replay")
				}
				if again.status != first.status || again.body != first.body || again.header.Get("Etag") != first.header.Get("Etag") {
					t.Errorf("%d %s %s; the first was %d %s %s", again.status, again.header.Get("Etag"), again.body, first.status, first.header.Get("Etag"), first.body)
				}
			}
			if now := g.redis.Get(ctx, a.stored("k")).String(); now != after {
				t.Errorf("it was done again: %s, then %s", after, now)
			}
		})
	}
}

func TestAnotherRequestWithTheKeyIsRefused(t *testing.T) {
	g := start(t)
	etag := `"s1-` + strings.Repeat("0", 32) + `"`
	for name, r := range map[string]struct {
		method, path, body string
		headers            []string
	}{
		"another value":       {"PUT", "/v1/strings/k", `{"value":"w"}`, nil},
		"another writing":     {"PUT", "/v1/strings/k", `{"value": "v"}`, nil},
		"another TTL":         {"PUT", "/v1/strings/k", `{"value":"v","ttl_ms":5}`, nil},
		"another condition":   {"PUT", "/v1/strings/k", `{"value":"v"}`, []string{"If-Match: " + etag}},
		"no overwriting":      {"PUT", "/v1/strings/k", `{"value":"v"}`, []string{"If-None-Match: *"}},
		"another key":         {"PUT", "/v1/strings/%7Bk%7D", `{"value":"v"}`, nil},
		"another door":        {"PUT", "/v1/bytes/k", `{"value":"v"}`, []string{"Content-Type: application/octet-stream"}},
		"another method":      {"DELETE", "/v1/strings/k", "", nil},
		"another operation":   {"POST", "/v1/strings/k/append", `{"value":"v"}`, nil},
		"a query without use": {"DELETE", "/v1/strings/k?encoding=base64", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			// In the layout together every key of the app is in the slot of the record.
			a := g.app(t, func(a *acl.App) { a.Layout = acl.Together })
			a.call(t, "PUT", "/v1/strings/k", `{"value":"v"}`, once).want(t, 200)
			answer := a.call(t, r.method, r.path, r.body, append(r.headers, once)...)
			answer.refused(t, 422, "idempotency_mismatch", "header:Idempotency-Key")
			if v := g.redis.Get(t.Context(), a.stored("k")).Val(); v != "v" {
				t.Errorf("it was done: %q", v)
			}
		})
	}
}

func TestWhereAnIdempotencyKeyIsRefused(t *testing.T) {
	a := start(t).app(t)
	for _, r := range []struct{ method, path, body string }{
		{"GET", "/v1/strings/k", ""}, {"GET", "/v1/strings/k?ttl_ms=1000", ""}, {"GET", "/v1/strings/k/range", ""},
		{"GET", "/v1/bytes/k", ""}, {"GET", "/v1/counters/k", ""}, {"GET", "/v1/keys", ""}, {"GET", "/v1/keys/k", ""},
		{"GET", "/v1/whoami", ""}, {"POST", "/v1/token", `{}`},
		{"POST", "/v1/mget", `{"keys":["k"]}`}, {"POST", "/v1/mexists", `{"keys":["k"]}`},
		{"POST", "/v1/mset", `{"items":[{"key":"k","value":"v"}]}`}, {"POST", "/v1/mdelete", `{"keys":["k"]}`},
	} {
		t.Run(r.method+" "+r.path, func(t *testing.T) {
			a.call(t, r.method, r.path, r.body, once).refused(t, 422, "idempotency_unsupported", "header:Idempotency-Key")
		})
	}
	for _, path := range []string{"/v1/bytes/k", "/v1/keys/k"} {
		if r := a.call(t, "HEAD", path, "", once); r.status != 422 {
			t.Errorf("HEAD %s: %d", path, r.status)
		}
	}
	a.call(t, "PUT", "/v1/strings/k", `{"value":"v"}`, `Idempotency-Key: "half`).refused(t, 400, "invalid_request", "header:Idempotency-Key")
	t.Run("twice", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), "DELETE", a.URL+"/v1/keys/k", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + a.token}, "Idempotency-Key": {"a", "a"}}
		a.send(t, req).refused(t, 400, "invalid_request", "header:Idempotency-Key")
	})
}

func TestTwinRequestsAreOneWrite(t *testing.T) {
	a := start(t).app(t)
	const twins = 50
	var mu sync.Mutex
	answers, replays := map[string]int{}, 0
	var wg sync.WaitGroup
	for range twins {
		wg.Go(func() {
			r := a.call(t, "POST", "/v1/counters/n/add", `{"delta":1}`, once)
			mu.Lock()
			defer mu.Unlock()
			answers[fmt.Sprint(r.status, r.body)]++
			if r.header.Get("Idempotency-Replayed") == "true" {
				replays++
			}
		})
	}
	wg.Wait()
	if len(answers) != 1 || answers[`200{"value":1}`] != twins || replays != twins-1 {
		t.Errorf("the answers %v, %d replays", answers, replays)
	}
}

func TestRecordsAreBounded(t *testing.T) {
	a := start(t).app(t)
	put := func(key string) answer {
		return a.call(t, "POST", "/v1/counters/n/add", `{"delta":1}`, "Idempotency-Key: "+key)
	}
	const most = middleware.DefaultRecordsPerSecond * 10
	put("first").want(t, 200)
	for range 2 * most { // neither of these leaves a record
		put("first").want(t, 200)
		a.call(t, "DELETE", "/v1/keys/absent", "", "Idempotency-Key: none").want(t, 404)
	}
	for i := 0; ; i++ {
		r := put(fmt.Sprint(i))
		if r.status == 429 {
			m := r.want(t, 429)
			if m["code"] != "quota_exceeded" || fmt.Sprint(m["violated-policies"]) != "[idempotency-records]" || m["retryable"] != true || r.header.Get("Retry-After") == "" {
				t.Errorf("%v %v", m, r.header)
			}
			if i < most-1 {
				t.Errorf("only %d records were allowed", i)
			}
			break
		}
		r.want(t, 200)
		if i > 20*most {
			t.Fatal("there is no bound")
		}
	}
	a.call(t, "POST", "/v1/counters/n/add", `{"delta":1}`).want(t, 200)
}
