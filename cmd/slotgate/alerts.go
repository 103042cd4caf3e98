package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/handlers"
	"github.com/slotgate/slotgate/store/metric"
)

// threshold is one value of slotgate_alert_threshold. An empty label holds for all that have no value of their own.
type threshold struct {
	name, app, route, cluster string
	value                     float64
}

// label points at the value of a label, nil when there is no such label.
func (t *threshold) label(name string) *string {
	switch name {
	case "app":
		return &t.app
	case "route":
		return &t.route
	case "cluster":
		return &t.cluster
	}
	return nil
}

// thresholdRow is what is known of one threshold: its setting under alerts, by which labels of its alert it may be set
// apart, and what is a right value. The upper bounds catch a wrong unit, they are no advice.
type thresholdRow struct {
	name     string
	labels   []string
	min, max float64
	of       func(Alerts) float64
}

const oneYear = 366 * 86_400

var thresholdTable = []thresholdRow{
	{"error_ratio", nil, 0, 1, func(a Alerts) float64 { return a.ErrorRatio }},
	{"app_error_ratio", []string{"app", "route"}, 0, 1, func(a Alerts) float64 { return a.AppErrorRatio }},
	{"app_latency_seconds", []string{"app"}, 0.0001, 5, func(a Alerts) float64 { return a.AppLatencySeconds }}, // the buckets' range
	{"route_latency_seconds", []string{"route"}, 0.0001, 5, func(a Alerts) float64 { return a.RouteLatencySeconds }},
	{"quota_rejection_ratio", []string{"app"}, 0, 1, func(a Alerts) float64 { return a.QuotaRejectionRatio }},
	{"auth_failures_per_second", nil, 0, 1e6, func(a Alerts) float64 { return a.AuthFailuresPerSecond }},
	{"key_expiry_seconds", []string{"app"}, 0, oneYear, func(a Alerts) float64 { return a.KeyExpirySeconds }},
	{"certificate_expiry_seconds", nil, 0, oneYear, func(a Alerts) float64 { return a.CertificateExpirySeconds }},
	{"pool_saturation_ratio", []string{"cluster"}, 0, 1, func(a Alerts) float64 { return a.PoolSaturationRatio }},
	{"bytes_in_flight_ratio", nil, 0, 1, func(a Alerts) float64 { return a.BytesInFlightRatio }},
	{"descriptor_ratio", nil, 0, 1, func(a Alerts) float64 { return a.DescriptorRatio }},
	{"node_memory_ratio", []string{"cluster"}, 0, 1, func(a Alerts) float64 { return a.NodeMemoryRatio }},
	{"evictions_per_second", []string{"cluster"}, 0, 1e6, func(a Alerts) float64 { return a.EvictionsPerSecond }},
	{"replica_lag_bytes", []string{"cluster"}, 0, 1 << 40, func(a Alerts) float64 { return a.ReplicaLagBytes }},
}

// check wants the value within its bounds; NaN is in none.
func (r thresholdRow) check(value float64) error {
	if value >= r.min && value <= r.max {
		return nil
	}
	return fmt.Errorf("%s is out of range; write %s to %s", decimal(value), decimal(r.min), decimal(r.max))
}

// parseThreshold reads an override: a threshold's name, one label or more, the value. The error does not repeat the text.
func parseThreshold(text string) (threshold, error) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return threshold{}, errors.New(`is not "threshold label=value number"; write for example app_error_ratio app=shop 0.2`)
	}
	t := threshold{name: words[0]}
	row, err := thresholdNamed(t.name)
	if err != nil {
		return t, err
	}
	if len(row.labels) == 0 {
		return t, fmt.Errorf("sets %s apart, which holds for all together; set alerts.%s", t.name, t.name)
	}
	last := words[len(words)-1]
	if t.value, err = strconv.ParseFloat(last, 64); err != nil {
		return t, fmt.Errorf("does not end in a number but in %q; write for example 0.05", last)
	}
	if err := row.check(t.value); err != nil {
		return t, err
	}
	if len(words) == 2 {
		return t, fmt.Errorf("has no label; for all set alerts.%s, for one write %s", t.name, row.labelsText())
	}
	for _, word := range words[1 : len(words)-1] {
		if err := t.read(row, word); err != nil {
			return t, err
		}
	}
	return t, nil
}

func thresholdNamed(name string) (thresholdRow, error) {
	var known []string
	for _, row := range thresholdTable {
		if row.name == name {
			return row, nil
		}
		known = append(known, row.name)
	}
	if near := nearest(name, known); near != "" {
		return thresholdRow{}, fmt.Errorf("names no threshold; did you mean %s? There are %s", near, strings.Join(known, ", "))
	}
	return thresholdRow{}, fmt.Errorf("names no threshold; there are %s", strings.Join(known, ", "))
}

// read takes one label=value.
func (t *threshold) read(row thresholdRow, word string) error {
	name, value, ok := strings.Cut(word, "=")
	if !ok || value == "" {
		return fmt.Errorf("holds %q, which is not label=value; write %s", word, row.labelsText())
	}
	if !slices.Contains(row.labels, name) {
		return fmt.Errorf("names the label %q, which %s does not have; write %s", name, row.name, row.labelsText())
	}
	field := t.label(name)
	if *field != "" {
		return fmt.Errorf("names %s twice; write two lines", name)
	}
	if name == "route" {
		return t.readRoute(value)
	}
	if !clusterName.MatchString(value) { // the shape of an app's id too
		return fmt.Errorf("holds %q, which is no name; write lower case letters, digits, _ and -", word)
	}
	*field = value
	return nil
}

// readRoute takes a template only as the metrics have it: another would never meet a series, and nobody would notice.
func (t *threshold) readRoute(value string) error {
	known := routeTemplates()
	if slices.Contains(known, value) {
		t.route = value
		return nil
	}
	if near := nearest(value, known); near != "" {
		return fmt.Errorf("names the route %q; did you mean %s?", value, near)
	}
	return fmt.Errorf("names the route %q; there are %s", value, strings.Join(known, ", "))
}

func (r thresholdRow) labelsText() string {
	examples := map[string]string{"app": "app=shop", "route": "route=/v1/mget", "cluster": "cluster=default"}
	var texts []string
	for _, label := range r.labels {
		texts = append(texts, examples[label])
	}
	return strings.Join(texts, " or ")
}

// routeTemplates are the values of the route label, but for "unmatched".
var routeTemplates = sync.OnceValue(func() []string {
	engine := newEngine()
	handlers.New(handlers.Config{}).Register(engine, engine.Group("/v1"))
	var templates []string
	for _, route := range engine.Routes() {
		templates = append(templates, route.Path)
	}
	slices.Sort(templates)
	return slices.Compact(templates)
})

// thresholds lists what Validate has looked at: the values for all, then those of some.
func (a Alerts) thresholds() []threshold {
	var list []threshold
	for _, row := range thresholdTable {
		list = append(list, threshold{name: row.name, value: row.of(a)})
	}
	for _, text := range a.Overrides {
		if t, err := parseThreshold(text); err == nil {
			list = append(list, t)
		}
	}
	return list
}

// alertThresholds exports the thresholds. A scrape sees the old ones or the new ones, never a mixture.
type alertThresholds struct {
	current atomic.Pointer[[]prometheus.Metric]
}

var thresholdDesc = metric.AlertThreshold.Desc()

func newAlertThresholds(a Alerts) *alertThresholds {
	t := new(alertThresholds)
	t.set(a)
	return t
}

// set replaces the thresholds; a was validated.
func (t *alertThresholds) set(a Alerts) {
	var list []prometheus.Metric
	for _, h := range a.thresholds() {
		list = append(list, metric.AlertThreshold.Const(thresholdDesc, h.value, h.name, h.app, h.route, h.cluster))
	}
	t.current.Store(&list)
}

// Describe implements prometheus.Collector.
func (*alertThresholds) Describe(ch chan<- *prometheus.Desc) { ch <- thresholdDesc }

// Collect implements prometheus.Collector.
func (t *alertThresholds) Collect(ch chan<- prometheus.Metric) {
	for _, m := range *t.current.Load() {
		ch <- m
	}
}
