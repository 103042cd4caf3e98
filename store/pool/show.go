package pool

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/packed"
)

// State is a member as it is now.
type State struct {
	Member      string          `json:"member"`
	Weight      int64           `json:"weight"`
	Available   bool            `json:"available"`
	Allocations int64           `json:"allocations"`
	Inflight    int64           `json:"inflight"`                // leases, those counted that have expired and that nobody has noticed yet
	CoolsAtMS   int64           `json:"cooling_until,omitempty"` // since 1970; 0 = it does not cool
	Position    int64           `json:"position"`                // in the order in which they were added; round robin goes by it
	Meta        json.RawMessage `json:"meta,omitempty"`
}

// Overview is a pool as it is now.
type Overview struct {
	Members   []State // in the order in which they were added
	Abandoned int64   // leases that expired before they were completed
	Fence     int64   // of the last lease, 0 = there was none
}

// Show reads all members. Errors: ErrNoPool, forbidden, corrupt_value, or an outcome.
func (p *Pools) Show(ctx context.Context, id *acl.Identity, name string) (o Overview, err error) {
	if err := CheckName(name); err != nil {
		return o, err
	}
	return p.show(ctx, id, CommandShow, name)
}

// show reads them by the permission of a row of the command table.
func (p *Pools) show(ctx context.Context, id *acl.Identity, command, name string) (o Overview, err error) {
	k := keysOf(id, name)
	names := []string{k.state(), k.members(), k.counts(), k.off(), k.cooling(), k.inflight(), k.heldOff()}
	values, err := p.run(ctx, id, command, scriptShow, names)
	if err != nil {
		return o, err
	}
	l := lists{values: values}
	state := packed.Reader{Rest: l.next()}
	state.Bytes(4 * 8)
	o.Fence = state.Number()
	state.Number()
	o.Abandoned = state.Number()
	l.failed = l.failed || state.Err != nil
	members, counts, off, cool, inflight, heldOff := l.pairs(), l.pairs(), l.pairs(), l.pairs(), l.pairs(), l.pairs()
	for m, record := range members {
		q := packed.Reader{Rest: record}
		s := State{Member: m, Weight: q.Number(), Position: q.Number(), Available: q.Number() == 1}
		if q.Rest != "" {
			s.Meta = json.RawMessage(q.Rest)
		}
		s.Allocations = l.number(counts[m] + off[m])
		s.Inflight = l.number(inflight[m] + heldOff[m])
		s.CoolsAtMS = l.number(cool[m]) / 1000
		l.failed = l.failed || q.Err != nil
		o.Members = append(o.Members, s)
	}
	if l.failed {
		return Overview{}, badReply()
	}
	slices.SortFunc(o.Members, func(a, b State) int { return int(a.Position - b.Position) })
	return o, nil
}

// lists reads a reply of strings and, before each list, its length.
type lists struct {
	values []any
	failed bool
}

func (l *lists) next() string {
	if len(l.values) == 0 {
		l.failed = true
		return ""
	}
	text, ok := l.values[0].(string)
	l.values, l.failed = l.values[1:], l.failed || !ok
	return text
}

// pairs is a list of names and what belongs to each.
func (l *lists) pairs() map[string]string {
	if len(l.values) == 0 {
		l.failed = true
		return nil
	}
	n, ok := l.values[0].(int64)
	l.values = l.values[1:]
	if !ok || n < 0 || n > int64(len(l.values)) || n%2 != 0 {
		l.failed = true
		return nil
	}
	list := make(map[string]string, n/2)
	for range n / 2 {
		name := l.next()
		list[name] = l.next()
	}
	return list
}

// number is a count or a time as Redis writes it; "" = 0.
func (l *lists) number(text string) int64 {
	if text == "" {
		return 0
	}
	f, err := strconv.ParseFloat(text, 64)
	l.failed = l.failed || err != nil || !(f >= 0 && f <= 1<<53)
	return int64(f)
}

// Item is what became of one member of a list.
type Item struct {
	Member  string  `json:"member"`
	Outcome Outcome `json:"outcome"`
}

// Bulk is how a list of members is put.
type Bulk struct {
	Replace bool // members that are not in the list are removed, with their history kept
	DryRun  bool // nothing is changed, only said
}

// PutAll puts a list of members, and says what became of each, at last of those that were removed. The list is not one step, but each member
// is: allocations in between find some changed and others not yet. Where a new list has no room beside the old one, so many as it needs are removed
// first, the others last, so that there is always somebody. Errors: validation_failed, ErrNoPool, forbidden, or an outcome. What became of those
// that were done before the error comes with it.
func (p *Pools) PutAll(ctx context.Context, id *acl.Identity, pool Pool, list []Member, how Bulk) ([]Item, error) {
	if err := ValidateMembers("/members", list); err != nil {
		return nil, err
	}
	all, early := changes(put, list), 0
	var now Overview
	if how.Replace || how.DryRun {
		var err error
		if now, err = p.show(ctx, id, CommandDefine, pool.Name); err != nil {
			return nil, store.NotDone(err)
		}
	}
	if how.Replace {
		gone := missing(now.Members, list)
		early = min(len(gone), max(0, len(gone)+len(list)-2*MaxMembers))
		all = slices.Concat(gone[:early], all, gone[early:])
	}
	var results []Outcome
	var err error
	if how.DryRun {
		results = foretell(now.Members, all)
	} else {
		results, err = p.change(ctx, id, pool, all)
	}
	items := make([]Item, len(results))
	for i := range results {
		items[i] = Item{all[i].Member.Member, results[i]}
	}
	if err == nil {
		items = slices.Concat(items[early:early+len(list)], items[:early], items[early+len(list):])
	}
	return items, err
}

// missing removes those that are not in the list.
func missing(now []State, list []Member) (all []change) {
	listed := make(map[string]bool, len(list))
	for i := range list {
		listed[list[i].Member] = true
	}
	for i := range now {
		if !listed[now[i].Member] {
			all = append(all, change{remove, Member{Member: now[i].Member}})
		}
	}
	return all
}

// foretell is what the script would say of changes that are no patches.
func foretell(now []State, all []change) []Outcome {
	known := make(map[string]*State, len(now))
	for i := range now {
		known[now[i].Member] = &now[i]
	}
	results, size := make([]Outcome, len(all)), len(now)
	for i := range all {
		c, s := &all[i], known[all[i].Member.Member]
		switch {
		case s == nil && size >= 2*MaxMembers:
			results[i] = Full
		case s == nil:
			results[i], size = Added, size+1
		case c.kind == remove:
			results[i], size = Removed, size-1
		case c.leaves(s):
			results[i] = Unchanged
		default:
			results[i] = Changed
		}
	}
	return results
}

// leaves says whether a member is the same after the change.
func (c *change) leaves(s *State) bool {
	return (c.Weight == nil || *c.Weight == s.Weight) && (c.Available == nil || *c.Available == s.Available) &&
		(c.Meta == nil || bytes.Equal(c.Meta, s.Meta)) && c.CooldownMS == nil
}
