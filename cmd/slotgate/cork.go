package main

import (
	"bytes"
	"sync"
)

// cork puts one answer together: what is written is held back until the header has ended and all of the body is there. It
// belongs to the goroutine that serves the connection. An answer that never becomes whole is one that its handler broke
// off, and net/http then closes the connection.
type cork struct {
	buf  *[]byte // nil = off
	body int     // bytes wanted behind the header
	head int     // bytes of the header, 0 = not all there yet
}

var corks = sync.Pool{New: func() any { return new([]byte) }}

var headerEnd = []byte("\r\n\r\n")

func (c *cork) put(body int) {
	if c.buf == nil {
		c.buf = corks.Get().(*[]byte)
	}
	*c.buf, c.body, c.head = (*c.buf)[:0], body, 0
}

func (c *cork) on() bool { return c.buf != nil }

// add holds p back and returns the answer if it is whole now.
func (c *cork) add(p []byte) *[]byte {
	*c.buf = append(*c.buf, p...)
	if c.head == 0 {
		i := bytes.Index(*c.buf, headerEnd)
		if i < 0 {
			return nil
		}
		c.head = i + len(headerEnd)
	}
	if len(*c.buf) < c.head+c.body {
		return nil
	}
	return c.buf
}

// pull ends the holding back.
func (c *cork) pull() {
	corks.Put(c.buf)
	*c = cork{}
}
