package handlers_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

func TestKeys(t *testing.T) {
	a := start(t).app(t)
	set := func(key, value string) { a.redis.Set(t.Context(), a.stored(key), value, 0) }

	t.Run("a page names text as text and the rest in base64url", func(t *testing.T) {
		set("list:text", "1")
		set("list:\xff", "1")
		page := a.call(t, "GET", "/v1/keys?prefix=list:&limit=0", "").want(t, 200)
		for page["next_cursor"] != nil && len(page["items"].([]any)) == 0 {
			page = a.call(t, "GET", "/v1/keys?prefix=list:&limit=0&cursor="+page["next_cursor"].(string), "").want(t, 200)
		}
		var got []string
		for _, item := range a.list(t, "prefix=list:") {
			got = append(got, fmt.Sprint(item))
		}
		slices.Sort(got)
		if want := []string{"map[key:list:text]", "map[key_base64url:" + base64url("list:\xff") + "]"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		for _, item := range a.list(t, "key_encoding=base64url&prefix="+base64url("list:\xff")) {
			if item["key_base64url"] != base64url("list:\xff") {
				t.Error(item)
			}
		}
	})
	t.Run("pages of a type", func(t *testing.T) {
		a.redis.RPush(t.Context(), a.stored("kind:list"), "x")
		set("kind:string", "x")
		if got := a.list(t, "prefix=kind:&type=list"); len(got) != 1 || got[0]["key"] != "kind:list" {
			t.Error(got)
		}
	})
	t.Run("what is known of a key", func(t *testing.T) {
		set("{tag}:a", "1")
		m := a.call(t, "GET", "/v1/keys/%7Btag%7D:a", "").want(t, 200)
		if m["key"] != "{tag}:a" || m["type"] != "string" || m["encoding"] != "int" || m["hash_tag"] != "tag" || m["ttl_ms"] != nil || m["slot"] == nil {
			t.Error(m)
		}
		a.call(t, "PUT", "/v1/keys/%7Btag%7D:a/ttl", `{"ttl_ms":100000}`).wantTTL(t, true, 100000)
		if m = a.call(t, "GET", "/v1/keys/%7Btag%7D:a?include=memory", "").want(t, 200); m["ttl_ms"] == nil || m["memory_bytes"] == nil {
			t.Error(m)
		}
		m = a.call(t, "GET", "/v1/keys/"+base64url("{tag}:a")+"?key_encoding=base64url", "").want(t, 200)
		if m["key_base64url"] != base64url("{tag}:a") || m["key"] != nil || m["hash_tag"] != base64url("tag") {
			t.Error(m)
		}
		set("\xfe", "1")
		if m = a.call(t, "GET", "/v1/keys/%FE", "").want(t, 200); m["key_base64url"] != base64url("\xfe") {
			t.Error(m)
		}
		a.call(t, "GET", "/v1/keys/nobody", "").refused(t, 404, "key_not_found", "")
	})
	t.Run("HEAD tells type and TTL", func(t *testing.T) {
		r := a.call(t, "HEAD", "/v1/keys/%7Btag%7D:a", "")
		if r.want(t, 200); r.header.Get("Gateway-Type") != "string" || r.header.Get("Gateway-Ttl-Ms") == "" {
			t.Error(r.header)
		}
		r = a.call(t, "HEAD", "/v1/keys/kind:list", "")
		if r.want(t, 200); r.header.Get("Gateway-Type") != "list" || r.header.Get("Gateway-Ttl-Ms") != "" {
			t.Error(r.header)
		}
		a.call(t, "HEAD", "/v1/keys/nobody", "").want(t, 404)
	})
	t.Run("TTLs under conditions", func(t *testing.T) {
		set("t", "1")
		a.call(t, "PUT", "/v1/keys/t/ttl", `{"ttl_ms":100000,"when":"xx"}`).wantBody(t, `{"applied":false}`)
		a.call(t, "PUT", "/v1/keys/t/ttl", `{"ttl_ms":100000,"when":"nx"}`).wantTTL(t, true, 100000)
		a.call(t, "PUT", "/v1/keys/t/ttl", `{"ttl_ms":1000,"when":"gt"}`).wantTTL(t, false, 100000)
		a.call(t, "PUT", "/v1/keys/t/ttl", `{"ttl_ms":90000,"when":"lt"}`).wantTTL(t, true, 90000)
		a.call(t, "DELETE", "/v1/keys/t/ttl", "").want(t, 204)
		a.call(t, "DELETE", "/v1/keys/t/ttl", "").want(t, 204)
		a.call(t, "DELETE", "/v1/keys/nobody/ttl", "").refused(t, 404, "key_not_found", "")
		a.call(t, "PUT", "/v1/keys/nobody/ttl", `{"ttl_ms":1}`).refused(t, 404, "key_not_found", "")
	})
	t.Run("any type is deleted, a condition looks at strings", func(t *testing.T) {
		a.call(t, "DELETE", "/v1/keys/kind:list", "", `If-Match: "x"`).refused(t, 409, "wrong_type", "")
		a.call(t, "DELETE", "/v1/keys/kind:list", "").want(t, 204)
		a.call(t, "DELETE", "/v1/keys/kind:list", "").refused(t, 404, "key_not_found", "")
		a.call(t, "DELETE", "/v1/keys/kind:string", "", `If-Match: "x"`).refused(t, 412, "precondition_failed", "")
	})
}

// wantTTL fails unless the answer says so, with what is left of the TTL.
func (r answer) wantTTL(t testing.TB, applied bool, most int64) {
	t.Helper()
	m := r.want(t, 200)
	left, err := m["ttl_ms"].(json.Number).Int64()
	if err != nil || m["applied"] != applied || left > most || left < most-30_000 {
		t.Errorf("%s, want applied %v and almost %d", r.body, applied, most)
	}
}

// list gives the items of all pages.
func (a *app) list(t testing.TB, query string) []map[string]any {
	t.Helper()
	var items []map[string]any
	page := a.call(t, "GET", "/v1/keys?"+query, "").want(t, 200)
	for {
		for _, item := range page["items"].([]any) {
			items = append(items, item.(map[string]any))
		}
		cursor, more := page["next_cursor"].(string)
		if !more {
			return items
		}
		page = a.call(t, "GET", "/v1/keys?"+query+"&cursor="+cursor, "").want(t, 200)
	}
}
