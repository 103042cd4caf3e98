package handlers

import (
	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/pools"
)

// listPoolLeases is GET /v1/pools/{pool}/leases.
func (a *API) listPoolLeases(r request) error {
	var which pools.Which
	if text, given := r.query.get("member"); given {
		member, err := checkKey(text, r.keyEncoding, pool.MaxMember, "query:member")
		which.Member = read(&r, member, ofName(err, "query:member"))
	}
	if word := r.word("expired", "true", "false"); word != "" {
		expired := word == "true"
		which.Expired = &expired
	}
	if r.bad != nil {
		return r.bad
	}
	list, err := a.pools.Leases(r.ctx, r.id, r.pool(), which)
	if err != nil {
		return err
	}
	j := r.reply().raw(`{"items":[`)
	for i := range list {
		l := &list[i]
		j.comma(i).raw(`{"id":`).string(l.ID).raw(",").nameOf("member", l.Member, r.keyEncoding).raw(`,"fence":`).int(l.Fence)
		j.raw(`,"started_at_ms":`).int(l.StartedAtMS).raw(`,"expires_at_ms":`).int(l.ExpiresAtMS).raw(`,"expired":`).bool(l.Expired).raw("}").flush()
	}
	return r.answer(j.raw("]}"))
}

// renewPoolLease is PATCH /v1/pools/{pool}/leases/{lease}.
func (a *API) renewPoolLease(r request) error {
	r.unconditional()
	want := body(a, &r, parseRenewal)
	if r.bad != nil {
		return r.bad
	}
	kept, err := a.pools.Renew(r.ctx, r.id, r.pool(), r.claim(want.fence), want.leaseMS)
	if err != nil {
		return err
	}
	return r.answer(r.reply().raw("{").kept(&kept, r.keyEncoding).raw("}"))
}

// completePoolLease is POST /v1/pools/{pool}/leases/{lease}/complete.
func (a *API) completePoolLease(r request) error {
	r.unconditional()
	want := body(a, &r, parseCompletion)
	if r.bad != nil {
		return r.bad
	}
	done, err := a.pools.Complete(r.ctx, r.id, r.pool(), r.claim(want.fence), want.used, r.idempotency())
	if err != nil {
		return err
	}
	r.answered(done.Replayed, true)
	j := r.reply().raw("{").kept(&done.Kept, r.keyEncoding).raw(`,"late":`).bool(done.Late)
	if h := done.Health; h != nil {
		j.raw(`,"health":{`).health(h).raw("}")
	}
	return r.answer(j.raw("}"))
}

// claim is the lease in the path. Its id is not decoded: it has no character that needs it.
func (r *request) claim(fence int64) pool.Claim {
	return pool.Claim{ID: r.Param("lease"), Fence: fence}
}
