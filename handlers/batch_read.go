package handlers

import (
	"github.com/slotgate/slotgate/store"
)

// mget is POST /v1/mget. Its answer is streamed; nothing in its header depends on the items.
func (a *API) mget(r request) error {
	from := r.reading()
	get := body(a, &r, parseGet)
	if r.bad != nil {
		return r.bad
	}
	if err := store.Charge(r.ctx, int64(len(get.keys)-1)); err != nil {
		return err
	}
	items, err := a.store.MGet(r.ctx, r.id, get.keys, from)
	if r.told(); err != nil {
		return err
	}
	writeItems(&r, get.keys, get.keyEncoding, func(j *reply, i int) bool { return j.got(&items[i], get.encoding) })
	return nil
}

// writeItems answers a batch: the key of each item as the caller sent it and what item adds, which returns false for a problem.
func writeItems(r *request, keys []string, enc keyEncoding, item func(j *reply, i int) bool) {
	j := r.reply().raw(`{"items":[{`)
	defer j.release()
	faults := false
	for i, key := range keys {
		if i > 0 {
			j.raw(`},{`)
		}
		j.echoed(key, enc)
		faults = !item(j, i) || faults
		if j.flush(); j.err != nil {
			return // the client has gone
		}
	}
	j.raw(`}],"errors":`).bool(faults).raw("}")
	r.finish(j)
}

// got adds what became of one key of an mget. With a problem "found" says nothing; it is there because the member always is.
func (r *reply) got(item *store.GetItem, enc valueEncoding) bool {
	switch {
	case item.Err != nil:
		r.raw(`,"found":false,"problem":`).problem(item.Err, true)
		return false
	case !item.Found:
		r.raw(`,"found":false`)
		return true
	}
	start := len(r.buf)
	r.raw(`,"found":true,"value":`)
	if r.value(item.Data, enc) {
		return true
	}
	r.buf = r.buf[:start]
	r.raw(`,"found":false,"problem":`).problem(notUTF8(), true)
	return false
}

// mexists is POST /v1/mexists.
func (a *API) mexists(r request) error {
	from := r.reading()
	ask := body(a, &r, parseKeys)
	if r.bad != nil {
		return r.bad
	}
	if err := store.Charge(r.ctx, int64(len(ask.keys)-1)); err != nil {
		return err
	}
	items, err := a.store.MExists(r.ctx, r.id, ask.keys, from)
	if r.told(); err != nil {
		return err
	}
	writeItems(&r, ask.keys, ask.keyEncoding, func(j *reply, i int) bool { return j.flag(`,"exists":`, &items[i]) })
	return nil
}

// flag adds the yes or no of one key.
func (r *reply) flag(member string, item *store.FlagItem) bool {
	if item.Err != nil {
		r.raw(`,"problem":`).problem(item.Err, true)
		return false
	}
	r.raw(member).bool(item.Flag)
	return true
}
