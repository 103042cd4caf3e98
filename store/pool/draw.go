package pool

import (
	"math"
	"sort"

	"github.com/slotgate/slotgate/store/packed"
)

// drawn is who a gateway has drawn.
type drawn struct {
	member string
	mode   int64 // as in modes
}

// tally are the sums of the weights up to each member, as scripts/adaptive_choose.lua and random.lua have them.
type tally struct {
	settings  Adaptive
	sums      []float64
	all       bool // too few are healthy, so that all are used
	nextTrial int64
	records   []record
	none      Reason // why nobody can be drawn, if nobody can
}

const never = packed.Most

// tally computes the sums, without those that are out and, for a lease, those that have as many as they may. a = nil is weighted_random.
func (v *view) tally(a *Adaptive, out map[int]bool, leased bool, now int64) (*tally, error) {
	t := &tally{sums: make([]float64, len(v.names)), nextTrial: never, none: Excluded}
	usual := 0.0
	if a != nil {
		t.settings = *a
		var err error
		if t.records, err = v.records(a, now); err != nil {
			return nil, err
		}
		usual = a.usual(t.records)
	}
	effective := make([]float64, len(v.names))
	counted, usable := 0, 0
	for i, w := range v.weights {
		if out[i] {
			continue
		}
		if t.none == Excluded {
			t.none = NoWeight
		}
		if w == 0 {
			continue
		}
		if effective[i] = w; a != nil {
			factor, _ := a.weigh(&t.records[i], usual, float64(now))
			effective[i] *= factor
			if t.records[i].state < ejected {
				usable++
			}
		}
		counted++
	}
	t.all = a != nil && float64(usable) < a.Panic*float64(counted)
	sum := 0.0
	for i, w := range effective {
		chosen := a == nil || t.all || t.records[i].state < ejected
		switch full := leased && v.full[i]; {
		case w == 0 || full && !chosen:
		case full:
			t.none = Saturated
		case chosen:
			sum += w
		default:
			t.nextTrial = min(t.nextTrial, t.trialAt(v, i))
		}
		t.sums[i] = sum
	}
	return t, nil
}

// trialAt is when member i, which is ejected, may be tried.
func (t *tally) trialAt(v *view, i int) int64 {
	r := &t.records[i]
	return max(int64(math.Ceil(r.back)), max(int64(r.trial), v.trials[i])+1_000_000)
}

func (v *view) records(a *Adaptive, now int64) ([]record, error) {
	all := make([]record, len(v.health))
	for i, text := range v.health {
		var err error
		if all[i], err = readRecord(text, float64(now), float64(a.HalfLifeMS)*1000); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// draw chooses one member for each number that was drawn, 0 to 1; those that exclude names are not among them. With none there is a reason.
// For leases there follow as many others, in case that the first have got all that they may have.
func (v *view) draw(a *Adaptive, exclude []string, leased bool, numbers []float64, now int64) ([]drawn, Reason, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out map[int]bool
	for _, m := range exclude {
		if at, ok := v.index[m]; ok {
			if out == nil {
				out = map[int]bool{}
			}
			out[at] = true
		}
	}
	kept := &v.tallied[0]
	if leased {
		kept = &v.tallied[1]
	}
	t := *kept
	if out != nil || t == nil || a != nil && t.settings != *a || a == nil && t.records != nil {
		var err error
		if t, err = v.tally(a, out, leased, now); err != nil {
			return nil, "", err
		}
		if out == nil {
			*kept = t
		}
	}
	total := t.sums[len(t.sums)-1]
	var list []drawn
	for _, x := range numbers {
		if i := t.trial(v, out, leased, now); i >= 0 {
			list = append(list, drawn{v.names[i], 1})
			continue
		}
		if total == 0 {
			break
		}
		d := drawn{member: v.names[min(sort.Search(len(t.sums), func(i int) bool { return t.sums[i] > x*total }), len(t.sums)-1)]}
		if t.all {
			d.mode = 2
		}
		list = append(list, d)
	}
	if len(list) == 0 {
		return nil, t.none, nil
	}
	if leased && a != nil {
		list = t.spares(v, list)
	}
	return list, "", nil
}

// spares adds to list as many that are not in it, each the next one of the ring after one of those.
func (t *tally) spares(v *view, list []drawn) []drawn {
	there := make(map[int]bool, 2*len(list))
	for _, d := range list {
		there[v.index[d.member]] = true
	}
	wanted, mode := 2*len(list), int64(0)
	if t.all {
		mode = 2
	}
	at := v.index[list[0].member]
	for range len(v.names) {
		if len(list) >= wanted {
			break
		}
		at = (at + 1) % len(v.names)
		before := 0.0
		if at > 0 {
			before = t.sums[at-1]
		}
		if t.sums[at] > before && !there[at] {
			there[at] = true
			list = append(list, drawn{v.names[at], mode})
		}
	}
	return list
}

// trial is a member that is to be tried now, which is then tried; -1 = none is.
func (t *tally) trial(v *view, out map[int]bool, leased bool, now int64) int {
	if now < t.nextTrial {
		return -1
	}
	found := -1
	t.nextTrial = never
	for i := range t.records {
		if t.records[i].state != ejected || v.weights[i] == 0 || out[i] || leased && v.full[i] {
			continue
		}
		if found < 0 && now >= t.trialAt(v, i) {
			found = i
			v.trials[i] = now
		}
		t.nextTrial = min(t.nextTrial, t.trialAt(v, i))
	}
	return found
}

// given are the arguments of scripts/given.lua.
func (v *view) given(b []byte, c *choice) []byte {
	number := map[bool]int64{true: 1}
	status := map[Reason]int64{Excluded: -2, NoWeight: -3, Saturated: -5}[c.why]
	b = packed.Append(b, v.epoch, number[c.adapts != nil], status, number[c.fewer], int64(len(c.list)))
	for _, d := range c.list {
		b = packed.AppendText(packed.Append(b, d.mode), d.member)
	}
	return b
}
