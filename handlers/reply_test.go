package handlers

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/slotgate/slotgate/store"
)

func TestStringsAreQuotedAsRFC8259Says(t *testing.T) {
	for _, s := range []string{
		"", "a", "12345678", "1234567\"", "\"2345678", "1234567\\9", "\x00\x01\x1f \x7f", "\b\f\n\r\t", "é\u2028\u2029😀", "</script>&",
		strings.Repeat("x", 31) + "\n" + strings.Repeat("é", 9) + "\"", "!\"#$%&'(", "[\\]^_`ab",
	} {
		quoted, _ := appendQuoted(nil, s)
		var back string
		if err := json.Unmarshal(quoted, &back); err != nil || back != s {
			t.Errorf("%q is written as %s: %v", s, quoted, err)
		}
		if strings.Contains(s, "\u2028") && !bytes.Contains(quoted, []byte("\u2028")) {
			t.Errorf("%s escapes more than it must", quoted)
		}
	}
}

// The eight-byte scan finds a character to escape at every place, beside those whose subtraction borrows.
func TestEveryByteAtEveryPlaceIsQuoted(t *testing.T) {
	for c := range 128 {
		for _, other := range "\x00\x01\x1f !\"#[\\]z\x7f" {
			for at := range 17 {
				s := []byte(strings.Repeat(string(other), 17))
				s[at] = byte(c)
				got, ascii := appendQuoted(nil, string(s))
				back, err := jsontext.AppendUnquote(nil, got)
				if err != nil || string(back) != string(s) || !ascii {
					t.Fatalf("%q is written as %s: %v", s, got, err)
				}
			}
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("plain text", []byte("\x00\"\\"))
	f.Fuzz(func(t *testing.T, s string, b []byte) {
		for _, text := range []string{s, string(b)} {
			if got := (&reply{}).value([]byte(text), utf8Encoding); got != utf8.ValidString(text) {
				t.Fatalf("%q is a value: %v", text, got)
			} else if !got {
				continue
			}
			quoted, ascii := appendQuoted(nil, text)
			back, err := jsontext.AppendUnquote(nil, quoted)
			if err != nil || string(back) != text || ascii && len(text) != utf8.RuneCountInString(text) {
				t.Fatalf("%q is written as %s: %v", text, quoted, err)
			}
		}
	})
}

func TestValuesAreNeverReplaced(t *testing.T) {
	r := newReply()
	if r.value([]byte("a\xff"), utf8Encoding) || len(r.buf) != 0 {
		t.Errorf("wrote %s", r.buf)
	}
	if !r.value([]byte("a\xff"), base64Encoding) || string(r.buf) != `"Yf8="` {
		t.Errorf("wrote %s", r.buf)
	}
}

func TestKeysSayHowTheyAreWritten(t *testing.T) {
	for _, row := range []struct {
		key  string
		enc  keyEncoding
		want string
	}{
		{"a/b", keyUTF8, `"key":"a/b"`},
		{"a\xff", keyUTF8, `"key_base64url":"Yf8"`},
		{"a\xff", keyBase64URL, `"key_base64url":"Yf8"`},
		{"a", keyBase64URL, `"key_base64url":"YQ"`},
	} {
		if got := string((&reply{}).named(row.key, row.enc).buf); got != row.want {
			t.Errorf("%q: %s, want %s", row.key, got, row.want)
		}
	}
	if got := string((&reply{}).echoed("a\xff", keyBase64URL).echoed("b", keyUTF8).buf); got != `"key":"Yf8""key":"b"` {
		t.Error(got)
	}
}

func TestProblemOfAnItem(t *testing.T) {
	e := store.NewError(store.CodeBackendTimeout, "no answer")
	e.Outcome = store.Unknown
	want := `{"code":"backend_timeout","status":504,"detail":"no answer","retryable":true,"outcome":"unknown"}`
	if got := string((&reply{}).problem(e, true).buf); got != want {
		t.Error(got)
	}
	want = `{"code":"internal","status":500,"detail":"Internal error","retryable":false}`
	if got := string((&reply{}).problem(store.NewError(store.CodeInternal, ""), true).buf); got != want {
		t.Error(got)
	}
}

func TestShortAnswersHaveALengthAndLongOnesAreSentInParts(t *testing.T) {
	w := httptest.NewRecorder()
	j := newReply().raw(`{"a":`).string("b").raw("}")
	j.flush(w)
	j.send(w)
	j.release()
	if w.Header().Get("Content-Length") != strconv.Itoa(w.Body.Len()) || w.Header().Get("Content-Type") != "application/json" || w.Code != 200 {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
	w = httptest.NewRecorder()
	j = newReply().raw(`"`)
	for range 5 {
		j.raw(strings.Repeat("x", flushAt/2))
		j.flush(w)
		if len(j.buf) >= flushAt {
			t.Fatal("holds what it should have sent")
		}
	}
	j.raw(`"`)
	j.send(w)
	j.release()
	if w.Header().Get("Content-Length") != "" || !json.Valid(w.Body.Bytes()) || w.Body.Len() != 5*flushAt/2+2 {
		t.Errorf("%v %d", w.Header(), w.Body.Len())
	}
}

func BenchmarkWriteMGet50(b *testing.B) {
	items := make([]store.GetItem, 50)
	keys := make([]string, 50)
	for i := range items {
		keys[i] = "user:4711:" + strconv.Itoa(i)
		items[i] = store.GetItem{Found: true, Data: bytes.Repeat([]byte("v"), 100)}
	}
	w := discard{}
	b.ReportAllocs()
	for b.Loop() {
		j := newReply().raw(`{"items":[`)
		for i := range items {
			if i > 0 {
				j.raw(",")
			}
			j.raw("{").echoed(keys[i], keyUTF8)
			j.got(&items[i], unsetEncoding)
			j.raw("}")
		}
		j.raw(`],"errors":false}`)
		_, _ = w.Write(j.buf)
		j.release()
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
