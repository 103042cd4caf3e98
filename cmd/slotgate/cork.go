package main

import (
	"bytes"
	"sync"
)

// cork puts one answer together before it is written: the status line that net/http makes, the header lines that the gateway
// has made itself, what else net/http makes, and, where its length is known, the body. It belongs to the goroutine that serves
// the connection. An answer that never becomes whole is one that its handler broke off, and net/http then closes the
// connection.
type cork struct {
	buf   *[]byte // statusRoom bytes, then the answer from behind its status line; nil = off
	start int     // where the status line begins in buf; 0 = it has not come yet
	body  int     // bytes wanted behind the header; 0 = write as soon as there is something
	head  int     // where the header ends in buf, 0 = not known yet
	typed bool    // the lines have a Content-Type: one of net/http's is left out
}

// statusRoom is for the longest status line (HTTP/1.1 511 Network Authentication Required) and a few bytes more.
const statusRoom = 64

var corks = sync.Pool{New: func() any { b := make([]byte, statusRoom, 1<<10); return &b }}

var (
	lineEnd   = []byte("\r\n")
	headerEnd = []byte("\r\n\r\n")
)

// put begins an answer. The returned buffer takes header lines, each with its CR LF.
func (c *cork) put(body int) *[]byte {
	if c.buf == nil {
		c.buf = corks.Get().(*[]byte)
	}
	*c.buf = (*c.buf)[:statusRoom]
	c.start, c.body, c.head, c.typed = 0, body, 0, false
	return c.buf
}

func (c *cork) on() bool { return c.buf != nil }

// add holds p back and returns what is to be written now; nil = nothing yet. p begins with the status line, if that has not
// come: net/http writes it in one piece, at the front of its buffer.
func (c *cork) add(p []byte) []byte {
	if c.start == 0 {
		n := bytes.Index(p, lineEnd) + len(lineEnd)
		if n < len(lineEnd) || n > statusRoom {
			n = 0 // not what net/http writes; the lines in front of it would be noticed
		}
		c.start = statusRoom - n
		copy((*c.buf)[c.start:], p[:n])
		p = p[n:]
		if c.typed {
			*c.buf, p = appendTypeless(*c.buf, p)
		}
	}
	*c.buf = append(*c.buf, p...)
	if c.body > 0 && !c.whole() {
		return nil
	}
	return (*c.buf)[c.start:]
}

var typeField = []byte("Content-Type: ")

// appendTypeless adds the lines at the beginning of p that are in front of a Content-Type, and returns what is behind that line. Without such a line
// in the header it adds nothing. net/http writes its few lines in one piece.
func appendTypeless(dst, p []byte) (all, left []byte) {
	for rest := p; ; {
		n := bytes.Index(rest, lineEnd) + len(lineEnd)
		switch {
		case n <= len(lineEnd): // the header's end, or that of the piece
			return dst, p
		case bytes.HasPrefix(rest, typeField):
			return append(dst, p[:len(p)-len(rest)]...), rest[n:]
		}
		rest = rest[n:]
	}
}

// whole says whether header and body are there.
func (c *cork) whole() bool {
	if c.head == 0 {
		// From the CR LF before the first line: there may be no lines of the gateway's own.
		i := bytes.Index((*c.buf)[statusRoom-len(lineEnd):], headerEnd)
		if i < 0 {
			return false
		}
		c.head = statusRoom - len(lineEnd) + i + len(headerEnd)
	}
	return len(*c.buf) >= c.head+c.body
}

// pull ends the holding back.
func (c *cork) pull() {
	corks.Put(c.buf)
	*c = cork{}
}
