package ratelimit

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store/packed"
)

// said is the reply of the script.
func said(granted, now int64, own, total string) string {
	return string(append(packed.Append(nil, granted, now, int64(len(own))), own+total...))
}

// record is what the script keeps, without its head.
func record(c call, reply string, first int, rules []Rule) string {
	b := append(packed.Append(nil, int64(len(reply))), reply...)
	asked := packed.Append(nil, int64(c.mode), c.cost, c.least, 0, int64(first), int64(len(rules)))
	asked = appendRules(asked, c.exactly(rules))
	b = append(packed.Append(b, int64(len(asked))), asked...)
	return string(b) + strings.Join(ids(rules), ",")
}

// records are some that scripts write, for every kind of rule.
func records(t testing.TB) (all []string) {
	rules := valid(t, bucketOf("minute", 60, 60_000, 60), Rule{ID: "day", Algorithm: SlidingWindow, Limit: 9, PeriodMS: 86_400_000},
		Rule{ID: "q", Algorithm: LeakyBucket, Mode: Shaper, Limit: 10, PeriodMS: 1000, Burst: 5},
		Rule{ID: "f", Algorithm: FixedWindow, Align: AlignFirstHit, Limit: 2, PeriodMS: 60_000})
	c := call{mode: take, cost: 1, least: 1}
	for first := 1; first <= len(rules); first++ {
		own := held{[]int64{rules[0].tag()}, []state{{minute, T0, minute, 0}}}
		all = append(all, record(c, said(1, T0, "", ""), first, rules), record(c, said(1, T0, own.text(), ""), first, rules))
	}
	return all
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	for _, text := range records(t) {
		r, err := parse(call{}, 0, nil, []any{int64(statusReplay), text})
		if err != nil || !r.replayed || !r.allowed || r.granted != 1 || !slices.Equal(r.order, []string{"minute", "day", "q", "f"}) {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

func double(f float64) string {
	return string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(f)))
}

// What no script of ours has written is an error, whatever it is.
func TestBrokenRecordsAreErrors(t *testing.T) {
	whole := records(t)[3]
	broken := map[string]string{
		"nothing":          "",
		"an id more":       whole + ",x",
		"half":             whole[:len(whole)/2],
		"an id less":       strings.TrimSuffix(whole, ",f"),
		"another grant":    whole[:8] + string(packed.Append(nil, 2)) + whole[16:],
		"half a token":     whole[:8] + double(1.5) + whole[16:],
		"no number":        whole[:8] + double(math.NaN()) + whole[16:],
		"infinite":         whole[:8] + double(math.Inf(1)) + whole[16:],
		"a text of 8 PB":   double(1<<53) + whole[8:],
		"a text of -1 B":   double(-1) + whole[8:],
		"a level of yore":  strings.Replace(whole, string(packed.Append(nil, T0, minute)), string(packed.Append(nil, T0, 0)), 1),
		"less than nought": strings.Replace(whole, string(packed.Append(nil, minute, T0)), string(packed.Append(nil, -minute, T0)), 1),
	}
	for name, text := range broken {
		if _, err := parse(call{}, 0, nil, []any{int64(statusReplay), text}); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

// FuzzRecord: what stands in Redis is never trusted.
func FuzzRecord(f *testing.F) {
	for _, text := range append(records(f), "", "1,1,0,59,1000,0,0;minute") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parse(call{}, 0, nil, []any{int64(statusReplay), text})
		if err == nil {
			r.result(nil, take)
			if len(r.order) != len(r.rules) || !r.replayed {
				t.Errorf("%q became %+v", text, r)
			}
		}
	})
}

// FuzzStates: the same for what the script says it has found.
func FuzzStates(f *testing.F) {
	rules := valid(f, bucketOf("b", 60, 60_000, 60), Rule{ID: "s", Algorithm: SlidingWindow, Limit: 9, PeriodMS: 86_400_000})
	h := held{[]int64{rules[1].tag(), rules[0].tag()}, []state{{T0, minute, 5, 3}, {minute, T0, minute, 0}}}
	for _, text := range []string{h.text(), "", h.text()[40:], h.text()[1:], h.text() + "x"} {
		f.Add(text, int64(1), int64(T0))
	}
	f.Fuzz(func(t *testing.T, text string, granted, now int64) {
		c := call{mode: take, cost: 2, least: 1}
		r, err := parse(c, 2, rules, []any{said(granted, now, text, "")})
		if err == nil && (r.granted != granted || len(r.rules) != 2) {
			t.Errorf("%q became %+v", text, r)
		}
	})
}

func TestAReplyThatTheModelDoesNotExplainIsAnError(t *testing.T) {
	rules := valid(t, bucketOf("b", 60, 60_000, 60))
	c := call{mode: take, cost: 2, least: 1}
	for name, reply := range map[string]any{
		"another grant":      said(1, T0, "", ""),
		"nothing":            "",
		"a number":           int64(2),
		"half of it":         said(2, T0, "", "")[:12],
		"a level of nothing": said(2, T0, held{[]int64{rules[0].tag()}, []state{{minute, T0, 0, 0}}}.text(), ""),
		"a level below 0":    said(2, T0, held{[]int64{rules[0].tag()}, []state{{-minute, T0, minute, 0}}}.text(), ""),
	} {
		if _, err := parse(c, 1, rules, []any{reply}); !errors.Is(err, errBadReply) && !errors.Is(err, packed.ErrBad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := parse(c, 1, rules, []any{said(2, T0, "", "")}); err != nil || r.granted != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}
