package ratelimit

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
)

// How numbers travel between Go and the script, and lie in Redis: as doubles, which both read in a fraction of the time of text.

var errBadPacked = errors.New("ratelimit: these are not numbers that a script of ours has packed")

// What there is of each, 8 bytes for a number.
const (
	numbersOfCall  = 6
	numbersOfRule  = 6
	numbersOfState = 4
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

// names are those of the states of rules, `bminute,wday;`, or nothing for no rules. The ids of rules have neither comma nor semicolon. A rule
// that becomes another kind has another name, so that a level is never read as counts.
func names(rules []Rule) string {
	var b strings.Builder
	for i := range rules {
		if i > 0 {
			b.WriteByte(',')
		}
		if rules[i].kind().bucket() {
			b.WriteByte('b')
		} else {
			b.WriteByte('w')
		}
		b.WriteString(rules[i].ID)
	}
	if len(rules) > 0 {
		b.WriteByte(';')
	}
	return b.String()
}

// idsOf are the ids in names.
func idsOf(names string) []string {
	if names == "" {
		return nil
	}
	ids := strings.Split(strings.TrimSuffix(names, ";"), ",")
	for i := range ids {
		if ids[i] != "" {
			ids[i] = ids[i][1:]
		}
	}
	return ids
}

// readStates reads what the script held of the rules with these names; nothing is the zero state of each.
func readStates(text, names string, rules []exact) ([]state, error) {
	states := make([]state, len(rules))
	if text == "" {
		return states, nil
	}
	rest, ok := strings.CutPrefix(text, names)
	if !ok || len(rest) != len(rules)*numbersOfState*8 {
		return nil, errBadPacked
	}
	p := packed{rest: rest}
	for i := range states {
		s := state{p.number(), p.number(), p.number(), p.number()}
		if min(s.a, s.b, s.c, s.d) < 0 || rules[i].kind.bucket() && s.a > 0 && s.c == 0 {
			return nil, errBadPacked
		}
		states[i] = s
	}
	return states, p.err
}

// appendRules packs the numbers of rules for the script, six for each.
func appendRules(b []byte, rules []exact) []byte {
	for i := range rules {
		x := &rules[i]
		last := [2]int64{x.micros, x.offset}
		if x.kind.bucket() {
			last = [2]int64{x.most, x.full}
		}
		b = appendNumbers(b, int64(x.kind), x.limit, x.period, x.unit, last[0], last[1])
	}
	return b
}

// rules reads what appendRules has packed.
func (p *packed) rules() (rules []exact) {
	for len(p.rest) > 0 && p.err == nil {
		x := exact{kind: kind(p.number()), limit: p.number(), period: p.number(), unit: p.number()}
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
