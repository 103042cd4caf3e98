package ratelimit

import (
	"encoding/binary"
	"errors"
	"math"
)

// How numbers travel between Go and the script, and lie in Redis: as doubles, which both read in a fraction of the time of text.

var errBadPacked = errors.New("ratelimit: these are not numbers that a script of ours has packed")

// What there is of each, 8 bytes for a number.
const (
	numbersOfCall  = 6
	numbersOfRule  = 7
	numbersOfState = 5
)

func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
	}
	return b
}

// packed reads what was packed, from its beginning on. After a fault it reads zeros, and err says so.
type packed struct {
	rest string
	err  error
}

// bytes are the next n.
func (p *packed) bytes(n int64) string {
	if n < 0 || n > int64(len(p.rest)) {
		p.rest, p.err = "", errBadPacked
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
	if f != math.Trunc(f) || math.Abs(f) > MaxCount {
		p.err = errBadPacked
		return 0
	}
	return int64(f)
}

// text is a string behind its length.
func (p *packed) text() string { return p.bytes(p.number()) }

// readStates reads what the script held of rules: of each what is at its place, or elsewhere if they were edited, or the zero state.
func readStates(text string, rules []exact) ([]state, error) {
	const size = numbersOfState * 8
	states := make([]state, len(rules))
	for i := range rules {
		s, err := findState(text, i*size, rules[i].tag)
		for at := 0; s == nil && at+size <= len(text); at += size {
			s, err = findState(text, at, rules[i].tag)
		}
		if s == nil {
			continue
		}
		if err != nil || min(s.a, s.b, s.c, s.d) < 0 || rules[i].kind.bucket() && s.a > 0 && s.c == 0 {
			return nil, errBadPacked
		}
		states[i] = *s
	}
	return states, nil
}

// findState is the state in text at a place, nil if it is that of another rule.
func findState(text string, at int, tag int64) (*state, error) {
	if at+numbersOfState*8 > len(text) {
		return nil, nil
	}
	p := packed{rest: text[at:]}
	if p.number() != tag || p.err != nil {
		return nil, nil
	}
	s := state{p.number(), p.number(), p.number(), p.number()}
	return &s, p.err
}

// appendRules packs the numbers of rules for the script, seven for each.
func appendRules(b []byte, rules []exact) []byte {
	for i := range rules {
		x := &rules[i]
		last := [2]int64{x.micros, x.offset}
		if x.kind.bucket() {
			last = [2]int64{x.most, x.full}
		}
		b = appendNumbers(b, x.tag, int64(x.kind), x.limit, x.period, x.unit, last[0], last[1])
	}
	return b
}

// rules reads what appendRules has packed.
func (p *packed) rules() (rules []exact) {
	for len(p.rest) > 0 && p.err == nil {
		x := exact{tag: p.number(), kind: kind(p.number()), limit: p.number(), period: p.number(), unit: p.number()}
		if x.kind.bucket() {
			x.most, x.full = p.number(), p.number()
		} else {
			x.micros, x.offset = p.number(), p.number()
		}
		if x.kind < bucket || x.kind > sliding || min(x.limit, x.period, x.unit) < 1 || !x.kind.bucket() && x.micros < 1 {
			p.err = errBadPacked
		}
		rules = append(rules, x)
	}
	return rules
}
