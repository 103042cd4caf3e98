package handlers

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
)

// FuzzJSONBody holds two things against every body: it is accepted or refused with a 4xx that names a place, and what was accepted,
// written anew by another encoder, is accepted with the same meaning. encoding/json, which is laxer, accepts it as well.
func FuzzJSONBody(f *testing.F) {
	for _, rows := range refusedByOne {
		for _, r := range rows {
			f.Add(r.body)
		}
	}
	for _, r := range refusedByAll {
		f.Add(r.body)
	}
	for _, good := range []string{
		`{"value":"a"}`, `{"value":"YQ==","encoding":"base64","ttl_ms":5}`, `{"value":"\ud83d\ude00\u0000","keep_ttl":true,"return_previous":true}`,
		`{"keys":["a","b","a"]}`, `{"keys":["YQ"],"key_encoding":"base64url","encoding":"base64"}`,
		`{"items":[{"key":"a","value":"b"},{"key":"c","value":"ZA==","encoding":"base64","ttl_ms":7}]}`,
		`{"items":[{"key":"YQ","value":"Yg=="}],"encoding":"base64","key_encoding":"base64url"}`,
		`{"delta":1.5,"min":-1}`, `{"delta":9223372036854775807}`,
	} {
		f.Add(good)
	}
	f.Fuzz(func(t *testing.T, body string) {
		put, err := parsePut([]byte(body), testTerms())
		if accepted(t, body, err) {
			same(t, body, put, encodePut(put), func(s string) (putRequest, error) { return parsePut([]byte(s), testTerms()) })
		}
		get, err := parseGet([]byte(body), testTerms())
		if accepted(t, body, err) {
			same(t, body, get, encodeGet(get), func(s string) (keysRequest, error) { return parseGet([]byte(s), testTerms()) })
		}
		set, err := parseMSet([]byte(body), testTerms())
		if accepted(t, body, err) {
			again, err := parseMSet([]byte(encodeMSet(set)), testTerms())
			if err != nil || !reflect.DeepEqual(again.items, set.items) {
				t.Fatalf("%q -> %+v -> %+v, %v", body, set.items, again.items, err)
			}
		}
		for _, op := range []string{"append", "range", "counter", "add", "ttl", "mdelete"} {
			accepted(t, body, parsers[op](body))
		}
	})
}

func accepted(t *testing.T, body string, err error) bool {
	t.Helper()
	if err == nil {
		if !json.Valid([]byte(body)) {
			t.Fatalf("%q is accepted and no JSON", body)
		}
		return true
	}
	e, ok := errors.AsType[*store.Error](err)
	if !ok || e.Status() < 400 || e.Status() > 499 || len(e.Fields) == 0 || e.Fields[0].Pointer == "" {
		t.Fatalf("%q gives %v", body, err)
	}
	return false
}

func same[T any](t *testing.T, body string, got T, encoded string, parse func(string) (T, error)) {
	t.Helper()
	again, err := parse(encoded)
	if err != nil || !reflect.DeepEqual(again, got) {
		t.Fatalf("%q -> %+v -> %s -> %+v, %v", body, got, encoded, again, err)
	}
}

func encodePut(r putRequest) string {
	m := map[string]any{"value": string(r.data), "return_previous": r.returnPrevious}
	if r.encoding != unsetEncoding {
		m["encoding"] = r.encoding.String()
	}
	if r.encoding == base64Encoding {
		m["value"] = base64.StdEncoding.EncodeToString(r.data)
	}
	encodeExpiry(m, r.expiry)
	return marshal(m)
}

func encodeExpiry(m map[string]any, e store.Expiry) {
	switch e.Mode {
	case store.ExpireIn:
		m["ttl_ms"] = e.Millis
	case store.ExpireAt:
		m["expires_at"] = time.UnixMilli(e.Millis).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	case store.KeepExpiry:
		m["keep_ttl"] = true
	}
}

func encodeGet(r keysRequest) string {
	m := map[string]any{"keys": r.keys}
	if r.keyEncoding == keyBase64URL {
		keys := []string{}
		for _, k := range r.keys {
			keys = append(keys, base64.RawURLEncoding.EncodeToString([]byte(k)))
		}
		m["keys"], m["key_encoding"] = keys, "base64url"
	}
	if r.encoding != unsetEncoding {
		m["encoding"] = r.encoding.String()
	}
	return marshal(m)
}

func encodeMSet(r msetRequest) string {
	items := []any{}
	for _, it := range r.items {
		m := map[string]any{
			"key":   base64.RawURLEncoding.EncodeToString([]byte(it.Key)),
			"value": base64.StdEncoding.EncodeToString(it.Data), "encoding": "base64",
		}
		encodeExpiry(m, it.Expiry)
		items = append(items, m)
	}
	return marshal(map[string]any{"items": items, "key_encoding": "base64url"})
}

func marshal(v any) string {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		panic(err)
	}
	return b.String()
}
