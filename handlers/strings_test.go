package handlers_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store"
)

func TestStrings(t *testing.T) {
	a := start(t).app(t)
	etag := store.ETag([]byte("hello"))

	t.Run("a value is written and read", func(t *testing.T) {
		r := a.call(t, "PUT", "/v1/strings/greeting", `{"value":"hello","ttl_ms":60000}`)
		r.wantBody(t, `{"etag":"`+strings.ReplaceAll(etag, `"`, `\"`)+`","ttl_ms":60000}`)
		if r.header.Get("ETag") != etag || r.header.Get("Content-Length") == "" {
			t.Error(r.header)
		}
		r = a.call(t, "GET", "/v1/strings/greeting", "")
		r.wantBody(t, `{"value":"hello","encoding":"utf8","etag":"`+strings.ReplaceAll(etag, `"`, `\"`)+`"}`)
		if r.header.Get("ETag") != etag {
			t.Error(r.header)
		}
	})
	t.Run("the TTL is read when asked for", func(t *testing.T) {
		if m := a.call(t, "GET", "/v1/strings/greeting?include=ttl", "").want(t, 200); m["ttl_ms"] == nil {
			t.Error(m)
		}
	})
	t.Run("reading with a TTL moves it", func(t *testing.T) {
		a.call(t, "GET", "/v1/strings/greeting?ttl_ms=5000000", "").want(t, 200)
		if ttl := a.redis.PTTL(t.Context(), a.stored("greeting")).Val().Milliseconds(); ttl < 4_000_000 {
			t.Error(ttl)
		}
	})
	t.Run("an unchanged value is 304", func(t *testing.T) {
		r := a.call(t, "GET", "/v1/strings/greeting", "", `If-None-Match: "x", W/`+etag)
		if r.want(t, 304); r.header.Get("ETag") != etag || r.body != "" {
			t.Error(r)
		}
		a.call(t, "GET", "/v1/strings/greeting", "", `If-None-Match: "x"`).want(t, 200)
	})
	t.Run("base64 both ways", func(t *testing.T) {
		a.call(t, "PUT", "/v1/strings/bin", `{"value":"AP8=","encoding":"base64"}`).want(t, 200)
		if m := a.call(t, "GET", "/v1/strings/bin?encoding=base64", "").want(t, 200); m["value"] != "AP8=" || m["encoding"] != "base64" {
			t.Error(m)
		}
		a.call(t, "GET", "/v1/strings/bin", "").refused(t, 422, "value_not_utf8", "")
		a.call(t, "GET", "/v1/strings/bin/range", "").refused(t, 422, "value_not_utf8", "")
	})
	t.Run("a preference for nothing is 204", func(t *testing.T) {
		r := a.call(t, "PUT", "/v1/strings/quiet", `{"value":"hello"}`, "Prefer: return=minimal")
		if r.want(t, 204); r.header.Get("ETag") != etag || r.header.Get("Preference-Applied") != "return=minimal" || r.body != "" {
			t.Error(r)
		}
	})
	t.Run("the previous value comes back, as base64 if it must", func(t *testing.T) {
		m := a.call(t, "PUT", "/v1/strings/old", `{"value":"a","return_previous":true}`).want(t, 200)
		if p := m["previous"].(map[string]any); p["found"] != false {
			t.Error(m)
		}
		m = a.call(t, "PUT", "/v1/strings/old", `{"value":"/w==","encoding":"base64","return_previous":true}`).want(t, 200)
		if p := m["previous"].(map[string]any); p["found"] != true || p["value"] != "YQ==" || p["encoding"] != "base64" {
			t.Error(m)
		}
		m = a.call(t, "PUT", "/v1/strings/old", `{"value":"b","return_previous":true}`, "Prefer: return=minimal").want(t, 200)
		if p := m["previous"].(map[string]any); p["value"] != "/w==" || p["encoding"] != "base64" {
			t.Error(m)
		}
	})
	t.Run("keep_ttl keeps it", func(t *testing.T) {
		a.call(t, "PUT", "/v1/strings/kept", `{"value":"a","ttl_ms":100000}`).want(t, 200)
		a.call(t, "PUT", "/v1/strings/kept", `{"value":"b","keep_ttl":true}`).want(t, 200)
		if a.redis.PTTL(t.Context(), a.stored("kept")).Val() <= 0 {
			t.Error("the TTL is gone")
		}
		a.call(t, "PUT", "/v1/strings/kept", `{"value":"c"}`).want(t, 200)
		if a.redis.PTTL(t.Context(), a.stored("kept")).Val() > 0 {
			t.Error("the TTL is still there")
		}
	})
	t.Run("conditions", func(t *testing.T) {
		a.call(t, "PUT", "/v1/strings/cond", `{"value":"hello"}`, "If-Match: *").refused(t, 412, "precondition_failed", "")
		a.call(t, "PUT", "/v1/strings/cond", `{"value":"hello"}`, "If-None-Match: *").want(t, 200)
		r := a.call(t, "PUT", "/v1/strings/cond", `{"value":"x"}`, "If-None-Match: *")
		if r.refused(t, 412, "precondition_failed", ""); r.header.Get("ETag") != etag {
			t.Error(r.header)
		}
		a.call(t, "PUT", "/v1/strings/cond", `{"value":"x"}`, "If-Match: W/"+etag).refused(t, 412, "precondition_failed", "")
		a.call(t, "PUT", "/v1/strings/cond", `{"value":"x"}`, `If-Match: "no", `+etag).want(t, 200)
		a.call(t, "DELETE", "/v1/strings/cond", "", "If-Match: "+etag).refused(t, 412, "precondition_failed", "")
		a.call(t, "DELETE", "/v1/strings/cond", "", "If-Match: "+store.ETag([]byte("x"))).want(t, 204)
		a.call(t, "DELETE", "/v1/strings/cond", "", "If-Match: *").refused(t, 412, "precondition_failed", "")
		a.call(t, "DELETE", "/v1/strings/cond", "").refused(t, 404, "key_not_found", "")
	})
	t.Run("append and range", func(t *testing.T) {
		a.call(t, "POST", "/v1/strings/long/append", `{"value":"hello","ttl_ms":100000}`).wantBody(t, `{"length":5}`)
		a.call(t, "POST", "/v1/strings/long/append", `{"value":"LCB3b3JsZA==","encoding":"base64"}`).wantBody(t, `{"length":12}`)
		a.call(t, "GET", "/v1/strings/long/range?start=0&end=4", "").wantBody(t, `{"value":"hello","encoding":"utf8","length":12}`)
		a.call(t, "GET", "/v1/strings/long/range?start=-5&encoding=base64", "").wantBody(t, `{"value":"d29ybGQ=","encoding":"base64","length":12}`)
		a.call(t, "GET", "/v1/strings/long/range?start=50", "").wantBody(t, `{"value":"","encoding":"utf8","length":12}`)
		a.call(t, "PUT", "/v1/strings/long/range", `{"offset":7,"value":"slots"}`).wantBody(t, `{"length":12}`)
		a.call(t, "GET", "/v1/strings/nobody/range", "").refused(t, 404, "key_not_found", "")
	})
	t.Run("what is deleted comes back, as base64 if it must", func(t *testing.T) {
		a.call(t, "PUT", "/v1/strings/gone", `{"value":"hello"}`).want(t, 200)
		m := a.call(t, "DELETE", "/v1/strings/gone?return=value", "").want(t, 200)
		if m["value"] != "hello" || m["encoding"] != "utf8" || m["etag"] != etag {
			t.Error(m)
		}
		a.call(t, "PUT", "/v1/strings/gone", `{"value":"/w==","encoding":"base64"}`).want(t, 200)
		if m = a.call(t, "DELETE", "/v1/strings/gone?return=value", "").want(t, 200); m["value"] != "/w==" || m["encoding"] != "base64" {
			t.Error(m)
		}
		a.call(t, "GET", "/v1/strings/gone", "").refused(t, 404, "key_not_found", "")
	})
	t.Run("a value over the response limit is refused unread, its parts are not", func(t *testing.T) {
		a.redis.Set(t.Context(), a.stored("huge"), strings.Repeat("x", 200<<10), 0)
		a.call(t, "GET", "/v1/strings/huge", "").refused(t, 422, "response_too_large", "")
		a.call(t, "GET", "/v1/strings/huge/range?end=3", "").wantBody(t, `{"value":"xxxx","encoding":"utf8","length":204800}`)
	})
	t.Run("every character of JSON survives", func(t *testing.T) {
		value := "\x00\x01\x1f\"\\/\b\f\n\r\t\x7f é\u2028\u2029 😀 </script>"
		a.octets(t, "PUT", "/v1/bytes/chars", []byte(value)).want(t, 204)
		if m := a.call(t, "GET", "/v1/strings/chars", "").want(t, 200); m["value"] != value {
			t.Errorf("%q", m["value"])
		}
		a.call(t, "PUT", "/v1/strings/chars", `{"value":"`+base64.StdEncoding.EncodeToString([]byte(value))+`","encoding":"base64"}`).want(t, 200)
		if r := a.octets(t, "GET", "/v1/bytes/chars", nil); r.body != value {
			t.Errorf("%q", r.body)
		}
	})
}
