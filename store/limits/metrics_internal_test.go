package limits

import (
	"fmt"
	"testing"

	"github.com/slotgate/slotgate/store/metric"
)

func TestLabelsAreBounded(t *testing.T) {
	m := newMetrics(nil)
	apps, limits := map[string]bool{}, map[string]bool{}
	for round := range 3 {
		for app := range metric.MaxApps + 100 {
			a, l := m.labels(fmt.Sprint("app", app), fmt.Sprint("limit", round))
			apps[a] = true
			if l != metric.Other {
				limits[a+" "+l] = true
			}
			if a == metric.Other && l != metric.Other {
				t.Fatalf("a limit of an app without a label has the label %q", l)
			}
		}
	}
	if len(apps) != metric.MaxApps+1 || len(limits) != metric.MaxLimits {
		t.Errorf("%d apps and %d limits have labels", len(apps), len(limits))
	}
	if a, l := m.labels("app0", "limit0"); a != "app0" || l != "limit0" {
		t.Errorf("a limit with a label has lost it: %s, %s", a, l)
	}
}
