package pooltest_test

import (
	"testing"

	"github.com/slotgate/slotgate/store/pool/pooltest"
)

func TestDisorder(t *testing.T) {
	for what, row := range map[string]struct {
		all  []pooltest.Lease
		want int
	}{
		"none":                                     {nil, 0},
		"one after the other":                      {[]pooltest.Lease{{Asked: 1, Had: 2, Fence: 7}, {Asked: 3, Had: 4, Fence: 8}}, 0},
		"at the same time, in any order":           {[]pooltest.Lease{{Asked: 1, Had: 4, Fence: 9}, {Asked: 2, Had: 3, Fence: 8}}, 0},
		"at the same time, the same":               {[]pooltest.Lease{{Asked: 1, Had: 4, Fence: 9}, {Asked: 2, Had: 3, Fence: 9}}, 1},
		"a later one is smaller":                   {[]pooltest.Lease{{Asked: 3, Had: 4, Fence: 7}, {Asked: 1, Had: 2, Fence: 8}}, 1},
		"a later one is the same":                  {[]pooltest.Lease{{Asked: 1, Had: 2, Fence: 8}, {Asked: 3, Had: 4, Fence: 8}}, 1},
		"smaller than one before the one before":   {[]pooltest.Lease{{Asked: 1, Had: 2, Fence: 9}, {Asked: 1, Had: 3, Fence: 7}, {Asked: 4, Had: 5, Fence: 8}}, 1},
		"all are smaller than one that came first": {[]pooltest.Lease{{Asked: 1, Had: 2, Fence: 9}, {Asked: 3, Had: 4, Fence: 7}, {Asked: 5, Had: 6, Fence: 8}}, 2},
	} {
		if got := pooltest.Disorder(row.all); got != row.want {
			t.Errorf("%s: %d, want %d", what, got, row.want)
		}
	}
}

func TestMost(t *testing.T) {
	for what, row := range map[string]struct {
		all  []pooltest.Lease
		want int
	}{
		"none":                     {nil, 0},
		"one":                      {[]pooltest.Lease{{Member: "a", Begin: 1, End: 2}}, 1},
		"one after the other":      {[]pooltest.Lease{{Member: "a", Begin: 1, End: 2}, {Member: "a", Begin: 2, End: 3}}, 1},
		"at the same time":         {[]pooltest.Lease{{Member: "a", Begin: 1, End: 3}, {Member: "a", Begin: 2, End: 4}}, 2},
		"of different members":     {[]pooltest.Lease{{Member: "a", Begin: 1, End: 3}, {Member: "b", Begin: 2, End: 4}}, 1},
		"three, and two of a time": {[]pooltest.Lease{{Member: "a", Begin: 1, End: 9}, {Member: "a", Begin: 2, End: 4}, {Member: "a", Begin: 5, End: 6}}, 2},
		"over before it began":     {[]pooltest.Lease{{Member: "a", Begin: 1, End: 9}, {Member: "a", Begin: 4, End: 3}}, 1},
	} {
		if got := pooltest.Most(row.all); got != row.want {
			t.Errorf("%s: %d, want %d", what, got, row.want)
		}
	}
}
