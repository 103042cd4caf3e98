package handlers_test

import (
	"encoding/base64"
	"strings"
	"testing"
)

func base64url(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func unbase64(t testing.TB, s string) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// percent escapes every byte of a key, as a careful client does.
func percent(key string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(key) {
		b.Write([]byte{'%', digits[key[i]>>4], digits[key[i]&15]})
	}
	return b.String()
}
