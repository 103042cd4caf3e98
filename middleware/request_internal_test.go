package middleware

import (
	"testing"
	"unsafe"
)

// 512 bytes are a size class of Go's; the next one has 576, and each request drops one.
func TestARequestFillsItsSizeClass(t *testing.T) {
	if n := unsafe.Sizeof(request{}); n > 512 {
		t.Errorf("a request has %d bytes, want at most 512: what few requests have belongs behind a pointer", n)
	}
}
