package pools

import (
	"context"
	"errors"
	"strconv"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/pool"
)

// Member is a member as it is now.
type Member struct {
	pool.State
	Share  float64      // part of the allocations, 0 to 1, that it is to get by the policy
	Health *pool.Health // of an adaptive pool; nil = of another one, or it is not available, or it cools
}

// eligible says whether it may be allocated.
func (m *Member) eligible() bool { return m.Available && m.CoolsAtMS == 0 }

// Overview is a pool with its members.
type Overview struct {
	*Defined
	Members   []Member // in the order in which they were added
	Abandoned int64    // leases that expired before they were completed
	Fence     int64    // of the last lease, 0 = there was none
}

// Overview reads a pool with all its members. Errors: forbidden, validation_failed, pool_not_found, corrupt_value, and those of a command.
func (p *Pools) Overview(ctx context.Context, id *acl.Identity, name string) (Overview, error) {
	d, err := p.Show(ctx, id, name)
	if err != nil {
		return Overview{}, err
	}
	return p.overview(ctx, id, name, d)
}

func (p *Pools) overview(ctx context.Context, id *acl.Identity, name string, d *Defined) (Overview, error) {
	now, err := p.choose.Show(ctx, id, name)
	if err != nil {
		return Overview{}, p.problem(id, name, err)
	}
	o := Overview{Defined: d, Members: make([]Member, len(now.Members)), Abandoned: now.Abandoned, Fence: now.Fence}
	places := make(map[string]*Member, len(o.Members))
	for i := range now.Members {
		o.Members[i].State = now.Members[i]
		places[o.Members[i].Member] = &o.Members[i]
	}
	if d.Policy == pool.AdaptivePolicy {
		all, err := p.choose.Health(ctx, id, pool.Pool{Name: name, Definition: &d.Definition})
		if err != nil {
			return Overview{}, p.problem(id, name, err)
		}
		for i := range all {
			if m := places[all[i].Member]; m != nil && m.eligible() {
				m.Health = &all[i]
			}
		}
	}
	o.share()
	return o, nil
}

// share finds the part of each member.
func (o *Overview) share() {
	all := o.panics()
	weights, sum := make([]float64, len(o.Members)), 0.0
	for i := range o.Members {
		weights[i] = o.Members[i].weight(o.Policy, all)
		sum += weights[i]
	}
	for i := range o.Members {
		if sum > 0 {
			o.Members[i].Share = weights[i] / sum
		}
	}
}

// panics says whether an adaptive pool uses all members, since too few are healthy.
func (o *Overview) panics() bool {
	usable, all := 0, 0
	for i := range o.Members {
		m := &o.Members[i]
		if m.Health == nil || m.Weight == 0 {
			continue
		}
		all++
		if m.Health.Condition != pool.Unhealthy {
			usable++
		}
	}
	return float64(usable) < o.Adaptive.Panic*float64(all)
}

// weight is by how much a member counts; all says whether those that are ejected do.
func (m *Member) weight(by pool.Policy, all bool) float64 {
	switch {
	case !m.eligible():
		return 0
	case by == pool.WeightedRoundRobin, by == pool.WeightedRandom:
		return float64(m.Weight)
	case by != pool.AdaptivePolicy:
		return 1
	case m.Health == nil, m.Health.Condition == pool.Unhealthy && !all:
		return 0
	}
	return float64(m.Weight) * m.Health.Factor
}

// pathMember is where a request names one member.
const pathMember = "path:member"

// Member reads one member. Errors: as Overview, and member_not_found.
func (p *Pools) Member(ctx context.Context, id *acl.Identity, name, member string) (Member, error) {
	if err := pool.CheckMember(pathMember, member); err != nil {
		return Member{}, err
	}
	o, err := p.Overview(ctx, id, name) // its share depends on the others
	if err != nil {
		return Member{}, err
	}
	for i := range o.Members {
		if o.Members[i].Member == member {
			return o.Members[i], nil
		}
	}
	return Member{}, noMember()
}

// PutMembers puts a list of members, see pool.PutAll. What became of those that were done comes also with an error; its outcome is then unknown
// for the list, which can be put again. Errors: forbidden, validation_failed, pool_not_found, and those of a command.
func (p *Pools) PutMembers(ctx context.Context, id *acl.Identity, name string, list []pool.Member, how pool.Bulk) ([]pool.Item, error) {
	at, err := p.at(ctx, id, pool.CommandDefine, name)
	if err != nil {
		return nil, err
	}
	items, err := p.choose.PutAll(ctx, id, at, list, how)
	if e, ok := errors.AsType[*store.Error](err); ok && len(items) > 0 && e.Outcome == store.NotApplied {
		part := *e
		part.Outcome = store.Unknown
		return items, &part
	}
	return items, p.problem(id, name, err)
}

// PutMember adds a member, or changes it. Errors: as PutMembers, and validation_failed if the pool is full.
func (p *Pools) PutMember(ctx context.Context, id *acl.Identity, name string, m pool.Member) (pool.Outcome, error) {
	if err := pool.CheckMember(pathMember, m.Member); err != nil {
		return "", err
	}
	at, err := p.at(ctx, id, pool.CommandDefine, name)
	if err != nil {
		return "", err
	}
	outcome, err := p.choose.PutOne(ctx, id, at, m)
	if err == nil && outcome == pool.Full {
		err = store.Invalid(pathMember, "the pool has "+strconv.Itoa(2*pool.MaxMembers)+" members, and may have no more")
	}
	return outcome, p.problem(id, name, err)
}

// PatchMember changes a member that is there. Errors: as PutMembers, and member_not_found.
func (p *Pools) PatchMember(ctx context.Context, id *acl.Identity, name string, m pool.Member) (pool.Outcome, error) {
	if err := pool.CheckMember(pathMember, m.Member); err != nil {
		return "", err
	}
	at, err := p.at(ctx, id, pool.CommandDefine, name)
	if err != nil {
		return "", err
	}
	outcome, err := p.choose.Patch(ctx, id, at, m)
	if err == nil && outcome == pool.Absent {
		err = noMember()
	}
	return outcome, p.problem(id, name, err)
}

// RemoveMember takes a member away, see pool.TakeAway. Errors: as PatchMember.
func (p *Pools) RemoveMember(ctx context.Context, id *acl.Identity, name, member string, dropHistory bool) error {
	if err := pool.CheckMember(pathMember, member); err != nil {
		return err
	}
	at, err := p.at(ctx, id, pool.CommandDefine, name)
	if err != nil {
		return err
	}
	outcome, err := p.choose.TakeAway(ctx, id, at, member, dropHistory)
	if err == nil && outcome == pool.Absent {
		err = noMember()
	}
	return p.problem(id, name, err)
}

// Rebase takes the least count of the available members from all counts, and returns it. A second time there is nothing to take. Errors:
// forbidden, validation_failed, pool_not_found, and those of a command.
func (p *Pools) Rebase(ctx context.Context, id *acl.Identity, name string) (int64, error) {
	if err := may(id, pool.CommandDefine, name); err != nil {
		return 0, err
	}
	least, err := p.choose.Rebase(ctx, id, name)
	return least, p.problem(id, name, err)
}
