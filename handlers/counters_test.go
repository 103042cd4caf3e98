package handlers_test

import (
	"testing"

	"github.com/slotgate/slotgate/store"
)

func TestCounters(t *testing.T) {
	a := start(t).app(t)

	t.Run("integers are exact to 64 bits", func(t *testing.T) {
		a.call(t, "POST", "/v1/counters/n/add", `{"delta":9007199254740993}`).wantBody(t, `{"value":9007199254740993}`)
		a.call(t, "POST", "/v1/counters/n/add", `{"delta":-1}`).wantBody(t, `{"value":9007199254740992}`)
		a.call(t, "GET", "/v1/counters/n", "").wantBody(t, `{"value":9007199254740992}`)
		a.call(t, "GET", "/v1/counters/n?int64=string", "").wantBody(t, `{"value":"9007199254740992"}`)
		a.call(t, "POST", "/v1/counters/n/add?int64=string", `{"delta":1}`).wantBody(t, `{"value":"9007199254740993"}`)
		a.call(t, "PUT", "/v1/counters/n?int64=string", `{"value":-9223372036854775808}`).wantBody(t,
			`{"value":"-9223372036854775808","previous":"9007199254740993"}`)
		a.call(t, "PUT", "/v1/counters/n", `{"value":9223372036854775807}`).wantBody(t,
			`{"value":9223372036854775807,"previous":-9223372036854775808}`)
	})
	t.Run("overflow changes nothing", func(t *testing.T) {
		a.call(t, "POST", "/v1/counters/n/add", `{"delta":1}`).refused(t, 409, "out_of_range", "")
		a.call(t, "POST", "/v1/counters/n/add", `{"delta":1,"ttl_ms":5000}`).refused(t, 409, "out_of_range", "")
		a.call(t, "GET", "/v1/counters/n", "").wantBody(t, `{"value":9223372036854775807}`)
	})
	t.Run("bounds hold", func(t *testing.T) {
		a.call(t, "POST", "/v1/counters/stock/add", `{"delta":2,"min":0}`).wantBody(t, `{"value":2}`)
		a.call(t, "POST", "/v1/counters/stock/add", `{"delta":-3,"min":0}`).refused(t, 409, "out_of_range", "")
		a.call(t, "POST", "/v1/counters/stock/add", `{"delta":9,"max":10}`).refused(t, 409, "out_of_range", "")
		a.call(t, "POST", "/v1/counters/stock/add", `{"delta":8,"max":10}`).wantBody(t, `{"value":10}`)
	})
	t.Run("fractions stay away from integers", func(t *testing.T) {
		a.call(t, "POST", "/v1/counters/stock/add", `{"delta":0.5}`).refused(t, 409, "not_a_number", "")
		a.call(t, "POST", "/v1/counters/temp/add", `{"delta":0.5}`).wantBody(t, `{"value":0.5}`)
		a.call(t, "POST", "/v1/counters/temp/add", `{"delta":0.25}`).wantBody(t, `{"value":0.75}`)
		a.call(t, "GET", "/v1/counters/temp", "").wantBody(t, `{"value":0.75}`)
	})
	t.Run("the TTL is set when the counter is created, or always", func(t *testing.T) {
		a.call(t, "POST", "/v1/counters/ttl/add", `{"delta":1,"ttl_ms":100000}`).want(t, 200)
		a.call(t, "POST", "/v1/counters/ttl/add", `{"delta":1,"ttl_ms":90000000}`).want(t, 200)
		if ttl := a.redis.PTTL(t.Context(), a.stored("ttl")).Val().Milliseconds(); ttl <= 0 || ttl > 100000 {
			t.Error(ttl)
		}
		a.call(t, "POST", "/v1/counters/ttl/add", `{"delta":1,"ttl_ms":90000000,"ttl_when":"always"}`).wantBody(t, `{"value":3}`)
		if ttl := a.redis.PTTL(t.Context(), a.stored("ttl")).Val().Milliseconds(); ttl <= 100000 {
			t.Error(ttl)
		}
	})
	t.Run("a counter is set conditionally by its ETag", func(t *testing.T) {
		r := a.call(t, "PUT", "/v1/counters/cas", `{"value":1}`, "If-None-Match: *")
		r.wantBody(t, `{"value":1}`)
		etag := a.call(t, "GET", "/v1/counters/cas", "").header.Get("ETag")
		if etag == "" || etag != r.header.Get("ETag") || etag != store.ETag([]byte("1")) {
			t.Error(etag)
		}
		a.call(t, "PUT", "/v1/counters/cas", `{"value":2}`, "If-Match: "+etag).wantBody(t, `{"value":2,"previous":1}`)
		a.call(t, "PUT", "/v1/counters/cas", `{"value":3}`, "If-Match: "+etag).refused(t, 412, "precondition_failed", "")
	})
	t.Run("what is no number is not one", func(t *testing.T) {
		a.call(t, "PUT", "/v1/strings/text", `{"value":"12a"}`).want(t, 200)
		a.call(t, "GET", "/v1/counters/text", "").refused(t, 409, "not_a_number", "")
		a.call(t, "POST", "/v1/counters/text/add", `{"delta":1}`).refused(t, 409, "not_a_number", "")
		a.call(t, "PUT", "/v1/counters/text", `{"value":1}`).wantBody(t, `{"value":1}`)
		a.call(t, "GET", "/v1/counters/nobody", "").refused(t, 404, "key_not_found", "")
	})
}
