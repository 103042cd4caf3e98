package falcon

import (
	"strings"
	"unicode"

	dto "github.com/prometheus/client_model/go"
)

// tags writes labels as Open-Falcon has them, k=v,k=v, in the order of the labels, which prometheus sorts. Labels without a value are
// left out: agents refuse k=.
func tags(labels []*dto.LabelPair) string {
	var b strings.Builder
	for _, l := range labels {
		if l.GetValue() == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(l.GetName())
		b.WriteByte('=')
		b.WriteString(tagValue(l.GetValue()))
	}
	return b.String()
}

// tagValue replaces what would end a tag, or what an agent refuses: commas, equals signs, blanks and what cannot be printed.
func tagValue(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ',' || r == '=' || r == unicode.ReplacementChar || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, s)
}
