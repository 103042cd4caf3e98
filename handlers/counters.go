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

// tagged gives the answer the ETag of a counter, with which it can be set conditionally.
func (r *request) tagged(n store.Number) { r.tag([]byte(n.String())) }

// getCounter is GET /v1/counters/{key}.
func (a *API) getCounter(r request) error {
	quoted, from := r.quoted(), r.reading()
	if r.bad != nil {
		return r.bad
	}
	n, err := a.store.CounterGet(r.ctx, r.id, r.key, from)
	if r.told(); err != nil {
		return err
	}
	r.tagged(n)
	return r.answer(r.reply().raw(`{"value":`).number(n, quoted).raw("}"))
}

// putCounter is PUT /v1/counters/{key}; it answers what the counter was.
func (a *API) putCounter(r request) error {
	quoted, cond := r.quoted(), r.condition()
	put := body(a, &r, parseCounter)
	if r.bad != nil {
		return r.bad
	}
	previous, _, err := a.store.CounterSet(r.ctx, r.id, r.key, put.value, store.SetOptions{Expiry: put.expiry, Cond: cond, Delivery: r.delivery()})
	if err != nil {
		return err
	}
	r.tagged(put.value)
	j := r.reply().raw(`{"value":`).number(put.value, quoted)
	if previous != nil {
		j.raw(`,"previous":`).number(*previous, quoted)
	}
	return r.answer(j.raw("}"))
}

// addCounter is POST /v1/counters/{key}/add.
func (a *API) addCounter(r request) error {
	r.unconditional()
	quoted := r.quoted()
	add := body(a, &r, parseAdd)
	if r.bad != nil {
		return r.bad
	}
	n, err := a.store.CounterAdd(r.ctx, r.id, r.key, store.AddOptions{
		Delta: add.delta, Expiry: add.expiry, TTLAlways: add.ttlAlways, Min: add.min, Max: add.max,
		Delivery: r.delivery(),
	})
	if err != nil {
		return err
	}
	return r.answer(r.reply().raw(`{"value":`).number(n, quoted).raw("}"))
}
