package handlers

import (
	"net/http"
	"strconv"

	"github.com/slotgate/slotgate/store"
)

// getBytes is GET /v1/bytes/{key}. A range is read from Redis alone, without the rest of the value, unless something in the request
// needs the whole: a validator is made from all of the value, and a new expiry goes with reading it.
func (a *API) getBytes(r request) error {
	expiry, unless, ifRange := r.expiry(a), r.unless(), first(r.Request.Header["If-Range"])
	from := r.readingUnless(expiry)
	if r.bad != nil {
		return r.bad
	}
	span, nothing, ranged := parseRange(first(r.Request.Header["Range"]))
	if ranged && expiry.Mode == store.NoExpiry && !unless.present() && ifRange == "" {
		return a.getPart(r, span, nothing, from)
	}
	v, err := a.store.Get(r.ctx, r.id, r.key, store.GetOptions{Expiry: expiry, Reading: from})
	if r.told(); err != nil {
		return err
	}
	etag := r.tag(v.Data)
	if unless.matchesWeakly(etag) {
		return r.done(http.StatusNotModified)
	}
	if !ranged || ifRange != "" && ifRange != etag {
		return r.whole(v.Data)
	}
	total := int64(len(v.Data))
	if first, last, ok := span.resolve(total); ok && !nothing {
		return r.part(v.Data[first:last+1], first, total)
	}
	return r.unsatisfied(total)
}

// getPart answers a range of a value that is not loaded.
func (a *API) getPart(r request, span byteRange, nothing bool, from store.Reading) error {
	if nothing {
		total, err := a.store.Length(r.ctx, r.id, r.key, from)
		if r.told(); err != nil {
			return err
		}
		return r.unsatisfied(total)
	}
	part, err := a.store.GetRange(r.ctx, r.id, r.key, span.start, span.end, from)
	if r.told(); err != nil {
		return err
	}
	if first, _, ok := span.resolve(part.Length); ok {
		return r.part(part.Data, first, part.Length)
	}
	return r.unsatisfied(part.Length)
}

func (r *request) whole(data []byte) error { return r.send(http.StatusOK, data) }

func (r *request) part(data []byte, first, total int64) error {
	r.Header("Content-Range", contentRange(first, first+int64(len(data))-1, total))
	return r.send(http.StatusPartialContent, data)
}

func (r *request) unsatisfied(total int64) error {
	r.Header("Content-Range", unsatisfied(total))
	return store.NewError(store.CodeRangeNotSatisfiable, "the value has "+strconv.FormatInt(total, 10)+" bytes")
}

// send answers with bytes.
func (r *request) send(status int, data []byte) error {
	r.octetsHeader(len(data))
	r.Writer.WriteHeader(status)
	_, _ = r.Writer.Write(data) // fails when the client has gone, whom nobody can tell
	return nil
}

// octetsHeader is the header of an answer of bytes. They are an attachment, so that no browser runs what an app has stored.
func (r *request) octetsHeader(length int) {
	h := r.Writer.Header()
	h["Content-Type"] = octetsType
	h["Content-Disposition"] = attachment
	h["Accept-Ranges"] = byteUnit
	r.own().setLength(h, length)
}

var (
	attachment = []string{"attachment"}
	byteUnit   = []string{"bytes"}
)

// headBytes is HEAD /v1/bytes/{key}: the header of GET, whose ETag takes the whole value.
func (a *API) headBytes(r request) error {
	unless, from := r.unless(), r.reading()
	if r.bad != nil {
		return r.bad
	}
	v, err := a.store.Get(r.ctx, r.id, r.key, store.GetOptions{Reading: from})
	if r.told(); err != nil {
		return err
	}
	etag := r.tag(v.Data)
	if unless.matchesWeakly(etag) {
		return r.done(http.StatusNotModified)
	}
	r.octetsHeader(len(v.Data))
	return r.done(http.StatusOK)
}

// putBytes is PUT /v1/bytes/{key}: the body is the value.
func (a *API) putBytes(r request) error {
	expiry, cond, data := r.expiry(a), r.condition(), r.octets()
	if r.bad != nil {
		return r.bad
	}
	if _, err := a.store.Set(r.ctx, r.id, r.key, data, store.SetOptions{Expiry: expiry, Cond: cond, Delivery: r.delivery()}); err != nil {
		return err
	}
	r.tag(data)
	return r.done(http.StatusNoContent)
}

// deleteBytes is DELETE /v1/bytes/{key}.
func (a *API) deleteBytes(r request) error { return a.deleteKey(r) }

// appendBytes is POST /v1/bytes/{key}/append.
func (a *API) appendBytes(r request) error {
	r.unconditional()
	expiry, data := r.expiry(a), r.octets()
	if r.bad != nil {
		return r.bad
	}
	length, err := a.store.Append(r.ctx, r.id, r.key, data, store.AppendOptions{Expiry: expiry, Delivery: r.delivery()})
	return r.length(length, err)
}

// putBytesRange is PUT /v1/bytes/{key}/range?offset=.
func (a *API) putBytesRange(r request) error {
	r.unconditional()
	offset := r.offset()
	data := r.octets()
	if r.bad != nil {
		return r.bad
	}
	length, err := a.store.SetRange(r.ctx, r.id, r.key, offset, data, r.delivery())
	return r.length(length, err)
}

// offset is the parameter of that name, which must be there.
func (r *request) offset() int64 {
	offset := r.integer("offset", 0)
	if _, given := r.query.get("offset"); !given {
		r.fail(store.Invalid("query:offset", "is required"))
	}
	if offset < 0 {
		r.fail(store.Invalid("query:offset", "must not be negative"))
	}
	return offset
}
