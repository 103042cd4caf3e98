//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
)

// The README's performance tables stand between these lines.
const (
	readmeBegin = "<!-- bench:begin -->\n"
	readmeEnd   = "<!-- bench:end -->"
)

// writeReadme replaces the performance tables in a Markdown file. An invalid run changes nothing.
func (res *results) writeReadme(path string) error {
	if err := res.invalid(); err != nil {
		return err
	}
	return replaceBetween(path, readmeBegin, readmeEnd, res.markdown())
}

// replaceBetween puts a text between two lines of a file.
func replaceBetween(path, begin, end, with string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s lacks the lines %q and %q", path, strings.TrimSpace(begin), end)
	}
	return os.WriteFile(path, []byte(before+begin+with+end+after), 0o644)
}

// markdown is the ratios, and below them the figures behind them.
func (res *results) markdown() string {
	var b strings.Builder
	names := res.names()
	head := "| | " + strings.Join(names, " | ") + " |\n|---" + strings.Repeat("|---", len(names)) + "|\n"
	b.WriteString(head)
	res.markdownRows(&b, names, func(row *rowResult) string { return row.CPURatio.String() })
	fmt.Fprintf(&b, "\nThe same run: CPU microseconds of the HTTP server + of Redis per request; requests per second; p50 / p99 / p99.9 in ms.\n\n%s", head)
	res.markdownRows(&b, names, func(row *rowResult) string {
		return fmt.Sprintf("%.0f + %.0f us; %.0f/s; %.1f / %.1f / %.1f",
			row.CPUUS.Median, row.BackendUS.Median, row.RPS.Median, row.P50MS, row.P99MS, row.P999MS)
	})
	fmt.Fprintf(&b, "\n%s, %d cores shared by servers, Redis and load generator; median (least–greatest) of %d shuffled rounds of %d ms.\n",
		res.Started.Format("2006-01-02"), res.CPUs, res.Options.Rounds, res.Options.RoundMS)
	return b.String()
}

func (res *results) markdownRows(b *strings.Builder, names []string, cell func(*rowResult) string) {
	all := res.scenarios()
	for _, s := range all {
		fmt.Fprintf(b, "| %s |", s.title(all))
		for _, name := range names {
			text := "–"
			if row := res.find(s, name); row != nil {
				text = cell(row)
			}
			fmt.Fprintf(b, " %s |", text)
		}
		b.WriteString("\n")
	}
}
