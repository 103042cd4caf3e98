package handlers

import (
	"net/http"

	"github.com/slotgate/slotgate/store"
)

// getString is GET /v1/strings/{key}; with a TTL in the query it moves the expiry, which is a write.
func (a *API) getString(r request) error {
	expiry, enc, unless := r.expiry(a), r.encoding(), r.unless()
	withTTL, from := r.word("include", "ttl") != "", r.readingUnless(expiry)
	if r.bad != nil {
		return r.bad
	}
	v, err := a.store.Get(r.ctx, r.id, r.key, store.GetOptions{Expiry: expiry, WithTTL: withTTL, Reading: from})
	if r.told(); err != nil {
		return err
	}
	return r.stringValue(&v, enc, unless)
}

// stringValue answers with a value, and does not refer to it afterwards.
func (r *request) stringValue(v *store.Value, enc valueEncoding, unless tagList) error {
	etag := r.tag(v.Data)
	if unless.matchesWeakly(etag) {
		return r.done(http.StatusNotModified)
	}
	j := r.reply().raw(`{"value":`)
	if !j.value(v.Data, enc) {
		j.release()
		return notUTF8()
	}
	j.raw(`,"encoding":"`).raw(enc.String()).raw(`","etag":`).string(etag)
	j.ttl(v.TTLMS)
	return r.answer(j.raw("}"))
}

func notUTF8() *store.Error {
	return store.NewError(store.CodeValueNotUTF8, "the value is not UTF-8; ask for encoding base64, or read it at /v1/bytes/{key}")
}

// ttl adds the member for a lifetime; -1 and 0 are none.
func (r *reply) ttl(millis int64) {
	if millis > 0 {
		r.raw(`,"ttl_ms":`).int(millis)
	}
}

// gone adds a value that this request has removed from Redis: what cannot be text is base64, since there is no second reading. The
// encoding stands beside it.
func (r *reply) gone(data []byte, enc valueEncoding) *reply {
	r.raw(`"value":`)
	if !r.value(data, enc) {
		enc = base64Encoding
		r.value(data, enc)
	}
	return r.raw(`,"encoding":"`).raw(enc.String()).raw(`"`)
}

// putString is PUT /v1/strings/{key}.
func (a *API) putString(r request) error {
	cond := r.condition()
	put := body(a, &r, parsePut)
	if r.bad != nil {
		return r.bad
	}
	res, err := a.store.Set(r.ctx, r.id, r.key, put.data,
		store.SetOptions{Expiry: put.expiry, Cond: cond, ReturnPrevious: put.returnPrevious, Delivery: r.delivery()})
	if err != nil {
		return err
	}
	return r.stringPut(&put, res)
}

// stringPut answers that a value was written.
func (r *request) stringPut(put *putRequest, res store.SetResult) error {
	etag := r.tag(put.data)
	if prefers(r.Request.Header, "return", "minimal") && !put.returnPrevious {
		r.Header("Preference-Applied", "return=minimal")
		return r.done(http.StatusNoContent)
	}
	j := r.reply().raw(`{"etag":`).string(etag)
	j.ttl(res.TTLMS)
	if put.returnPrevious {
		j.previous(res.Previous, put.encoding)
	}
	return r.answer(j.raw("}"))
}

func (r *reply) previous(v *store.Value, enc valueEncoding) {
	if v == nil {
		r.raw(`,"previous":{"found":false}`)
		return
	}
	r.raw(`,"previous":{"found":true,`).gone(v.Data, enc).raw("}")
}

// deleteString is DELETE /v1/strings/{key}, with ?return=value GETDEL.
func (a *API) deleteString(r request) error {
	cond, enc := r.match(), r.encoding()
	back := r.word("return", "value") != ""
	if r.bad != nil {
		return r.bad
	}
	v, err := a.store.Delete(r.ctx, r.id, r.key, store.DeleteOptions{Cond: cond, ReturnValue: back, Delivery: r.delivery()})
	if err != nil {
		return err
	}
	if !back {
		return r.done(http.StatusNoContent)
	}
	return r.answer(r.reply().raw("{").gone(v.Data, enc).raw(`,"etag":`).string(store.ETag(v.Data)).raw("}"))
}

// appendString is POST /v1/strings/{key}/append.
func (a *API) appendString(r request) error {
	r.unconditional()
	add := body(a, &r, parseAppend)
	if r.bad != nil {
		return r.bad
	}
	length, err := a.store.Append(r.ctx, r.id, r.key, add.data, store.AppendOptions{Expiry: add.expiry, Delivery: r.delivery()})
	return r.length(length, err)
}

// length answers how long a value has become.
func (r *request) length(n int64, err error) error {
	if err != nil {
		return err
	}
	return r.answer(r.reply().raw(`{"length":`).int(n).raw("}"))
}

// getStringRange is GET /v1/strings/{key}/range: bytes, counted as GETRANGE does.
func (a *API) getStringRange(r request) error {
	start, end, enc, from := r.integer("start", 0), r.integer("end", -1), r.encoding(), r.reading()
	if r.bad != nil {
		return r.bad
	}
	part, err := a.store.GetRange(r.ctx, r.id, r.key, start, end, from)
	if r.told(); err != nil {
		return err
	}
	j := r.reply().raw(`{"value":`)
	if !j.value(part.Data, enc) {
		return notUTF8()
	}
	return r.answer(j.raw(`,"encoding":"`).raw(enc.String()).raw(`","length":`).int(part.Length).raw("}"))
}

// putStringRange is PUT /v1/strings/{key}/range.
func (a *API) putStringRange(r request) error {
	r.unconditional()
	put := body(a, &r, parseRangeWrite)
	if r.bad != nil {
		return r.bad
	}
	length, err := a.store.SetRange(r.ctx, r.id, r.key, put.offset, put.data, r.delivery())
	return r.length(length, err)
}
