package pool

import (
	"encoding/binary"
	"errors"
	"math"
)

// How numbers travel between Go and the scripts, and lie in Redis: as doubles, which both read in a fraction of the time of text. Integers
// up to 2^53 stay what they are.

var errBadReply = errors.New("pool: the script returned something else than it does")

func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = appendFraction(b, float64(n))
	}
	return b
}

func appendFraction(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

// appendText packs a string behind its length.
func appendText(b []byte, text string) []byte {
	return append(appendNumbers(b, int64(len(text))), text...)
}

// packed reads what was packed, from its beginning on. After a fault it reads zeros, and err says so.
type packed struct {
	rest string
	err  error
}

// bytes are the next n.
func (p *packed) bytes(n int64) string {
	if n < 0 || n > int64(len(p.rest)) {
		p.rest, p.err = "", errBadReply
		return ""
	}
	text := p.rest[:n]
	p.rest = p.rest[n:]
	return text
}

// number is a double that is an integer, -2^53 to 2^53.
func (p *packed) number() int64 {
	text := p.bytes(8)
	if text == "" {
		return 0
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(text)))
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		p.err = errBadReply
		return 0
	}
	return int64(f)
}

// text is a string behind its length.
func (p *packed) text() string { return p.bytes(p.number()) }
