package handlers

import (
	"net/http"
	"slices"
	"strings"

	"github.com/slotgate/slotgate/store"
)

// tagList is the value of If-Match or If-None-Match: absent (zero), any ("*"), or entity tags as they were sent, the weak ones
// with their W/. An empty list of tags is never confused with an absent header, which would drop the condition.
type tagList struct {
	any  bool
	tags []string
}

func (l tagList) present() bool { return l.any || len(l.tags) > 0 }

// parseTags reads the lines of one header (RFC 9110, 13.1.1). Absent lines are an absent list; anything malformed is refused,
// because a condition that is not understood must not be skipped.
func parseTags(lines []string, pointer string) (tagList, error) {
	var l tagList
	if len(lines) == 0 {
		return l, nil
	}
	for _, line := range lines {
		var ok bool
		if l, ok = l.add(line); !ok {
			return tagList{}, store.Unparsable(pointer, "must be * or a list of entity tags in double quotes")
		}
	}
	if !l.present() || l.any && len(l.tags) > 0 {
		return tagList{}, store.Unparsable(pointer, "must be * or a list of entity tags in double quotes")
	}
	return l, nil
}

// add reads one line. Empty list elements are legal (RFC 9110, 5.6.1.2).
func (l tagList) add(line string) (tagList, bool) {
	for {
		line = strings.TrimLeft(line, " \t,")
		if line == "" {
			return l, true
		}
		if line[0] == '*' {
			if l.any {
				return l, false
			}
			l.any, line = true, line[1:]
		} else {
			n := tagLength(line)
			if n == 0 {
				return l, false
			}
			l.tags, line = append(l.tags, line[:n]), line[n:]
		}
		line = strings.TrimLeft(line, " \t")
		if line != "" && line[0] != ',' {
			return l, false
		}
	}
}

// tagLength is the length of the entity tag at the front of s, 0 when there is none.
func tagLength(s string) int {
	i := 0
	if strings.HasPrefix(s, "W/") {
		i = 2
	}
	if i == len(s) || s[i] != '"' {
		return 0
	}
	for i++; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1
		case c < 0x21 || c == 0x7f:
			return 0
		}
	}
	return 0
}

// matchesWeakly reports whether the list names etag, W/ or not: what If-None-Match on a read asks.
func (l tagList) matchesWeakly(etag string) bool {
	return l.any || slices.ContainsFunc(l.tags, func(t string) bool { return strings.TrimPrefix(t, "W/") == etag })
}

// readCondition is If-None-Match of a read.
func readCondition(h http.Header) (tagList, error) {
	return parseTags(h["If-None-Match"], "header:If-None-Match")
}

// writeCondition is If-Match or If-None-Match: * of a write.
func writeCondition(h http.Header) (store.Condition, error) {
	match, err := parseTags(h["If-Match"], "header:If-Match")
	if err != nil {
		return store.Condition{}, err
	}
	none, err := parseTags(h["If-None-Match"], "header:If-None-Match")
	switch {
	case err != nil:
		return store.Condition{}, err
	case len(none.tags) > 0:
		return store.Condition{}, store.Invalid("header:If-None-Match", "must be * on a write")
	case none.any && match.present():
		return store.Condition{}, store.Invalid("header:If-None-Match", "excludes If-Match")
	case match.any:
		return store.Condition{IfMatch: []string{"*"}}, nil
	default:
		return store.Condition{IfMatch: match.tags, IfNoneMatch: none.any}, nil
	}
}

// matchCondition is writeCondition for a delete, which knows no If-None-Match.
func matchCondition(h http.Header) (store.Condition, error) {
	if len(h["If-None-Match"]) > 0 {
		return store.Condition{}, store.Invalid("header:If-None-Match", noConditions)
	}
	return writeCondition(h)
}

const noConditions = "this operation does not know this condition"

// refuseConditions is for writes that cannot be conditional: ignoring a condition would lose somebody's update.
func refuseConditions(h http.Header) error {
	for _, name := range [...]string{"If-Match", "If-None-Match"} {
		if len(h[name]) > 0 {
			return store.Invalid("header:"+name, noConditions)
		}
	}
	return nil
}

// prefers reports whether the caller has a preference (RFC 7240), such as return=minimal: an answer without a body. A preference that is
// not understood is ignored, as it says there.
func prefers(h http.Header, preference, wanted string) bool {
	for _, line := range h["Prefer"] {
		for one := range strings.SplitSeq(line, ",") {
			one, _, _ = strings.Cut(one, ";")
			name, value, _ := strings.Cut(one, "=")
			if strings.EqualFold(strings.TrimSpace(name), preference) && strings.Trim(value, "\" \t") == wanted {
				return true
			}
		}
	}
	return false
}
