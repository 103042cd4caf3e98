package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestThresholdOverrides(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       threshold
	}{
		{"of an app", "app_error_ratio app=shop 0.2", threshold{name: "app_error_ratio", app: "shop", value: 0.2}},
		{"of a route", "route_latency_seconds route=/v1/mget 0.25", threshold{name: "route_latency_seconds", route: "/v1/mget", value: 0.25}},
		{"of an app on one route, in any order and spacing", " app_error_ratio  route=/v1/strings/:key app=shop 1e-3 ",
			threshold{name: "app_error_ratio", app: "shop", route: "/v1/strings/:key", value: 0.001}},
		{"of a cluster", "node_memory_ratio cluster=cache 0.95", threshold{name: "node_memory_ratio", cluster: "cache", value: 0.95}},
		{"zero is a value", "evictions_per_second cluster=cache 0", threshold{name: "evictions_per_second", cluster: "cache"}},
	} {
		got, err := parseThreshold(c.text)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

func TestBadThresholds(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", `is not "threshold label=value number"`},
		{"a name alone", "app_error_ratio", `is not "threshold label=value number"`},
		{"a typing error", "app_eror_ratio app=shop 0.2", "names no threshold; did you mean app_error_ratio? There are error_ratio, "},
		{"an unknown name", "frobnicate app=shop 0.2", "names no threshold; there are error_ratio, app_error_ratio, "},
		{"no label", "app_error_ratio 0.2", "has no label; for all set alerts.app_error_ratio, for one write app=shop or route=/v1/mget"},
		{"no value", "app_error_ratio app=shop", `does not end in a number but in "app=shop"`},
		{"a value with a unit", "app_error_ratio app=shop 5%", `does not end in a number but in "5%"`},
		{"a label its alert does not have", "app_error_ratio cluster=main 0.2", `names the label "cluster", which app_error_ratio does not have; write app=shop or route=/v1/mget`},
		{"a label that none has", "app_error_ratio colour=red 0.2", `names the label "colour"`},
		{"one for all together", "error_ratio app=shop 0.2", "holds for all together; set alerts.error_ratio"},
		{"a label without value", "app_error_ratio app= 0.2", `holds "app=", which is not label=value`},
		{"a label twice", "app_error_ratio app=a1 app=b1 0.2", "names app twice"},
		{"an app that no app can be", `app_error_ratio app="shop" 0.2`, "is no name; write lower case"},
		{"a route with a typing error", "route_latency_seconds route=/v1/mgett 0.2", `names the route "/v1/mgett"; did you mean /v1/mget?`},
		{"a path instead of a template", "route_latency_seconds route=/v1/strings/user:1/some/key 0.2", `names the route "/v1/strings/user:1/some/key"`},
		{"more than all", "app_error_ratio app=shop 5", "5 is out of range; write 0 to 1"},
		{"less than nothing", "evictions_per_second cluster=main -1", "-1 is out of range"},
		{"not a number that a float can be", "app_error_ratio app=shop NaN", "NaN is out of range"},
		{"milliseconds", "app_latency_seconds app=shop 100", "100 is out of range; write 0.0001 to 5"},
	} {
		if _, err := parseThreshold(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q: %v; want %q", c.name, c.text, err, c.want)
		}
	}
}

func TestBadThresholdSettings(t *testing.T) {
	for _, c := range []struct {
		name, arg, want string
	}{
		{"an unknown name is told which there are", "--set=alerts.error_ration=1", "alerts.error_ration: is no setting; did you mean error_ratio?"},
		{"a percentage", "--set=alerts.error_ratio=5%", `alerts.error_ratio: "5%" is not a number; write for example 0.05`},
		{"out of range", "--set=alerts.error_ratio=5", "alerts.error_ratio: 5 is out of range; write 0 to 1"},
		{"not a number that a float can be", "--set=alerts.error_ratio=NaN", "alerts.error_ratio: NaN is out of range"},
		{"an override is quoted", "--set=alerts.overrides=app_error_ratio app=a1 0.1, app_error_ratio 0.2",
			`alerts.overrides: "app_error_ratio 0.2" has no label`},
		{"the same twice", "--set=alerts.overrides=app_error_ratio app=a1 0.1,app_error_ratio  app=a1 0.2",
			`"app_error_ratio  app=a1 0.2" says the same as "app_error_ratio app=a1 0.1"; keep one`},
	} {
		got := slotgate(t, nil, "config", "check", c.arg)
		contains(t, c.name, got.stderr, c.want)
	}
}

// The lines that the operators' page shows are good ones.
func TestOperatorsPageShowsGoodThresholds(t *testing.T) {
	page, err := os.ReadFile("../../deploy/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```yaml\nalerts:\n")
	example, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("the page has no example")
	}
	file := filepath.Join(t.TempDir(), "slotgate.yaml")
	if err := os.WriteFile(file, []byte("alerts:\n"+example), 0o600); err != nil {
		t.Fatal(err)
	}
	l := load(sources{File: file})
	var v validation
	v.alerts(l.Config)
	if len(l.Faults) > 0 || len(v) > 0 || len(l.Config.Alerts.Overrides) < 4 {
		t.Errorf("%v, %v in\n%s", l.Faults, v, example)
	}
}

// Each row reads its own field, which its name says.
func TestThresholdRowsReadTheirFields(t *testing.T) {
	fields := 0
	for f := range reflect.TypeFor[Alerts]().Fields() {
		if f.Type.Kind() != reflect.Float64 {
			continue
		}
		fields++
		row, err := thresholdNamed(yamlName(f))
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		var a Alerts
		reflect.ValueOf(&a).Elem().FieldByIndex(f.Index).SetFloat(42)
		if row.of(a) != 42 {
			t.Errorf("the row %s reads another field", row.name)
		}
	}
	if fields != len(thresholdTable) {
		t.Errorf("%d fields and %d rows", fields, len(thresholdTable))
	}
}

func TestThresholdsAreExported(t *testing.T) {
	a := defaultConfig().Alerts
	a.Overrides = []string{"app_error_ratio app=shop route=/v1/mget 0.5", "node_memory_ratio cluster=cache 0.95"}
	thresholds := newAlertThresholds(a)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(thresholds)
	want := map[threshold]bool{
		{name: "app_error_ratio", value: 0.05}:                                true,
		{name: "app_error_ratio", app: "shop", route: "/v1/mget", value: 0.5}: true,
		{name: "node_memory_ratio", cluster: "cache", value: 0.95}:            true,
		{name: "replica_lag_bytes", value: 10 << 20}:                          true,
		{name: "key_expiry_seconds", value: 7 * 86_400}:                       true,
		{name: "evictions_per_second", value: 0}:                              true,
		{name: "certificate_expiry_seconds", value: 14 * 86_400}:              true,
	}
	got := exported(t, registry)
	for _, h := range got {
		delete(want, h)
	}
	if len(want) > 0 || len(got) != len(thresholdTable)+2 {
		t.Errorf("%d are exported, without %v", len(got), want)
	}

	a.ErrorRatio, a.Overrides = 0.5, nil
	thresholds.set(a)
	got = exported(t, registry)
	if len(got) != len(thresholdTable) || got[0] != (threshold{name: "app_error_ratio", value: 0.05}) {
		t.Errorf("after a change %v are exported", got)
	}
}

// exported reads slotgate_alert_threshold as a scrape would.
func exported(t *testing.T, registry prometheus.Gatherer) []threshold {
	t.Helper()
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	var list []threshold
	for _, m := range families[0].GetMetric() {
		h := threshold{value: m.GetGauge().GetValue()}
		for _, pair := range m.GetLabel() {
			if pair.GetName() == "alert" {
				h.name = pair.GetValue()
			} else {
				*h.label(pair.GetName()) = pair.GetValue()
			}
		}
		list = append(list, h)
	}
	return list
}

// What was taken reads the same when it is written again.
func FuzzParseThreshold(f *testing.F) {
	for _, text := range []string{"app_error_ratio app=shop 0.2", "app_error_ratio app=shop route=/v1/mget 1", "x", "", "node_memory_ratio cluster=a =", "error_ratio 1 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseThreshold(text)
		if err != nil {
			return
		}
		again := h.name
		for _, label := range []string{"app", "route", "cluster"} {
			if v := *h.label(label); v != "" {
				again += " " + label + "=" + v
			}
		}
		again += " " + decimal(h.value)
		if h2, err := parseThreshold(again); err != nil || h2 != h {
			t.Errorf("%q is %+v, but %q is %+v, %v", text, h, again, h2, err)
		}
	})
}
