package middleware

import (
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// append writes the problem object (RFC 9457). It is written by hand because it is one flat object with known names; every string goes
// through the JSON library's quoting, which replaces bytes that are not UTF-8.
func (p *problem) append(b []byte) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, p.Code.Type()...)
	b = append(b, `","title":`...)
	b = quote(b, p.Code.Title())
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(p.status), 10)
	b = member(b, "detail", p.Detail)
	b = member(b, "code", string(p.Code))
	b = member(b, "request_id", p.requestID)
	b = append(b, `,"retryable":`...)
	b = strconv.AppendBool(b, p.retryable)
	b = p.appendFields(b)
	b = member(b, "redis_error", p.RedisError)
	b = member(b, "outcome", string(p.Outcome))
	b = p.appendItems(b)
	b = p.appendPolicies(b)
	b = member(b, "etag", p.ETag)
	return append(b, '}', '\n')
}

func (p *problem) appendFields(b []byte) []byte {
	for i, f := range p.Fields {
		b = next(b, i, "errors")
		b = append(b, `{"pointer":`...)
		b = quote(b, f.Pointer)
		b = member(b, "code", f.Code)
		b = member(b, "detail", f.Detail)
		b = append(b, '}')
	}
	return end(b, len(p.Fields))
}

func (p *problem) appendItems(b []byte) []byte {
	for i, item := range p.Items {
		b = next(b, i, "items")
		b = append(b, `{"key":`...)
		b = quote(b, item.Key)
		b = member(b, "outcome", string(item.Outcome))
		b = append(b, '}')
	}
	return end(b, len(p.Items))
}

func (p *problem) appendPolicies(b []byte) []byte {
	for i, policy := range p.Policies {
		b = next(b, i, "violated-policies")
		b = quote(b, policy)
	}
	return end(b, len(p.Policies))
}

// member appends `,"name":"value"`, nothing for an empty value.
func member(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return quote(b, value)
}

// next begins the i-th element of an array member, and the array with the first; end closes an array of n.
func next(b []byte, i int, name string) []byte {
	if i > 0 {
		return append(b, ',')
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	return append(b, `":[`...)
}

func end(b []byte, n int) []byte {
	if n == 0 {
		return b
	}
	return append(b, ']')
}

func quote(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // the error says that bytes were replaced
	return b
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// largestKept keeps a batch's thousand items from staying in the pool.
const largestKept = 64 << 10

func takeBuffer() *[]byte { return buffers.Get().(*[]byte) }

func giveBuffer(b *[]byte) {
	if cap(*b) <= largestKept {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}
