package handlers_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/acl"
)

func TestBatches(t *testing.T) {
	g := start(t)
	a := g.app(t)

	t.Run("written, read, asked for and deleted, in order, every duplicate answered", func(t *testing.T) {
		a.call(t, "POST", "/v1/mset", `{"items":[{"key":"a","value":"1"},{"key":"b","value":"Mg==","encoding":"base64","ttl_ms":100000},{"key":"a","value":"3"}]}`).
			wantBody(t, `{"written":3}`)
		a.call(t, "POST", "/v1/mget", `{"keys":["b","nobody","a","b"]}`).wantBody(t,
			`{"items":[{"key":"b","found":true,"value":"2"},{"key":"nobody","found":false},{"key":"a","found":true,"value":"3"},{"key":"b","found":true,"value":"2"}],"errors":false}`)
		if a.redis.PTTL(t.Context(), a.stored("b")).Val() <= 0 {
			t.Error("no TTL")
		}
		a.call(t, "POST", "/v1/mexists", `{"keys":["b","nobody","b"]}`).wantBody(t,
			`{"items":[{"key":"b","exists":true},{"key":"nobody","exists":false},{"key":"b","exists":true}],"errors":false}`)
		a.call(t, "POST", "/v1/mdelete", `{"keys":["b","nobody","b"]}`).wantBody(t,
			`{"items":[{"key":"b","deleted":true},{"key":"nobody","deleted":false},{"key":"b","deleted":false}],"errors":false}`)
	})
	t.Run("keys in base64url come back so", func(t *testing.T) {
		a.call(t, "POST", "/v1/mset", `{"key_encoding":"base64url","encoding":"base64","items":[{"key":"_w","value":"_w=="},{"key":"_g","value":"AA=="}]}`).
			refused(t, 422, "validation_failed", "/items/0/value")
		a.call(t, "POST", "/v1/mset", `{"key_encoding":"base64url","encoding":"base64","items":[{"key":"_w","value":"/w=="}]}`).wantBody(t, `{"written":1}`)
		a.call(t, "POST", "/v1/mget", `{"key_encoding":"base64url","encoding":"base64","keys":["_w"]}`).wantBody(t,
			`{"items":[{"key":"_w","found":true,"value":"/w=="}],"errors":false}`)
	})
	t.Run("a bad item has its problem, the others their values", func(t *testing.T) {
		a.redis.RPush(t.Context(), a.stored("list"), "x")
		a.redis.Set(t.Context(), a.stored("huge"), strings.Repeat("x", 200<<10), 0)
		a.redis.Set(t.Context(), a.stored("bytes"), "\xff", 0)
		m := a.call(t, "POST", "/v1/mget", `{"keys":["a","list","huge","bytes","a"]}`).want(t, 200)
		if m["errors"] != true {
			t.Error(m)
		}
		for i, want := range []struct {
			code   string
			status json.Number
		}{{}, {"wrong_type", "409"}, {"response_too_large", "422"}, {"value_not_utf8", "422"}, {}} {
			item := m["items"].([]any)[i].(map[string]any)
			problem, _ := item["problem"].(map[string]any)
			switch {
			case want.code == "":
				if item["value"] != "3" || problem != nil {
					t.Error(item)
				}
			case problem["code"] != want.code || problem["status"] != want.status || problem["retryable"] != false || item["value"] != nil:
				t.Errorf("%v, want %v", item, want)
			}
		}
	})
	t.Run("a long answer is sent in parts", func(t *testing.T) {
		a.redis.Set(t.Context(), a.stored("big"), strings.Repeat("y", 30<<10), 0)
		r := a.call(t, "POST", "/v1/mget", `{"keys":["big","big","big","big"]}`)
		if r.want(t, 200); r.header.Get("Content-Length") != "" || strings.Count(r.body, strings.Repeat("y", 30<<10)) != 4 {
			t.Errorf("%v, %d bytes", r.header, len(r.body))
		}
	})
	t.Run("5,000 keys over all shards", func(t *testing.T) {
		var items, keys, want []string
		for i := range 5000 {
			n := strconv.Itoa(i)
			items = append(items, `{"key":"many`+n+`","value":"`+n+`"}`)
			keys = append(keys, `"many`+n+`"`)
			want = append(want, `{"key":"many`+n+`","found":true,"value":"`+n+`"}`)
		}
		a.call(t, "POST", "/v1/mset", `{"items":[`+strings.Join(items, ",")+`]}`).wantBody(t, `{"written":5000}`)
		a.call(t, "POST", "/v1/mget", `{"keys":[`+strings.Join(keys, ",")+`]}`).wantBody(t, `{"items":[`+strings.Join(want, ",")+`],"errors":false}`)
		a.call(t, "POST", "/v1/mget", `{"keys":["x",`+strings.Join(keys, ",")+`]}`).refused(t, 413, "batch_too_large", "/keys")
		a.call(t, "POST", "/v1/mset", `{"items":[{"key":"x","value":"x"},`+strings.Join(items, ",")+`]}`).refused(t, 413, "batch_too_large", "/items")
		a.call(t, "GET", "/v1/strings/x", "").refused(t, 404, "key_not_found", "")
		page := a.call(t, "GET", "/v1/keys?limit=100000", "").want(t, 200)
		if n := len(page["items"].([]any)); n < 100 || n > 1500 { // a step of SCAN may find a few more than the 1,000 of a page
			t.Errorf("a page of %d", n)
		}
	})
	t.Run("each item counts against the quota", func(t *testing.T) {
		six := `{"keys":["1","2","3","4","5","6"]}`
		for path, body := range map[string]string{
			"/v1/mget": six, "/v1/mexists": six, "/v1/mdelete": six,
			"/v1/mset": `{"items":[` + strings.Repeat(`{"key":"1","value":"x"},`, 5) + `{"key":"1","value":"x"}]}`,
		} {
			b := g.app(t, func(app *acl.App) {
				app.Limits = []acl.Limit{{ID: "r", Per: "app", Of: "requests", Limit: 10, PeriodMS: 3600_000, Burst: 10}}
			})
			b.call(t, "POST", "/v1/mexists", `{"keys":["1","2","3","4","5"]}`).want(t, 200)
			b.redis.Set(t.Context(), b.stored("1"), "before", 0)
			b.call(t, "POST", path, body).refused(t, 429, "quota_exceeded", "")
			if v := b.redis.Get(t.Context(), b.stored("1")).Val(); v != "before" {
				t.Errorf("%s: something was written: %q", path, v)
			}
		}
	})
}
