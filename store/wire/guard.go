package wire

import (
	"bytes"
	"fmt"
	"net"
	"strconv"
)

// guarded is read by one goroutine at a time, as every connection of the driver.
//
// Usually all that was read is looked at where it lies and passed on. Only what stands behind a string that is dropped, and the beginning
// of a length whose end has not come, are kept aside.
type guarded struct {
	net.Conn
	limit *Limit

	ready []byte // looked at, to be passed on next
	held  []byte // the beginning of a length
	err   error  // nothing is read any more
	said  int64  // the length of a string that an error has to stand for; 0 = none

	payload int64 // bytes of a string that are to come
	drop    bool  // they are not passed on, and the CR LF behind them neither
	ending  int   // bytes of a string's CR LF that are to come
	line    int   // bytes of a line so far; 0 = not in one
	cr      bool  // its last byte was CR

	depth    int
	open     [maxDepth]int // elements that are to come, of each array
	elements int           // of the reply so far
	used     int64         // bytes of its strings and lines so far
}

// Read implements net.Conn.
func (c *guarded) Read(p []byte) (int, error) {
	for {
		if len(c.ready) > 0 {
			n := copy(p, c.ready)
			c.ready = c.ready[n:]
			return n, nil
		}
		if c.err != nil {
			return 0, c.err
		}
		n, err := c.Conn.Read(p)
		if n == 0 {
			return 0, err
		}
		pass := 0
		if len(c.held) > 0 {
			c.aside(append(c.held, p[:n]...))
		} else {
			var skip int
			if pass, skip = c.look(p[:n]); pass < n {
				c.say()
				c.aside(append([]byte(nil), p[pass+skip:n]...))
			}
		}
		if pass > 0 || err != nil && len(c.ready) == 0 {
			return pass, err
		}
	}
}

// aside looks at what cannot be passed on where it lies.
func (c *guarded) aside(b []byte) {
	c.held = nil
	for len(b) > 0 && c.err == nil {
		pass, skip := c.look(b)
		c.ready = append(c.ready, b[:pass]...)
		c.say()
		if pass+skip == 0 {
			c.held = b
			return
		}
		b = b[pass+skip:]
	}
}

// say puts an error where a string was.
func (c *guarded) say() {
	if c.said > 0 {
		c.ready = append(strconv.AppendInt(append(append(c.ready, '-'), overCap...), c.said, 10), "\r\n"...)
		c.said = 0
	}
}

// look says how many bytes of b may be passed on, and how many behind them are not to be. It ends early at the beginning of a length, at
// what is dropped, and at what is no reply.
func (c *guarded) look(b []byte) (pass, skip int) {
	for i := 0; i < len(b); {
		switch {
		case c.payload > 0:
			if c.drop && i > 0 {
				return i, 0
			}
			n := int(min(c.payload, int64(len(b)-i)))
			c.payload -= int64(n)
			if c.drop {
				if c.payload == 0 {
					c.drop = false
					c.element()
				}
				return 0, n
			}
			i += n
		case c.ending > 0:
			if b[i] != "\n\r"[c.ending-1] {
				return c.fail(i, "a string is longer than its length")
			}
			i++
			if c.ending--; c.ending == 0 {
				c.element()
			}
		case c.line > 0:
			n, ok := c.lookAtLine(b[i:])
			if !ok {
				return c.fail(i, "a line is too long or has no CR before its LF")
			}
			i += n
		case b[i] == '+' || b[i] == '-' || b[i] == ':':
			c.line, c.cr = 1, false
			i++
		case b[i] == '$' || b[i] == '*':
			if b[i] == '$' && c.depth == 0 {
				if n := short(b[i:]); n > 0 {
					i += n
					continue
				}
			}
			n, why := c.lookAtLength(b[i:])
			switch {
			case why != "":
				return c.fail(i, why)
			case n == 0: // the rest has not come
				return i, 0
			case c.said > 0:
				return i, n
			}
			i += n
		default:
			return c.fail(i, "it begins with a byte that begins none")
		}
	}
	return len(b), 0
}

func (c *guarded) fail(pass int, why string) (int, int) {
	c.err = fmt.Errorf("%w: %s", ErrProtocol, why)
	return pass, 0
}

// lookAtLine goes on with a line that has begun.
func (c *guarded) lookAtLine(b []byte) (n int, ok bool) {
	n = bytes.IndexByte(b, '\n') + 1
	ended := n > 0
	if !ended {
		n = len(b)
	}
	if c.line += n; c.line > maxLine {
		return 0, false
	}
	if !ended {
		c.cr = b[n-1] == '\r'
		return n, true
	}
	if n > 1 {
		c.cr = b[n-2] == '\r'
	}
	if !c.cr || c.depth > 0 && !c.room(int64(c.line)) {
		return 0, false
	}
	c.line = 0
	c.element()
	return n, true
}

// short returns how many bytes at the beginning of b are a string that is wholly there and no longer than any limit; 0 = that takes a
// closer look. Nearly all replies of a batch are such, and cost a quarter of that look (BenchmarkGuard).
func short(b []byte) int {
	i, length := 1, 0
	for i < len(b) && b[i]-'0' <= 9 && i <= 7 {
		length = 10*length + int(b[i]-'0')
		i++
	}
	end := i + 2 + length + 2
	if i == 1 || length > base || end > len(b) || b[i] != '\r' || b[i+1] != '\n' || b[end-2] != '\r' || b[end-1] != '\n' {
		return 0
	}
	return end
}

// lookAtLength reads "$5\r\n" or "*2\r\n"; n = 0 says that its end is not in b.
func (c *guarded) lookAtLength(b []byte) (n int, why string) {
	n = bytes.IndexByte(b[:min(len(b), maxLength)], '\n') + 1
	if n == 0 && len(b) < maxLength {
		return 0, ""
	}
	if n < 4 || b[n-2] != '\r' {
		return 0, "a length is malformed"
	}
	length, ok := number(b[1 : n-2])
	switch {
	case !ok:
		return 0, "a length is malformed"
	case length < 0:
		c.element()
	case b[0] == '*':
		return n, c.array(length)
	case length > maxString:
		return 0, "a string is longer than Redis can hold"
	case c.depth == 0 && length > c.limit.now():
		c.said, c.payload, c.drop = length, length+2, true
	case c.depth > 0 && !c.room(length):
		return 0, "the strings of an array are over the limit"
	default:
		c.payload, c.ending = length, 2
	}
	return n, ""
}

// number reads a length: -1, or digits.
func number(b []byte) (n int64, ok bool) {
	if len(b) == 2 && b[0] == '-' && b[1] == '1' {
		return -1, true
	}
	if len(b) > 12 {
		return 0, false
	}
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + int64(d-'0')
	}
	return n, true
}

func (c *guarded) array(length int64) (why string) {
	switch {
	case c.depth == maxDepth:
		return "arrays are nested too deep"
	case length > max(minElements, c.limit.now()/elementBytes)-int64(c.elements):
		return "arrays have too many elements"
	case length == 0:
		c.element()
		return ""
	}
	c.elements += int(length)
	c.open[c.depth] = int(length)
	c.depth++
	return ""
}

// room counts bytes of an array.
func (c *guarded) room(n int64) bool {
	c.used += n
	return c.used <= c.limit.now()
}

// element notes the end of a value, and with it of the arrays that it is the last of.
func (c *guarded) element() {
	for c.depth > 0 {
		if c.open[c.depth-1]--; c.open[c.depth-1] > 0 {
			return
		}
		c.depth--
	}
	c.elements, c.used = 0, 0
}
