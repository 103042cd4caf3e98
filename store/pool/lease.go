package pool

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/faults"
	"github.com/slotgate/slotgate/store/packed"
)

// What Renew and Complete say of a lease that the caller does not hold.
var (
	// ErrNoLease: there is none with this id. It was completed, or it expired and its member was given to others.
	ErrNoLease = errors.New("pool: there is no such lease")
	// ErrOtherFence: the lease has another fence, so the caller mistakes it for one of its own.
	ErrOtherFence = errors.New("pool: the lease has another fence")
	// ErrLost: the lease has expired. It is not renewed, since others may have its place.
	ErrLost = errors.New("pool: the lease has expired")
)

var idPattern = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9_-]{%d}$`, sizeOfID))

// Claim is what the holder of a lease shows: both of them, as in Held.
type Claim struct {
	ID    string `json:"-"`
	Fence int64  `json:"fence"`
}

func (c *Claim) validate(f *faults.List) {
	if !idPattern.MatchString(c.ID) {
		f.Add("path:lease", "is not the id of a lease; use the one that the allocation returned")
	}
	f.Between("/fence", c.Fence, 1, 1<<53)
}

// Kept is a lease after Renew or Complete.
type Kept struct {
	Member      string
	HeldMS      int64 // since it began
	ExpiresAtMS int64 // or would have expired
	Late        bool  // it had expired when it was completed
}

// Renew lets a lease last for leaseMS from now, but not longer than the pool's max_ms since it began, or than it lasts
// already. Errors: validation_failed, ErrNoPool,
// ErrNoLease, ErrOtherFence, ErrLost, forbidden, or an outcome.
func (p *Pools) Renew(ctx context.Context, id *acl.Identity, pool Pool, c Claim, leaseMS int64) (Kept, error) {
	var f faults.List
	c.validate(&f)
	f.Between("/lease_ms", leaseMS, 1, pool.Definition.Lease.MaxMS)
	if err := f.Problem(); err != nil {
		return Kept{}, err
	}
	kept, _, err := p.settle(ctx, id, pool, c, leaseMS*1000, store.Idempotency{})
	return kept, err
}

// Complete ends a lease: its member has one less. It does so once, a second time there is none. With i.Key set, a repetition has the answer
// of the first time, and replayed says so. Errors: validation_failed, ErrNoPool, ErrNoLease, ErrOtherFence, idempotency_mismatch,
// forbidden, or an outcome.
func (p *Pools) Complete(ctx context.Context, id *acl.Identity, pool Pool, c Claim, i store.Idempotency) (kept Kept, replayed bool, err error) {
	var f faults.List
	if c.validate(&f); len(f) > 0 {
		return Kept{}, false, f.Problem()
	}
	return p.settle(ctx, id, pool, c, 0, i)
}

// settle runs the script; micros is how long the lease lasts from now, 0 = it ends.
func (p *Pools) settle(ctx context.Context, id *acl.Identity, pool Pool, c Claim, micros int64, i store.Idempotency) (kept Kept, replayed bool, err error) {
	k := keysOf(id, pool.Name)
	b := packed.Append(make([]byte, 0, 4*8+sizeOfID), p.Clock(), micros, pool.Definition.Lease.MaxMS*1000, c.Fence)
	names, argv := p.keep(k, i, append(k.held(), k.state()), []any{append(b, c.ID...)})
	values, err := p.run(ctx, id, CommandLease, scriptLease, names, argv...)
	if err != nil {
		return kept, false, err
	}
	a, err := readAnswer(values)
	if err != nil {
		return kept, false, err
	}
	switch a.status {
	case 0:
	case -1:
		return kept, false, ErrNoLease
	case -2:
		return kept, false, ErrOtherFence
	case -3:
		return kept, false, ErrLost
	default:
		return kept, false, badReply()
	}
	q := packed.Reader{Rest: a.text}
	kept = Kept{Late: q.Number() == 1, HeldMS: q.Number() / 1000, ExpiresAtMS: q.Number() / 1000, Member: q.Text()}
	if q.Err != nil || q.Rest != "" {
		return Kept{}, false, badReply()
	}
	if micros == 0 {
		p.views.freed(poolOf(id, k), kept.Member)
	}
	return kept, a.replayed, nil
}

// Reaped is what became of leases that had expired.
type Reaped struct {
	Abandoned int64 // leases that were ended
	Held      int64 // leases that are out still
	Ejected   int64 // members that were ejected because of the abandoned ones
}

// MaxReaped is how many leases one call of Reap ends: some 2 ms of Redis.
const MaxReaped = 200

// Reap ends up to most leases that have expired, 1 to MaxReaped, by the clock of Redis. Allocations do so too, as far as they need it.
// Errors: ErrNoPool, forbidden, or an outcome.
func (p *Pools) Reap(ctx context.Context, id *acl.Identity, pool Pool, most int) (Reaped, error) {
	r, err := p.reap(ctx, id, pool, CommandLease, min(max(most, 1), MaxReaped))
	if r.Abandoned > 0 {
		p.views.changed(poolOf(id, keysOf(id, pool.Name)))
	}
	return r, err
}

func (p *Pools) reap(ctx context.Context, id *acl.Identity, pool Pool, command string, most int) (r Reaped, err error) {
	k, d := keysOf(id, pool.Name), pool.Definition
	names := []string{k.state(), k.inflight(), k.expiries(), k.leases(), k.heldOff()}
	if d.Policy == AdaptivePolicy && d.Lease.Abandoned == Fails {
		names = append(names, k.ring(), k.health(), k.adaptiveSums())
	}
	b := packed.Append(packed.AppendFraction(packed.Append(nil, p.Clock()), p.Draw()), int64(most))
	values, err := p.run(ctx, id, command, scriptReap, names, d.settings().append(b))
	if err != nil {
		return r, err
	}
	for i, n := range [...]*int64{&r.Abandoned, &r.Held, &r.Ejected} {
		var ok bool
		if i < len(values) {
			*n, ok = values[i].(int64)
		}
		if !ok || *n < 0 {
			return Reaped{}, badReply()
		}
	}
	return r, nil
}
