package store

import (
	"math"
	"strconv"
	"strings"
)

// Number is a counter's value or step: a decimal literal, kept as text so that no digit is lost. The zero value is 0.
type Number struct {
	text     string
	fraction bool
}

// ParseNumber reads a JSON number. It is an integer of 64 bits, or has a fraction or an exponent and fits a float64.
// Errors: validation_failed with the pointer "".
func ParseNumber(literal string) (Number, error) {
	if !isNumber(literal) {
		return Number{}, Invalid("", "not a number")
	}
	if strings.ContainsAny(literal, ".eE") {
		f, err := strconv.ParseFloat(literal, 64)
		if err != nil || math.IsInf(f, 0) {
			return Number{}, Invalid("", "the number is out of range: fractions must fit a 64-bit float")
		}
		return Number{text: literal, fraction: true}, nil
	}
	n, err := strconv.ParseInt(literal, 10, 64)
	if err != nil {
		return Number{}, Invalid("", "the number is out of range: integers must be between -9223372036854775808 and 9223372036854775807")
	}
	return Int(n), nil
}

// Int makes a Number of an integer.
func Int(n int64) Number { return Number{text: strconv.FormatInt(n, 10)} }

// IsInteger says whether the number has neither a fraction nor an exponent.
func (n Number) IsInteger() bool { return !n.fraction }

// String is the decimal literal, valid as a JSON number.
func (n Number) String() string {
	if n.text == "" {
		return "0"
	}
	return n.text
}

// Less compares two numbers, integers exactly.
func (n Number) Less(m Number) bool {
	if n.IsInteger() && m.IsInteger() {
		a, _ := strconv.ParseInt(n.String(), 10, 64)
		b, _ := strconv.ParseInt(m.String(), 10, 64)
		return a < b
	}
	a, _ := strconv.ParseFloat(n.String(), 64)
	b, _ := strconv.ParseFloat(m.String(), 64)
	return a < b
}

// isNumber says whether s is a number by the grammar of JSON.
func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	whole, rest := digits(s)
	if whole == "" || whole[0] == '0' && len(whole) > 1 {
		return false
	}
	if strings.HasPrefix(rest, ".") {
		var fraction string
		if fraction, rest = digits(rest[1:]); fraction == "" {
			return false
		}
	}
	if rest == "" {
		return true
	}
	if rest[0] != 'e' && rest[0] != 'E' {
		return false
	}
	rest = rest[1:]
	if rest != "" && (rest[0] == '+' || rest[0] == '-') {
		rest = rest[1:]
	}
	exponent, rest := digits(rest)
	return exponent != "" && rest == ""
}

// digits splits s behind its leading digits.
func digits(s string) (lead, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}
