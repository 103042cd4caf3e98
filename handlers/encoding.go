package handlers

import (
	"bytes"
	"encoding/base64"

	"github.com/slotgate/slotgate/store"
)

// valueEncoding is how a value stands in JSON: as text, or as base64 because not every value is text.
type valueEncoding uint8

const (
	unsetEncoding valueEncoding = iota // text, unless something else says otherwise
	utf8Encoding
	base64Encoding
)

func (e valueEncoding) String() string {
	if e == base64Encoding {
		return "base64"
	}
	return "utf8"
}

// or is e, or the other when e is unset.
func (e valueEncoding) or(other valueEncoding) valueEncoding {
	if e == unsetEncoding {
		return other
	}
	return e
}

// encodingNamed is the encoding of a word that has been checked; of the empty word it is unset.
func encodingNamed(word string) valueEncoding {
	switch word {
	case "utf8":
		return utf8Encoding
	case "base64":
		return base64Encoding
	default:
		return unsetEncoding
	}
}

// keyEncodingNamed is the key encoding of a word that has been checked; text is the default.
func keyEncodingNamed(word string) keyEncoding {
	if word == "base64url" {
		return keyBase64URL
	}
	return keyUTF8
}

// valueAlphabet is the standard one with padding, decoded strictly.
var valueAlphabet = base64.StdEncoding.Strict()

// decodeValue gives the bytes of a value that stands in JSON as text. The size is that of the bytes, not of the text.
func decodeValue(text []byte, enc valueEncoding, maxBytes int64, pointer string) ([]byte, error) {
	value := text
	if enc == base64Encoding {
		value = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := valueAlphabet.Decode(value, text)
		if err != nil || bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 { // Decode skips line ends
			return nil, store.Invalid(pointer, "must be base64, standard alphabet, padded")
		}
		value = value[:n]
	}
	if int64(len(value)) > maxBytes {
		return nil, tooLarge(store.CodeValueTooLarge, pointer, maxBytes)
	}
	return value, nil
}
