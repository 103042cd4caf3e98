//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// phase is what became of some streams that ran side by side.
type phase struct {
	name    string
	streams []stream
	tallies []*tally         // in the order of the streams
	seconds float64          // without the lead-in
	memory  int64            // the most that the gateway held, in bytes
	cores   [2]float64       // that the gateway used, and generator, proxies and shards together
	asked   int              // commands that the shards were asked for, the lead-in included
	shed    map[string]int64 // by layer and reason, the lead-in included

	acked, lost, wrong int // writes that were acknowledged, of these not there; and there although refused
}

// totals are requests of several streams, those of the lead-in left out.
type totals struct {
	requests, done, refused int64
	items                   int64            // of batches: done
	other                   map[string]int64 // what is neither done nor properly refused, by what the client saw
	doneIn, refusedIn       histogram
	late                    histogram
}

// refusals are the answers with which a gateway may turn down what is too much.
var refusals = []string{"429 quota_exceeded ", "503 overloaded "}

// sum adds up the streams for which is says yes; nil: all.
func (p *phase) sum(is func(stream) bool) *totals {
	all := &totals{other: map[string]int64{}, doneIn: newHistogram(), refusedIn: newHistogram(), late: newHistogram()}
	for i, t := range p.tallies {
		if is != nil && !is(p.streams[i]) {
			continue
		}
		all.late.add(t.Late)
		for kind, f := range t.Rest {
			all.add(kind, f)
		}
	}
	return all
}

func (t *totals) add(kind string, f *fate) {
	t.requests += f.Count
	t.items += f.Items
	switch {
	case kind == done:
		t.done += f.Count
		t.doneIn.add(f.Latency)
	case isRefusal(kind):
		t.refused += f.Count
		t.refusedIn.add(f.Latency)
	default:
		t.other[kind] += f.Count
	}
}

// isRefusal says whether an answer is a proper refusal: one that names its reason and when to come again, and that nothing was done.
func isRefusal(kind string) bool {
	return slices.ContainsFunc(refusals, func(r string) bool { return strings.HasPrefix(kind, r) }) &&
		!strings.HasSuffix(kind, "without Retry-After") && !strings.Contains(kind, "unknown")
}

// others is the number of answers that were neither.
func (t *totals) others() (n int64) {
	for _, m := range t.other {
		n += m
	}
	return n
}

// words tells them.
func (t *totals) words() string {
	if len(t.other) == 0 {
		return "none"
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(t.other)) {
		parts = append(parts, fmt.Sprintf("%s: %d", strings.TrimSuffix(kind, " -"), t.other[kind]))
	}
	return strings.Join(parts, ", ")
}

// share of all that were done, 0 to 1.
func (t *totals) share() float64 { return ratio(float64(t.done), float64(t.requests)) }

func (t *totals) p99() time.Duration { return t.doneIn.quantile(0.99) }

// ratio is 0 where there is nothing to compare with.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// broken counts what must never be, the lead-in included: answers with 500, requests without an answer, and those that were not sent because
// all connections waited. is says of which streams; nil: of all.
func (p *phase) broken(is func(stream) bool) (n int64) {
	for i, t := range p.tallies {
		if is != nil && !is(p.streams[i]) {
			continue
		}
		for _, fates := range []map[string]*fate{t.Lead, t.Rest} {
			for kind, f := range fates {
				if strings.HasPrefix(kind, "500") || kind == noReply || kind == unsent {
					n += f.Count
				}
			}
		}
	}
	return n
}

// first is the beginning of an answer that was neither done nor refused; empty if there was none.
func (p *phase) first() string {
	for _, t := range p.tallies {
		if t.First != "" {
			return t.First
		}
	}
	return ""
}

// String is for those who watch.
func (p *phase) String() string {
	all := p.sum(nil)
	redials := 0
	for _, t := range p.tallies {
		redials += t.Redials
	}
	text := fmt.Sprintf("%s: %d requests, %.0f/s done, p50 %s, p99 %s; %d refused (%s), p99 %s; others %s; %d MB, %.2f cores and %.2f, %d commands; the generator late by %s at p99, %d redials",
		p.name, all.requests, float64(all.done)/p.seconds, ms(all.doneIn.quantile(.5)), ms(all.p99()), all.refused, p.reasons(), ms(all.refusedIn.quantile(.99)),
		all.words(), p.memory>>20, p.cores[0], p.cores[1], p.asked, ms(all.late.quantile(.99)), redials)
	if p.acked > 0 {
		text += fmt.Sprintf("; %d writes acked, %d lost, %d there although refused", p.acked, p.lost, p.wrong)
	}
	if first := p.first(); first != "" {
		text += "\n  first: " + first
	}
	return text
}

// reasons tells by which layers how much was refused, the lead-in included.
func (p *phase) reasons() string {
	var parts []string
	for _, by := range slices.Sorted(maps.Keys(p.shed)) {
		if n := p.shed[by]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", by, n))
		}
	}
	return strings.Join(parts, ", ")
}

// ms is a time in milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
