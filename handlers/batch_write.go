package handlers

import (
	"encoding/base64"
	"errors"

	"github.com/slotgate/slotgate/store"
)

// mset is POST /v1/mset: everything is written, or the error says what became of each item.
func (a *API) mset(r request) error {
	r.unconditional()
	r.async()
	set := body(a, &r, parseMSet)
	if r.bad != nil {
		return r.bad
	}
	if err := store.Charge(r.ctx, int64(len(set.items)-1)); err != nil {
		return err
	}
	written, err := a.store.MSet(r.ctx, r.id, set.items)
	if err != nil {
		return asSent(err, set.keyEncoding)
	}
	return r.answer(r.reply().raw(`{"written":`).int(int64(written)).raw("}"))
}

// asSent turns the keys in the outcomes of a batch back into what the caller wrote.
func asSent(err error, enc keyEncoding) error {
	e, ok := errors.AsType[*store.Error](err)
	if !ok || enc != keyBase64URL {
		return err
	}
	for i := range e.Items {
		e.Items[i].Key = base64.RawURLEncoding.EncodeToString([]byte(e.Items[i].Key))
	}
	return err
}

// mdelete is POST /v1/mdelete.
func (a *API) mdelete(r request) error {
	r.unconditional()
	r.async()
	del := body(a, &r, parseKeys)
	if r.bad != nil {
		return r.bad
	}
	if err := store.Charge(r.ctx, int64(len(del.keys)-1)); err != nil {
		return err
	}
	items, err := a.store.MDelete(r.ctx, r.id, del.keys)
	if err != nil {
		return err
	}
	writeItems(&r, del.keys, del.keyEncoding, func(j *reply, i int) bool { return j.flag(`,"deleted":`, &items[i]) })
	return nil
}
