package handlers

import (
	"net/http"
	"strconv"

	"github.com/slotgate/slotgate/store"
)

// How many keys a page has: unless asked for, and at most.
const (
	defaultPage = 100
	maxPage     = 1000
)

// listKeys is GET /v1/keys: one page of the app's keys.
func (a *API) listKeys(r request) error {
	limit, prefix, kind := r.integer("limit", defaultPage), r.prefix(), r.kind()
	if r.bad != nil {
		return r.bad
	}
	cursor, _ := r.query.get("cursor")
	page, err := a.store.List(r.ctx, r.id, store.ListOptions{
		Prefix: prefix, Type: kind, Limit: int(min(max(limit, 1), maxPage)), Cursor: cursor,
	})
	if err != nil {
		return err
	}
	j := r.reply().raw(`{"items":[`)
	for i, key := range page.Keys {
		if i > 0 {
			j.raw(",")
		}
		j.raw("{").named(key, r.keyEncoding).raw("}")
	}
	j.raw("]")
	if page.NextCursor != "" {
		j.raw(`,"next_cursor":`).string(page.NextCursor)
	}
	return r.answer(j.raw("}"))
}

// prefix is what the listed keys begin with, written as keys are; unlike a key it may be empty.
func (r *request) prefix() string {
	text, _ := r.query.get("prefix")
	if text == "" {
		return ""
	}
	prefix, err := checkKey(text, r.keyEncoding, r.id.Sizes.KeyMaxBytes, "query:prefix")
	return read(r, prefix, err)
}

// kind is the type of the listed keys, "" for all, which nobody asks for by an empty word: that is a variable without a value.
func (r *request) kind() string {
	kind, given := r.query.get("type")
	if given && kind == "" {
		r.fail(store.Invalid("query:type", "must not be empty; without it all types are listed"))
	}
	return kind
}

// headKey is HEAD /v1/keys/{key}: type and TTL in the header.
func (a *API) headKey(r request) error {
	from := r.reading()
	if r.bad != nil {
		return r.bad
	}
	info, err := a.store.KeyInfo(r.ctx, r.id, r.key, false, from)
	if r.told(); err != nil {
		return err
	}
	r.Header("Gateway-Type", info.Type)
	if info.TTLMS >= 0 {
		r.Header("Gateway-Ttl-Ms", strconv.FormatInt(info.TTLMS, 10))
	}
	return r.done(http.StatusOK)
}

// getKey is GET /v1/keys/{key}: what Redis knows of a key of any type.
func (a *API) getKey(r request) error {
	memory, from := r.word("include", "memory") != "", r.reading()
	if r.bad != nil {
		return r.bad
	}
	info, err := a.store.KeyInfo(r.ctx, r.id, r.key, memory, from)
	if r.told(); err != nil {
		return err
	}
	j := r.reply().raw("{").named(r.key, r.keyEncoding)
	j.raw(`,"type":`).string(info.Type).raw(`,"encoding":`).string(info.Encoding)
	j.ttl(info.TTLMS)
	j.raw(`,"slot":`).int(int64(info.Slot))
	j.hashTag(r.key, info.HashTag, r.keyEncoding)
	if memory {
		j.raw(`,"memory_bytes":`).int(info.MemoryBytes)
	}
	return r.answer(j.raw("}"))
}

// deleteKey is DELETE /v1/keys/{key}, of any type; If-Match with an ETag works on strings.
func (a *API) deleteKey(r request) error {
	cond := r.match()
	if r.bad != nil {
		return r.bad
	}
	if _, err := a.store.Delete(r.ctx, r.id, r.key, store.DeleteOptions{Cond: cond, Delivery: r.delivery()}); err != nil {
		return err
	}
	return r.done(http.StatusNoContent)
}

// putKeyTTL is PUT /v1/keys/{key}/ttl.
func (a *API) putKeyTTL(r request) error {
	r.unconditional()
	put := body(a, &r, parseTTL)
	if r.bad != nil {
		return r.bad
	}
	applied, ttl, err := a.store.Expire(r.ctx, r.id, r.key, put.expiry, put.when, r.delivery())
	if err != nil {
		return err
	}
	j := r.reply().raw(`{"applied":`).bool(applied)
	j.ttl(ttl)
	return r.answer(j.raw("}"))
}

// deleteKeyTTL is DELETE /v1/keys/{key}/ttl.
func (a *API) deleteKeyTTL(r request) error {
	if r.unconditional(); r.bad != nil {
		return r.bad
	}
	if err := a.store.Persist(r.ctx, r.id, r.key, r.delivery()); err != nil {
		return err
	}
	return r.done(http.StatusNoContent)
}

// hashTag adds the part of the key that chooses its slot, in the form the key has.
func (r *reply) hashTag(key, tag string, enc keyEncoding) {
	if tag != "" {
		r.raw(`,"hash_tag":`).keyText(tag, keyIsText(key, enc))
	}
}
