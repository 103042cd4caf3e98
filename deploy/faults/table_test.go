package faults

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// row is what one scenario, or one figure of it, came to.
type row struct {
	id      string // F-01
	done    string // what was done
	counted string // what was counted or measured
	target  string
	verdict string // "yes", "no", or a word about what is missing; "" for what is only reported
}

// table collects the rows of all scenarios. Safe for concurrent use.
type table struct {
	mu   sync.Mutex
	rows []row
}

func (t *table) add(r row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
}

const head = "| | what was done | counted, measured | target | met |\n|---|---|---|---|---|\n"

func (r row) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", r.id, r.done, r.counted, r.target, r.verdict)
}

// markdown returns the rows in the order of their ids; "" if there are none.
func (t *table) markdown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.with(nil)
}

// with is the table with these lines, each a row of an earlier run, added.
func (t *table) with(lines []string) string {
	for _, r := range t.rows {
		lines = append(lines, r.String())
	}
	if len(lines) == 0 {
		return ""
	}
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(idOf(a), idOf(b)) })
	return head + strings.Join(lines, "")
}

// idOf is the first cell of a line.
func idOf(line string) string {
	_, rest, _ := strings.Cut(line, "| ")
	id, _, _ := strings.Cut(rest, " |")
	return id
}

const (
	tableBegin = "<!-- table:begin -->\n"
	tableEnd   = "<!-- table:end -->"
)

// writeInto puts the table between the marks of a file, where rows of scenarios that did not run this time stay.
func (t *table) writeInto(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	was, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s lacks %s…%s", path, tableBegin, tableEnd)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var kept []string
	for line := range strings.Lines(strings.TrimPrefix(was, head)) {
		if !slices.ContainsFunc(t.rows, func(r row) bool { return r.id == idOf(line) }) {
			kept = append(kept, line)
		}
	}
	return os.WriteFile(path, []byte(before+tableBegin+t.with(kept)+tableEnd+after), 0o644)
}

// met says whether a target was reached.
func met(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}
