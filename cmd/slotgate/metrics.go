package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/metric"
)

// directoryMetrics tells of keys and of where they are kept, when it is scraped. It asks nobody.
type directoryMetrics struct{ directory *acl.Directory }

var (
	keyLastUsed        = metric.KeyLastUsed.Desc()
	keyExpires         = metric.KeyExpires.Desc()
	controlConnected   = metric.ControlConnected.Desc()
	controlLastSuccess = metric.ControlLastSuccess.Desc()
)

// Describe implements prometheus.Collector.
func (directoryMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{keyLastUsed, keyExpires, controlConnected, controlLastSuccess} {
		ch <- d
	}
}

// keyMoment is something about a key, in unix seconds.
type keyMoment struct {
	app, key string
	at       int64
}

// Collect implements prometheus.Collector.
func (m directoryMetrics) Collect(ch chan<- prometheus.Metric) {
	contact := m.directory.Contact()
	connected, last := 1.0, 0.0
	if contact.Err != nil || contact.Last.IsZero() {
		connected = 0
	}
	if !contact.Last.IsZero() {
		last = float64(contact.Last.Unix())
	}
	ch <- metric.ControlConnected.Const(controlConnected, connected)
	ch <- metric.ControlLastSuccess.Const(controlLastSuccess, last)

	var used, expires []keyMoment
	now := time.Now()
	m.directory.EachKey(func(k *acl.Key, at time.Time) {
		if !at.IsZero() {
			used = append(used, keyMoment{k.App, k.ID, at.Unix()})
		}
		if k.ExpiresAt != nil && k.ExpiresAt.After(now) {
			expires = append(expires, keyMoment{k.App, k.ID, k.ExpiresAt.Unix()})
		}
	})
	for _, k := range bounded(used) {
		ch <- metric.KeyLastUsed.Const(keyLastUsed, float64(k.at), metric.Label(k.app), metric.Label(k.key))
	}
	slices.SortFunc(expires, func(a, b keyMoment) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key, b.key)) })
	for _, k := range expires[:min(len(expires), metric.MaxKeys)] {
		ch <- metric.KeyExpires.Const(keyExpires, float64(k.at), metric.Label(k.app), metric.Label(k.key))
	}
}

// bounded keeps the first keys by their id, so that it is the same ones at each scrape, and one for all others, with their latest
// moment. Ids are random, so no app is preferred.
func bounded(keys []keyMoment) []keyMoment {
	slices.SortFunc(keys, func(a, b keyMoment) int { return cmp.Compare(a.key, b.key) })
	if len(keys) <= metric.MaxKeys {
		return keys
	}
	rest := keyMoment{app: metric.Other, key: metric.Other}
	for _, k := range keys[metric.MaxKeys:] {
		rest.at = max(rest.at, k.at)
	}
	return append(keys[:metric.MaxKeys:metric.MaxKeys], rest)
}
