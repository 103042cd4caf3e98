package handlers

import (
	"errors"
	"strings"
	"time"

	"github.com/slotgate/slotgate/store"
)

// terms are what a body is read against: the moment and the caller's limits.
type terms struct {
	now           time.Time
	keyMaxBytes   int64
	valueMaxBytes int64
	maxKeys       int
}

// valueForm collects a value and its encoding, which may come in any order.
type valueForm struct {
	text     []byte
	encoding valueEncoding
	given    bool
}

func (f *valueForm) readMember(d *document, name []byte) bool {
	switch string(name) {
	case "value":
		f.text, _ = d.string()
		f.given = true
	case "encoding":
		f.encoding = encodingNamed(d.word("utf8", "base64"))
	default:
		return false
	}
	return true
}

// value decodes what was collected.
func (f *valueForm) value(maxBytes int64) ([]byte, error) {
	return decodeValue(f.text, f.encoding, maxBytes, "/value")
}

// putRequest is the body of PUT /v1/strings/{key}.
type putRequest struct {
	data           []byte
	encoding       valueEncoding
	expiry         store.Expiry
	returnPrevious bool
}

func parsePut(src []byte, t terms) (putRequest, error) {
	if r, ok := scanPut(src, &t); ok {
		return r, nil
	}
	return readPut(src, &t)
}

// readPut is parsePut for any body.
func readPut(src []byte, t *terms) (putRequest, error) {
	var r putRequest
	var value valueForm
	var expiry expiryForm
	err := parseObject(src, func(d *document, name []byte) bool {
		if string(name) == "return_previous" {
			r.returnPrevious = d.boolean()
			return true
		}
		return value.readMember(d, name) || expiry.readKeep(d, name, t.now)
	}, func(d *document) {
		d.require(value.given, "value")
		expiry.check(d)
	})
	if err == nil {
		r.data, err = value.value(t.valueMaxBytes)
	}
	r.encoding, r.expiry = value.encoding, expiry.expiry
	return r, err
}

// appendRequest is the body of POST /v1/strings/{key}/append.
type appendRequest struct {
	data   []byte
	expiry store.Expiry
}

func parseAppend(src []byte, t terms) (appendRequest, error) {
	var r appendRequest
	var value valueForm
	var expiry expiryForm
	err := parseObject(src, func(d *document, name []byte) bool {
		return value.readMember(d, name) || expiry.readMember(d, name, t.now)
	}, func(d *document) {
		d.require(value.given, "value")
		expiry.check(d)
	})
	if err == nil {
		r.data, err = value.value(t.valueMaxBytes)
	}
	r.expiry = expiry.expiry
	return r, err
}

// rangeRequest is the body of PUT /v1/strings/{key}/range.
type rangeRequest struct {
	offset int64
	data   []byte
}

func parseRangeWrite(src []byte, t terms) (rangeRequest, error) {
	var r rangeRequest
	var value valueForm
	offset := false
	err := parseObject(src, func(d *document, name []byte) bool {
		if string(name) == "offset" {
			offset = true
			if r.offset, _ = d.integer(); r.offset < 0 {
				d.wrong("must not be negative")
			}
			return true
		}
		return value.readMember(d, name)
	}, func(d *document) {
		d.require(offset, "offset")
		d.require(value.given, "value")
	})
	if err == nil {
		r.data, err = value.value(t.valueMaxBytes)
	}
	return r, err
}

// counterRequest is the body of PUT /v1/counters/{key}.
type counterRequest struct {
	value  store.Number
	expiry store.Expiry
}

func parseCounter(src []byte, t terms) (counterRequest, error) {
	var r counterRequest
	var expiry expiryForm
	value := false
	err := parseObject(src, func(d *document, name []byte) bool {
		if string(name) == "value" {
			value = true
			r.value, _ = d.numeral()
			return true
		}
		return expiry.readKeep(d, name, t.now)
	}, func(d *document) {
		d.require(value, "value")
		expiry.check(d)
	})
	r.expiry = expiry.expiry
	return r, err
}

// addRequest is the body of POST /v1/counters/{key}/add.
type addRequest struct {
	delta     store.Number
	expiry    store.Expiry
	ttlAlways bool
	min, max  *store.Number
}

func parseAdd(src []byte, t terms) (addRequest, error) {
	var r addRequest
	var expiry expiryForm
	var delta, when bool
	err := parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "delta":
			delta = true
			r.delta, _ = d.numeral()
		case "min":
			r.min = d.bound()
		case "max":
			r.max = d.bound()
		case "ttl_when":
			when = true
			r.ttlAlways = d.word("created", "always") == "always"
		default:
			return expiry.readMember(d, name, t.now)
		}
		return true
	}, func(d *document) {
		d.require(delta, "delta")
		expiry.check(d)
		if when && !expiry.given() {
			d.note(store.Invalid(d.member("ttl_when"), "needs ttl_ms or expires_at"))
		}
	})
	r.expiry = expiry.expiry
	return r, err
}

// bound reads a number that may be absent.
func (d *document) bound() *store.Number {
	n, ok := d.numeral()
	if !ok {
		return nil
	}
	return &n
}

// numeral reads the number of a counter, exactly as it is written. Redis keeps it as that text and counts in plain notation only.
func (d *document) numeral() (n store.Number, ok bool) {
	literal, ok := d.number("a number")
	if !ok {
		return n, false
	}
	if strings.ContainsAny(literal, "eE") {
		d.wrong("must be written without an exponent")
		return n, false
	}
	n, err := store.ParseNumber(literal)
	if err != nil {
		d.wrong(detailOf(err))
		return n, false
	}
	return n, true
}

// ttlRequest is the body of PUT /v1/keys/{key}/ttl.
type ttlRequest struct {
	expiry store.Expiry
	when   string
}

func parseTTL(src []byte, t terms) (ttlRequest, error) {
	var r ttlRequest
	var expiry expiryForm
	err := parseObject(src, func(d *document, name []byte) bool {
		if string(name) == "when" {
			r.when = d.word("nx", "xx", "gt", "lt")
			return true
		}
		return expiry.readMember(d, name, t.now)
	}, func(d *document) {
		d.require(expiry.given(), "ttl_ms")
		expiry.check(d)
	})
	r.expiry = expiry.expiry
	return r, err
}

// detailOf is what an error of the store says to the client.
func detailOf(err error) string {
	if e, ok := errors.AsType[*store.Error](err); ok {
		return e.Detail
	}
	return "is not right"
}
