// Package metric is the one place that names the gateway's metrics: their names, types, help texts and labels. Whoever registers,
// pushes, alerts on or documents one takes it from here; deploy/metrics.md is its table for operators, and a test compares both
// with what a running gateway exposes.
//
// It promises that labels are bounded (Label, Named, MaxApps, MaxNodes, MaxKeys, MaxLimits, MaxPools, MaxMembers), and that an observation costs some 50 ns and no allocation
// (Histogram). It refuses to collect anything itself.
package metric

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind is the type of a metric, in Prometheus' own words.
type Kind string

// The kinds.
const (
	Counter Kind = "counter"
	Gauge   Kind = "gauge"
	Histo   Kind = "histogram"
)

// Metric is one metric's name and meaning. It must not be changed.
type Metric struct {
	Name   string
	Kind   Kind
	Help   string
	Labels []string // in the order in which values are given
}

// Bounds of the labels' values. With them a scrape stays below 5 MB however many apps there are (a test measures it).
const (
	MaxApps  = 500  // values of the label app
	MaxNodes = 500  // values of the label node in one cluster, twice the primaries of the largest clusters in use
	MaxKeys  = 1000 // values of the label key_id, two for each app, as while one is rotated

	MaxLimits      = 1000 // values of the label limit, of all apps together: two for each app
	MaxLimitsOfApp = 50   // of one app, so that it does not take them from the others
	MaxPools       = 500  // values of the label pool, of all apps together
	MaxPoolsOfApp  = 50   // of one app
	MaxMembers     = 1000 // values of the label member, of all pools together; pools.member_series says how many of them are used

	NoApp = "__none__"  // the caller was not authenticated; no app id begins with an underscore
	Other = "__other__" // stands for all apps, keys or nodes beyond the bound

	maxLabelBytes = 253 // the longest host name; Redis tells the gateway what its nodes are called
)

var all []Metric

// define adds a metric to the list of all.
func define(name string, kind Kind, help string, labels ...string) Metric {
	m := Metric{Name: name, Kind: kind, Help: help, Labels: labels}
	all = append(all, m)
	return m
}

// All lists every metric, by name.
func All() []Metric {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return sorted
}

// Label makes text from outside a label value: valid UTF-8, which prometheus insists on, and not longer than 253 bytes. Quotes,
// line ends and backslashes stay: the exposition escapes them.
func Label(text string) string {
	if len(text) > maxLabelBytes {
		text = text[:maxLabelBytes]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Desc describes the metric to prometheus, for collectors that make their values when they are scraped.
func (m Metric) Desc() *prometheus.Desc { return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil) }

// NewCounter makes the counter, which must have no labels.
func (m Metric) NewCounter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: m.Name, Help: m.Help})
}

// NewCounterVec makes the counters.
func (m Metric) NewCounterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

// NewGauge makes the gauge, which must have no labels.
func (m Metric) NewGauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: m.Name, Help: m.Help})
}

// NewGaugeVec makes the gauges.
func (m Metric) NewGaugeVec() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

// NewGaugeFunc makes the gauge that is read when it is scraped; it must have no labels.
func (m Metric) NewGaugeFunc(read func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, read)
}

// Const is one value of the metric, for collectors; labels are in the order of m.Labels. desc is m.Desc(), made once.
func (m Metric) Const(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	kind := prometheus.GaugeValue
	if m.Kind == Counter {
		kind = prometheus.CounterValue
	}
	return prometheus.MustNewConstMetric(desc, kind, value, labels...)
}
