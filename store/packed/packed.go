// Package packed writes the numbers and texts that travel between Go and the scripts in Redis, and reads them back.
//
// Numbers are doubles, which both sides read in a fraction of the time of text; integers up to 2^53 stay what they are. It promises that a
// reader never panics and never takes what is no such number for one.
package packed

import (
	"encoding/binary"
	"errors"
	"math"
)

// Most is the greatest integer that is packed, and -Most the least: what a double counts exactly.
const Most = 1 << 53

// ErrBad says that what was read is nothing that a script of ours has packed.
var ErrBad = errors.New("packed: these are not numbers that a script of ours has packed")

// Append packs integers, -Most to Most, of 8 bytes each.
func Append(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = AppendFraction(b, float64(n))
	}
	return b
}

// AppendFraction packs a number that need be no integer.
func AppendFraction(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

// AppendText packs a string behind its length.
func AppendText(b []byte, text string) []byte {
	return append(Append(b, int64(len(text))), text...)
}

// Reader reads what was packed, from its beginning on. After a fault it reads zeros, and Err says so.
type Reader struct {
	Rest string
	Err  error
}

// Bytes are the next n.
func (r *Reader) Bytes(n int64) string {
	if n < 0 || n > int64(len(r.Rest)) {
		r.Rest, r.Err = "", ErrBad
		return ""
	}
	text := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return text
}

// Number is a double that is an integer, -Most to Most.
func (r *Reader) Number() int64 {
	text := r.Bytes(8)
	if text == "" {
		return 0
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(text)))
	if f != math.Trunc(f) || math.Abs(f) > Most {
		r.Err = ErrBad
		return 0
	}
	return int64(f)
}

// Text is a string behind its length.
func (r *Reader) Text() string { return r.Bytes(r.Number()) }

// Fraction is a double that is a number.
func (r *Reader) Fraction() float64 {
	text := r.Bytes(8)
	if text == "" {
		return 0
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(text)))
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.Err = ErrBad
		return 0
	}
	return f
}
