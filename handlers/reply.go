package handlers

import (
	"encoding/base64"
	"math/bits"
	"net/http"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/slotgate/slotgate/store"
)

// flushAt is where a long answer begins to be sent instead of collected: below it one write carries header and body with their
// length, above it the answer is chunked.
const flushAt = 64 << 10

// directFrom is the length from which a piece of a long value is written from where it is: copying less than that costs about as
// much as the write of its own that it needs.
const directFrom = 16 << 10

// keepBuffer is the largest buffer worth keeping for the next answer.
const keepBuffer = 128 << 10

// reply builds one JSON answer by hand: no reflection, no copy of a value but the one into the buffer. Strings given to it must
// be valid UTF-8; what may not be is checked before, so that no byte is ever replaced.
type reply struct {
	w    http.ResponseWriter
	buf  []byte
	sent bool  // the header is out
	err  error // of a write: the client has gone
}

var replies = sync.Pool{New: func() any { return &reply{buf: make([]byte, 0, 4<<10)} }}

func newReply(w http.ResponseWriter) *reply {
	r := replies.Get().(*reply)
	r.w = w
	return r
}

// release gives the buffer back. net/http is done with what was written, unless that failed: HTTP/2 then returns while its own
// goroutine may still be reading, and would send the next answer of the buffer to this client.
func (r *reply) release() {
	if cap(r.buf) > keepBuffer || r.err != nil {
		return
	}
	*r = reply{buf: r.buf[:0]}
	replies.Put(r)
}

// raw adds JSON text as it is.
func (r *reply) raw(text string) *reply {
	r.buf = append(r.buf, text...)
	return r
}

func (r *reply) string(s string) *reply {
	r.buf, _ = appendQuoted(r.buf, s)
	return r
}

func (r *reply) int(n int64) *reply {
	r.buf = strconv.AppendInt(r.buf, n, 10)
	return r
}

// double adds a number in as many digits as say which it is, without an exponent. It must be finite.
func (r *reply) double(x float64) *reply {
	r.buf = strconv.AppendFloat(r.buf, x, 'f', -1, 64)
	return r
}

func (r *reply) bool(b bool) *reply {
	r.buf = strconv.AppendBool(r.buf, b)
	return r
}

// value adds a stored value in the encoding, and returns false, having added nothing, for one that is not text but must be.
func (r *reply) value(data []byte, enc valueEncoding) bool {
	switch {
	case enc == base64Encoding:
		r.base64(data)
		return true
	case len(data) >= flushAt:
		return r.longText(data)
	}
	buf, ascii := appendQuoted(r.buf, viewed(data))
	if !ascii && !utf8.Valid(data) {
		return false
	}
	r.buf = buf
	return true
}

// base64 adds bytes in base64, by and by.
func (r *reply) base64(data []byte) {
	const piece = flushAt / 4 * 3 // a multiple of three: only the last is padded
	r.raw(`"`)
	for ; len(data) > piece && r.err == nil; data = data[piece:] {
		r.buf = base64.StdEncoding.AppendEncode(r.buf, data[:piece])
		r.flush()
	}
	r.buf = base64.StdEncoding.AppendEncode(r.buf, data)
	r.raw(`"`)
}

// longText is value for text too long to be collected: it is sent on the way, and what needs no escape without a copy.
func (r *reply) longText(data []byte) bool {
	if !utf8.Valid(data) {
		return false
	}
	r.raw(`"`)
	for text := viewed(data); r.err == nil; {
		n, _ := plainPrefix(text)
		r.piece(text[:n])
		if n == len(text) {
			break
		}
		r.buf = appendEscaped(r.buf, text[n])
		text = text[n+1:]
	}
	r.raw(`"`)
	return true
}

// piece adds text that needs no escape.
func (r *reply) piece(text string) {
	if len(text) < directFrom {
		r.raw(text).flush()
		return
	}
	r.start()
	r.write(r.buf)
	r.buf = r.buf[:0]
	r.write(octetsOf(text))
}

// named adds the member for a key that the answer names, see nameOf.
func (r *reply) named(key string, enc keyEncoding) *reply { return r.nameOf("key", key, enc) }

// nameOf adds the member for a key, or for another name of any bytes: "key" for text, "key_base64url" for one that is not text and where
// the caller wants all in base64url. The member tells which it is, whatever the request was.
func (r *reply) nameOf(what, name string, enc keyEncoding) *reply {
	text := keyIsText(name, enc)
	r.raw(`"`).raw(what)
	if !text {
		r.raw(`_base64url`)
	}
	return r.raw(`":`).keyText(name, text)
}

func keyIsText(key string, enc keyEncoding) bool { return enc == keyUTF8 && utf8.ValidString(key) }

// echoed adds the member for a key of the request's body, as it was sent.
func (r *reply) echoed(key string, enc keyEncoding) *reply {
	return r.raw(`"key":`).keyText(key, enc == keyUTF8)
}

func (r *reply) keyText(key string, text bool) *reply {
	if text {
		return r.string(key)
	}
	r.raw(`"`)
	r.buf = base64.RawURLEncoding.AppendEncode(r.buf, []byte(key))
	return r.raw(`"`)
}

// problem adds the failure of one item of a batch.
func (r *reply) problem(e *store.Error, idempotent bool) *reply {
	r.raw(`{"code":`).string(string(e.Code)).raw(`,"status":`).int(int64(e.Status()))
	r.raw(`,"detail":`).string(detail(e))
	r.raw(`,"retryable":`).bool(e.Retryable(idempotent))
	if e.Outcome != store.NoOutcome {
		r.raw(`,"outcome":`).string(string(e.Outcome))
	}
	return r.raw(`}`)
}

// detail is never empty: an item has no title beside it.
func detail(e *store.Error) string {
	if e.Detail == "" {
		return e.Code.Title()
	}
	return e.Detail
}

// The header values are shared by all answers, which spares their allocation; nobody changes them.
var (
	jsonType   = []string{"application/json"}
	octetsType = []string{"application/octet-stream"}
)

// fields are the header fields whose values belong to one answer, in one allocation. net/http writes them after the handler has
// returned, so they cannot be pooled.
type fields struct {
	tag, length [1]string
	tagText     [store.ETagLen]byte
	digits      [20]byte
}

// setTag sets the ETag of a value, and returns it.
func (f *fields) setTag(h http.Header, data []byte) string {
	f.tag[0] = viewed(store.AppendETag(f.tagText[:0], data))
	h["Etag"] = f.tag[:]
	return f.tag[0]
}

func (f *fields) setLength(h http.Header, n int) {
	f.length[0] = viewed(strconv.AppendInt(f.digits[:0], int64(n), 10))
	h["Content-Length"] = f.length[:]
}

// countedFrom is the length of a body, in bytes, from which net/http does not count it by itself.
const countedFrom = 2 << 10

// send writes the answer, or what is left of a long one. Every answer with a body is a 200.
func (r *reply) send(f *fields) {
	if !r.sent {
		if len(r.buf) >= countedFrom {
			f.setLength(r.w.Header(), len(r.buf))
		}
		r.start()
	}
	r.write(r.buf)
	r.buf = r.buf[:0]
}

// flush sends what there is of a long answer.
func (r *reply) flush() {
	if len(r.buf) < flushAt {
		return
	}
	r.start()
	r.write(r.buf)
	r.buf = r.buf[:0]
}

// start sends the header, once.
func (r *reply) start() {
	if !r.sent {
		r.sent = true
		r.w.Header()["Content-Type"] = jsonType
		r.w.WriteHeader(http.StatusOK)
	}
}

func (r *reply) write(data []byte) {
	if r.err == nil && len(data) > 0 {
		_, r.err = r.w.Write(data)
	}
}

// appendQuoted adds s as a JSON string (RFC 8259): only quote, backslash and control characters are escaped. ascii is true if s is
// nothing else; if it is not and s is not known to be UTF-8, that must be looked at before the string is used.
func appendQuoted(dst []byte, s string) (added []byte, ascii bool) {
	dst = append(dst, '"')
	for ascii = true; ; {
		n, plain := plainPrefix(s)
		ascii = ascii && plain
		dst = append(dst, s[:n]...)
		if n == len(s) {
			return append(dst, '"'), ascii
		}
		dst = appendEscaped(dst, s[n])
		s = s[n+1:]
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainPrefix is the length of the front of s that needs no escape; ascii is false if a byte of the front, or one of the seven
// behind, is none of ASCII.
//
// It looks at eight bytes at a time. Exchanging 2 with 0 in the second bit moves the quote (0x22) next to the control characters
// (below 0x20) and the space to where the quote was, so that one subtraction finds both. It sets the high bit in the bytes it
// finds; a borrow may set it in bytes behind such a one as well, never before, so that the lowest is right.
func plainPrefix(s string) (n int, ascii bool) {
	var all uint64
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := word(s, i)
		all |= x
		if found := special(x); found != 0 {
			return i + bits.TrailingZeros64(found)/8, all&highs == 0
		}
	}
	if i > 0 && i < len(s) { // the rest is the end of the last eight, whose front has been looked at
		i = len(s) - 8
		x := word(s, i)
		all |= x
		if found := special(x); found != 0 {
			return i + bits.TrailingZeros64(found)/8, all&highs == 0
		}
		return len(s), all&highs == 0
	}
	for ; i < len(s); i++ {
		c := s[i]
		all |= uint64(c)
		if c < ' ' || c == '"' || c == '\\' {
			break
		}
	}
	return i, all&highs == 0
}

func word(s string, i int) uint64 {
	w := s[i : i+8]
	return uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 |
		uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
}

// special has the high bit set in the bytes of x that are a control character, a quote or a backslash.
func special(x uint64) uint64 {
	slash := x ^ ones*'\\'
	return ((x^ones*2-ones*0x21)&^x | (slash-ones)&^slash) & highs
}

func appendEscaped(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	default:
		const hex = "0123456789abcdef"
		return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	}
}
