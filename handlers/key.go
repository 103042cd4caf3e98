package handlers

import (
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/slotgate/slotgate/store"
)

// keyPointer is how an error names the key in a path.
const keyPointer = "path:key"

// keyEncoding is how the caller writes keys: as text, or as unpadded base64url because not every key is text.
type keyEncoding uint8

const (
	keyUTF8 keyEncoding = iota
	keyBase64URL
)

// keyAlphabet decodes strictly (the unused bits of the last character are zero), so that two texts are never one key and a key
// is echoed exactly as it was sent.
var keyAlphabet = base64.RawURLEncoding.Strict()

// pathKey turns the raw path segment into a key: percent-decoded exactly once, then from base64url if the caller says so. Every
// byte is legal in a key. A raw dot segment is refused because proxies on the way resolve it; %2E%2E is a key like any other.
func pathKey(raw string, enc keyEncoding, maxBytes int64) (string, error) {
	if raw == "." || raw == ".." {
		return "", invalidKey(keyPointer, "a dot segment is not a key; write it as %2E")
	}
	key, err := url.PathUnescape(raw)
	if err != nil {
		return "", invalidKey(keyPointer, "bad percent-escape")
	}
	return checkKey(key, enc, maxBytes, keyPointer)
}

// pathName turns a raw path segment into a name that is no key, such as a subject, as pathKey does with a key. param is what the route
// calls it.
func pathName(param, raw string, enc keyEncoding, maxBytes int64) (string, error) {
	name, err := pathKey(raw, enc, maxBytes)
	return name, ofName(err, "path:"+param)
}

// ofName makes what is wrong with a key an error of a name.
func ofName(err error, pointer string) error {
	if e, ok := errors.AsType[*store.Error](err); ok {
		return store.Invalid(pointer, e.Detail)
	}
	return err
}

// decode turns a name of a body from what the caller has written into its bytes.
func (enc keyEncoding) decode(name *string, pointer string) error {
	if enc != keyBase64URL {
		return nil
	}
	b, err := decodeKey(*name)
	if err != nil {
		return store.Invalid(pointer, notBase64URL)
	}
	*name = string(b)
	return nil
}

const notBase64URL = "must be base64url without padding"

// checkKey decodes a key the caller wrote in enc and holds it against the limit.
func checkKey(key string, enc keyEncoding, maxBytes int64, pointer string) (string, error) {
	if enc == keyBase64URL {
		b, err := decodeKey(key)
		if err != nil {
			return "", invalidKey(pointer, notBase64URL)
		}
		key = string(b)
	}
	if err := keySize(len(key), maxBytes, pointer); err != nil {
		return "", err
	}
	return key, nil
}

func decodeKey(text string) ([]byte, error) {
	if i := strings.IndexAny(text, "\r\n"); i >= 0 { // encoding/base64 skips them, which would give one key many texts
		return nil, base64.CorruptInputError(i)
	}
	return keyAlphabet.DecodeString(text)
}

func keySize(n int, maxBytes int64, pointer string) error {
	if n == 0 {
		return invalidKey(pointer, "must not be empty")
	}
	if int64(n) > maxBytes {
		return invalidKey(pointer, "must be at most "+strconv.FormatInt(maxBytes, 10)+" bytes, not "+strconv.Itoa(n))
	}
	return nil
}

func invalidKey(pointer, detail string) *store.Error {
	return faultAt(store.CodeInvalidKey, pointer, detail)
}

// faultAt is an error of any code that points at one part of the request.
func faultAt(code store.Code, pointer, detail string) *store.Error {
	return &store.Error{Code: code, Detail: detail, Fields: []store.FieldError{{Pointer: pointer, Code: string(code), Detail: detail}}}
}
