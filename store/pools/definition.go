package pools

import (
	"context"
	"encoding/json"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/definitions"
	"github.com/slotgate/slotgate/store/pool"
)

// Defined is a pool as it is stored, without its members. It must not be changed.
type Defined struct {
	pool.Definition
	Version int64 // grows with every change of the definition
	ETag    string
}

func read(s definitions.Stored) (*Defined, error) {
	d := &Defined{Version: s.Version, ETag: s.ETag}
	return d, json.Unmarshal([]byte(s.Definition), &d.Definition)
}

// Show gives a definition as it is stored now. Errors: forbidden, validation_failed, pool_not_found, and those of a command.
func (p *Pools) Show(ctx context.Context, id *acl.Identity, name string) (*Defined, error) {
	if err := may(id, pool.CommandShow, name); err != nil {
		return nil, err
	}
	return p.defined.Load(ctx, id, pool.CommandShow, name)
}

// Define stores a definition; a pool that is there keeps its members, counts and leases. Errors: forbidden, validation_failed, also if the app
// has MaxPools others, precondition_failed, and those of a command.
func (p *Pools) Define(ctx context.Context, id *acl.Identity, name string, def pool.Definition, cond store.Condition) (*Defined, error) {
	if err := may(id, pool.CommandDefine, name); err != nil {
		return nil, err
	}
	text, err := written(&def)
	if err != nil {
		return nil, err
	}
	// Before, so that no pool is there that no list has, unless it must be there already; and after, in case that somebody has deleted it in
	// between.
	if len(cond.IfMatch) == 0 {
		if err := p.list(ctx, id, name); err != nil {
			return nil, err
		}
	}
	d, err := p.defined.Define(ctx, id, name, text, cond)
	if err != nil {
		return nil, err
	}
	_ = p.list(ctx, id, name) // what has become of the definition is certain
	return d, nil
}

// written is a definition as it is stored. Error: validation_failed.
func written(d *pool.Definition) (string, error) {
	if err := d.Validate(); err != nil {
		return "", err
	}
	text, err := json.Marshal(d)
	if err != nil {
		return "", store.NewError(store.CodeInternal, "").WithCause(err)
	}
	return string(text), nil
}

// Edit changes a definition. change may be called several times, as others edit it too; its error is that of Edit. What belongs to another
// policy than the new one, and change has left as it was, is dropped. Errors: forbidden, validation_failed, pool_not_found, precondition_failed,
// and those of a command.
func (p *Pools) Edit(ctx context.Context, id *acl.Identity, name string, cond store.Condition, change func(*pool.Definition) error) (*Defined, error) {
	if err := may(id, pool.CommandDefine, name); err != nil {
		return nil, err
	}
	return p.defined.Edit(ctx, id, name, cond, func(was *Defined) (string, error) {
		d := was.Definition
		if err := change(&d); err != nil {
			return "", err
		}
		fit(&d, &was.Definition)
		return written(&d)
	})
}

// fit drops from d what was there before and does not belong to its policy.
func fit(d, was *pool.Definition) {
	if d.Policy != pool.WeightedRoundRobin && d.Variant == was.Variant {
		d.Variant = ""
	}
	if d.Policy != pool.AdaptivePolicy {
		if d.Adaptive == was.Adaptive {
			d.Adaptive = pool.Adaptive{}
		}
		if d.Lease.Abandoned == was.Lease.Abandoned {
			d.Lease.Abandoned = ""
		}
		if d.Policy != pool.LeastInflight && d.Lease.MaxPerMember == was.Lease.MaxPerMember {
			d.Lease.MaxPerMember = 0
		}
	}
}

// Delete removes a pool with its members, counts and leases. Who holds a lease is then told that there is no such pool, as is everybody else.
// Errors: forbidden, validation_failed, pool_not_found, precondition_failed, and those of a command.
func (p *Pools) Delete(ctx context.Context, id *acl.Identity, name string, cond store.Condition) error {
	if err := may(id, pool.CommandDefine, name); err != nil {
		return err
	}
	since, err := p.listed(ctx, id, name)
	if err != nil {
		return err
	}
	if err := p.defined.Delete(ctx, id, name, cond); err != nil {
		return err
	}
	p.unlist(ctx, id, name, since) // what is left of it is found by List
	return nil
}
