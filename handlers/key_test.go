package handlers

import (
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store"
)

// wantFault checks that err is an *store.Error of the code that points at the place.
func wantFault(t *testing.T, err error, code store.Code, pointer string) {
	t.Helper()
	e, ok := errors.AsType[*store.Error](err)
	if !ok {
		t.Fatalf("got %v, want %s at %s", err, code, pointer)
	}
	if e.Code != code || len(e.Fields) == 0 || e.Fields[0].Pointer != pointer {
		t.Fatalf("got %s at %+v, want %s at %s", e.Code, e.Fields, code, pointer)
	}
	if e.Detail == "" || e.Fields[0].Detail == "" || e.Fields[0].Code != string(code) {
		t.Fatalf("says nothing: %+v", e)
	}
}

func TestPathKeyIsDecodedOnce(t *testing.T) {
	for _, row := range []struct {
		sent string
		enc  keyEncoding
		key  string
	}{
		{"user:1", keyUTF8, "user:1"},
		{"a%2Fb", keyUTF8, "a/b"},
		{"a+b", keyUTF8, "a+b"},
		{"a%2Bb%20c", keyUTF8, "a+b c"},
		{"%252F", keyUTF8, "%2F"},
		{"%2E%2E", keyUTF8, ".."},
		{"%2e", keyUTF8, "."},
		{"...", keyUTF8, "..."},
		{"%00%0D%0A%FF", keyUTF8, "\x00\r\n\xff"},
		{"{tag}:x", keyUTF8, "{tag}:x"},
		{"%7Btag%7D", keyUTF8, "{tag}"},
		{"AP8", keyBase64URL, "\x00\xff"},
		{"%41P8", keyBase64URL, "\x00\xff"},
		{"Li4", keyBase64URL, ".."},
	} {
		key, err := pathKey(row.sent, row.enc, 1024)
		if err != nil || key != row.key {
			t.Errorf("%q is %q, %v; want %q", row.sent, key, err, row.key)
		}
	}
}

func TestPathKeyIsRefused(t *testing.T) {
	for why, row := range map[string]struct {
		sent string
		enc  keyEncoding
	}{
		"empty":                    {"", keyUTF8},
		"empty base64url":          {"", keyBase64URL},
		"raw dot":                  {".", keyUTF8},
		"raw dots":                 {"..", keyUTF8},
		"bad escape":               {"a%zz", keyUTF8},
		"cut escape":               {"a%2", keyUTF8},
		"over the limit":           {strings.Repeat("k", 1025), keyUTF8},
		"over the limit decoded":   {strings.Repeat("A", 1400), keyBase64URL},
		"padded base64":            {"AA==", keyBase64URL},
		"standard base64 alphabet": {"%2B%2F%2B%2F", keyBase64URL},
		"loose last bits":          {"AB", keyBase64URL},
		"a line end in base64":     {"AP%0A8", keyBase64URL},
		"impossible length":        {"AAAAA", keyBase64URL},
	} {
		_, err := pathKey(row.sent, row.enc, 1024)
		t.Run(why, func(t *testing.T) { wantFault(t, err, store.CodeInvalidKey, "path:key") })
	}
}

func TestEveryByteIsAKeyThroughEveryDoor(t *testing.T) {
	for b := range 256 {
		want := string([]byte{byte(b)})
		byPercent, err1 := pathKey("%"+strings.ToUpper(hexByte(byte(b))), keyUTF8, 1)
		byBase64, err2 := pathKey(base64.RawURLEncoding.EncodeToString([]byte(want)), keyBase64URL, 1)
		if err1 != nil || err2 != nil || byPercent != want || byBase64 != want {
			t.Errorf("%#x: %q %v, %q %v", b, byPercent, err1, byBase64, err2)
		}
	}
}

func hexByte(b byte) string { const d = "0123456789abcdef"; return string([]byte{d[b>>4], d[b&15]}) }

func TestKeyAtTheLimitPasses(t *testing.T) {
	if _, err := pathKey(strings.Repeat("%6B", 1024), keyUTF8, 1024); err != nil {
		t.Error(err)
	}
}

func FuzzPathKey(f *testing.F) {
	for _, seed := range []string{"a", "a%2Fb", "%2E%2E", "..", "%", "%zz", "AP8", "AA==", "+", "%00", strings.Repeat("x", 65)} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, raw string, b64 bool) {
		const limit = 64
		enc := keyUTF8
		if b64 {
			enc = keyBase64URL
		}
		key, err := pathKey(raw, enc, limit)
		if err != nil {
			e, ok := errors.AsType[*store.Error](err)
			if !ok || e.Code.Status() != 400 || key != "" {
				t.Fatalf("%q: %v and key %q", raw, err, key)
			}
			return
		}
		if key == "" || len(key) > limit {
			t.Fatalf("%q gave the key %q", raw, key)
		}
		// The canonical text of a key is accepted and is the same key.
		canonical := escapeKey(key)
		if b64 {
			canonical = base64.RawURLEncoding.EncodeToString([]byte(key))
			if sent, _ := url.PathUnescape(raw); sent != canonical {
				t.Fatalf("%q has two texts: %q and %q", key, sent, canonical)
			}
		}
		if again, err := pathKey(canonical, enc, limit); err != nil || again != key {
			t.Fatalf("%q -> %q -> %q, %v", raw, key, again, err)
		}
	})
}

// escapeKey is a client that escapes each byte.
func escapeKey(key string) string {
	var b strings.Builder
	for i := range len(key) {
		b.WriteString("%" + hexByte(key[i]))
	}
	return b.String()
}

func BenchmarkDecodeKey(b *testing.B) {
	for name, row := range map[string]struct {
		raw string
		enc keyEncoding
	}{
		"plain":     {"user:4711:profile", keyUTF8},
		"escaped":   {"user%2F4711%2Fprofile", keyUTF8},
		"base64url": {"dXNlcjo0NzExOnByb2ZpbGU", keyBase64URL},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := pathKey(row.raw, row.enc, 1024); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
