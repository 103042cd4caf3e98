package metric_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/slotgate/slotgate/store/metric"
)

var update = flag.Bool("update", false, "rewrite the table of deploy/metrics.md")

const page = "../../deploy/metrics.md"

// The table of deploy/metrics.md is made from this package; make docs brings it up to date.
func TestTheTableForOperatorsIsThisPackage(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	begin, end := "<!-- metrics: begin -->\n", "<!-- metrics: end -->"
	head, rest, ok := strings.Cut(text, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks of its table", page)
	}
	if want := head + begin + table() + end + tail; want != text {
		if !*update {
			t.Fatalf("%s is not what the package says; run make docs", page)
		}
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("| name | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range metric.All() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, strings.Join(m.Labels, ", "), m.Help)
	}
	return b.String()
}

func TestNamesFollowPrometheusRules(t *testing.T) {
	form := regexp.MustCompile(`^slotgate_[a-z]+(_[a-z]+)*$`)
	seen := map[string]bool{}
	for _, m := range metric.All() {
		if !form.MatchString(m.Name) {
			t.Errorf("%s is no name of ours", m.Name)
		}
		if seen[m.Name] {
			t.Errorf("%s is there twice", m.Name)
		}
		seen[m.Name] = true
		if (m.Kind == metric.Counter) != strings.HasSuffix(m.Name, "_total") {
			t.Errorf("%s: counters, and only they, end with _total", m.Name)
		}
		if m.Kind == metric.Histo && !strings.HasSuffix(m.Name, "_seconds") && !strings.HasSuffix(m.Name, "_bytes") {
			t.Errorf("%s: histograms end with their unit", m.Name)
		}
		if !strings.HasSuffix(m.Help, ".") || strings.Contains(m.Help, "|") || strings.Contains(m.Help, "\n") {
			t.Errorf("%s: the help text is one sentence or more, without | and line ends: %q", m.Name, m.Help)
		}
	}
}

func TestLabel(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1:6379":       "10.0.0.1:6379",
		"":                    "",
		"\xff\xfe:6379":       "\uFFFD:6379",
		"a\"b\n\\c":           "a\"b\n\\c", // the exposition's task
		"[fe80::1%eth0]:6379": "[fe80::1%eth0]:6379",
	} {
		if got := metric.Label(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	long := metric.Label(strings.Repeat("ä", 500))
	if len(long) > 256 || !utf8.ValidString(long) {
		t.Errorf("%d bytes: %q", len(long), long)
	}
}
