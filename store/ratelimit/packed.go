package ratelimit

import "github.com/slotgate/slotgate/store/packed"

// What there is of each, 8 bytes for a number.
const (
	numbersOfCall  = 6
	numbersOfRule  = 7
	numbersOfState = 5
)

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
			return nil, packed.ErrBad
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
	p := packed.Reader{Rest: text[at:]}
	if p.Number() != tag || p.Err != nil {
		return nil, nil
	}
	s := state{p.Number(), p.Number(), p.Number(), p.Number()}
	return &s, p.Err
}

// appendRules packs the numbers of rules for the script, seven for each.
func appendRules(b []byte, rules []exact) []byte {
	for i := range rules {
		x := &rules[i]
		last := [2]int64{x.micros, x.offset}
		if x.kind.bucket() {
			last = [2]int64{x.most, x.full}
		}
		b = packed.Append(b, x.tag, int64(x.kind), x.limit, x.period, x.unit, last[0], last[1])
	}
	return b
}

// readRules reads what appendRules has packed.
func readRules(p *packed.Reader) (rules []exact) {
	for len(p.Rest) > 0 && p.Err == nil {
		x := exact{tag: p.Number(), kind: kind(p.Number()), limit: p.Number(), period: p.Number(), unit: p.Number()}
		if x.kind.bucket() {
			x.most, x.full = p.Number(), p.Number()
		} else {
			x.micros, x.offset = p.Number(), p.Number()
		}
		if x.kind < bucket || x.kind > sliding || min(x.limit, x.period, x.unit) < 1 || !x.kind.bucket() && x.micros < 1 {
			p.Err = packed.ErrBad
		}
		rules = append(rules, x)
	}
	return rules
}
