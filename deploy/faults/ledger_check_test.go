package faults

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// TestLedger is the proof of the judge: what should not be is seen in what is stored, and what may be is not.
func TestLedger(t *testing.T) {
	type told func(l *ledger)
	add := func(os ...outcome) told {
		return func(l *ledger) {
			for _, o := range os {
				l.added("k", o)
			}
		}
	}
	push := func(client, number int, o outcome) told {
		return func(l *ledger) { l.appended("k", client, number, o) }
	}
	set := func(value string, o outcome) told { return func(l *ledger) { l.set("k", value, o) } }
	for sentence, c := range map[string]struct {
		told   []told
		stored string
		want   verdict // lost, double, wrong, disorder, crossed, unknownApplied
	}{
		"a counter of what was acked":                 {[]told{add(acked, acked, notApplied)}, "2", verdict{}},
		"a counter without one acked":                 {[]told{add(acked, acked)}, "1", verdict{lost: 1}},
		"a counter that is gone":                      {[]told{add(acked, acked)}, "", verdict{lost: 2}},
		"a counter with one unknown that came":        {[]told{add(acked, unknown)}, "2", verdict{unknownApplied: 1}},
		"a counter with one unknown that did not":     {[]told{add(acked, unknown)}, "1", verdict{}},
		"a counter with one too many":                 {[]told{add(acked, unknown)}, "3", verdict{double: 1}},
		"a counter with one that was not applied":     {[]told{add(acked, notApplied)}, "2", verdict{double: 1}},
		"a counter whose applied one was kept":        {[]told{add(acked, applied)}, "2", verdict{}},
		"a counter whose applied one was lost":        {[]told{add(acked, applied)}, "1", verdict{}},
		"a counter that is no number":                 {[]told{add(acked)}, "one", verdict{crossed: 1}},
		"a list of what was acked, clients mixed":     {[]told{push(1, 1, acked), push(1, 2, acked), push(2, 1, acked)}, "1-1;2-1;1-2;", verdict{}},
		"a list that lacks an acked element":          {[]told{push(1, 1, acked), push(1, 2, acked)}, "1-1;", verdict{lost: 1}},
		"a list that has one twice":                   {[]told{push(1, 1, acked)}, "1-1;1-1;", verdict{double: 1}},
		"a list that has an unknown one twice":        {[]told{push(1, 1, unknown)}, "1-1;1-1;", verdict{double: 1, unknownApplied: 1}},
		"a list that has one that was not applied":    {[]told{push(1, 1, notApplied)}, "1-1;", verdict{wrong: 1}},
		"a list with an unknown one, late":            {[]told{push(1, 1, unknown), push(1, 2, acked)}, "1-2;1-1;", verdict{unknownApplied: 1}},
		"a list whose client is out of order":         {[]told{push(1, 1, acked), push(1, 2, acked)}, "1-2;1-1;", verdict{disorder: 1}},
		"a list with an element of nobody":            {[]told{push(1, 1, acked)}, "1-1;9-9;", verdict{crossed: 1}},
		"a value that is the newest":                  {[]told{set("a", acked), set("b", acked)}, "b", verdict{}},
		"a value that is the one before":              {[]told{set("a", acked), set("b", acked)}, "a", verdict{lost: 1}},
		"a value that is gone":                        {[]told{set("a", acked)}, "", verdict{lost: 1}},
		"a value of unknown outcome before an acked":  {[]told{set("a", unknown), set("b", acked)}, "a", verdict{unknownApplied: 1}},
		"a value that was not applied":                {[]told{set("a", acked), set("b", notApplied)}, "b", verdict{wrong: 1}},
		"a value of another key":                      {[]told{set("a", acked)}, "z", verdict{crossed: 1}},
		"a value that was never applied and is not":   {[]told{set("a", notApplied)}, "", verdict{}},
		"a value whose applied one was lost":          {[]told{set("a", acked), set("b", applied)}, "a", verdict{}},
		"a crossed reply is counted whatever is left": {[]told{func(l *ledger) { l.cross("x") }}, "", verdict{crossed: 1}},
		"a 5xx without an outcome is counted":         {[]told{func(l *ledger) { l.silence("x") }}, "", verdict{silent: 1}},
	} {
		t.Run(sentence, func(t *testing.T) {
			l := newLedger()
			for _, f := range c.told {
				f(l)
			}
			v, err := l.compare(func(string) (string, error) { return c.stored, nil })
			if err != nil {
				t.Fatal(err)
			}
			got := verdict{lost: v.lost, double: v.double, wrong: v.wrong, disorder: v.disorder, crossed: v.crossed, silent: v.silent, unknownApplied: v.unknownApplied}
			if got.counted() != c.want.counted() || got.unknownApplied != c.want.unknownApplied || got.silent != c.want.silent {
				t.Errorf("got %s, %d of the unknown applied; %v", got.counted(), got.unknownApplied, v.examples)
			}
		})
	}
	t.Run("a store that cannot be read is no verdict", func(t *testing.T) {
		l := newLedger()
		l.added("k", acked)
		if _, err := l.compare(func(string) (string, error) { return "", errors.New("down") }); err == nil {
			t.Error("no error")
		}
	})
}

func TestHistogram(t *testing.T) {
	var h, other histogram
	for i := 1; i <= 1000; i++ {
		h.add(time.Duration(i) * time.Millisecond)
	}
	other.add(time.Minute)
	h.merge(&other)
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Minute} {
		if got := h.quantile(q); got < want*19/20 || got > want*21/20 {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
	if got := (&histogram{}).quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestTable(t *testing.T) {
	var made table
	if made.markdown() != "" {
		t.Error("an empty table is something")
	}
	made.add(row{id: "F-02", done: "second"})
	made.add(row{id: "F-01", done: "first", verdict: "yes"})
	text := made.markdown()
	if a, b := strings.Index(text, "| F-01 | first |"), strings.Index(text, "| F-02 | second |"); a < 0 || b < a {
		t.Errorf("got\n%s", text)
	}
	path := t.TempDir() + "/README.md"
	write(t, path, "before\n"+tableBegin+tableEnd+"after\n")
	if err := made.writeInto(path); err != nil {
		t.Fatal(err)
	}
	var again table
	again.add(row{id: "F-01", done: "again"})
	again.add(row{id: "F-03", done: "third"})
	if err := again.writeInto(path); err != nil {
		t.Error(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "before\n" + tableBegin + head + "| F-01 | again |  |  |  |\n| F-02 | second |  |  |  |\n| F-03 | third |  |  |  |\n" + tableEnd + "after\n"
	if string(got) != want {
		t.Errorf("a run of some scenarios leaves\n%s", got)
	}
	write(t, path, "no marks")
	if err := made.writeInto(path); err == nil {
		t.Error("a file without marks was written")
	}
}
