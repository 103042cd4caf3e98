package handlers

import (
	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/pools"
)

// comma comes before every element of a list but the first.
func (r *reply) comma(i int) *reply {
	if i > 0 {
		r.raw(",")
	}
	return r
}

// answerPool answers a definition with its ETag.
func answerPool(r request, d *pools.Defined) error {
	r.Header("ETag", d.ETag)
	return r.answer(r.reply().pool(r.pool(), d))
}

// pool adds a definition, without what its policy has not.
func (r *reply) pool(name string, d *pools.Defined) *reply {
	r.raw(`{"name":`).string(name).raw(`,"version":`).int(d.Version).raw(`,"policy":`).string(string(d.Policy))
	if d.Variant != "" {
		r.raw(`,"variant":`).string(string(d.Variant))
	}
	r.raw(`,"restore":`).string(string(d.Restore)).raw(`,"sticky_ms":`).int(d.StickyMS)
	r.raw(`,"lease":{"default_ms":`).int(d.Lease.DefaultMS).raw(`,"max_ms":`).int(d.Lease.MaxMS)
	if d.Policy == pool.LeastInflight || d.Policy == pool.AdaptivePolicy {
		r.raw(`,"max_per_member":`).int(d.Lease.MaxPerMember)
	}
	if d.Lease.Abandoned != "" {
		r.raw(`,"abandoned":`).string(string(d.Lease.Abandoned))
	}
	r.raw("}")
	if d.Policy == pool.AdaptivePolicy {
		r.adaptive(&d.Adaptive)
	}
	return r.raw("}")
}

func (r *reply) adaptive(a *pool.Adaptive) {
	r.raw(`,"adaptive":{"half_life_ms":`).int(a.HalfLifeMS).raw(`,"floor":`).double(a.Floor).raw(`,"recover_ms":`).int(a.RecoverMS)
	r.raw(`,"fail_threshold":`).int(a.FailThreshold).raw(`,"fail_span_ms":`).int(a.FailSpanMS)
	r.raw(`,"eject_ms":`).int(a.EjectMS).raw(`,"eject_max_ms":`).int(a.EjectMaxMS).raw(`,"panic":`).double(a.Panic)
	r.raw(`,"degrade_latency_factor":`).double(a.DegradeLatencyFactor).raw(`,"degrade_error_rate":`).double(a.DegradeErrorRate)
	r.raw(`,"baseline_ms":`).int(a.BaselineMS).raw("}")
}

// allocation adds what was allocated: the first of it as a member of its own, and all of it where the caller has said how many.
func (r *reply) allocation(got *pools.Allocation, want *allocation) *reply {
	r.raw("{")
	if len(got.Allocated) == 0 {
		r.raw(`"member":null,"reason":`).string(string(got.Reason))
		if got.RetryAfterMS > 0 {
			r.raw(`,"retry_after_ms":`).int(got.RetryAfterMS)
		}
	} else {
		r.allocated(&got.Allocated[0], want.keyEncoding)
	}
	r.raw(`,"policy":`).string(string(got.Policy)).raw(`,"pool_version":`).int(got.Version)
	if want.Count > 0 {
		r.raw(`,"items":[`)
		for i := range got.Allocated {
			r.comma(i).raw("{").allocated(&got.Allocated[i], want.keyEncoding).raw("}")
		}
		r.raw("]")
	}
	return r.raw("}")
}

func (r *reply) allocated(m *pool.Allocated, enc keyEncoding) *reply {
	r.nameOf("member", m.Member, enc).raw(`,"allocations":`).int(m.Allocations)
	if m.Mode != pool.Normal {
		r.raw(`,"mode":`).string(string(m.Mode))
	}
	if m.Meta != "" {
		r.raw(`,"meta":`).raw(m.Meta)
	}
	if l := m.Lease; l != nil {
		r.raw(`,"lease":{"id":`).string(l.ID).raw(`,"fence":`).int(l.Fence).raw(`,"expires_at_ms":`).int(l.ExpiresAtMS).raw("}")
	}
	return r
}

// member adds a member as it is now.
func (r *reply) member(m *pools.Member, enc keyEncoding) *reply {
	r.raw("{").nameOf("member", m.Member, enc).raw(`,"weight":`).int(m.Weight).raw(`,"available":`).bool(m.Available)
	r.raw(`,"share":`).double(m.Share).raw(`,"allocations":`).int(m.Allocations).raw(`,"inflight":`).int(m.Inflight)
	r.raw(`,"position":`).int(m.Position)
	if m.CoolsAtMS > 0 {
		r.raw(`,"cooling_until_ms":`).int(m.CoolsAtMS)
	}
	if m.Health != nil {
		r.raw(`,"health":{`).health(m.Health).raw("}")
	}
	if m.Meta != nil {
		r.raw(`,"meta":`).raw(string(m.Meta))
	}
	return r.raw("}")
}

// health adds what reports come to, without the name.
func (r *reply) health(h *pool.Health) *reply {
	r.raw(`"state":`).string(string(h.Condition)).raw(`,"factor":`).double(h.Factor).raw(`,"latency_ms":`).double(h.LatencyMS)
	return r.raw(`,"ejections":`).int(h.Ejections).raw(`,"changed":`).bool(h.Changed)
}

// outcome adds what became of a member that was put.
func (r *reply) outcome(member string, o pool.Outcome, enc keyEncoding) *reply {
	return r.nameOf("member", member, enc).raw(`,"outcome":`).string(string(o))
}

// kept adds a lease after it was renewed or completed.
func (r *reply) kept(k *pool.Kept, enc keyEncoding) *reply {
	return r.nameOf("member", k.Member, enc).raw(`,"held_ms":`).int(k.HeldMS).raw(`,"expires_at_ms":`).int(k.ExpiresAtMS)
}
