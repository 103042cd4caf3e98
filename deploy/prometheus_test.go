package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const runbookURL = "https://github.com/slotgate/slotgate/blob/main/deploy/prometheus/runbook.md#"

type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

type rules struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

// alertRules are the alerts; one name may stand at two rules of different severity.
func alertRules(t *testing.T) []rule {
	t.Helper()
	var list []rule
	for _, g := range parse[rules](t, "prometheus/alerts.rules.yaml").Groups {
		list = append(list, g.Rules...)
	}
	if len(list) < 20 {
		t.Fatalf("only %d alerts were found", len(list))
	}
	return list
}

func alertNames(t *testing.T) []string {
	names := map[string]bool{}
	for _, r := range alertRules(t) {
		names[r.Alert] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// promtool runs Debian's; without it the tests fail, so that none passes by testing nothing.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	binary, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("SLOTGATE_TEST_ALLOW_SKIP") != "" {
			t.Skip("promtool is not installed: rules are not tested")
		}
		t.Fatal("promtool is not installed; install Debian's prometheus, or set SLOTGATE_TEST_ALLOW_SKIP to skip the tests of rules")
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = "prometheus"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPrometheusTakesTheConfiguration(t *testing.T) {
	promtool(t, "check", "config", "prometheus.yaml")
}

func TestAlertsFireWhenTheyShould(t *testing.T) { promtool(t, "test", "rules", "rules_test.yaml") }

func TestAlertsTellWhatToDo(t *testing.T) {
	severities := []string{"critical", "warning", "info"}
	for _, r := range alertRules(t) {
		if !slices.Contains(severities, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q, want one of %v", r.Alert, r.Labels["severity"], severities)
		}
		for _, name := range []string{"summary", "description"} {
			if len(r.Annotations[name]) < 15 {
				t.Errorf("%s has the %s %q", r.Alert, name, r.Annotations[name])
			}
		}
		if want := runbookURL + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s has the runbook_url %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
	}
}

func TestRunbookHasASectionForEachAlert(t *testing.T) {
	var sections []string
	for section := range strings.SplitSeq("\n"+read(t, "prometheus/runbook.md"), "\n## ") {
		name, text, _ := strings.Cut(section, "\n")
		if !strings.HasPrefix(name, "Slotgate") {
			continue // the introduction
		}
		sections = append(sections, name)
		last := -1
		for _, part := range []string{"- **Means**", "- **Confirm**", "- **Do**", "- **Escalate**"} {
			at := strings.Index(text, part)
			if at <= last {
				t.Errorf("%s lacks %q, or has it out of its order", name, part)
			}
			last = at
		}
	}
	slices.Sort(sections)
	if names := alertNames(t); !slices.Equal(names, sections) {
		t.Errorf("alerts are\n%v\nsections are\n%v", names, sections)
	}
}

// Whoever follows the runbook at night finds no command that is none.
func TestRunbookNamesCommandsThatExist(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "slotgate")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/slotgate").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	commands := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)(?:`|^\\$ )slotgate ([a-z]+(?: [a-z]+)?)").FindAllStringSubmatch(read(t, "prometheus/runbook.md"), -1) {
		commands[m[1]] = true
	}
	if len(commands) < 5 {
		t.Fatalf("only %v were found", slices.Sorted(maps.Keys(commands)))
	}
	for command := range commands {
		out, err := exec.Command(binary, append(strings.Fields(command), "--help")...).CombinedOutput()
		if usage := "\n  slotgate " + command + " "; err != nil || !strings.Contains(string(out), usage) {
			t.Errorf("slotgate %s is no command (%v)", command, err)
		}
	}
}

// The unit tests of promtool: what they expect tells which labels an alert has.
type ruleTests struct {
	Tests []struct {
		Name  string
		Tests []struct {
			Samples []struct{ Labels string } `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	}
}

func TestEachAlertHasATestThatFiresAndOneThatIsQuiet(t *testing.T) {
	fires, quiet := map[string][]string{}, map[string]bool{} // by alert; the labels with which it fires
	for _, test := range parse[ruleTests](t, "prometheus/rules_test.yaml").Tests {
		words := strings.Fields(test.Name)
		expected := 0
		for _, query := range test.Tests {
			for _, sample := range query.Samples {
				expected++
				fires[words[0]] = append(fires[words[0]], sample.Labels)
			}
		}
		if says := words[1] == "fires"; says != (expected > 0) {
			t.Errorf("%q expects %d alerts", test.Name, expected)
		}
		quiet[words[0]] = quiet[words[0]] || expected == 0
	}
	label := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, r := range alertRules(t) {
		if !quiet[r.Alert] {
			t.Errorf("%s has no test in which it is quiet", r.Alert)
		}
		own := slices.DeleteFunc(slices.Clone(fires[r.Alert]), func(labels string) bool {
			return !strings.Contains(labels, fmt.Sprintf("severity=%q", r.Labels["severity"]))
		})
		if len(own) == 0 {
			t.Errorf("%s (%s) has no test in which it fires", r.Alert, r.Labels["severity"])
		}
		for _, m := range label.FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1) {
			for _, labels := range own {
				if !strings.Contains(labels, " "+m[1]+"=") {
					t.Errorf("%s speaks of the label %s and fires with %s", r.Alert, m[1], labels)
				}
			}
		}
	}
}

// A threshold is a setting, is compared in a rule, and is named where the runbook tells what its alert means.
func TestThresholdsAreSettingsAndAreCompared(t *testing.T) {
	settings := map[string]bool{}
	for path := range defaults(t) {
		if name, ok := strings.CutPrefix(path, "alerts."); ok && name != "overrides" {
			settings[name] = true
		}
	}
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`slotgate_alert_threshold:max\{alert="(\w+)"`).FindAllStringSubmatch(
		read(t, "prometheus/recording.rules.yaml")+read(t, "prometheus/alerts.rules.yaml"), -1) {
		used[m[1]] = true
	}
	if len(settings) < 10 || !maps.Equal(settings, used) {
		t.Errorf("settings are %v, the rules compare with %v", slices.Sorted(maps.Keys(settings)), slices.Sorted(maps.Keys(used)))
	}
	runbook := read(t, "prometheus/runbook.md")
	for name := range settings {
		if !strings.Contains(runbook, "Threshold `alerts."+name+"`") {
			t.Errorf("the runbook does not name alerts.%s", name)
		}
	}
}
