package handlers

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// plainBodies are bodies that the scanner must take, or the fast path is none.
var plainBodies = []string{
	`{"value":"a"}`, `{ "value" : "é😀" , "encoding":"utf8" }`, `{"encoding":"base64","value":"YQ==","ttl_ms":5}`,
	`{"value":"a","keep_ttl":true,"return_previous":true}`, "{\"value\":\"\x7f\",\t\"keep_ttl\":false,\r\n\"ttl_ms\":3155760000000}\n",
	`{"value":"","expires_at":"2031-01-01T00:00:00Z","return_previous":false}`,
	`{"keys":["a","b","a"]}`, `{"keys":["YQ"],"key_encoding":"base64url","encoding":"base64"}`, ` {"encoding": "utf8", "keys": ["a", "b"]} `,
	`{"items":[{"key":"a","value":"b"},{"value":"ZA==","encoding":"base64","ttl_ms":7,"key":"c"},{"key":"d","value":"e"}]}`,
	`{"items":[{"key":"YQ","value":"Yg=="},{"key":"YQ","value":"b","encoding":"utf8"}],"encoding":"base64","key_encoding":"base64url"}`,
	`{"key_encoding":"base64url","items":[{"key":"YQ","value":"b","expires_at":"2031-01-01T00:00:00+01:00"}]}`,
	`{"value":"{\"a\":[1,\"\\\/\b\f\n\r\t\u0000\u00e9\u20AC\ufffd\ud83d\uDE00x\"]}"}`, `{"v\u0061lue":"é\té"}`, `{"keys":["a\"","\u00e9","b"]}`,
	`{"items":[{"key":"a\nb","value":"{\"c\":\"d\"}"},{"key":"e","value":"f"},{"key":"g","value":"\/w==","encoding":"base64"}]}`,
}

// surprises are bodies of which the scanner takes none.
var surprises = []string{
	`{"value":"\ud83d"}`, `{"value":"\ud83d\u0061"}`, `{"value":"\ude00\ud83d"}`, `{"value":"\ud83dx"}`, `{"value":"\u12"}`, `{"value":"\u12g4"}`, `{"value":"\x"}`, `{"value":"\`,
	"{\"value\":\"\\n\xc3\\n\xa9\"}", "{\"value\":\"\\n\n\"}", `{"v\u0061lue":"a","value":"b"}`, `{"value":"a","value":"b"}`, `{"value":"a","keep_ttl":true,"ttl_ms":5}`, `{"value":"a","ttl_ms":007}`,
	`{"value":"a","ttl_ms":5.0}`, `{"value":"a","ttl_ms":5e0}`, `{"value":"a","ttl_ms":99999999999999999999}`, `{"value":"a","keep_ttl":truefalse}`,
	`{"value":"a","":"b"}`, `{"value":"a",}`, `{"value":"a"}}`, `{"value":"a"}{}`, "{\"value\":\"\xed\xa0\x80\"}", "{\"value\":\"12345678\xff\"}", "{\"value\":\"a\x00\"}",
	`{"value":"YR==","encoding":"base64"}`, `{"value":"a","encoding":""}`, `{"value"`, `{"value":"a`, `{"value":"a"`, `{"value":`, `{"value":"a","keep_ttl":tru`,
	`{"keys":[]}`, `{"keys":["a",]}`, `{"keys":["a"],"keys":["b"]}`, `{"keys":[["a"]]}`, `{"keys":["a",""]}`, `{"keys":["a"],"key_encoding":"utf8"}`,
	`{"keys":["a","b","c","d","e","f"]}`, `{"keys":["a","b"`, `{"keys":["a"]`, `{"encoding":"utf8"}`, `{"keys":["a"],"key_encoding":"base64url"}`,
	`{"items":[]}`, `{"items":[{}]}`, `{"items":[{"key":"a"}]}`, `{"items":[{"value":"a"}]}`, `{"items":[{"key":"a","value":"b","keep_ttl":true}]}`,
	`{"items":[{"key":"a","value":"b"},]}`, `{"items":[{"key":"a","value":"b"}],"items":[]}`, `{"items":[{"key":"a","value":"b","key":"c"}]}`,
	`{"items":[{"key":"a","value":"b","ttl_ms":1,"expires_at":"2031-01-01T00:00:00Z"}]}`, `{"items":[{"key":"a","value":"*","encoding":"base64"}]}`,
	"\ufeff{\"value\":\"a\"}", "", "{", "{}", "null", `"value"`,
}

// FuzzPlainBodies holds the scanner against the strict parser: what it takes, that takes as well, with the same meaning.
func FuzzPlainBodies(f *testing.F) {
	for _, body := range append(plainBodies, surprises...) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) { plainly(t, body) })
}

// plainly reports whether any scanner takes the body.
func plainly(t *testing.T, body string) bool {
	t.Helper()
	src, terms := []byte(body), testTerms()
	put, okPut := scanPut(src, &terms)
	agrees(t, body, put, okPut, func() (putRequest, error) { return readPut(src, &terms) })
	get, okGet := scanKeyList(src, &terms, true)
	agrees(t, body, get, okGet, func() (keysRequest, error) { return readKeyList(src, &terms, true) })
	keys, okKeys := scanKeyList(src, &terms, false)
	agrees(t, body, keys, okKeys, func() (keysRequest, error) { return readKeyList(src, &terms, false) })
	set, okSet := scanMSet(src, &terms)
	agrees(t, body, set, okSet, func() (msetRequest, error) { return readMSet(src, &terms) })
	if string(src) != body {
		t.Fatalf("%q was written to", body)
	}
	return okPut || okGet || okKeys || okSet
}

func agrees[T any](t *testing.T, body string, got T, ok bool, strict func() (T, error)) {
	t.Helper()
	if !ok {
		return
	}
	want, err := strict()
	if err != nil || !reflect.DeepEqual(filled(got), filled(want)) {
		t.Fatalf("%q is read as %+v, strictly as %+v, %v", body, got, want, err)
	}
}

// filled gives an empty value one form, whether it is nil or not.
func filled(r any) any {
	switch r := r.(type) {
	case putRequest:
		if len(r.data) == 0 {
			r.data = nil
		}
		return r
	case msetRequest:
		for i := range r.items {
			if len(r.items[i].Data) == 0 {
				r.items[i].Data = nil
			}
		}
		return r
	default:
		return r
	}
}

func TestPlainBodiesTakeTheShortWay(t *testing.T) {
	for _, body := range plainBodies {
		if !plainly(t, body) {
			t.Errorf("%s is not taken", body)
		}
	}
	for _, body := range surprises {
		if plainly(t, body) {
			t.Errorf("%s is taken", body)
		}
	}
}

// Every byte of a plain body is replaced by others and left out: the scanner never takes what the strict parser does not.
func TestAlmostPlainBodies(t *testing.T) {
	for _, body := range plainBodies {
		for i := range body {
			plainly(t, body[:i])
			plainly(t, body[:i]+body[i+1:])
			for _, c := range []byte("\x00 \t\"\\{}[],:01ae.-\x7f\x80\xc3\xff") {
				plainly(t, body[:i]+string(rune(c))+body[i:])
				plainly(t, body[:i]+string([]byte{c})+body[i+1:])
			}
		}
	}
}

// The keys and values of a batch are the request's own bytes: 50 items cost as many allocations as one.
func TestPlainBodiesCostOneAllocation(t *testing.T) {
	src, keys, terms := []byte(msetBody(50)), []byte(mgetBody(50)), benchTerms()
	if n := testing.AllocsPerRun(100, func() { _, _ = parseMSet(src, terms) }); n > 1 {
		t.Errorf("%v allocations for an mset", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = parseGet(keys, terms) }); n > 1 {
		t.Errorf("%v allocations for an mget", n)
	}
}

func benchTerms() terms {
	return terms{now: noon, keyMaxBytes: 1024, valueMaxBytes: 1 << 20, maxKeys: 5000}
}

func msetBody(n int) string {
	items := make([]string, n)
	for i := range items {
		items[i] = `{"key":"user:4711:` + strconv.Itoa(i) + `","value":"` + strings.Repeat("v", 100) + `"}`
	}
	return `{"items":[` + strings.Join(items, ",") + `]}`
}

func mgetBody(n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "user:4711:" + strconv.Itoa(i)
	}
	return `{"keys":` + strings.TrimSpace(marshal(keys)) + `}`
}

func benchmarkBody[T any](b *testing.B, body string, parse func([]byte, terms) (T, error)) {
	src, terms := []byte(body), benchTerms()
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parse(src, terms); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseMGet50(b *testing.B) { benchmarkBody(b, mgetBody(50), parseGet) }
func BenchmarkParseMSet50(b *testing.B) { benchmarkBody(b, msetBody(50), parseMSet) }
func BenchmarkParseMSet50Escapes(b *testing.B) {
	benchmarkBody(b, strings.ReplaceAll(msetBody(50), "vvvvvvvvvv", `{\"v\":123},`), parseMSet)
}
func BenchmarkParseMSet50EscapesStrict(b *testing.B) {
	benchmarkBody(b, strings.ReplaceAll(msetBody(50), "vvvvvvvvvv", `{\"v\":123},`), func(src []byte, t terms) (msetRequest, error) { return readMSet(src, &t) })
}
func BenchmarkParsePut(b *testing.B) { benchmarkBody(b, putBody, parsePut) }
func BenchmarkParseMGet50Strict(b *testing.B) {
	benchmarkBody(b, mgetBody(50), func(src []byte, t terms) (keysRequest, error) { return readKeyList(src, &t, true) })
}

func BenchmarkParseMSet50Strict(b *testing.B) {
	benchmarkBody(b, msetBody(50), func(src []byte, t terms) (msetRequest, error) { return readMSet(src, &t) })
}

func BenchmarkParsePutStrict(b *testing.B) {
	benchmarkBody(b, putBody, func(src []byte, t terms) (putRequest, error) { return readPut(src, &t) })
}

var putBody = `{"value":"` + strings.Repeat("v", 100) + `","ttl_ms":60000}`

// The same bodies by encoding/json, for comparison: it takes duplicates and unknown members, and replaces what is not UTF-8.
// In one run (us, mget/mset of 50): the scanner 0.9/3.7, document 2.3/12, sonic 1.5/6.7 without and 2.9/10 with looking at UTF-8,
// goccy 3.2/15, go-json-experiment into structs 5.2/15, encoding/json 6.8/55. None is as strict as document.
func BenchmarkParseMSet50EncodingJSON(b *testing.B) {
	benchmarkBody(b, msetBody(50), func(src []byte, _ terms) (v struct {
		Items []struct {
			Key, Value string
			TTL        int64 `json:"ttl_ms"`
		}
	}, err error) {
		err = json.Unmarshal(src, &v)
		return v, err
	})
}

func BenchmarkParseMGet50EncodingJSON(b *testing.B) {
	benchmarkBody(b, mgetBody(50), func(src []byte, _ terms) (v struct{ Keys []string }, err error) {
		err = json.Unmarshal(src, &v)
		return v, err
	})
}
