package store

import (
	"fmt"
	"strings"

	"github.com/slotgate/slotgate/acl"
)

// storedKey is the key under which Redis holds the caller's key: the app's prefix ("ns:" or "{ns}:") and the key's own
// bytes, unchanged. Namespaces contain no ':', '{' or '}', so two apps never meet and the caller's hash tags work in
// the layout spread. Errors: invalid_key for the empty key and one over the app's limit.
func storedKey(id *acl.Identity, key string) (string, *Error) {
	if err := checkKey(id, key); err != nil {
		return "", err
	}
	return id.Prefix + key, nil
}

func checkKey(id *acl.Identity, key string) *Error {
	if key == "" {
		return fieldError(CodeInvalidKey, "path:key", "the key is empty; it needs at least 1 byte")
	}
	if limit := id.Sizes.KeyMaxBytes; int64(len(key)) > limit {
		return fieldError(CodeInvalidKey, "path:key", fmt.Sprintf("the key has %d bytes; the app's limit is %d", len(key), limit))
	}
	return nil
}

func checkValue(id *acl.Identity, size int64) *Error {
	if limit := id.Sizes.ValueMaxBytes; size > limit {
		return fieldError(CodeValueTooLarge, "body", fmt.Sprintf("the value has %d bytes; the app's limit is %d", size, limit))
	}
	return nil
}

// callerKey strips the prefix of a stored key. ok is false for a key of somebody else, which must never be shown.
func callerKey(id *acl.Identity, stored string) (key string, ok bool) {
	return strings.CutPrefix(stored, id.Prefix)
}

// matchPattern is the SCAN pattern for the app's keys that begin with prefix: all of it literal, then '*'.
func matchPattern(id *acl.Identity, prefix string) string {
	var b strings.Builder
	b.Grow(len(id.Prefix) + len(prefix) + 8)
	for _, part := range [2]string{id.Prefix, prefix} {
		for i := 0; i < len(part); i++ {
			if strings.IndexByte(`*?[]\^-`, part[i]) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(part[i])
		}
	}
	b.WriteByte('*')
	return b.String()
}

func errTooLarge(size, limit int64) *Error {
	return NewError(CodeResponseTooLarge, fmt.Sprintf(
		"the value has %d bytes, the answer may have %d: read it in parts, with a Range header on /v1/bytes or with /v1/strings/{key}/range", size, limit))
}
