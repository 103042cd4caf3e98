//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// reader takes HTTP/1.1 answers off a keep-alive connection. It knows what the measured servers send (Content-Length, chunked, 204) and
// nothing else: net/http would cost the load generator more than the servers it measures.
type reader struct {
	src      io.Reader
	buf      []byte
	from, to int // the unread part of buf
	head     []byte
}

// answer is what the load generator looks at. Head is the beginning of the body, valid until the next call.
type answer struct {
	Status int
	Length int
	Head   []byte
	Close  bool // the server ends the connection after this

	RetryAfter bool // it says when to come again
}

// headSize is how much of a body is kept if nothing else is asked for: enough for the short answers of writes.
const headSize = 256

func newReader(src io.Reader, buffer int) *reader {
	return &reader{src: src, buf: make([]byte, buffer), head: make([]byte, headSize)}
}

func (r *reader) next() (answer, error) {
	head, err := r.header()
	if err != nil {
		return answer{}, err
	}
	a, chunked, err := parseHeader(head)
	if err != nil || a.Status == 204 || a.Status == 304 {
		return a, err
	}
	if chunked {
		return r.chunks(a)
	}
	if a.Length < 0 {
		return a, errors.New("an answer without Content-Length")
	}
	kept, err := r.body(a.Length, 0)
	a.Head = r.head[:kept]
	return a, err
}

// header returns everything before the blank line and consumes both.
func (r *reader) header() ([]byte, error) {
	seen := 0
	for {
		if i := bytes.Index(r.buf[r.from+seen:r.to], []byte("\r\n\r\n")); i >= 0 {
			head := r.buf[r.from : r.from+seen+i]
			r.from += seen + i + 4
			return head, nil
		}
		seen = max(0, r.to-r.from-3)
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

func parseHeader(head []byte) (a answer, chunked bool, err error) {
	if len(head) < 12 || !bytes.HasPrefix(head, []byte("HTTP/1.")) {
		return a, false, fmt.Errorf("not an HTTP answer: %.40q", head)
	}
	for _, c := range head[9:12] {
		a.Status = a.Status*10 + int(c-'0')
	}
	a.Length = -1
	for len(head) > 0 {
		var line []byte
		line, head, _ = bytes.Cut(head, []byte("\r\n"))
		// Three letters decide for most lines; only four names matter.
		if len(line) < 14 || line[0]|0x20 != 'c' && line[0]|0x20 != 't' && line[0]|0x20 != 'r' {
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			a.Length, err = decimal(value)
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			chunked = bytes.EqualFold(value, []byte("chunked"))
		case bytes.EqualFold(name, []byte("connection")):
			a.Close = bytes.EqualFold(value, []byte("close"))
		case bytes.EqualFold(name, []byte("retry-after")):
			a.RetryAfter = true
		}
	}
	return a, chunked, err
}

func (r *reader) chunks(a answer) (answer, error) {
	a.Length = 0
	kept := 0
	for {
		line, err := r.line()
		if err != nil {
			return a, err
		}
		size, err := hexadecimal(line)
		if err != nil {
			return a, err
		}
		if kept, err = r.body(size, kept); err != nil {
			return a, err
		}
		a.Length += size
		if line, err = r.line(); err != nil {
			return a, err
		}
		if len(line) > 0 {
			return a, fmt.Errorf("a chunk of %d bytes ends with %q", size, line)
		}
		if size == 0 {
			a.Head = r.head[:kept]
			return a, nil
		}
	}
}

// body consumes n bytes. The first ones go into r.head behind the kept bytes that are there already; it returns how many are kept now.
func (r *reader) body(n, kept int) (int, error) {
	for n > 0 {
		if r.from == r.to {
			if err := r.fill(); err != nil {
				return kept, err
			}
		}
		part := r.buf[r.from:min(r.to, r.from+n)]
		kept += copy(r.head[kept:], part)
		r.from += len(part)
		n -= len(part)
	}
	return kept, nil
}

func (r *reader) line() ([]byte, error) {
	for {
		if i := bytes.Index(r.buf[r.from:r.to], []byte("\r\n")); i >= 0 {
			line := r.buf[r.from : r.from+i]
			r.from += i + 2
			return line, nil
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

func (r *reader) fill() error {
	if r.from == r.to {
		r.from, r.to = 0, 0
	} else if r.to == len(r.buf) {
		if r.from == 0 {
			return errors.New("a header larger than the buffer")
		}
		r.to = copy(r.buf, r.buf[r.from:r.to])
		r.from = 0
	}
	n, err := r.src.Read(r.buf[r.to:])
	r.to += n
	if n > 0 {
		return nil
	}
	return err
}

func decimal(b []byte) (int, error) {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' || n > 1<<40 {
			return 0, fmt.Errorf("bad length %q", b)
		}
		n = n*10 + int(c-'0')
	}
	return n, nil
}

func hexadecimal(b []byte) (int, error) {
	if len(b) == 0 || len(b) > 8 {
		return 0, fmt.Errorf("bad chunk size %q", b)
	}
	n := 0
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 + int(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			n = n<<4 + int(c|0x20-'a') + 10
		default:
			return 0, fmt.Errorf("bad chunk size %q", b)
		}
	}
	return n, nil
}
