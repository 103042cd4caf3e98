package handlers

import (
	"bytes"
	"strconv"

	"github.com/slotgate/slotgate/store"
)

// texts is a list of short strings kept in one piece, so that a batch of n keys costs a few allocations, not n.
type texts struct {
	bytes []byte
	ends  []int
}

func (t *texts) add(text []byte) {
	t.bytes = append(t.bytes, text...)
	t.ends = append(t.ends, len(t.bytes))
}

// keys decodes the texts into keys. pointer names the i-th for an error.
func (t *texts) keys(enc keyEncoding, maxBytes int64, pointer func(i int) string) ([]string, error) {
	all := string(t.bytes)
	keys := make([]string, len(t.ends))
	start := 0
	for i, end := range t.ends {
		text := all[start:end]
		start = end
		if enc == keyUTF8 && text != "" && int64(len(text)) <= maxBytes { // the common case builds no pointer
			keys[i] = text
			continue
		}
		key, err := checkKey(text, enc, maxBytes, pointer(i))
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	return keys, nil
}

// keysRequest is the body of POST /v1/mget, mdelete and mexists.
type keysRequest struct {
	keys        []string
	keyEncoding keyEncoding
	encoding    valueEncoding
}

// parseKeys reads a list of keys.
func parseKeys(src []byte, t terms) (keysRequest, error) { return parseKeyList(src, t, false) }

// parseGet reads a list of keys whose values are wanted, in an encoding.
func parseGet(src []byte, t terms) (keysRequest, error) { return parseKeyList(src, t, true) }

func parseKeyList(src []byte, t terms, values bool) (keysRequest, error) {
	if r, ok := scanKeyList(src, &t, values); ok {
		return r, nil
	}
	return readKeyList(src, &t, values)
}

// readKeyList is parseKeyList for any body.
func readKeyList(src []byte, t *terms, values bool) (keysRequest, error) {
	var r keysRequest
	var list texts
	given := false
	err := parseObject(src, func(d *document, name []byte) bool {
		switch {
		case string(name) == "keys":
			given = true
			list.ends = make([]int, 0, elements(src, ',', t.maxKeys))
			list.bytes = make([]byte, 0, len(src))
			d.list("/keys", t.maxKeys, func() {
				text, _ := d.string()
				list.add(text)
			})
		case string(name) == "key_encoding":
			r.keyEncoding = keyEncodingNamed(d.word("base64url"))
		case values && string(name) == "encoding":
			r.encoding = encodingNamed(d.word("utf8", "base64"))
		default:
			return false
		}
		return true
	}, func(d *document) { d.require(given, "keys") })
	if err != nil {
		return r, err
	}
	r.keys, err = list.keys(r.keyEncoding, t.keyMaxBytes, func(i int) string { return "/keys/" + strconv.Itoa(i) })
	return r, err
}

// list reads an array of 1 to most elements.
func (d *document) list(pointer string, most int, element func()) {
	if n, read := d.upTo(pointer, most, element); read && n == 0 {
		d.wrong("must not be empty")
	}
}

// upTo reads an array of at most so many elements, and says how many there were. The element that is one too many ends the reading, so that
// a million of them cost no more than the bytes they came in.
func (d *document) upTo(pointer string, most int, element func()) (n int, read bool) {
	read = d.array(func() bool {
		if n == most {
			d.broken = faultAt(store.CodeBatchTooLarge, pointer, "must have at most "+strconv.Itoa(most)+" elements; nothing was sent")
			return false
		}
		n++
		element()
		return true
	})
	return n, read
}

// elements is a guess, never too low, of the length of the one list in src, whose elements bring one mark each.
func elements(src []byte, mark byte, most int) int {
	return min(bytes.Count(src, []byte{mark})+1, most)
}

// msetItem is one item as it was read, before the words that may stand behind the list are known.
type msetItem struct {
	value  valueForm
	expiry store.Expiry
}

// msetRequest is the body of POST /v1/mset.
type msetRequest struct {
	items       []store.SetItem
	keyEncoding keyEncoding
}

func parseMSet(src []byte, t terms) (msetRequest, error) {
	if r, ok := scanMSet(src, &t); ok {
		return r, nil
	}
	return readMSet(src, &t)
}

// readMSet is parseMSet for any body.
func readMSet(src []byte, t *terms) (msetRequest, error) {
	var r msetRequest
	var keys texts
	var items []msetItem
	encoding, given := unsetEncoding, false
	err := parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "items":
			given = true
			n := elements(src, '{', t.maxKeys)
			items, keys.ends = make([]msetItem, 0, n), make([]int, 0, n)
			d.list("/items", t.maxKeys, func() { items = append(items, d.msetItem(&keys, t)) })
		case "encoding":
			encoding = encodingNamed(d.word("utf8", "base64"))
		case "key_encoding":
			r.keyEncoding = keyEncodingNamed(d.word("base64url"))
		default:
			return false
		}
		return true
	}, func(d *document) { d.require(given, "items") })
	if err != nil {
		return r, err
	}
	stored, err := keys.keys(r.keyEncoding, t.keyMaxBytes, func(i int) string { return itemPointer(i, "key") })
	if err != nil {
		return r, err
	}
	r.items, err = setItems(stored, items, encoding, t.valueMaxBytes)
	return r, err
}

// msetItem reads one item and adds its key to keys, in step with the items.
func (d *document) msetItem(keys *texts, t *terms) msetItem {
	var item msetItem
	var expiry expiryForm
	var key []byte
	given := false
	if d.object(func(d *document, name []byte) bool {
		if string(name) == "key" {
			key, _ = d.string()
			given = true
			return true
		}
		return item.value.readMember(d, name) || expiry.readMember(d, name, t.now)
	}) {
		d.require(given, "key")
		d.require(item.value.given, "value")
		expiry.check(d)
	}
	keys.add(key)
	item.expiry = expiry.expiry
	return item
}

// setItems decodes the values, each by its own encoding or that of the batch.
func setItems(keys []string, items []msetItem, enc valueEncoding, maxBytes int64) ([]store.SetItem, error) {
	set := make([]store.SetItem, len(items))
	for i := range items {
		value := &items[i].value
		if e := value.encoding.or(enc); e != base64Encoding && int64(len(value.text)) <= maxBytes { // builds no pointer
			set[i] = store.SetItem{Key: keys[i], Data: value.text, Expiry: items[i].expiry}
			continue
		}
		data, err := decodeValue(value.text, value.encoding.or(enc), maxBytes, itemPointer(i, "value"))
		if err != nil {
			return nil, err
		}
		set[i] = store.SetItem{Key: keys[i], Data: data, Expiry: items[i].expiry}
	}
	return set, nil
}

func itemPointer(i int, member string) string { return "/items/" + strconv.Itoa(i) + "/" + member }
