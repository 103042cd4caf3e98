package handlers

import (
	"github.com/slotgate/slotgate/store"
)

// number adds a number as JSON has it, or in quotes for callers whose own numbers have 53 bits.
func (r *reply) number(n store.Number, quoted bool) *reply {
	if quoted {
		return r.raw(`"`).raw(n.String()).raw(`"`)
	}
	return r.raw(n.String())
}

// getCounter is GET /v1/counters/{key}.
func (a *API) getCounter(r request) error {
	t, err := a.terms(&r)
	if err != nil {
		return err
	}
	n, err := a.store.CounterGet(r.ctx, r.id, r.key)
	if err != nil {
		return err
	}
	return r.answer(newReply().raw(`{"value":`).number(n, t.quoted).raw("}"))
}

// putCounter is PUT /v1/counters/{key}; it answers what the counter was.
func (a *API) putCounter(r request) error {
	cond, err := writeCondition(r.Request.Header)
	if err != nil {
		return err
	}
	put, t, err := body(a, &r, parseCounter)
	if err != nil {
		return err
	}
	previous, _, err := a.store.CounterSet(r.ctx, r.id, r.key, put.value, store.SetOptions{Expiry: put.expiry, Cond: cond})
	if err != nil {
		return err
	}
	j := newReply().raw(`{"value":`).number(put.value, t.quoted)
	if previous != nil {
		j.raw(`,"previous":`).number(*previous, t.quoted)
	}
	return r.answer(j.raw("}"))
}

// addCounter is POST /v1/counters/{key}/add.
func (a *API) addCounter(r request) error {
	if err := refuseConditions(r.Request.Header); err != nil {
		return err
	}
	add, t, err := body(a, &r, parseAdd)
	if err != nil {
		return err
	}
	n, err := a.store.CounterAdd(r.ctx, r.id, r.key, store.AddOptions{
		Delta: add.delta, Expiry: add.expiry, TTLAlways: add.ttlAlways, Min: add.min, Max: add.max,
	})
	if err != nil {
		return err
	}
	return r.answer(newReply().raw(`{"value":`).number(n, t.quoted).raw("}"))
}
