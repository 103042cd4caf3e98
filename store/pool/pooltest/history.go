package pooltest

import (
	"cmp"
	"slices"
	"time"
)

// Lease is one that a worker has had.
type Lease struct {
	Member string
	Fence  int64
	// Asked and Had are when the worker asked for it and had it, by its own clock.
	Asked, Had time.Duration
	// Begin and End are by the clock of Redis, in us: no later than it ended there.
	Begin, End int64
}

// Disorder counts leases whose fence is not greater than that of every one that somebody had before they were asked for, and those that
// have the fence of another.
func Disorder(all []Lease) (n int) {
	asked, had := slices.Clone(all), slices.Clone(all)
	slices.SortFunc(asked, func(a, b Lease) int { return cmp.Compare(a.Asked, b.Asked) })
	slices.SortFunc(had, func(a, b Lease) int { return cmp.Compare(a.Had, b.Had) })
	highest, next, seen := int64(0), 0, make(map[int64]bool, len(all))
	for i := range asked {
		l := &asked[i]
		for ; next < len(had) && had[next].Had < l.Asked; next++ {
			highest = max(highest, had[next].Fence)
		}
		if l.Fence <= highest || seen[l.Fence] {
			n++
		}
		seen[l.Fence] = true
	}
	return n
}

// Most is the greatest number of leases that a member had at the same time.
func Most(all []Lease) (most int) {
	type event struct {
		at int64
		by int
	}
	events := map[string][]event{}
	for i := range all {
		l := &all[i]
		if l.End > l.Begin {
			events[l.Member] = append(events[l.Member], event{l.Begin, 1}, event{l.End, -1})
		}
	}
	for _, list := range events {
		slices.SortFunc(list, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
		now := 0
		for _, e := range list {
			now += e.by
			most = max(most, now)
		}
	}
	return most
}
