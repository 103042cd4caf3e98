package handlers_test

import (
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/slotgate/slotgate/acl"
)

// oddKeys are keys that something on the way might change.
func oddKeys() []string {
	keys := []string{
		"a/b", ".", "..", "../../x", "a//b", "/", "//", "+", "a+b", "a b", " ", "%", "%2F", "%00", "{tag}", "{tag}:x", "{}", "{", "}", "a}b{c",
		":", "x:y:z", "x\r\nFLUSHALL\r\n", "\x00", "\x00a", "a\x00", "?", "a?b=c", "#", "&", "=", ";", "\\", "\"", "'", "é", "e\u0301", "\u2028", "😀",
		"\xff", "\xff\xfe", "\xed\xa0\x80", "a.json", "ttl", "append", "range", "add", "YQ", "*", "[a-z]*?\\", "~", "a~1b", "SET", "slotgate:x",
		strings.Repeat("k", 256), strings.Repeat("\xff", 256),
	}
	all := make([]byte, 0, 256)
	for b := range 256 {
		all = append(all, byte(b))
		keys = append(keys, string([]byte{byte(b)}))
	}
	keys = append(keys, string(all))
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		key := make([]byte, 1+r.IntN(40))
		for i := range key {
			key[i] = byte(r.Uint32())
		}
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// doors are the ways to name a key; each writes under the name of the key and a word, and reads.
var doors = map[string]struct {
	set func(t testing.TB, a *app, key, value string)
	get func(t testing.TB, a *app, key string) string
}{
	"percent": {
		func(t testing.TB, a *app, key, value string) {
			a.octets(t, "PUT", "/v1/bytes/"+percent(key), []byte(value)).want(t, 204)
		},
		func(t testing.TB, a *app, key string) string {
			return a.octets(t, "GET", "/v1/bytes/"+percent(key), nil).body
		},
	},
	"base64url in a path": {
		func(t testing.TB, a *app, key, value string) {
			a.octets(t, "PUT", "/v1/bytes/"+base64url(key)+"?key_encoding=base64url", []byte(value)).want(t, 204)
		},
		func(t testing.TB, a *app, key string) string {
			return a.octets(t, "GET", "/v1/bytes/"+base64url(key)+"?key_encoding=base64url", nil).body
		},
	},
	"base64url in a body": {
		func(t testing.TB, a *app, key, value string) {
			a.call(t, "POST", "/v1/mset", `{"key_encoding":"base64url","encoding":"base64","items":[{"key":"`+base64url(key)+`","value":"`+
				base64.StdEncoding.EncodeToString([]byte(value))+`"}]}`).wantBody(t, `{"written":1}`)
		},
		func(t testing.TB, a *app, key string) string {
			m := a.call(t, "POST", "/v1/mget", `{"key_encoding":"base64url","encoding":"base64","keys":["`+base64url(key)+`"]}`).want(t, 200)
			item := m["items"].([]any)[0].(map[string]any)
			value, _ := item["value"].(string)
			b, err := base64.StdEncoding.DecodeString(value)
			if err != nil || item["key"] != base64url(key) {
				t.Fatalf("%v %v", item, err)
			}
			return string(b)
		},
	},
}

func TestEveryKeyGoesThroughEveryDoor(t *testing.T) {
	g := start(t)
	for _, layout := range []acl.Layout{acl.Spread, acl.Together} {
		a := g.app(t, func(app *acl.App) { app.Layout = layout })
		keys := oddKeys()
		for i, key := range keys {
			names := []string{"percent", "base64url in a path", "base64url in a body"}
			in := names[i%3]
			value := "of " + key
			doors[in].set(t, a, key, value)
			for _, out := range names {
				if got := doors[out].get(t, a, key); got != value {
					t.Fatalf("%q in by %s, out by %s: %q", key, in, out, got)
				}
			}
			if got := a.redis.Get(t.Context(), a.stored(key)).Val(); got != value {
				t.Fatalf("%q in by %s is stored as %q", key, in, got)
			}
			if utf8.ValidString(key) {
				name, _ := json.Marshal(key)
				m := a.call(t, "POST", "/v1/mexists", `{"keys":[`+string(name)+`]}`).want(t, 200)
				if item := m["items"].([]any)[0].(map[string]any); item["exists"] != true || item["key"] != key {
					t.Fatalf("%q: %v", key, item)
				}
			}
		}
		listed := a.keys(t)
		slices.Sort(listed)
		if listed = slices.Compact(listed); !slices.Equal(listed, keys) {
			t.Errorf("%d keys are listed, %d were written", len(listed), len(keys))
		}
	}
}

// The same keys with as few escapes as net/http and curl use.
func TestKeysAsClientsSendThem(t *testing.T) {
	a := start(t).app(t)
	for sent, key := range map[string]string{
		"a%2Fb": "a/b", "%2E%2E": "..", "%2e": ".", "a+b": "a+b", "a:b": "a:b", "%7Btag%7D:x": "{tag}:x", "a%20b": "a b", "a&b=c": "a&b=c", "a;b": "a;b",
		"a@b": "a@b", "%252F": "%2F", "a%2Fttl": "a/ttl", "...": "...", "a,b": "a,b", "(a)": "(a)", "a!*'": "a!*'", "%C3%A9": "é",
	} {
		if r := a.wire(t, a.line("DELETE", "/v1/keys/"+sent)); r.status != 404 {
			t.Errorf("%s: %d %s", sent, r.status, r.body)
		}
		a.redis.Set(t.Context(), a.stored(key), key, 0)
		if r := a.wire(t, a.line("GET", "/v1/bytes/"+sent)); r.status != 200 || r.body != key {
			t.Errorf("%s: %d %s", sent, r.status, r.body)
		}
		if r := a.wire(t, a.line("DELETE", "/v1/keys/"+sent)); r.status != 204 {
			t.Errorf("%s: %d %s", sent, r.status, r.body)
		}
	}
	// Braces and other raw characters that net/url forgives, without an encoded slash beside them.
	for sent, key := range map[string]string{"{tag}:y": "{tag}:y", "a|b^c": "a|b^c", `a"b`: `a"b`, "é": "é", "\xff": "\xff", "{t}%41": "{t}A"} {
		a.redis.Set(t.Context(), a.stored(key), key, 0)
		if r := a.wire(t, a.line("GET", "/v1/bytes/"+sent)); r.status != 200 || r.body != key {
			t.Errorf("%q: %d %s", sent, r.status, r.body)
		}
	}
}

func TestValuesComeBackByteForByte(t *testing.T) {
	a := start(t).app(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for why, value := range map[string]string{
		"empty": "", "every byte": string(all), "the magic": "\xffSGV", "the magic and more": "\xffSGV\x01\x01aaaabbbbcccc", "escaped magic": "\xffSGV\x01\x00aaaa\x00\x00\x00\x02ab",
		"half the magic": "\xffSG", "RESP": "$5\r\nhello\r\n", "long": strings.Repeat("all work and no play ", 2000), "long magic": "\xffSGV" + strings.Repeat("z", 5000),
		"as large as may be": strings.Repeat("\x00", 64<<10),
	} {
		t.Run(why, func(t *testing.T) {
			text := base64.StdEncoding.EncodeToString([]byte(value))
			a.octets(t, "PUT", "/v1/bytes/v", []byte(value)).want(t, 204)
			if m := a.call(t, "GET", "/v1/strings/v?encoding=base64", "").want(t, 200); m["value"] != text {
				t.Error("differs by strings")
			}
			a.call(t, "PUT", "/v1/strings/w", `{"encoding":"base64","value":"`+text+`"}`).want(t, 200)
			if r := a.octets(t, "GET", "/v1/bytes/w", nil); r.body != value {
				t.Error("differs by bytes")
			}
			a.call(t, "POST", "/v1/mset", `{"encoding":"base64","items":[{"key":"x","value":"`+text+`"}]}`).want(t, 200)
			m := a.call(t, "POST", "/v1/mget", `{"encoding":"base64","keys":["x"]}`).want(t, 200)
			if m["items"].([]any)[0].(map[string]any)["value"] != text {
				t.Error("differs by batch")
			}
			a.octets(t, "DELETE", "/v1/bytes/y", nil)
			a.octets(t, "POST", "/v1/bytes/y/append", []byte(value)).want(t, 200)
			if r := a.octets(t, "GET", "/v1/bytes/y", nil); r.body != value {
				t.Error("differs by append")
			}
		})
	}
	t.Run("of foreign clients", func(t *testing.T) {
		a.redis.Set(t.Context(), a.stored("foreign"), string(all), 0)
		if r := a.octets(t, "GET", "/v1/bytes/foreign", nil); r.body != string(all) {
			t.Error("differs")
		}
	})
}
