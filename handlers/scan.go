package handlers

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/slotgate/slotgate/store"
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

// members are those of an object that were there; each may be there once.
type members uint16

const (
	keysMember members = 1 << iota // and items, the list of the body
	keyMember
	valueMember
	encodingMember
	keyEncodingMember
	ttlMember
	expiryMember
	keepMember
	previousMember
)

const expiryMembers = ttlMember | expiryMember | keepMember

func (m *members) add(one members) (first bool) {
	first = *m&one == 0
	*m |= one
	return first
}

// scanKeyList is parseKeyList for the plain form; ok is false for any other.
func scanKeyList(src []byte, t *terms, values bool) (r keysRequest, ok bool) {
	s := newScanner(src)
	var seen members
	if !s.take('{') {
		return r, false
	}
	for {
		switch name := s.name(); {
		case name == "keys" && seen.add(keysMember):
			r.keys, ok = s.keys(t.maxKeys)
		case name == "key_encoding" && seen.add(keyEncodingMember):
			r.keyEncoding, ok = s.keyEncoding()
		case name == "encoding" && values && seen.add(encodingMember):
			r.encoding, ok = s.valueEncoding()
		default:
			ok = false
		}
		if !ok {
			return r, false
		}
		if !s.take(',') {
			break
		}
	}
	if !s.take('}') || !s.end() || seen&keysMember == 0 {
		return r, false
	}
	for i, key := range r.keys {
		if r.keys[i], ok = plainKey(key, r.keyEncoding, t.keyMaxBytes); !ok {
			return r, false
		}
	}
	return r, true
}

// plainKey is checkKey without the error.
func plainKey(text string, enc keyEncoding, maxBytes int64) (string, bool) {
	if enc == keyUTF8 {
		return text, text != "" && int64(len(text)) <= maxBytes
	}
	key, err := checkKey(text, enc, maxBytes, "")
	return key, err == nil
}

// keys reads a list of 1 to most strings.
func (s *scanner) keys(most int) ([]string, bool) {
	if !s.take('[') {
		return nil, false
	}
	keys := make([]string, 0, elements(octetsOf(s.src[s.at:]), ',', most))
	for {
		key, ok := s.text()
		if !ok || len(keys) == most {
			return nil, false
		}
		keys = append(keys, key)
		if !s.take(',') {
			return keys, s.take(']')
		}
	}
}

// plainItem is an item of an mset, or the body of a write, as it stands there.
type plainItem struct {
	key, value string
	encoding   valueEncoding
	previous   bool // return_previous
	expiry     store.Expiry
	seen       members
}

// item reads an object that may have the members of known.
func (s *scanner) item(p *plainItem, known members, t *terms) bool {
	if !s.take('{') {
		return false
	}
	forms := 0 // of expiry
	for {
		name := s.name()
		m := memberNamed(name) & known
		if m == 0 || !p.seen.add(m) || !s.member(p, m, t) {
			return false
		}
		if m&expiryMembers != 0 && (m != keepMember || p.expiry.Mode == store.KeepExpiry) {
			forms++
		}
		if !s.take(',') {
			return s.take('}') && forms <= 1
		}
	}
}

// memberNamed is the member of an item that has the name.
func memberNamed(name string) members {
	switch name {
	case "key":
		return keyMember
	case "value":
		return valueMember
	case "encoding":
		return encodingMember
	case "ttl_ms":
		return ttlMember
	case "expires_at":
		return expiryMember
	case "keep_ttl":
		return keepMember
	case "return_previous":
		return previousMember
	default:
		return 0
	}
}

// member reads the value of a member.
func (s *scanner) member(p *plainItem, m members, t *terms) (ok bool) {
	switch m {
	case keyMember:
		p.key, ok = s.text()
	case valueMember:
		p.value, ok = s.text()
	case encodingMember:
		p.encoding, ok = s.valueEncoding()
	case previousMember:
		p.previous, ok = s.boolean()
	case keepMember:
		var keep bool
		if keep, ok = s.boolean(); keep {
			p.expiry = store.Expiry{Mode: store.KeepExpiry}
		}
	default:
		p.expiry, ok = s.expiry(m, t)
	}
	return ok
}

// expiry reads the value of ttl_ms or expires_at.
func (s *scanner) expiry(m members, t *terms) (e store.Expiry, ok bool) {
	fault := ""
	if m == ttlMember {
		var n int64
		n, ok = s.digits()
		e, fault = expireIn(n)
	} else {
		var text string
		text, ok = s.text()
		e, fault = expireAt(text, t.now)
	}
	return e, ok && fault == ""
}

// scanPut is parsePut for the plain form.
func scanPut(src []byte, t *terms) (r putRequest, ok bool) {
	const known = valueMember | encodingMember | expiryMembers | previousMember
	s := newScanner(src)
	var p plainItem
	if !s.item(&p, known, t) || !s.end() || p.seen&valueMember == 0 {
		return r, false
	}
	data, err := decodeValue(octetsOf(p.value), p.encoding, t.valueMaxBytes, "")
	return putRequest{data: data, encoding: p.encoding, expiry: p.expiry, returnPrevious: p.previous}, err == nil
}

// plainSet collects the items of an mset. Encodings are kept beside them, because that of the batch may come last.
type plainSet struct {
	items     []store.SetItem
	encodings []valueEncoding // of the items up to the last that has its own; mostly there is none
}

func (p *plainSet) add(item *plainItem) {
	if item.encoding != unsetEncoding {
		if p.encodings == nil {
			p.encodings = make([]valueEncoding, 0, cap(p.items))
		}
		for len(p.encodings) < len(p.items) {
			p.encodings = append(p.encodings, unsetEncoding)
		}
		p.encodings = append(p.encodings, item.encoding)
	}
	p.items = append(p.items, store.SetItem{Key: item.key, Data: octetsOf(item.value), Expiry: item.expiry})
}

func (p *plainSet) encoding(i int) valueEncoding {
	if i < len(p.encodings) {
		return p.encodings[i]
	}
	return unsetEncoding
}

// scanMSet is parseMSet for the plain form.
func scanMSet(src []byte, t *terms) (r msetRequest, ok bool) {
	s := newScanner(src)
	var set plainSet
	var encoding valueEncoding
	var seen members
	if !s.take('{') {
		return r, false
	}
	for {
		switch name := s.name(); {
		case name == "items" && seen.add(keysMember):
			ok = s.items(&set, t)
		case name == "encoding" && seen.add(encodingMember):
			encoding, ok = s.valueEncoding()
		case name == "key_encoding" && seen.add(keyEncodingMember):
			r.keyEncoding, ok = s.keyEncoding()
		default:
			ok = false
		}
		if !ok {
			return r, false
		}
		if !s.take(',') {
			break
		}
	}
	if !s.take('}') || !s.end() || seen&keysMember == 0 {
		return r, false
	}
	r.items = set.items
	for i := range r.items {
		item := &r.items[i]
		if item.Key, ok = plainKey(item.Key, r.keyEncoding, t.keyMaxBytes); !ok {
			return r, false
		}
		var err error
		if item.Data, err = decodeValue(item.Data, set.encoding(i).or(encoding), t.valueMaxBytes, ""); err != nil {
			return r, false
		}
	}
	return r, true
}

// items reads a list of 1 to t.maxKeys items.
func (s *scanner) items(set *plainSet, t *terms) bool {
	if !s.take('[') {
		return false
	}
	const known = keyMember | valueMember | encodingMember | ttlMember | expiryMember
	for start := s.at; ; {
		var p plainItem
		if !s.item(&p, known, t) || p.seen&(keyMember|valueMember) != keyMember|valueMember || len(set.items) == t.maxKeys {
			return false
		}
		if set.items == nil {
			set.items = make([]store.SetItem, 0, itemsLike(s.src[start:], s.at-start, t.maxKeys))
		}
		set.add(&p)
		if !s.take(',') {
			return s.take(']')
		}
	}
}

// itemsLike is a guess of the length of a list by that of its first item. The braces alone would count those of JSON in the values.
func itemsLike(list string, first, most int) int {
	return min(elements(octetsOf(list), '{', most), len(list)/first*5/4+4)
}
