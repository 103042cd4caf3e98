package handlers

import (
	"strconv"
	"strings"
	"time"

	"github.com/slotgate/slotgate/store"
)

// maxTTLMillis is 100 years: longer is a mistake in the unit, and now + ttl stays far from overflowing anywhere.
const maxTTLMillis = 3_155_760_000_000

// expireIn is the expiry of ttl_ms, or what is wrong with it.
func expireIn(millis int64) (e store.Expiry, fault string) {
	switch {
	case millis < 1:
		return e, "must be at least 1"
	case millis > maxTTLMillis:
		return e, "must be at most " + strconv.FormatInt(maxTTLMillis, 10) + " (100 years)"
	default:
		return store.Expiry{Mode: store.ExpireIn, Millis: millis}, ""
	}
}

const wantTimestamp = "must be an RFC 3339 timestamp, such as 2030-01-02T15:04:05Z"

// expireAt is the expiry of expires_at, or what is wrong with it. A moment that has passed is refused: in Redis it would delete.
func expireAt(text string, now time.Time) (e store.Expiry, fault string) {
	t, ok := timestamp(text)
	if !ok {
		return e, wantTimestamp
	}
	at := t.UnixMilli()
	switch {
	case at <= now.UnixMilli():
		return e, "must be in the future"
	case at > now.UnixMilli()+maxTTLMillis:
		return e, "must be within 100 years"
	default:
		return store.Expiry{Mode: store.ExpireAt, Millis: at}, ""
	}
}

// timestamp reads RFC 3339 strictly. time.Parse also takes one digit for the hour, a comma before the fraction and impossible zones.
func timestamp(text string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || text[len("2006-01-02T1")] == ':' || strings.Contains(text, ",") {
		return t, false
	}
	if n := len(text); text[n-1] != 'Z' && (text[n-5:n-3] > "23" || text[n-2:] > "59") {
		return t, false
	}
	return t, true
}

// expiryForm collects the ways a body says how long a key lives; it may use one of them.
type expiryForm struct {
	expiry        store.Expiry
	ttl, at, keep bool // which were there
}

// readMember reads the member if it is one of the forms.
func (f *expiryForm) readMember(d *document, name []byte, now time.Time) bool {
	switch string(name) {
	case "ttl_ms":
		f.ttl = true
		if n, ok := d.integer(); ok {
			d.wrong(f.take(expireIn(n)))
		}
	case "expires_at":
		f.at = true
		if text, ok := d.string(); ok {
			d.wrong(f.take(expireAt(string(text), now)))
		}
	default:
		return false
	}
	return true
}

// readKeep is readMember for operations that also know keep_ttl.
func (f *expiryForm) readKeep(d *document, name []byte, now time.Time) bool {
	if string(name) != "keep_ttl" {
		return f.readMember(d, name, now)
	}
	if f.keep = d.boolean(); f.keep {
		f.expiry = store.Expiry{Mode: store.KeepExpiry}
	}
	return true
}

func (f *expiryForm) take(e store.Expiry, fault string) string {
	f.expiry = e
	return fault
}

func (f *expiryForm) given() bool { return f.ttl || f.at || f.keep }

// check notes that more than one form was used, by the names of all that were.
func (f *expiryForm) check(d *document) {
	if f.alone() {
		return
	}
	for _, form := range f.forms() {
		d.note(store.Invalid(d.member(form), exclusiveForms))
	}
}

const exclusiveForms = "ttl_ms, expires_at and keep_ttl exclude each other"

func (f *expiryForm) alone() bool { return !(f.ttl && f.at || f.ttl && f.keep || f.at && f.keep) }

func (f *expiryForm) forms() []string {
	var names []string
	if f.ttl {
		names = append(names, "ttl_ms")
	}
	if f.at {
		names = append(names, "expires_at")
	}
	if f.keep {
		names = append(names, "keep_ttl")
	}
	return names
}

// expiry reads the same forms from the query string.
func (q query) expiry(now time.Time) (store.Expiry, error) {
	var f expiryForm
	for _, p := range q {
		fault, err := f.readParameter(q, p, now)
		if err != nil {
			return store.Expiry{}, err
		}
		if fault != "" {
			return store.Expiry{}, store.Invalid(queryPointer(p.name), fault)
		}
	}
	if f.alone() {
		return f.expiry, nil
	}
	e := store.NewError(store.CodeValidationFailed, exclusiveForms)
	for _, form := range f.forms() {
		e.Fields = append(e.Fields, store.Invalid(queryPointer(form), exclusiveForms).Fields...)
	}
	return store.Expiry{}, e
}

func (f *expiryForm) readParameter(q query, p parameter, now time.Time) (fault string, err error) {
	switch p.name {
	case "ttl_ms":
		f.ttl = true
		n, err := q.integer(p.name, 0)
		if err != nil {
			return "", err
		}
		return f.take(expireIn(n)), nil
	case "expires_at":
		f.at = true
		if fault = f.take(expireAt(p.value, now)); fault == wantTimestamp {
			return "", store.Unparsable(queryPointer(p.name), fault+" (a + is written as %2B)")
		}
		return fault, nil
	case "keep_ttl":
		word, err := q.word(p.name, "true", "false")
		if f.keep = word == "true"; f.keep {
			f.expiry = store.Expiry{Mode: store.KeepExpiry}
		}
		return "", err
	}
	return "", nil
}
