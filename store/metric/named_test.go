package metric_test

import (
	"fmt"
	"testing"

	"github.com/slotgate/slotgate/store/metric"
)

func TestLabelsOfNamesAreBounded(t *testing.T) {
	n := metric.NewNamed(metric.MaxLimits, metric.MaxLimitsOfApp)
	apps, names := map[string]bool{}, map[string]bool{}
	for round := range 3 {
		for app := range metric.MaxApps + 100 {
			a, name := n.Labels(fmt.Sprint("app", app), fmt.Sprint("limit", round))
			apps[a] = true
			if name != metric.Other {
				names[a+" "+name] = true
			}
			if a == metric.Other && name != metric.Other {
				t.Fatalf("a name of an app without a label has the label %q", name)
			}
		}
	}
	if len(apps) != metric.MaxApps+1 || len(names) != metric.MaxLimits {
		t.Errorf("%d apps and %d names have labels", len(apps), len(names))
	}
	if a, name := n.Labels("app0", "limit0"); a != "app0" || name != "limit0" {
		t.Errorf("a name with a label has lost it: %s, %s", a, name)
	}
}
