package handlers

import (
	"net/http"
	"strconv"

	"github.com/slotgate/slotgate/store"
)

// getBytes is GET /v1/bytes/{key}. A range is read from Redis alone, without the rest of the value, unless something in the request
// needs the whole: a validator is made from all of the value, and a new expiry goes with reading it.
func (a *API) getBytes(r request) error {
	expiry, err := r.query.expiry(a.now())
	if err != nil {
		return err
	}
	unless, err := readCondition(r.Request.Header)
	if err != nil {
		return err
	}
	span, nothing, ranged := parseRange(r.GetHeader("Range"))
	ifRange := r.GetHeader("If-Range")
	if ranged && expiry.Mode == store.NoExpiry && !unless.present() && ifRange == "" {
		return a.getPart(r, span, nothing)
	}
	v, err := a.store.Get(r.ctx, r.id, r.key, store.GetOptions{Expiry: expiry})
	if err != nil {
		return err
	}
	etag := store.ETag(v.Data)
	r.Header("ETag", etag)
	if unless.matchesWeakly(etag) {
		return r.done(http.StatusNotModified)
	}
	if !ranged || ifRange != "" && ifRange != etag {
		r.octets(http.StatusOK, v.Data)
		return nil
	}
	total := int64(len(v.Data))
	first, last, ok := span.resolve(total)
	if !ok || nothing {
		return r.unsatisfied(total)
	}
	r.Header("Content-Range", contentRange(first, last, total))
	r.octets(http.StatusPartialContent, v.Data[first:last+1])
	return nil
}

// getPart answers a range of a value that is not loaded.
func (a *API) getPart(r request, span byteRange, nothing bool) error {
	if nothing {
		total, err := a.store.Length(r.ctx, r.id, r.key)
		if err != nil {
			return err
		}
		return r.unsatisfied(total)
	}
	part, err := a.store.GetRange(r.ctx, r.id, r.key, span.start, span.end)
	if err != nil {
		return err
	}
	first, last, ok := span.resolve(part.Length)
	if !ok {
		return r.unsatisfied(part.Length)
	}
	r.Header("Content-Range", contentRange(first, last, part.Length))
	r.octets(http.StatusPartialContent, part.Data)
	return nil
}

func (r *request) unsatisfied(total int64) error {
	r.Header("Content-Range", unsatisfied(total))
	return store.NewError(store.CodeRangeNotSatisfiable, "the value has "+strconv.FormatInt(total, 10)+" bytes")
}

// octets answers with bytes. They are an attachment, so that no browser runs what an app has stored.
func (r *request) octets(status int, data []byte) {
	r.octetsHeader(len(data))
	r.Writer.WriteHeader(status)
	_, _ = r.Writer.Write(data) // fails when the client has gone, whom nobody can tell
}

func (r *request) octetsHeader(length int) {
	h := r.Writer.Header()
	h["Content-Type"] = octetsType
	h["Content-Disposition"] = attachment
	h["Accept-Ranges"] = byteUnit
	h["Content-Length"] = []string{strconv.Itoa(length)}
}

var (
	attachment = []string{"attachment"}
	byteUnit   = []string{"bytes"}
)

// headBytes is HEAD /v1/bytes/{key}: the header of GET, whose ETag takes the whole value.
func (a *API) headBytes(r request) error {
	unless, err := readCondition(r.Request.Header)
	if err != nil {
		return err
	}
	v, err := a.store.Get(r.ctx, r.id, r.key, store.GetOptions{})
	if err != nil {
		return err
	}
	etag := store.ETag(v.Data)
	r.Header("ETag", etag)
	if unless.matchesWeakly(etag) {
		return r.done(http.StatusNotModified)
	}
	r.octetsHeader(len(v.Data))
	return r.done(http.StatusOK)
}

// putBytes is PUT /v1/bytes/{key}: the body is the value.
func (a *API) putBytes(r request) error {
	expiry, err := r.query.expiry(a.now())
	if err != nil {
		return err
	}
	cond, err := writeCondition(r.Request.Header)
	if err != nil {
		return err
	}
	data, err := r.rawBody()
	if err != nil {
		return err
	}
	if _, err := a.store.Set(r.ctx, r.id, r.key, data, store.SetOptions{Expiry: expiry, Cond: cond}); err != nil {
		return err
	}
	r.Header("ETag", store.ETag(data))
	return r.done(http.StatusNoContent)
}

func (r *request) rawBody() ([]byte, error) {
	return readBody(r.Request, r.id.Sizes.ValueMaxBytes, store.CodeValueTooLarge)
}

// deleteBytes is DELETE /v1/bytes/{key}.
func (a *API) deleteBytes(r request) error {
	cond, err := matchCondition(r.Request.Header)
	if err != nil {
		return err
	}
	if _, err := a.store.Delete(r.ctx, r.id, r.key, store.DeleteOptions{Cond: cond}); err != nil {
		return err
	}
	return r.done(http.StatusNoContent)
}

// appendBytes is POST /v1/bytes/{key}/append.
func (a *API) appendBytes(r request) error {
	if err := refuseConditions(r.Request.Header); err != nil {
		return err
	}
	expiry, err := r.query.expiry(a.now())
	if err != nil {
		return err
	}
	data, err := r.rawBody()
	if err != nil {
		return err
	}
	length, err := a.store.Append(r.ctx, r.id, r.key, data, store.AppendOptions{Expiry: expiry})
	if err != nil {
		return err
	}
	return r.length(length)
}

// putBytesRange is PUT /v1/bytes/{key}/range?offset=.
func (a *API) putBytesRange(r request) error {
	if err := refuseConditions(r.Request.Header); err != nil {
		return err
	}
	offset, err := r.query.integer("offset", -1)
	if err != nil {
		return err
	}
	if _, given := r.query.get("offset"); !given {
		return store.Invalid("query:offset", "is required")
	}
	if offset < 0 {
		return store.Invalid("query:offset", "must not be negative")
	}
	data, err := r.rawBody()
	if err != nil {
		return err
	}
	length, err := a.store.SetRange(r.ctx, r.id, r.key, offset, data)
	if err != nil {
		return err
	}
	return r.length(length)
}
