package middleware

import (
	"net/url"
	"strings"
	"testing"
)

func parsePath(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.ParseRequestURI(raw)
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return u
}

func TestBadPath(t *testing.T) {
	good := []string{
		"/", "/v1/strings/a", "/v1/strings/", "/v1/strings/%2E%2E", "/v1/strings/%2e", "/v1/strings/a%2Fb", "/v1/strings/%2F%2F",
		"/v1/strings/...", "/v1/strings/.a", "/v1/strings/a..", "/v1/strings/%00%0D%0A", "/v1/strings/a+b:c{d}", "/v1/strings/a;b=c",
		"/v1/strings/ключ", "/v1/strings/a^b", "/v1/strings/%2E%2E/append", "/v1/strings/%FF", "/v1/strings/a%2F..%2Fb",
	}
	bad := []string{
		"//v1/strings/a", "/v1//strings/a", "/v1/strings//", "/v1/strings/a//", "/v1/./strings", "/v1/../admin", "/v1/strings/..",
		"/v1/strings/.", "/v1/strings/a/..", "/..", "/.", "/./", "/v1/strings/../../x", "/v1/keys/a^%2Fttl", "/v1/keys/a%2fttl\"",
	}
	for _, p := range good {
		if why := badPath(parsePath(t, p)); why != "" {
			t.Errorf("%s was refused: %s", p, why)
		}
	}
	for _, p := range bad {
		if badPath(parsePath(t, p)) == "" {
			t.Errorf("%s was let through", p)
		}
	}
}

func TestBadPathLeavesOtherFormsToTheRouter(t *testing.T) {
	for _, u := range []*url.URL{{Path: "*"}, {Path: ""}} {
		if why := badPath(u); why != "" {
			t.Errorf("%q was refused: %s", u.Path, why)
		}
	}
}

// encodeKey writes a key as the documentation asks for: everything but unreserved characters, and dots when the key is nothing but dots.
func encodeKey(key string) string {
	if strings.Trim(key, ".") == "" {
		return strings.ReplaceAll(key, ".", "%2E")
	}
	return url.PathEscape(key)
}

func FuzzPathGuardLetsEveryKeyThrough(f *testing.F) {
	for _, s := range []string{"a", "..", ".", "a/b", "/", "//", "\x00", "\xff", "%2F", "a^b", "a+b", "...", "a/../b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if key == "" {
			return
		}
		u := parsePath(t, "/v1/strings/"+encodeKey(key)+"/append")
		if why := badPath(u); why != "" {
			t.Fatalf("key %q was refused: %s", key, why)
		}
		segments := strings.Split(u.EscapedPath(), "/")
		if got, err := url.PathUnescape(segments[3]); err != nil || got != key || len(segments) != 5 {
			t.Fatalf("key %q arrives as %q", key, segments)
		}
	})
}

func FuzzPathGuardAgreesWithTheRawPath(f *testing.F) {
	for _, s := range []string{"/v1/strings/a", "//", "/./", "/a/..", "/a^%2Fb", "/%2E%2E", "/%2f%2F", "/\u00e9%2F"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if !strings.HasPrefix(raw, "/") || strings.ContainsAny(raw, "?#") {
			return
		}
		u, err := url.ParseRequestURI(raw)
		if err != nil || u.Host != "" {
			return
		}
		sent := strings.Split(raw, "/")[1:]
		forbidden := false
		for i, s := range sent {
			forbidden = forbidden || s == "." || s == ".." || s == "" && i < len(sent)-1
		}
		why := badPath(u)
		if forbidden && why == "" {
			t.Fatalf("%q was let through", raw)
		}
		if why != "" {
			return
		}
		// What passes is routed as it was sent: the same segments, each decoding to the same bytes.
		routed := strings.Split(u.EscapedPath(), "/")[1:]
		if len(routed) != len(sent) {
			t.Fatalf("%q is routed as %q", raw, routed)
		}
		for i := range sent {
			a, errA := url.PathUnescape(sent[i])
			b, errB := url.PathUnescape(routed[i])
			if errA != nil || errB != nil || a != b {
				t.Fatalf("%q is routed as %q", raw, routed)
			}
		}
	})
}
