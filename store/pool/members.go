package pool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/faults"
	"github.com/slotgate/slotgate/store/packed"
)

// Bounds of members.
const (
	MaxMembers = 1000 // in one request; a pool has twice as many at most, so that one list can replace another
	MaxMember  = 256  // bytes of its name
	MaxWeight  = 1000
	MaxMeta    = 1024    // bytes of JSON without white space: a whole pool is read in 2 MB
	MaxHistory = 1000    // removed members whose counts are kept; of more, those removed first are forgotten
	MaxInitial = 1 << 50 // allocations: far from what a double no longer counts
	// MaxCooldownMS is a day: who is away for longer is not available.
	MaxCooldownMS = 86_400_000
)

// Member is what a request says of a member; nil is as it was, of a new one the default.
type Member struct {
	Member string `json:"member"`           // 1 to 256 bytes, whichever they are
	Weight *int64 `json:"weight,omitempty"` // 0 to 1,000, 0 = never chosen by weight; 1 for a new one
	// InitialCount is how many allocations a new one begins with; nil = those it had before, or the fewest that an eligible one has.
	InitialCount *int64 `json:"initial_count,omitempty"`
	Available    *bool  `json:"available,omitempty"` // true for a new one
	// CooldownMS takes it away for a time, 0 ends that.
	CooldownMS *int64          `json:"cooldown_ms,omitempty"`
	Meta       json.RawMessage `json:"meta,omitempty"` // a JSON object of up to 1 KiB, which goes with each allocation; {} = none
}

// Outcome is what became of a change of a member.
type Outcome string

// The outcomes.
const (
	Absent    Outcome = "absent" // there is no such member
	Added     Outcome = "added"
	Changed   Outcome = "changed"
	Unchanged Outcome = "unchanged"
	Removed   Outcome = "removed"
	Full      Outcome = "full" // it was not added: the pool has twice MaxMembers
)

// outcomes are in the order of the script's numbers.
var outcomes = []Outcome{Absent, Added, Changed, Unchanged, Removed, Full}

// ValidateMembers finds every fault of a list. Error: validation_failed; pointers begin with at.
func ValidateMembers(at string, list []Member) error {
	var f faults.List
	if len(list) > MaxMembers {
		f.Add(at, "has %d members; give %d at most", len(list), MaxMembers)
		return f.Problem()
	}
	seen := make(map[string]bool, len(list))
	for i := range list {
		here := fmt.Sprintf("%s/%d", at, i)
		list[i].validate(&f, here)
		if seen[list[i].Member] {
			f.Add(here+"/member", "is the same as an earlier one; each may be there once")
		}
		seen[list[i].Member] = true
	}
	return f.Problem()
}

// Validate finds every fault of one. Error: validation_failed.
func (m *Member) Validate() error {
	var f faults.List
	m.validate(&f, "")
	return f.Problem()
}

func (m *Member) validate(f *faults.List, at string) {
	checkMember(f, at+"/member", m.Member)
	optional(f, at+"/weight", m.Weight, MaxWeight)
	optional(f, at+"/initial_count", m.InitialCount, MaxInitial)
	optional(f, at+"/cooldown_ms", m.CooldownMS, MaxCooldownMS)
	m.validateMeta(f, at+"/meta")
}

// validateMeta takes the white space out, and makes nothing of an object that has nothing.
func (m *Member) validateMeta(f *faults.List, pointer string) {
	if len(m.Meta) == 0 {
		return
	}
	v := jsontext.Value(bytes.Clone(m.Meta))
	if !v.IsValid() || v.Kind() != '{' || v.Compact() != nil {
		f.Add(pointer, "is not a JSON object")
		return
	}
	if m.Meta = json.RawMessage(v); string(v) == "{}" {
		m.Meta = json.RawMessage{}
	}
	if len(v) > MaxMeta {
		f.Add(pointer, "has %d bytes without white space; give %d at most", len(v), MaxMeta)
	}
}

func optional(f *faults.List, pointer string, n *int64, most int64) {
	if n != nil {
		f.Between(pointer, *n, 0, most)
	}
}

// CheckMember says whether a member can have this name; where is the place of it in the request. Error: validation_failed.
func CheckMember(where, m string) error {
	var f faults.List
	checkMember(&f, where, m)
	return f.Problem()
}

func checkMember(f *faults.List, pointer, m string) {
	if len(m) == 0 || len(m) > MaxMember {
		f.Add(pointer, "has %d bytes; a member has 1 to %d", len(m), MaxMember)
	}
}

// kind is what a change does, as the script numbers it.
type kind int64

const (
	put kind = iota
	patch
	remove
	forget
)

// change is one entry of the script's ARGV[2].
type change struct {
	kind kind
	Member
}

func (c *change) append(b []byte) []byte {
	number := func(n *int64, factor int64) int64 {
		if n == nil {
			return -1
		}
		return *n * factor
	}
	available, meta := int64(-1), int64(-1)
	if c.Available != nil {
		if available = 0; *c.Available {
			available = 1
		}
	}
	if c.Meta != nil {
		meta = int64(len(c.Meta))
	}
	b = packed.Append(b, int64(c.kind), number(c.Weight, 1), number(c.InitialCount, 1), available, number(c.CooldownMS, 1000), int64(len(c.Member.Member)), meta)
	b = append(b, c.Member.Member...)
	return append(b, c.Meta...)
}

// Put adds members and changes those that are there; each member is one atomic step. Errors: validation_failed, ErrNoPool, forbidden, or an
// outcome.
func (p *Pools) Put(ctx context.Context, id *acl.Identity, pool Pool, list []Member) ([]Outcome, error) {
	if err := ValidateMembers("/members", list); err != nil {
		return nil, err
	}
	return p.change(ctx, id, pool, changes(put, list))
}

// PutOne is Put of one member. Errors: as Put.
func (p *Pools) PutOne(ctx context.Context, id *acl.Identity, pool Pool, m Member) (Outcome, error) {
	if err := m.Validate(); err != nil {
		return "", err
	}
	return p.one(ctx, id, pool, change{put, m})
}

// Patch changes a member that is there; otherwise the outcome is Absent. Errors: as Put.
func (p *Pools) Patch(ctx context.Context, id *acl.Identity, pool Pool, m Member) (Outcome, error) {
	if err := m.Validate(); err != nil {
		return "", err
	}
	return p.one(ctx, id, pool, change{patch, m})
}

// TakeAway removes a member. Its count is kept for when it is added again, unless history is to be dropped or MaxHistory others have been removed
// since; its leases go on. Errors: as Put.
func (p *Pools) TakeAway(ctx context.Context, id *acl.Identity, pool Pool, member string, dropHistory bool) (Outcome, error) {
	m := Member{Member: member}
	if err := m.Validate(); err != nil {
		return "", err
	}
	k := remove
	if dropHistory {
		k = forget
	}
	return p.one(ctx, id, pool, change{k, m})
}

func changes(k kind, list []Member) []change {
	all := make([]change, len(list))
	for i := range list {
		all[i] = change{k, list[i]}
	}
	return all
}

func (p *Pools) one(ctx context.Context, id *acl.Identity, pool Pool, c change) (Outcome, error) {
	list, err := p.change(ctx, id, pool, []change{c})
	if err != nil {
		return "", err
	}
	return list[0], nil
}

// chunk is how many members a run of the script changes: of the largest pools some 1.5 ms of Redis, and others wait.
const chunk = 50

// change makes changes in their order. After an error those before it are made.
func (p *Pools) change(ctx context.Context, id *acl.Identity, pool Pool, all []change) ([]Outcome, error) {
	k := keysOf(id, pool.Name)
	results := make([]Outcome, 0, len(all))
	for len(all) > 0 {
		some := all[:min(len(all), chunk)]
		all = all[len(some):]
		var b bytes.Buffer
		for i := range some {
			b.Write(some[i].append(nil))
		}
		values, err := p.run(ctx, id, CommandDefine, scriptMembers, k.membership(), p.restoring(pool.Definition), b.Bytes())
		p.views.changed(poolOf(id, k)) // also if it is not known what has happened
		if err != nil {
			return results, err
		}
		if len(values) != len(some) {
			return results, badReply()
		}
		for _, v := range values {
			n, ok := v.(int64)
			if !ok || n < 0 || n >= int64(len(outcomes)) {
				return results, badReply()
			}
			results = append(results, outcomes[n])
		}
	}
	return results, nil
}

// cooled brings those back that have cooled.
func (p *Pools) cooled(ctx context.Context, id *acl.Identity, k keys, d *Definition) error {
	_, err := p.run(ctx, id, CommandAllocate, scriptMembers, k.membership(), p.restoring(d))
	return err
}

// membership are the keys of the script that changes members.
func (k keys) membership() []string {
	return []string{k.state(), k.members(), k.counts(), k.ring(), k.weights(), k.off(), k.cooling(), k.inflight(), k.heldOff(), k.health(),
		k.sums(), k.adaptiveSums(), k.gone()}
}

// restoring is ARGV[1] of that script.
func (p *Pools) restoring(d *Definition) []byte {
	how := map[Restore]int64{CatchUp: 0, Keep: 1, Zero: 2, Min: 3}[d.Restore]
	return packed.Append(make([]byte, 0, 16), p.Clock(), how)
}
