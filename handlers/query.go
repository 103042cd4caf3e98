package handlers

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/slotgate/slotgate/store"
)

// query is the parsed query string. It is short, so looking through it beats a map.
type query []parameter

type parameter struct{ name, value string }

// parseQuery reads the query string of an operation that knows the names in known. A parameter the operation does not know is
// refused, not ignored: ttl=60 for ttl_ms=60000 would otherwise store a value for ever.
func parseQuery(raw string, known []string) (query, error) {
	if raw == "" {
		return nil, nil
	}
	q := make(query, 0, 4)
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		p, err := parsePair(pair)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(known, p.name) {
			return nil, store.Invalid(queryPointer(p.name), unknownParameter(known))
		}
		if _, twice := q.get(p.name); twice {
			return nil, store.Invalid(queryPointer(p.name), "must appear once")
		}
		q = append(q, p)
	}
	return q, nil
}

func parsePair(pair string) (parameter, error) {
	if strings.IndexByte(pair, ';') >= 0 { // half the world reads it as a separator
		return parameter{}, store.Unparsable("query", "a semicolon must be written as %3B")
	}
	name, value, _ := strings.Cut(pair, "=")
	name, err := url.QueryUnescape(name)
	if err != nil || !utf8.ValidString(name) {
		return parameter{}, store.Unparsable("query", "bad percent-escape in a parameter's name")
	}
	value, err = url.QueryUnescape(value)
	if err != nil {
		return parameter{}, store.Unparsable(queryPointer(name), "bad percent-escape")
	}
	return parameter{name, value}, nil
}

// queryPointer names a parameter in an error. The name comes from the caller, so its length is bounded.
func queryPointer(name string) string { return "query:" + clip(name) }

func unknownParameter(known []string) string {
	if len(known) == 0 {
		return "unknown parameter; there are none here"
	}
	return "unknown parameter; known here: " + strings.Join(known, ", ")
}

func (q query) get(name string) (string, bool) {
	for i := range q {
		if q[i].name == name {
			return q[i].value, true
		}
	}
	return "", false
}

// integer is the value of a decimal parameter, or otherwise when it is absent.
func (q query) integer(name string, otherwise int64) (int64, error) {
	text, ok := q.get(name)
	if !ok {
		return otherwise, nil
	}
	if !isInteger(text) {
		return 0, store.Unparsable(queryPointer(name), "must be a decimal integer")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, store.Invalid(queryPointer(name), "must fit into 64 bits")
	}
	return n, nil
}

// isInteger reports whether text is -?[0-9]+, the shape JSON and every client agree on: no plus, no leading spaces, no 1e3.
func isInteger[T ~string | ~[]byte](text T) bool {
	if len(text) > 0 && text[0] == '-' {
		text = text[1:]
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return len(text) > 0
}

// word is the value of a parameter that is one of a few words; absent it is the empty string.
func (q query) word(name string, allowed ...string) (string, error) {
	text, ok := q.get(name)
	if !ok {
		return "", nil
	}
	if !slices.Contains(allowed, text) {
		return "", store.Invalid(queryPointer(name), "must be "+strings.Join(allowed, " or "))
	}
	return text, nil
}

// keyEncoding is that of every key in the path and the answer.
func (q query) keyEncoding() (keyEncoding, error) {
	word, err := q.word("key_encoding", "base64url")
	return keyEncodingNamed(word), err
}

// clip bounds text of the caller's that goes into an error.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	for i := most; i > most-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i] + "…"
		}
	}
	return s[:most]
}
