// Package promql_test parses every query of the rules and dashboards with Prometheus' own parser and compares the metrics and labels
// that they use with deploy/metrics.md. It is a module of its own, so that the gateway does not depend on Prometheus.
package promql_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// foreign are metrics that the gateway does not document, of Prometheus itself and of its client library, with the labels we use.
var foreign = map[string][]string{
	"up":                            {},
	"ALERTS":                        {"alertname", "alertstate"},
	"process_open_fds":              {},
	"process_max_fds":               {},
	"process_cpu_seconds_total":     {},
	"process_resident_memory_bytes": {},
	"process_start_time_seconds":    {},
	"go_goroutines":                 {},
	"go_gc_duration_seconds":        {"quantile"},
}

// ofScrapes are labels that Prometheus adds to every series.
var ofScrapes = []string{"job", "instance"}

// query is one expression and where it stands.
type query struct{ where, expr string }

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// documented are the metrics of deploy/metrics.md with their labels, histograms as the series that Prometheus stores.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	known := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(read(t, "../../metrics.md")), -1) {
		name, kind := m[1], m[2]
		names := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
		if kind != "histogram" {
			known[name] = names
			continue
		}
		known[name+"_bucket"] = append(slices.Clone(names), "le")
		known[name+"_count"], known[name+"_sum"] = names, names
	}
	if len(known) < 40 {
		t.Fatalf("deploy/metrics.md has only %d metrics", len(known))
	}
	return known
}

type ruleFile struct {
	Groups []struct {
		Rules []struct{ Record, Alert, Expr string }
	}
}

// fromRules lists the queries of the rules, and what these record: name to labels, which are the part of the name before the
// first colon, as Prometheus' naming advice has it.
func fromRules(t *testing.T) (queries []query, recorded map[string][]string) {
	t.Helper()
	recorded = map[string][]string{}
	for _, file := range []string{"recording.rules.yaml", "alerts.rules.yaml"} {
		var f ruleFile
		if err := yaml.Unmarshal(read(t, "../"+file), &f); err != nil {
			t.Fatal(err)
		}
		for _, g := range f.Groups {
			for _, r := range g.Rules {
				queries = append(queries, query{file + " " + r.Record + r.Alert, r.Expr})
				if r.Record != "" {
					recorded[r.Record] = levelLabels(r.Record)
				}
			}
		}
	}
	return queries, recorded
}

func levelLabels(record string) []string {
	level, _, _ := strings.Cut(record, ":")
	switch level {
	case "slotgate": // all together
		return nil
	case "alert": // a threshold with all its labels
		return []string{"alert", "app", "route", "cluster"}
	}
	return strings.Split(level, "_")
}

// fromDashboards lists the queries of panels, variables and annotations, with Grafana's variables put in.
func fromDashboards(t *testing.T) []query {
	t.Helper()
	files, err := filepath.Glob("../../grafana/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no dashboards", err)
	}
	fill := strings.NewReplacer("$__rate_interval", "5m", "$app", "shop", "$cluster", "default")
	values := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	var queries []query
	for _, file := range files {
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
			Templating struct {
				List []struct{ Name, Type, Definition string }
			}
			Annotations struct{ List []struct{ Name, Expr string } }
		}
		if err := json.Unmarshal(read(t, file), &d); err != nil {
			t.Fatal(err)
		}
		where := filepath.Base(file) + " "
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				queries = append(queries, query{where + p.Title, fill.Replace(target.Expr)})
			}
		}
		for _, a := range d.Annotations.List {
			queries = append(queries, query{where + a.Name, a.Expr})
		}
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			m := values.FindStringSubmatch(v.Definition)
			if m == nil {
				t.Errorf("%s: the variable %s is %q", where, v.Name, v.Definition)
				continue
			}
			queries = append(queries, query{where + v.Name, "sum by (" + m[2] + ") (" + m[1] + ")"})
		}
	}
	return queries
}

// series are the selectors below a node.
func series(node parser.Node) (list []*parser.VectorSelector) {
	parser.Inspect(node, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			list = append(list, v)
		}
		return nil
	})
	return list
}

func TestQueriesUseMetricsAndLabelsThatExist(t *testing.T) {
	known := documented(t)
	maps.Copy(known, foreign)
	queries, recorded := fromRules(t)
	maps.Copy(known, recorded)
	queries = append(queries, fromDashboards(t)...)
	if len(queries) < 100 {
		t.Fatalf("only %d queries were found", len(queries))
	}
	used := map[string]bool{}
	p := parser.NewParser(parser.Options{})
	for _, q := range queries {
		expr, err := p.ParseExpr(q.expr)
		if err != nil {
			t.Errorf("%s: %v\n%s", q.where, err, q.expr)
			continue
		}
		for _, v := range series(expr) {
			used[v.Name] = true
			names, ok := known[v.Name]
			if !ok {
				t.Errorf("%s: there is no metric %s", q.where, v.Name)
				continue
			}
			for _, m := range v.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(names, m.Name) && !slices.Contains(ofScrapes, m.Name) {
					t.Errorf("%s: %s has no label %s", q.where, v.Name, m.Name)
				}
			}
		}
		grouping(t, q, expr, known)
	}
	for name := range recorded {
		if !used[name] {
			t.Errorf("%s is recorded and used nowhere", name)
		}
	}
}

// grouping compares "by" with the labels of what is aggregated. Labels that come in by group_left are those of other series below.
func grouping(t *testing.T, q query, expr parser.Expr, known map[string][]string) {
	t.Helper()
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		a, ok := n.(*parser.AggregateExpr)
		if !ok {
			return nil
		}
		for _, label := range a.Grouping {
			found := slices.Contains(ofScrapes, label)
			for _, v := range series(a.Expr) {
				found = found || slices.Contains(known[v.Name], label)
			}
			if !found {
				t.Errorf("%s: nothing below has the label %s: %s", q.where, label, a)
			}
		}
		return nil
	})
}

// A recorded metric has the labels that its name begins with.
func TestRecordedMetricsHaveTheLabelsOfTheirLevel(t *testing.T) {
	queries, _ := fromRules(t)
	p := parser.NewParser(parser.Options{})
	for _, q := range queries {
		file, record, _ := strings.Cut(q.where, " ")
		if file != "recording.rules.yaml" {
			continue
		}
		expr, err := p.ParseExpr(q.expr)
		if err != nil {
			t.Fatal(err)
		}
		a, ok := expr.(*parser.AggregateExpr)
		if !ok || a.Without {
			continue
		}
		got, want := slices.Sorted(slices.Values(a.Grouping)), slices.Sorted(slices.Values(levelLabels(record)))
		if !slices.Equal(got, want) {
			t.Errorf("%s is summed by %v", record, got)
		}
	}
}
