package limits_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// figures are the counts that a metric has, by the values of its labels, without those that are 0.
func (g *gateway) figures(m metric.Metric) map[string]uint64 {
	g.t.Helper()
	families, err := g.registry.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	found := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != m.Name {
			continue
		}
		for _, one := range f.GetMetric() {
			n := uint64(one.GetCounter().GetValue()) + one.GetHistogram().GetSampleCount()
			if n > 0 {
				found[strings.Join(values(one.GetLabel()), " ")] = n
			}
		}
	}
	return found
}

func values(pairs []*dto.LabelPair) (list []string) {
	for _, p := range pairs {
		list = append(list, p.GetValue())
	}
	return list
}

func TestTakesAreCounted(t *testing.T) {
	g := newGateway(t)
	id := g.defined(slow("hour", 10), slow("day", 1000))
	app := id.App.ID
	for range 9 { // the 8th leaves 2 of 10
		g.take(id, of("u"))
	}
	g.take(id, of("u"), "key")
	g.take(id, of("u"), "key")
	for range 3 { // of which Redis is asked one
		g.take(id, of("u"))
	}
	for _, mode := range []ratelimit.OnError{ratelimit.Open, ratelimit.Closed, ratelimit.Local} {
		if _, err := g.Define(t.Context(), id, string(mode), ratelimit.Definition{OnError: mode, Rules: []ratelimit.Rule{slow("hour", 1)}}, store.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	large := slow("hour", 10)
	large.Burst = 100
	if _, err := g.Define(t.Context(), id, "shadow", ratelimit.Definition{Shadow: true, Rules: []ratelimit.Rule{large}}, store.Condition{}); err != nil {
		t.Fatal(err)
	}
	tryOf := func(name string, cost int64) {
		_, _ = g.Take(t.Context(), id, name, ratelimit.Request{Subject: "u", Cost: &cost}, store.Idempotency{})
	}
	tryOf("shadow", 80)
	tryOf("shadow", 80)
	tryOf("nowhere", 1)
	tryOf("open", 2) // over what the rule can grant: no take
	g.store.fails.Store(store.NewError(store.CodeBackendTimeout, ""))
	for range 2 {
		tryOf("open", 1)
		tryOf("closed", 1)
		tryOf("local", 1)
	}

	want := map[string]uint64{
		app + " api allowed": 10, app + " api replayed": 1, app + " api denied": 1, app + " api cached": 2,
		app + " shadow allowed": 1, app + " shadow shadow_denied": 1,
		app + " open fail_open": 2, app + " closed fail_closed": 2, app + " local local": 1, app + " local local_denied": 1,
	}
	if got := g.figures(metric.RateLimitTakes); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got, want := g.figures(metric.RateLimitNear), (map[string]uint64{app + " api": 3, app + " shadow": 1}); !maps.Equal(got, want) {
		t.Errorf("near the limit: got %v, want %v", got, want)
	}
	times := g.figures(metric.RateLimitDuration)
	if got := slices.Sorted(maps.Keys(times)); strings.Join(got, " ") != "allowed cached denied fail_closed fail_open local local_denied replayed shadow_denied" || times["allowed"] != 11 {
		t.Errorf("times %v", times)
	}
}

// What apps call their limits, and how many they have, does not make a scrape large.
func TestLimitsShareLabelsWhenThereAreMany(t *testing.T) {
	g := newGateway(t, func(c *limits.Config) { c.Timeout = time.Minute })
	id := g.defined(slow("hour", 1))
	for i := range metric.MaxLimitsOfApp + 5 {
		name := fmt.Sprint("l", i)
		if _, err := g.Define(t.Context(), id, name, ratelimit.Definition{Rules: []ratelimit.Rule{slow("hour", 1)}}, store.Condition{}); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Take(t.Context(), id, name, of("u"), store.Idempotency{}); err != nil {
			t.Fatal(err)
		}
	}
	got := g.figures(metric.RateLimitTakes)
	if len(got) != metric.MaxLimitsOfApp+1 || got[id.App.ID+" __other__ allowed"] != 5 {
		t.Errorf("%d series; %v", len(got), got)
	}
}
