package handlers

import (
	"net/http"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/pools"
)

// listPools is GET /v1/pools.
func (a *API) listPools(r request) error {
	limit := r.integer("limit", pools.MaxPage)
	after, given := r.query.get("cursor")
	if given && pool.CheckName(after) != nil {
		r.fail(store.Unparsable("query:cursor", "is not one of this listing; begin without"))
	}
	if r.bad != nil {
		return r.bad
	}
	page, err := a.pools.List(r.ctx, r.id, after, int(min(max(limit, 1), pools.MaxPage)))
	if err != nil {
		return err
	}
	j := r.reply().raw(`{"items":[`)
	for i := range page.Pools {
		j.comma(i).pool(page.Pools[i].Name, page.Pools[i].Defined)
	}
	j.raw("]")
	if page.After != "" {
		j.raw(`,"next_cursor":`).string(page.After)
	}
	return r.answer(j.raw("}"))
}

// getPool is GET /v1/pools/{pool}.
func (a *API) getPool(r request) error {
	unless := r.unless()
	if r.bad != nil {
		return r.bad
	}
	d, err := a.pools.Show(r.ctx, r.id, r.pool())
	if err != nil {
		return err
	}
	if unless.matchesWeakly(d.ETag) {
		r.Header("ETag", d.ETag)
		return r.done(http.StatusNotModified)
	}
	return answerPool(r, d)
}

// putPool is PUT /v1/pools/{pool}.
func (a *API) putPool(r request) error {
	cond := r.condition()
	def := body(a, &r, parsePool)
	if r.bad != nil {
		return r.bad
	}
	d, err := a.pools.Define(r.ctx, r.id, r.pool(), def, cond)
	if err != nil {
		return err
	}
	return answerPool(r, d)
}

// patchPool is PATCH /v1/pools/{pool}.
func (a *API) patchPool(r request) error {
	cond := r.match()
	change := body(a, &r, parsePoolChange)
	if r.bad != nil {
		return r.bad
	}
	d, err := a.pools.Edit(r.ctx, r.id, r.pool(), cond, change)
	if err != nil {
		return err
	}
	return answerPool(r, d)
}

// deletePool is DELETE /v1/pools/{pool}.
func (a *API) deletePool(r request) error {
	cond := r.match()
	if r.bad != nil {
		return r.bad
	}
	if err := a.pools.Delete(r.ctx, r.id, r.pool(), cond); err != nil {
		return err
	}
	return r.done(http.StatusNoContent)
}

// rebasePool is POST /v1/pools/{pool}/rebase.
func (a *API) rebasePool(r request) error {
	r.unconditional()
	if r.bad != nil {
		return r.bad
	}
	n, err := a.pools.Rebase(r.ctx, r.id, r.pool())
	if err != nil {
		return err
	}
	return r.answer(r.reply().raw(`{"subtracted":`).int(n).raw("}"))
}

// allocate is POST /v1/pools/{pool}/allocations.
func (a *API) allocate(r request) error {
	r.unconditional()
	want := body(a, &r, parseAllocation)
	if r.bad != nil {
		return r.bad
	}
	if err := store.Charge(r.ctx, int64(want.Count)-1); err != nil {
		return err
	}
	got, err := a.pools.Allocate(r.ctx, r.id, r.pool(), &want.Request, r.idempotency())
	if err != nil {
		return err
	}
	r.answered(got.Replayed, len(got.Allocated) > 0)
	if prefers(r.Request.Header, "status", "strict") {
		if err := got.Refusal(); err != nil {
			return err
		}
	}
	return r.answer(r.reply().allocation(&got, &want))
}

// reportMembers is POST /v1/pools/{pool}/reports.
func (a *API) reportMembers(r request) error {
	r.unconditional()
	what := body(a, &r, parseReports)
	if r.bad != nil {
		return r.bad
	}
	if err := store.Charge(r.ctx, int64(len(what.list))-1); err != nil {
		return err
	}
	all, err := a.pools.Report(r.ctx, r.id, r.pool(), what.list)
	if err != nil {
		return err
	}
	j := r.reply().raw(`{"items":[`)
	for i := range all {
		j.comma(i).raw("{").nameOf("member", all[i].Member, what.keyEncoding).raw(",").health(&all[i]).raw("}")
	}
	return r.answer(j.raw("]}"))
}

// pool is the name in the path. It is not decoded, as that of a limit is not.
func (r *request) pool() string { return r.Param("pool") }
