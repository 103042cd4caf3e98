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

// markdown returns the rows in the order of their ids; "" if there are none.
func (t *table) markdown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) == 0 {
		return ""
	}
	rows := slices.Clone(t.rows)
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.id, b.id) })
	var b strings.Builder
	b.WriteString("| | what was done | counted, measured | target | met |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.id, r.done, r.counted, r.target, r.verdict)
	}
	return b.String()
}

const (
	tableBegin = "<!-- table:begin -->\n"
	tableEnd   = "<!-- table:end -->"
)

// writeInto puts the table between the marks of a file.
func (t *table) writeInto(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s lacks %s…%s", path, tableBegin, tableEnd)
	}
	return os.WriteFile(path, []byte(before+tableBegin+t.markdown()+tableEnd+after), 0o644)
}

// met says whether a target was reached.
func met(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}
