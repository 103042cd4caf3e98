package handlers_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store"
)

func TestBytes(t *testing.T) {
	a := start(t).app(t)
	value := []byte("0123456789")
	etag := store.ETag(value)
	plain := a.octets(t, "PUT", "/v1/bytes/plain?ttl_ms=100000", value, "Content-Type: image/png")
	if plain.want(t, 204); plain.header.Get("ETag") != etag {
		t.Error(plain.header)
	}
	long := bytes.Repeat([]byte("0123456789"), 500) // stored compressed
	a.octets(t, "PUT", "/v1/bytes/long", long).want(t, 204)
	a.octets(t, "PUT", "/v1/bytes/empty", nil).want(t, 204)

	t.Run("a value comes back as an attachment of octets", func(t *testing.T) {
		r := a.octets(t, "GET", "/v1/bytes/plain", nil)
		r.want(t, 200)
		for name, want := range map[string]string{
			"Content-Type": "application/octet-stream", "Content-Disposition": "attachment", "Accept-Ranges": "bytes", "ETag": etag,
			"Content-Length": "10", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		} {
			if got := r.header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if r.body != string(value) {
			t.Errorf("%q", r.body)
		}
	})
	t.Run("HEAD has the header and nothing else", func(t *testing.T) {
		r := a.octets(t, "HEAD", "/v1/bytes/plain", nil, "Range: bytes=0-1")
		if r.want(t, 200); r.header.Get("Content-Length") != "10" || r.header.Get("ETag") != etag || r.body != "" {
			t.Error(r)
		}
		a.octets(t, "HEAD", "/v1/bytes/plain", nil, "If-None-Match: "+etag).want(t, 304)
		if r := a.octets(t, "HEAD", "/v1/bytes/nobody", nil); r.status != 404 || r.body != "" {
			t.Error(r)
		}
	})
	t.Run("one range is answered", func(t *testing.T) {
		for _, row := range []struct{ key, header, body, contentRange string }{
			{"plain", "bytes=2-4", "234", "bytes 2-4/10"},
			{"plain", "bytes=8-", "89", "bytes 8-9/10"},
			{"plain", "bytes=-3", "789", "bytes 7-9/10"},
			{"plain", "bytes=-300", "0123456789", "bytes 0-9/10"},
			{"plain", "bytes=5-99999999999999999999", "56789", "bytes 5-9/10"},
			{"long", "bytes=4998-", "89", "bytes 4998-4999/5000"},
			{"long", "bytes=-1", "9", "bytes 4999-4999/5000"},
		} {
			r := a.octets(t, "GET", "/v1/bytes/"+row.key, nil, "Range: "+row.header)
			if r.want(t, 206); r.body != row.body || r.header.Get("Content-Range") != row.contentRange ||
				r.header.Get("Content-Length") != fmt.Sprint(len(row.body)) {
				t.Errorf("%s: %q %v", row.header, r.body, r.header)
			}
		}
	})
	t.Run("other ranges get the whole value", func(t *testing.T) {
		for _, header := range []string{"bytes=0-1,4-5", "items=0-1", "bytes=4-1", "bytes=x"} {
			if r := a.octets(t, "GET", "/v1/bytes/plain", nil, "Range: "+header); r.status != 200 || r.body != string(value) {
				t.Errorf("%s: %d %q", header, r.status, r.body)
			}
		}
	})
	t.Run("a range beyond the end is refused with the length", func(t *testing.T) {
		for _, row := range [][3]string{
			{"plain", "bytes=10-", "bytes */10"}, {"plain", "bytes=-0", "bytes */10"}, {"empty", "bytes=0-", "bytes */0"},
			{"empty", "bytes=-1", "bytes */0"}, {"long", "bytes=5000-6000", "bytes */5000"},
		} {
			r := a.octets(t, "GET", "/v1/bytes/"+row[0], nil, "Range: "+row[1])
			if r.refused(t, 416, "range_not_satisfiable", ""); r.header.Get("Content-Range") != row[2] {
				t.Errorf("%v: %v", row, r.header)
			}
		}
		a.octets(t, "GET", "/v1/bytes/nobody", nil, "Range: bytes=0-1").refused(t, 404, "key_not_found", "")
		a.octets(t, "GET", "/v1/bytes/nobody", nil, "Range: bytes=-0").refused(t, 404, "key_not_found", "")
	})
	t.Run("If-Range decides whether the range counts", func(t *testing.T) {
		r := a.octets(t, "GET", "/v1/bytes/plain", nil, "Range: bytes=0-1", "If-Range: "+etag)
		if r.want(t, 206); r.body != "01" || r.header.Get("ETag") != etag {
			t.Error(r)
		}
		for _, other := range []string{`"x"`, "W/" + etag, "Sat, 29 Oct 1994 19:43:31 GMT"} {
			if r := a.octets(t, "GET", "/v1/bytes/plain", nil, "Range: bytes=0-1", "If-Range: "+other); r.status != 200 || r.body != string(value) {
				t.Errorf("%s: %v", other, r)
			}
		}
		a.octets(t, "GET", "/v1/bytes/plain", nil, "Range: bytes=50-", "If-Range: "+etag).refused(t, 416, "range_not_satisfiable", "")
		a.octets(t, "GET", "/v1/bytes/plain", nil, "Range: bytes=-0", "If-Range: "+etag).refused(t, 416, "range_not_satisfiable", "")
	})
	t.Run("a range goes with a condition and a TTL", func(t *testing.T) {
		a.octets(t, "GET", "/v1/bytes/plain", nil, "Range: bytes=0-1", "If-None-Match: "+etag).want(t, 304)
		r := a.octets(t, "GET", "/v1/bytes/plain?ttl_ms=5000000", nil, "Range: bytes=0-1")
		if r.want(t, 206); r.body != "01" {
			t.Error(r)
		}
		if a.redis.PTTL(t.Context(), a.stored("plain")).Val().Milliseconds() < 4_000_000 {
			t.Error("the TTL was not moved")
		}
	})
	t.Run("a part of a value over the response limit", func(t *testing.T) {
		a.redis.Set(t.Context(), a.stored("huge"), strings.Repeat("x", 200<<10), 0)
		a.octets(t, "GET", "/v1/bytes/huge", nil).refused(t, 422, "response_too_large", "")
		if r := a.octets(t, "GET", "/v1/bytes/huge", nil, "Range: bytes=204799-"); r.status != 206 || r.body != "x" {
			t.Error(r)
		}
	})
	t.Run("append, range and delete", func(t *testing.T) {
		a.octets(t, "POST", "/v1/bytes/grow/append?ttl_ms=100000", []byte("a\x00")).wantBody(t, `{"length":2}`)
		a.octets(t, "POST", "/v1/bytes/grow/append", []byte("\xff")).wantBody(t, `{"length":3}`)
		a.octets(t, "PUT", "/v1/bytes/grow/range?offset=5", []byte("z")).wantBody(t, `{"length":6}`)
		if r := a.octets(t, "GET", "/v1/bytes/grow", nil); r.body != "a\x00\xff\x00\x00z" {
			t.Errorf("%q", r.body)
		}
		a.octets(t, "DELETE", "/v1/bytes/grow", nil, `If-Match: "x"`).refused(t, 412, "precondition_failed", "")
		a.octets(t, "DELETE", "/v1/bytes/grow", nil).want(t, 204)
		a.octets(t, "GET", "/v1/bytes/grow", nil).refused(t, 404, "key_not_found", "")
	})
	t.Run("conditions on PUT", func(t *testing.T) {
		a.octets(t, "PUT", "/v1/bytes/plain", []byte("x"), "If-None-Match: *").refused(t, 412, "precondition_failed", "")
		a.octets(t, "PUT", "/v1/bytes/plain?keep_ttl=true", []byte("x"), "If-Match: "+etag).want(t, 204)
		if a.redis.PTTL(t.Context(), a.stored("plain")).Val() <= 0 {
			t.Error("the TTL is gone")
		}
	})
	t.Run("a chunked body of unknown length", func(t *testing.T) {
		a.chunked(t, "PUT", "/v1/bytes/chunked", strings.NewReader("abc")).want(t, 204)
		if r := a.octets(t, "GET", "/v1/bytes/chunked", nil); r.body != "abc" {
			t.Errorf("%q", r.body)
		}
	})
}
