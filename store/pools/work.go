package pools

import (
	"context"
	"slices"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/pool"
)

// Allocation is what became of a request for members.
type Allocation struct {
	pool.Result
	Replayed bool // an earlier request with the same Idempotency-Key has allocated; this is its answer
}

// Allocate chooses members of a pool. Errors: forbidden, validation_failed, pool_not_found, idempotency_mismatch, corrupt_value, and those of a
// command: while Redis does not answer, nobody is allocated. With outcome unknown somebody may have been, which costs a count, and a lease
// until it expires; a repetition with the same Idempotency-Key has the answer.
func (p *Pools) Allocate(ctx context.Context, id *acl.Identity, name string, r *pool.Request, once store.Idempotency) (Allocation, error) {
	start := p.Now()
	at, err := p.at(ctx, id, pool.CommandAllocate, name)
	if err != nil {
		return Allocation{}, err
	}
	asking, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	res, replayed, err := p.choose.Allocate(asking, id, at, r, once)
	p.metrics.allocated(id, name, res, replayed, err, p.Now().Sub(start))
	if err != nil {
		return Allocation{}, p.problem(id, name, err)
	}
	p.watch.note(id, name, len(res.Allocated) > 0 && res.Allocated[0].Lease != nil)
	return Allocation{Result: res, Replayed: replayed}, nil
}

// Refusal is the error for callers who want one where nobody was allocated: pool_saturated or pool_empty. Otherwise it is nil.
func (a *Allocation) Refusal() error {
	if a.Reason == "" {
		return nil
	}
	code := store.CodePoolEmpty
	if a.Reason == pool.Saturated {
		code = store.CodePoolSaturated
	}
	e := store.NewError(code, why[a.Reason])
	e.RetryAfter = time.Duration(a.RetryAfterMS) * time.Millisecond
	return e
}

// why are the reasons in words.
var why = map[pool.Reason]string{
	pool.Empty:     "no member of the pool is available",
	pool.Excluded:  "all members that are available are excluded by the request",
	pool.NoWeight:  "no member that is available has a weight",
	pool.Cooling:   "all members that are available otherwise are cooling",
	pool.Saturated: "all members have as many leases as they may have",
}

// Report takes reports on members, and returns the health of each after it; of a member that has left that is unknown. Errors: forbidden,
// validation_failed, pool_not_found, and those of a command.
func (p *Pools) Report(ctx context.Context, id *acl.Identity, name string, list []pool.Report) ([]pool.Health, error) {
	at, err := p.at(ctx, id, pool.CommandReport, name)
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	return p.report(asking, id, at, list)
}

func (p *Pools) report(ctx context.Context, id *acl.Identity, at pool.Pool, list []pool.Report) ([]pool.Health, error) {
	all, err := p.choose.Report(ctx, id, at, list)
	if err != nil {
		return nil, p.problem(id, at.Name, err)
	}
	p.metrics.reported(id, at.Name, list, all)
	return all, nil
}

// Renew lets a lease last for leaseMS from now, see pool.Renew. Errors: forbidden, validation_failed, pool_not_found, lease_not_found,
// fence_mismatch, lease_lost, and those of a command.
func (p *Pools) Renew(ctx context.Context, id *acl.Identity, name string, c pool.Claim, leaseMS int64) (pool.Kept, error) {
	at, err := p.at(ctx, id, pool.CommandLease, name)
	if err != nil {
		return pool.Kept{}, err
	}
	asking, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	kept, err := p.choose.Renew(asking, id, at, c, leaseMS)
	p.metrics.settled(id, name, leaseRenewed, err)
	if err != nil {
		return pool.Kept{}, p.problem(id, name, err)
	}
	p.watch.note(id, name, true)
	return kept, nil
}

// Completion is a lease that has ended.
type Completion struct {
	pool.Kept
	Replayed bool         // an earlier request with the same Idempotency-Key has completed it; this is its answer
	Health   *pool.Health // of the member after the report; nil = there was none, or it was lost: the completion stands
}

// Complete ends a lease, see pool.Complete, and then, if used is not nil, reports how its member was: used names no member. A repetition does
// not report again. Errors: as Renew without lease_lost, and idempotency_mismatch.
func (p *Pools) Complete(ctx context.Context, id *acl.Identity, name string, c pool.Claim, used *pool.Report, once store.Idempotency) (Completion, error) {
	at, err := p.at(ctx, id, pool.CommandLease, name)
	if err != nil {
		return Completion{}, err
	}
	if used != nil {
		if err := store.Allow(id, pool.CommandReport); err != nil {
			return Completion{}, err
		}
		if err := used.ValidateUse(); err != nil {
			return Completion{}, err
		}
	}
	asking, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	kept, replayed, err := p.choose.Complete(asking, id, at, c, once)
	if !replayed {
		result := leaseCompleted
		if kept.Late {
			result = leaseLate
		}
		p.metrics.settled(id, name, result, err)
	}
	if err != nil {
		return Completion{}, p.problem(id, name, err)
	}
	done := Completion{Kept: kept, Replayed: replayed}
	if used != nil && !replayed {
		r := *used
		r.Member = kept.Member
		if all, err := p.report(asking, id, at, []pool.Report{r}); err == nil {
			done.Health = &all[0]
		}
	}
	return done, nil
}

// Which leases are wanted.
type Which struct {
	Member  string // "" = of all
	Expired *bool  // nil = both
}

// Leases are those of the first pool.MaxLeases to expire that are wanted, in that order. Errors: forbidden, validation_failed, pool_not_found,
// and those of a command.
func (p *Pools) Leases(ctx context.Context, id *acl.Identity, name string, which Which) ([]pool.Leased, error) {
	if err := may(id, pool.CommandShow, name); err != nil {
		return nil, err
	}
	list, err := p.choose.Leases(ctx, id, name)
	if err != nil {
		return nil, p.problem(id, name, err)
	}
	return slices.DeleteFunc(list, func(l pool.Leased) bool {
		return which.Member != "" && l.Member != which.Member || which.Expired != nil && l.Expired != *which.Expired
	}), nil
}
