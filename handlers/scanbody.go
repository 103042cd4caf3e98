package handlers

import "github.com/slotgate/slotgate/store"

// members are those of an object that were there; each may be there once.
type members uint16

const (
	keysMember members = 1 << iota // and items, the list of the body
	keyMember
	valueMember
	encodingMember
	keyEncodingMember
	ttlMember
	expiryMember
	keepMember
	previousMember
)

const expiryMembers = ttlMember | expiryMember | keepMember

func (m *members) add(one members) (first bool) {
	first = *m&one == 0
	*m |= one
	return first
}

// object reads an object. member reads the value of the member with the name, and is false for one that may not be there.
func (s *scanner) object(member func(name string) bool) bool {
	if !s.take('{') {
		return false
	}
	for {
		if !member(s.name()) {
			return false
		}
		if !s.take(',') {
			return s.take('}')
		}
	}
}

// scanKeyList is parseKeyList for the plain form; ok is false for any other.
func scanKeyList(src []byte, t *terms, values bool) (r keysRequest, ok bool) {
	s := newScanner(src)
	var seen members
	whole := s.object(func(name string) (ok bool) {
		switch {
		case name == "keys" && seen.add(keysMember):
			r.keys, ok = s.keys(t.maxKeys)
		case name == "key_encoding" && seen.add(keyEncodingMember):
			r.keyEncoding, ok = s.keyEncoding()
		case name == "encoding" && values && seen.add(encodingMember):
			r.encoding, ok = s.valueEncoding()
		}
		return ok
	})
	if !whole || !s.end() || seen&keysMember == 0 {
		return r, false
	}
	for i, key := range r.keys {
		if r.keys[i], ok = plainKey(key, r.keyEncoding, t.keyMaxBytes); !ok {
			return r, false
		}
	}
	return r, true
}

// plainKey is checkKey without the error.
func plainKey(text string, enc keyEncoding, maxBytes int64) (string, bool) {
	if enc == keyUTF8 {
		return text, text != "" && int64(len(text)) <= maxBytes
	}
	key, err := checkKey(text, enc, maxBytes, "")
	return key, err == nil
}

// keys reads a list of 1 to most strings.
func (s *scanner) keys(most int) ([]string, bool) {
	if !s.take('[') {
		return nil, false
	}
	keys := make([]string, 0, elements(octetsOf(s.src[s.at:]), ',', most))
	for {
		key, ok := s.text()
		if !ok || len(keys) == most {
			return nil, false
		}
		keys = append(keys, key)
		if !s.take(',') {
			return keys, s.take(']')
		}
	}
}

// plainItem is an item of an mset, or the body of a write, as it stands there.
type plainItem struct {
	key, value string
	encoding   valueEncoding
	previous   bool // return_previous
	expiry     store.Expiry
	seen       members
}

// item reads an object that may have the members of known.
func (s *scanner) item(p *plainItem, known members, t *terms) bool {
	forms := 0 // of expiry
	whole := s.object(func(name string) bool {
		m := memberNamed(name) & known
		if m == 0 || !p.seen.add(m) || !s.member(p, m, t) {
			return false
		}
		if m&expiryMembers != 0 && (m != keepMember || p.expiry.Mode == store.KeepExpiry) {
			forms++
		}
		return true
	})
	return whole && forms <= 1
}

// memberNamed is the member of an item that has the name.
func memberNamed(name string) members {
	switch name {
	case "key":
		return keyMember
	case "value":
		return valueMember
	case "encoding":
		return encodingMember
	case "ttl_ms":
		return ttlMember
	case "expires_at":
		return expiryMember
	case "keep_ttl":
		return keepMember
	case "return_previous":
		return previousMember
	default:
		return 0
	}
}

// member reads the value of a member.
func (s *scanner) member(p *plainItem, m members, t *terms) (ok bool) {
	switch m {
	case keyMember:
		p.key, ok = s.text()
	case valueMember:
		p.value, ok = s.text()
	case encodingMember:
		p.encoding, ok = s.valueEncoding()
	case previousMember:
		p.previous, ok = s.boolean()
	case keepMember:
		var keep bool
		if keep, ok = s.boolean(); keep {
			p.expiry = store.Expiry{Mode: store.KeepExpiry}
		}
	default:
		p.expiry, ok = s.expiry(m, t)
	}
	return ok
}

// expiry reads the value of ttl_ms or expires_at.
func (s *scanner) expiry(m members, t *terms) (e store.Expiry, ok bool) {
	fault := ""
	if m == ttlMember {
		var n int64
		n, ok = s.digits()
		e, fault = expireIn(n)
	} else {
		var text string
		text, ok = s.text()
		e, fault = expireAt(text, t.now)
	}
	return e, ok && fault == ""
}

// scanPut is parsePut for the plain form.
func scanPut(src []byte, t *terms) (r putRequest, ok bool) {
	const known = valueMember | encodingMember | expiryMembers | previousMember
	s := newScanner(src)
	var p plainItem
	if !s.item(&p, known, t) || !s.end() || p.seen&valueMember == 0 {
		return r, false
	}
	data, err := decodeValue(octetsOf(p.value), p.encoding, t.valueMaxBytes, "")
	return putRequest{data: data, encoding: p.encoding, expiry: p.expiry, returnPrevious: p.previous}, err == nil
}

// plainSet collects the items of an mset. Encodings are kept beside them, because that of the batch may come last.
type plainSet struct {
	items     []store.SetItem
	encodings []valueEncoding // of the items up to the last that has its own; mostly there is none
}

func (p *plainSet) add(item *plainItem) {
	if item.encoding != unsetEncoding {
		if p.encodings == nil {
			p.encodings = make([]valueEncoding, 0, cap(p.items))
		}
		for len(p.encodings) < len(p.items) {
			p.encodings = append(p.encodings, unsetEncoding)
		}
		p.encodings = append(p.encodings, item.encoding)
	}
	p.items = append(p.items, store.SetItem{Key: item.key, Data: octetsOf(item.value), Expiry: item.expiry})
}

func (p *plainSet) encoding(i int) valueEncoding {
	if i < len(p.encodings) {
		return p.encodings[i]
	}
	return unsetEncoding
}

// scanMSet is parseMSet for the plain form.
func scanMSet(src []byte, t *terms) (r msetRequest, ok bool) {
	s := newScanner(src)
	var set plainSet
	var encoding valueEncoding
	var seen members
	whole := s.object(func(name string) (ok bool) {
		switch {
		case name == "items" && seen.add(keysMember):
			ok = s.items(&set, t)
		case name == "encoding" && seen.add(encodingMember):
			encoding, ok = s.valueEncoding()
		case name == "key_encoding" && seen.add(keyEncodingMember):
			r.keyEncoding, ok = s.keyEncoding()
		}
		return ok
	})
	if !whole || !s.end() || seen&keysMember == 0 {
		return r, false
	}
	r.items = set.items
	for i := range r.items {
		item := &r.items[i]
		if item.Key, ok = plainKey(item.Key, r.keyEncoding, t.keyMaxBytes); !ok {
			return r, false
		}
		var err error
		if item.Data, err = decodeValue(item.Data, set.encoding(i).or(encoding), t.valueMaxBytes, ""); err != nil {
			return r, false
		}
	}
	return r, true
}

// items reads a list of 1 to t.maxKeys items.
func (s *scanner) items(set *plainSet, t *terms) bool {
	if !s.take('[') {
		return false
	}
	const known = keyMember | valueMember | encodingMember | ttlMember | expiryMember
	for start := s.at; ; {
		var p plainItem
		if !s.item(&p, known, t) || p.seen&(keyMember|valueMember) != keyMember|valueMember || len(set.items) == t.maxKeys {
			return false
		}
		if set.items == nil {
			set.items = make([]store.SetItem, 0, itemsLike(s.src[start:], s.at-start, t.maxKeys))
		}
		set.add(&p)
		if !s.take(',') {
			return s.take(']')
		}
	}
}

// itemsLike is a guess of the length of a list by that of its first item. The braces alone would count those of JSON in the values.
func itemsLike(list string, first, most int) int {
	return min(elements(octetsOf(list), '{', most), len(list)/first*5/4+4)
}
