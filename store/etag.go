package store

import (
	"crypto/sha256"
	"encoding/hex"
)

// ETag is the validator of a value: a strong one made of its content alone, `"s1-<32 hex digits>"`, the first half of
// SHA-256. A value that changes and changes back has its first ETag again.
func ETag(data []byte) string {
	var buf [ETagLen]byte
	return string(AppendETag(buf[:0], data))
}

// ETagLen is the length of every ETag, in bytes.
const ETagLen = len(`"s1-"`) + 32

// AppendETag is ETag without an allocation, where dst has room for it.
func AppendETag(dst, data []byte) []byte {
	sum := sha256.Sum256(data)
	dst = append(dst, `"s1-`...)
	dst = hex.AppendEncode(dst, sum[:16])
	return append(dst, '"')
}

// Condition is what must hold for a write to happen; the zero value is no condition. At most one of the two is set.
type Condition struct {
	IfMatch     []string // ETags in their quotes, any of which must be the value's; or "*" alone: the key must exist
	IfNoneMatch bool     // If-None-Match: *, the key must not exist
}

// byValue says whether the condition looks at the value.
func (c Condition) byValue() bool { return len(c.IfMatch) > 0 && c.IfMatch[0] != "*" }

// mustExist says whether any value will do.
func (c Condition) mustExist() bool { return len(c.IfMatch) > 0 && c.IfMatch[0] == "*" }

func (c Condition) matches(etag string) bool {
	for _, want := range c.IfMatch {
		if want == etag {
			return true
		}
	}
	return false
}

// script is the word of the set script for a condition that does not look at the value.
func (c Condition) script() string {
	switch {
	case c.IfNoneMatch:
		return "nx"
	case c.mustExist():
		return "xx"
	}
	return "any"
}

func errUnmet(etag string) *Error {
	e := NewError(CodePreconditionFailed, "the key does not exist")
	if etag != "" {
		e = NewError(CodePreconditionFailed, "the key has another value than the condition asks for")
	}
	e.ETag = etag
	return e
}

// errUnmetUnseen is the answer to a caller who may not read, or when the value cannot be read.
func errUnmetUnseen() *Error {
	return NewError(CodePreconditionFailed, "the condition on the key is not met")
}
