// Package info reads what a Redis node says about itself: the answers of INFO and CLUSTER INFO, of Redis 6.2 to 8 and Valkey.
//
// It promises that no answer, however odd, is an error or a panic: what is missing, damaged or no number is not there. It refuses to
// ask a node.
package info

import (
	"math"
	"strconv"
	"strings"
)

// Fields are the lines "name:value" of an answer. Of a name that comes twice the last value counts.
type Fields map[string]string

// Parse reads an answer. Headings, empty lines and what has no colon are left out.
func Parse(answer string) Fields {
	f := Fields{}
	for line := range strings.Lines(answer) {
		line = strings.TrimRight(line, "\r\n")
		if name, value, ok := strings.Cut(line, ":"); ok && name != "" && name[0] != '#' {
			f[name] = value
		}
	}
	return f
}

// Number is the value of a field that is a finite number of at least 0, as all that INFO counts and measures are.
func (f Fields) Number(name string) (float64, bool) {
	return number(f[name])
}

func number(text string) (float64, bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && n >= 0 && !math.IsInf(n, 0)
}

// Sum is the sum of those of the fields that are numbers; false if none is.
func (f Fields) Sum(names ...string) (sum float64, ok bool) {
	for _, name := range names {
		if n, is := f.Number(name); is {
			sum, ok = sum+n, true
		}
	}
	return sum, ok
}

// Keys is the number of keys of all databases, from the lines "db0:keys=1,expires=0,avg_ttl=0". An empty node has no such line.
func (f Fields) Keys() float64 {
	total := 0.0
	for name, value := range f {
		if _, err := strconv.ParseUint(strings.TrimPrefix(name, "db"), 10, 32); err != nil || !strings.HasPrefix(name, "db") {
			continue
		}
		for part := range strings.SplitSeq(value, ",") {
			if text, ok := strings.CutPrefix(part, "keys="); ok {
				if n, is := number(text); is {
					total += n
				}
			}
		}
	}
	return total
}

// Replica says whether the node is one.
func (f Fields) Replica() bool { return f["role"] == "slave" }

// Lag is how many bytes of its primary's writes a replica has not got. The two are matched by the id of the history that they share,
// which needs no addresses: those may differ from what the gateway dials. False if one is no replica or they do not belong together.
// The answers are of two moments, so what was written between them counts too, and a replica that seems to be ahead is not behind.
func Lag(primary, replica Fields) (bytes float64, ok bool) {
	id := replica["master_replid"]
	if !replica.Replica() || primary.Replica() || id == "" || primary["master_replid"] != id {
		return 0, false
	}
	written, ok1 := primary.Number("master_repl_offset")
	got, ok2 := replica.Number("slave_repl_offset")
	return max(written-got, 0), ok1 && ok2
}
