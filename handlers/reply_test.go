package handlers

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/slotgate/slotgate/acl"
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
	r := newReply(nil)
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

// The length of a short answer is net/http's to count, which a recorder does not.
func TestShortAnswersHaveALengthAndLongOnesAreSentInParts(t *testing.T) {
	for _, size := range []int{1, countedFrom - 3, countedFrom - 2, countedFrom, flushAt - 100} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			j := newReply(w).string(strings.Repeat("b", size))
			j.flush()
			j.send(new(fields))
			j.release()
		}))
		resp, err := http.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		s.Close()
		if resp.ContentLength != int64(size+2) || resp.Header.Get("Content-Type") != "application/json" || resp.StatusCode != 200 {
			t.Errorf("%d: %d %v", size, resp.StatusCode, resp.Header)
		}
	}
	w := httptest.NewRecorder()
	j := newReply(w).raw(`"`)
	for range 5 {
		j.raw(strings.Repeat("x", flushAt/2))
		j.flush()
		if len(j.buf) >= flushAt {
			t.Fatal("holds what it should have sent")
		}
	}
	j.raw(`"`)
	j.send(new(fields))
	j.release()
	if w.Header().Get("Content-Length") != "" || !json.Valid(w.Body.Bytes()) || w.Body.Len() != 5*flushAt/2+2 {
		t.Errorf("%v %d", w.Header(), w.Body.Len())
	}
}

// Long values are sent on the way, whatever they are made of, and come out the same.
func TestLongValuesAreNotCollected(t *testing.T) {
	long := strings.Repeat("x", flushAt+3)
	for _, value := range []string{
		long, long + "\n" + long, "\"" + long + "\"", strings.Repeat("\"\x00é", flushAt), strings.Repeat(long[:directFrom]+"\\", 9), strings.Repeat(long[:directFrom-1]+"\t", 9),
	} {
		for _, enc := range []valueEncoding{utf8Encoding, base64Encoding} {
			w := httptest.NewRecorder()
			j := newReply(w).raw(`{"value":`)
			if !j.value([]byte(value), enc) {
				t.Fatal("not text")
			}
			if j.send(new(fields)); cap(j.buf) > 2*flushAt {
				t.Errorf("%d bytes collected", cap(j.buf))
			}
			var got struct{ Value string }
			if err := json.Unmarshal(append(w.Body.Bytes(), '}'), &got); err != nil || w.Header().Get("Content-Length") != "" {
				t.Fatalf("%v, %v", err, w.Header())
			}
			if enc == base64Encoding {
				got.Value = unbase64Std(t, got.Value)
			}
			if got.Value != value {
				t.Errorf("a value of %d bytes comes out with %d", len(value), len(got.Value))
			}
		}
		w := httptest.NewRecorder()
		if newReply(w).value([]byte(value+"\xff"), utf8Encoding) || w.Body.Len() > 0 {
			t.Error("began a value that is no text")
		}
	}
}

func unbase64Std(t *testing.T, text string) string {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// goneWriter is a client that has left.
type goneWriter struct{ sink }

func (goneWriter) Write([]byte) (int, error) { return 0, http.ErrAbortHandler }

// HTTP/2 may still be reading the buffer of a write that failed, so that no other answer may use it.
func TestTheBufferOfAFailedWriteIsNotUsedAgain(t *testing.T) {
	j := newReply(goneWriter{sink{http.Header{}}}).raw("mine")
	j.send(new(fields))
	j.release()
	if j.err == nil || cap(j.buf) == 0 || j.w == nil {
		t.Error("released")
	}
}

// sink is a client that reads everything and keeps nothing.
type sink struct{ header http.Header }

func (s sink) Header() http.Header         { return s.header }
func (s sink) Write(p []byte) (int, error) { return len(p), nil }
func (s sink) WriteHeader(int)             {}
func benchValue(n int) *store.Value        { return &store.Value{Data: bytes.Repeat([]byte("v"), n)} }
func benchRequest(b *testing.B, c *gin.Context, method, body string) (reset func()) {
	b.Helper()
	id := &acl.Identity{App: &acl.App{}, Sizes: acl.Sizes{KeyMaxBytes: 1024, ValueMaxBytes: 1 << 20, RequestMaxBytes: 1 << 20}}
	c.Request = httptest.NewRequest(method, "/v1/strings/user:4711:1", nil).WithContext(acl.NewContext(b.Context(), id))
	c.Request.Header["Content-Type"] = jsonType
	c.Params = gin.Params{{Key: "key", Value: "user:4711:1"}}
	reader := strings.NewReader(body)
	c.Request.Body, c.Request.ContentLength = io.NopCloser(reader), int64(len(body))
	return func() { reader.Reset(body); clear(c.Writer.Header()) }
}

// BenchmarkGetString is everything of GET /v1/strings but gin, middleware and the store.
func BenchmarkGetString(b *testing.B) {
	for _, size := range []int{100, 10_000, 1_000_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			a, v := &API{now: time.Now}, benchValue(size)
			h := a.keyed(func(r request) error {
				_, enc, unless, _ := r.expiry(a), r.encoding(), r.unless(), r.word("include", "ttl")
				return r.stringValue(v, enc, unless)
			}, "encoding", "ttl_ms", "expires_at", "include")
			c, _ := gin.CreateTestContext(sink{http.Header{}})
			reset := benchRequest(b, c, http.MethodGet, "")
			b.ReportAllocs()
			for b.Loop() {
				reset()
				h(c)
			}
		})
	}
}

// BenchmarkPutString is the same of PUT /v1/strings.
func BenchmarkPutString(b *testing.B) {
	a := &API{now: time.Now}
	h := a.keyed(func(r request) error {
		_, put := r.condition(), body(a, &r, parsePut)
		if r.bad != nil {
			return r.bad
		}
		return r.stringPut(&put, store.SetResult{})
	})
	c, _ := gin.CreateTestContext(sink{http.Header{}})
	reset := benchRequest(b, c, http.MethodPut, putBody)
	b.ReportAllocs()
	for b.Loop() {
		reset()
		h(c)
	}
	if len(c.Errors) > 0 {
		b.Fatal(c.Errors)
	}
}

func BenchmarkWriteMGet50(b *testing.B) {
	items := make([]store.GetItem, 50)
	keys := make([]string, 50)
	for i := range items {
		keys[i] = "user:4711:" + strconv.Itoa(i)
		items[i] = store.GetItem{Found: true, Data: bytes.Repeat([]byte("v"), 100)}
	}
	c, _ := gin.CreateTestContext(sink{http.Header{}})
	b.ReportAllocs()
	for b.Loop() {
		r := request{Context: c}
		writeItems(&r, keys, keyUTF8, func(j *reply, i int) bool { return j.got(&items[i], unsetEncoding) })
	}
}
