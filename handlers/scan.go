package handlers

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// scanner reads the plain form of a body, the one that encoders produce: known members of the right type and nothing wrong. It
// accepts less than document and never anything otherwise; its parsers give up at the first surprise, and document then reads the
// body from its beginning. So what is accepted, and every error, is document's alone (FuzzPlainBodies), and the scanner can be
// short. It allocates nothing unless there are escapes: what it gives points into src, which nobody may write to afterwards.
//
// Parsing 50 keys or 50 items of 100 bytes takes a quarter of the time document takes (BenchmarkParseMSet50 and its kin).
type scanner struct {
	src       string
	at        int
	unescaped []byte // the strings that had escapes
}

func newScanner(src []byte) scanner { return scanner{src: viewed(src)} }

// viewed is data as a string without a copy: data must not change while the string is in use.
func viewed(data []byte) string { return unsafe.String(unsafe.SliceData(data), len(data)) }

// octetsOf is a string as bytes without a copy: they must not be changed.
func octetsOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// space passes over white space.
func (s *scanner) space() {
	for s.at < len(s.src) {
		switch s.src[s.at] {
		case ' ', '\n', '\t', '\r':
			s.at++
		default:
			return
		}
	}
}

// take reads the character if it comes next. It is inlined: encoders write no white space, or little.
func (s *scanner) take(c byte) bool {
	if s.at < len(s.src) && s.src[s.at] == c {
		s.at++
		return true
	}
	return s.takeBehindSpace(c)
}

func (s *scanner) takeBehindSpace(c byte) bool {
	s.space()
	if s.at == len(s.src) || s.src[s.at] != c {
		return false
	}
	s.at++
	return true
}

// end reports whether nothing but white space is left.
func (s *scanner) end() bool {
	s.space()
	return s.at == len(s.src)
}

// text reads a string.
func (s *scanner) text() (string, bool) {
	if !s.take('"') {
		return "", false
	}
	rest := s.src[s.at:]
	n, ascii := plainPrefix(rest)
	switch {
	case n == len(rest):
		return "", false
	case rest[n] == '\\':
		return s.escapedText()
	case rest[n] != '"' || !ascii && !utf8.ValidString(rest[:n]):
		return "", false
	}
	s.at += n + 1
	return rest[:n], true
}

// escapedText is text for a string with escapes, from behind its quote. One piece of memory is enough for all of a body, because
// no text is longer than it was with its escapes.
func (s *scanner) escapedText() (string, bool) {
	if s.unescaped == nil {
		s.unescaped = make([]byte, 0, len(s.src)-s.at)
	}
	start := len(s.unescaped)
	for {
		rest := s.src[s.at:]
		n, ascii := plainPrefix(rest)
		if n == len(rest) || !ascii && !utf8.ValidString(rest[:n]) {
			return "", false
		}
		s.unescaped = append(s.unescaped, rest[:n]...)
		s.at += n + 1
		if rest[n] == '"' {
			return viewed(s.unescaped[start:]), true
		}
		if rest[n] != '\\' || !s.escape() {
			return "", false
		}
	}
}

// escape reads what stands behind a backslash.
func (s *scanner) escape() bool {
	if s.at == len(s.src) {
		return false
	}
	c := s.src[s.at]
	s.at++
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return s.unicodeEscape()
	default:
		return false
	}
	s.unescaped = append(s.unescaped, c)
	return true
}

// unicodeEscape reads the digits behind \u, and a second escape where two make a character.
func (s *scanner) unicodeEscape() bool {
	r, ok := s.hexDigits()
	if ok && utf16.IsSurrogate(r) {
		if !strings.HasPrefix(s.src[s.at:], `\u`) {
			return false
		}
		s.at += len(`\u`)
		var low rune
		low, ok = s.hexDigits()
		r = utf16.DecodeRune(r, low)
		ok = ok && r != utf8.RuneError
	}
	s.unescaped = utf8.AppendRune(s.unescaped, r)
	return ok
}

func (s *scanner) hexDigits() (r rune, ok bool) {
	const digits = 4
	if len(s.src)-s.at < digits {
		return 0, false
	}
	for range digits {
		c := rune(s.src[s.at])
		s.at++
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | c
	}
	return r, true
}

// name reads the name of a member and the colon behind it. It is empty when there is none, and for the empty name, which no
// operation knows.
func (s *scanner) name() string {
	name, ok := s.text()
	if !ok || !s.take(':') {
		return ""
	}
	return name
}

// digits reads a positive number of at most 15 digits. What may not follow one, such as a fraction, surprises the next reader.
func (s *scanner) digits() (n int64, ok bool) {
	s.space()
	start := s.at
	for s.at < len(s.src) && s.src[s.at]-'0' <= 9 {
		n = n*10 + int64(s.src[s.at]-'0')
		s.at++
		if s.at-start > 15 {
			return 0, false
		}
	}
	return n, s.at > start && s.src[start] != '0'
}

// boolean reads true or false.
func (s *scanner) boolean() (value, ok bool) {
	s.space()
	for _, word := range [...]string{"true", "false"} {
		if rest := s.src[s.at:]; len(rest) >= len(word) && rest[:len(word)] == word {
			s.at += len(word)
			return word == "true", true
		}
	}
	return false, false
}

// valueEncoding reads the name of one.
func (s *scanner) valueEncoding() (valueEncoding, bool) {
	word, _ := s.text()
	e := encodingNamed(word)
	return e, e != unsetEncoding
}

// keyEncoding reads the name of the only one that has a name.
func (s *scanner) keyEncoding() (keyEncoding, bool) {
	word, _ := s.text()
	return keyBase64URL, word == "base64url"
}
