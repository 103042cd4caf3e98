package handlers

import "github.com/slotgate/slotgate/store"

// The methods here read one part of a request each and keep the first fault in r.bad, so that an operation reads all it needs and
// looks once whether that went well. After a fault they give zero values.

// read keeps the fault of a part.
func read[T any](r *request, value T, err error) T {
	r.fail(err)
	return value
}

func (r *request) fail(err error) {
	if r.bad == nil {
		r.bad = err
	}
}

func (r *request) integer(name string, otherwise int64) int64 {
	n, err := r.query.integer(name, otherwise)
	return read(r, n, err)
}

func (r *request) word(name string, allowed ...string) string {
	word, err := r.query.word(name, allowed...)
	return read(r, word, err)
}

// encoding is that of the values in the answer.
func (r *request) encoding() valueEncoding {
	return encodingNamed(r.word("encoding", "utf8", "base64"))
}

// quoted is whether numbers in the answer are strings.
func (r *request) quoted() bool { return r.word("int64", "string") != "" }

// expiry is that of the query string.
func (r *request) expiry(a *API) store.Expiry {
	if len(r.query) == 0 {
		return store.Expiry{} // without a look at the clock
	}
	e, err := r.query.expiry(a.now())
	return read(r, e, err)
}

// unless is If-None-Match of a read.
func (r *request) unless() tagList {
	l, err := readCondition(r.Request.Header)
	return read(r, l, err)
}

// condition is If-Match or If-None-Match of a write.
func (r *request) condition() store.Condition {
	c, err := writeCondition(r.Request.Header)
	return read(r, c, err)
}

// match is If-Match of a delete.
func (r *request) match() store.Condition {
	c, err := matchCondition(r.Request.Header)
	return read(r, c, err)
}

// unconditional is for writes that cannot be conditional.
func (r *request) unconditional() { r.fail(refuseConditions(r.Request.Header)) }

// octets is a body that is the value itself. It is not read after a fault, however large it is.
func (r *request) octets() []byte {
	if r.bad != nil {
		return nil
	}
	data, err := readBody(r.Request, r.id.Sizes.ValueMaxBytes, store.CodeValueTooLarge)
	r.sent(data)
	return read(r, data, err)
}

// sent keeps the body for the fingerprint of the request.
func (r *request) sent(body []byte) {
	if r.idempotent != nil {
		r.idempotent.body = body
	}
}

// body reads the JSON body of r and parses it, unless there was a fault before.
func body[T any](a *API, r *request, parse func([]byte, terms) (T, error)) (parsed T) {
	if r.bad != nil {
		return parsed
	}
	src, err := readJSON(r.Request, r.id.Sizes.RequestMaxBytes)
	r.sent(src)
	if err == nil {
		parsed, err = parse(src, terms{
			now: a.now(), keyMaxBytes: r.id.Sizes.KeyMaxBytes, valueMaxBytes: r.id.Sizes.ValueMaxBytes, maxKeys: a.maxKeys,
		})
	}
	return read(r, parsed, err)
}
