package handlers

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/slotgate/slotgate/store"
)

// The shape a JSON body may have: no body of the API nests deeper than 3, and no client needs a page of faults.
const (
	maxDepth  = 32
	maxFaults = 16
)

// document reads one JSON body as its parser asks for the parts. It keeps two kinds of fault apart: text that is not JSON
// (400, which ends the reading) and JSON that says something wrong (422, which is noted while reading goes on, so that a body
// which is both is a 400, and all that is wrong is told at once). After either, the values it gives are zero.
//
// jsontext refuses duplicate members, invalid UTF-8 and lone surrogates by itself. Names are compared exactly, case included.
type document struct {
	src    []byte
	input  bytes.Buffer // jsontext reads a bytes.Buffer in place
	dec    *jsontext.Decoder
	broken *store.Error // not JSON, or too much of something: reading has ended
	fault  *store.Error // JSON, but not what is wanted
}

var documents = sync.Pool{New: func() any {
	d := &document{}
	d.dec = jsontext.NewDecoder(&d.input)
	return d
}}

// parseObject runs member for each member of the object in src; member reads the value or returns false for a name it does not
// know. Then check says what is wrong with the whole. The value of every part that is read may point into src.
func parseObject(src []byte, member func(d *document, name []byte) bool, check func(d *document)) error {
	d := documents.Get().(*document)
	defer d.release()
	d.src, d.broken, d.fault = src, nil, nil
	d.input = *bytes.NewBuffer(src)
	d.dec.Reset(&d.input)
	if d.object(member) {
		check(d)
	}
	return d.finish()
}

func (d *document) release() {
	d.src, d.input = nil, bytes.Buffer{}
	d.dec.Reset(&d.input)
	documents.Put(d)
}

// finish makes sure that nothing follows the object and gives the fault, the worse kind first.
func (d *document) finish() error {
	if d.broken == nil {
		if _, err := d.dec.ReadToken(); err == nil {
			d.broken = store.Unparsable("body", "there is more after the JSON object")
		} else if !errors.Is(err, io.EOF) {
			d.syntax(err)
		}
	}
	switch {
	case d.broken != nil:
		return d.broken
	case d.fault != nil:
		return d.fault
	default:
		return nil
	}
}

// object reads an object and reports whether it was one.
func (d *document) object(member func(d *document, name []byte) bool) bool {
	if !d.enter('{', "an object") {
		return false
	}
	for d.more('}') {
		name, ok := d.string()
		if ok && !member(d, name) {
			d.skip()
			d.wrong("unknown member")
		}
	}
	return d.broken == nil
}

// array reads an array and reports whether it was one. element must read one element; it returns false to end the reading.
func (d *document) array(element func() bool) bool {
	if !d.enter('[', "an array") {
		return false
	}
	for d.more(']') {
		if !element() {
			return false
		}
	}
	return d.broken == nil
}

func (d *document) enter(kind jsontext.Kind, want string) bool {
	if !d.expect(kind, want) {
		return false
	}
	_, err := d.dec.ReadToken()
	return d.syntax(err)
}

// more reports whether another element or member comes before the end, which it reads.
func (d *document) more(end jsontext.Kind) bool {
	if d.broken != nil {
		return false
	}
	if d.dec.PeekKind() != end {
		return true // or a syntax error, which the next read finds
	}
	_, err := d.dec.ReadToken()
	d.syntax(err)
	return false
}

// expect looks whether a value of the kind comes next. Another one is skipped and noted.
func (d *document) expect(kind jsontext.Kind, want string) bool {
	if d.broken != nil {
		return false
	}
	switch d.dec.PeekKind() {
	case kind:
		return true
	case jsontext.KindInvalid:
		_, err := d.dec.ReadToken()
		d.syntax(err)
	default:
		d.skip()
		d.wrong("must be " + want)
	}
	return false
}

// skip passes over a value that nobody wants, watching its depth: jsontext's own limit is 10,000.
func (d *document) skip() {
	base := d.dec.StackDepth()
	for d.broken == nil {
		_, err := d.dec.ReadToken()
		if !d.syntax(err) {
			return
		}
		depth := d.dec.StackDepth()
		if depth > maxDepth {
			d.broken = store.Unparsable(d.pointer(), "nested deeper than "+strconv.Itoa(maxDepth))
		}
		if depth <= base {
			return
		}
	}
}

// scalar reads a string, number or literal as it is written, as a part of src.
func (d *document) scalar() []byte {
	v, err := d.dec.ReadValue()
	if !d.syntax(err) {
		return nil
	}
	end := d.dec.InputOffset()
	return d.src[end-int64(len(v)) : end : end]
}

// string reads a string. The bytes are a part of src where the string has no escapes; they are valid UTF-8.
func (d *document) string() ([]byte, bool) {
	if !d.expect('"', "a string") {
		return nil, false
	}
	quoted := d.scalar()
	if quoted == nil {
		return nil, false
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		last := len(quoted) - 1
		return quoted[1:last:last], true
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	return text, d.syntax(err)
}

// number reads a number as it is written: every digit counts.
func (d *document) number(want string) (string, bool) {
	if !d.expect('0', want) {
		return "", false
	}
	literal := d.scalar()
	return string(literal), literal != nil
}

// integer reads a number that is written as an integer and fits into 64 bits.
func (d *document) integer() (int64, bool) {
	literal, ok := d.number("an integer")
	if !ok {
		return 0, false
	}
	if !isInteger(literal) {
		d.wrong("must be an integer, written without fraction and exponent")
		return 0, false
	}
	n, err := strconv.ParseInt(literal, 10, 64)
	if err != nil {
		d.wrong("must fit into 64 bits")
		return 0, false
	}
	return n, true
}

// boolean reads true or false.
func (d *document) boolean() bool {
	if d.broken == nil && d.dec.PeekKind() == 'f' {
		d.scalar()
		return false
	}
	return d.expect('t', "true or false") && d.scalar() != nil
}

// word reads a string that must be one of a few words.
func (d *document) word(allowed ...string) string {
	text, ok := d.string()
	if !ok {
		return ""
	}
	for _, w := range allowed {
		if string(text) == w {
			return w
		}
	}
	d.wrong("must be " + strings.Join(allowed, " or "))
	return ""
}

// require notes members that the object just read must have.
func (d *document) require(present bool, name string) {
	if !present {
		d.note(store.Invalid(d.member(name), "is required"))
	}
}

// member is the pointer of a member of the object just read.
func (d *document) member(name string) string {
	return clip(string(d.dec.StackPointer())) + "/" + name
}

// wrong notes what is not right with the value just read; the empty fault is none.
func (d *document) wrong(fault string) {
	if fault != "" {
		d.note(store.Invalid(d.pointer(), fault))
	}
}

// note keeps a fault of the content. All are told at once; when there are many, reading ends, so that a body of nothing but faults
// is cheap.
func (d *document) note(e *store.Error) {
	switch {
	case d.broken != nil:
	case d.fault == nil:
		d.fault = e
	default:
		d.fault.Fields = append(d.fault.Fields, e.Fields...)
		if len(d.fault.Fields) >= maxFaults {
			d.broken = d.fault
		}
	}
}

// pointer names the value just read.
func (d *document) pointer() string {
	if p := d.dec.StackPointer(); p != "" {
		return clip(string(p))
	}
	return "body"
}

// syntax keeps an error of jsontext and reports whether there was none.
func (d *document) syntax(err error) bool {
	if err == nil {
		return true
	}
	if d.broken != nil {
		return false
	}
	pointer, offset := "body", d.dec.InputOffset()
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		offset = s.ByteOffset
		if s.JSONPointer != "" {
			pointer = clip(string(s.JSONPointer))
		}
	}
	detail := "not valid JSON at byte " + strconv.FormatInt(offset, 10)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		detail = "the member appears twice"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		detail = "the JSON ends too early"
	}
	d.broken = store.Unparsable(pointer, detail) // without jsontext's text, which may quote the body into the log
	return false
}
