package handlers

import (
	"net/http"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/pool"
)

// listPoolMembers is GET /v1/pools/{pool}/members.
func (a *API) listPoolMembers(r request) error {
	o, err := a.pools.Overview(r.ctx, r.id, r.pool())
	if err != nil {
		return err
	}
	j := r.reply().raw(`{"items":[`)
	for i := range o.Members {
		j.comma(i).member(&o.Members[i], r.keyEncoding).flush()
	}
	return r.answer(j.raw(`],"abandoned":`).int(o.Abandoned).raw("}"))
}

// getPoolMember is GET /v1/pools/{pool}/members/{member}.
func (a *API) getPoolMember(r request) error {
	m, err := a.pools.Member(r.ctx, r.id, r.pool(), r.key)
	if err != nil {
		return err
	}
	return r.answer(r.reply().member(&m, r.keyEncoding))
}

// putPoolMembers is PUT /v1/pools/{pool}/members.
func (a *API) putPoolMembers(r request) error {
	r.unconditional()
	want := body(a, &r, parseCandidates)
	if r.bad != nil {
		return r.bad
	}
	if err := store.Charge(r.ctx, int64(len(want.members))-1); err != nil {
		return err
	}
	items, err := a.pools.PutMembers(r.ctx, r.id, r.pool(), want.members, want.how)
	if err != nil {
		return err
	}
	j, failed := r.reply().raw(`{"items":[`), false
	for i := range items {
		failed = failed || items[i].Outcome == pool.Full
		j.comma(i).raw("{").outcome(items[i].Member, items[i].Outcome, want.keyEncoding).raw("}")
	}
	return r.answer(j.raw(`],"errors":`).bool(failed).raw("}"))
}

// putPoolMember is PUT /v1/pools/{pool}/members/{member}.
func (a *API) putPoolMember(r request) error {
	r.unconditional()
	m := body(a, &r, parsePoolMember)
	if r.bad != nil {
		return r.bad
	}
	m.Member = r.key
	outcome, err := a.pools.PutMember(r.ctx, r.id, r.pool(), m)
	if err != nil {
		return err
	}
	return r.answer(r.reply().raw("{").outcome(r.key, outcome, r.keyEncoding).raw("}"))
}

// patchPoolMember is PATCH /v1/pools/{pool}/members/{member}.
func (a *API) patchPoolMember(r request) error {
	r.unconditional()
	m := body(a, &r, parsePoolMemberChange)
	if r.bad != nil {
		return r.bad
	}
	m.Member = r.key
	outcome, err := a.pools.PatchMember(r.ctx, r.id, r.pool(), m)
	if err != nil {
		return err
	}
	return r.answer(r.reply().raw("{").outcome(r.key, outcome, r.keyEncoding).raw("}"))
}

// deletePoolMember is DELETE /v1/pools/{pool}/members/{member}.
func (a *API) deletePoolMember(r request) error {
	r.unconditional()
	drop := r.word("history", "keep", "drop") == "drop"
	if r.bad != nil {
		return r.bad
	}
	if err := a.pools.RemoveMember(r.ctx, r.id, r.pool(), r.key, drop); err != nil {
		return err
	}
	return r.done(http.StatusNoContent)
}
