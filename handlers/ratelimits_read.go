package handlers

import (
	"strconv"
	"time"

	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// parseDefinition reads the body of PUT /v1/ratelimits/{name}. What its words and numbers mean is checked by ratelimit.
func parseDefinition(src []byte, _ terms) (def ratelimit.Definition, err error) {
	err = parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "isolation":
			def.Isolation = ratelimit.Isolation(d.text())
		case "on_error":
			def.OnError = ratelimit.OnError(d.text())
		case "shadow":
			def.Shadow = d.boolean()
		case "rules":
			def.Rules = d.rules()
		default:
			return false
		}
		return true
	}, func(d *document) { d.require(def.Rules != nil, "rules") })
	return def, err
}

// parseOverride reads the body of PUT /v1/ratelimits/{name}/overrides/{subject}.
func parseOverride(src []byte, t terms) (o ratelimit.Override, err error) {
	err = parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "rules":
			o.Rules = d.rules()
		case "expires_at":
			at, err := time.Parse(time.RFC3339, d.text())
			switch {
			case err != nil:
				d.wrong("must be a time as RFC 3339 has it")
			case !at.After(t.now):
				d.wrong("must be in the future")
			}
			o.ExpiresAt = at
		default:
			return false
		}
		return true
	}, func(d *document) { d.require(o.Rules != nil, "rules") })
	return o, err
}

// rules reads the rules of a limit; nil if there is no array. More than a limit may have are counted, not kept.
func (d *document) rules() []ratelimit.Rule {
	rules := make([]ratelimit.Rule, 0, 4)
	d.array(func() bool {
		rule := d.rule()
		if len(rules) <= ratelimit.MaxRules {
			rules = append(rules, rule)
		}
		return d.broken == nil
	})
	return rules
}

func (d *document) rule() (r ratelimit.Rule) {
	var limit, period bool
	if d.object(func(d *document, name []byte) bool {
		switch string(name) {
		case "id":
			r.ID = d.text()
		case "scope":
			r.Scope = ratelimit.Scope(d.text())
		case "algorithm":
			r.Algorithm = ratelimit.Algorithm(d.text())
		case "limit":
			limit = true
			r.Limit, _ = d.integer()
		case "period_ms":
			period = true
			r.PeriodMS, _ = d.integer()
		case "burst":
			if r.Burst, _ = d.integer(); r.Burst == 0 {
				d.wrong("must be at least 1")
			}
		case "mode":
			r.Mode = ratelimit.Mode(d.text())
		case "align":
			r.Align = ratelimit.Align(d.text())
		case "tz_offset_min":
			n, _ := d.integer()
			if n != int64(int32(n)) {
				d.wrong("must fit into 32 bits")
			}
			r.TZOffsetMin = int(int32(n))
		default:
			return false
		}
		return true
	}) {
		d.require(r.ID != "", "id")
		d.require(r.Algorithm != "", "algorithm")
		d.require(limit, "limit")
		d.require(period, "period_ms")
	}
	return r
}

// text reads a string that is kept.
func (d *document) text() string {
	text, _ := d.string()
	return string(text)
}

// takeForm collects a take; its subject is decoded when the encoding is known.
type takeForm struct {
	ratelimit.Request
	subject, cost bool
}

func (f *takeForm) read(d *document, name []byte) bool {
	switch string(name) {
	case "subject":
		f.subject = true
		f.Subject = d.text()
	case "cost":
		n, _ := d.integer()
		f.Cost, f.cost = &n, true
	case "min_grant":
		n, _ := d.integer()
		f.MinGrant = &n
	case "max_wait_ms":
		f.MaxWaitMS, _ = d.integer()
	default:
		return false
	}
	return true
}

// parseTake reads the body of a take or a peek.
func parseTake(src []byte, _ terms) (ratelimit.Request, error) {
	var f takeForm
	var enc keyEncoding
	err := parseObject(src, func(d *document, name []byte) bool {
		if string(name) == "key_encoding" {
			enc = keyEncodingNamed(d.word("base64url"))
			return true
		}
		return f.read(d, name)
	}, func(d *document) { d.require(f.subject, "subject") })
	if err == nil {
		err = enc.decode(&f.Subject, "/subject")
	}
	return f.Request, err
}

// parseRefund reads the body of a refund.
func parseRefund(src []byte, _ terms) (ratelimit.Request, error) {
	var f takeForm
	var enc keyEncoding
	err := parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "key_encoding":
			enc = keyEncodingNamed(d.word("base64url"))
			return true
		case "subject", "cost":
			return f.read(d, name)
		}
		return false
	}, func(d *document) {
		d.require(f.subject, "subject")
		d.require(f.cost, "cost")
	})
	if err == nil {
		err = enc.decode(&f.Subject, "/subject")
	}
	return f.Request, err
}

// parseTakes reads the body of a batch of takes.
func parseTakes(src []byte, _ terms) ([]limits.Take, error) {
	var takes []limits.Take
	var enc keyEncoding
	given := false
	err := parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "key_encoding":
			enc = keyEncodingNamed(d.word("base64url"))
		case "items":
			given = true
			d.list("/items", limits.MaxBatch, func() { takes = append(takes, d.take()) })
		default:
			return false
		}
		return true
	}, func(d *document) { d.require(given, "items") })
	for i := 0; err == nil && i < len(takes); i++ {
		err = enc.decode(&takes[i].Subject, "/items/"+strconv.Itoa(i)+"/subject")
	}
	return takes, err
}

func (d *document) take() (t limits.Take) {
	var f takeForm
	if d.object(func(d *document, name []byte) bool {
		if string(name) == "name" {
			t.Name = d.text()
			return true
		}
		return f.read(d, name)
	}) {
		d.require(t.Name != "", "name")
		d.require(f.subject, "subject")
	}
	t.Request = f.Request
	return t
}
