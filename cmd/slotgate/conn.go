package main

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// quietListener gives connections that spare net/http two habits which cost every request and bring a gateway of short requests
// nothing:
//
//   - While a handler runs, net/http reads one byte in the background, only to learn that the client has left: a read that finds
//     nothing, a wake-up and an end by deadline (-5 to -9 % CPU of a GET without it). This read ends at once here, with
//     nothing read. So a request whose client has left is worked to its end; http.notice_disconnect brings the notice back.
//   - It sets the connection's deadlines seven times a request, each a timer of the runtime. Here they are noted, and the socket
//     learns of one only when a read or write would otherwise last longer than wanted.
//
// It is for HTTP/1 alone: HTTP/2 reads and writes at any time.
type quietListener struct{ net.Listener }

// Accept implements net.Listener.
func (l quietListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	q := &quietConn{Conn: c}
	q.read.set, q.write.set = c.SetReadDeadline, c.SetWriteDeadline
	return q, nil
}

// quietConn hides what else a *net.TCPConn can do, ReadFrom above all, which would pass by the deadlines.
type quietConn struct {
	net.Conn
	read, write lazyDeadline
	cork        cork
}

// SetReadDeadline implements net.Conn. With the zero time it announces the background read: net/http (1.26) has no other use for it
// as long as the server has all its timeouts, except in abortPendingRead, where another deadline follows.
func (c *quietConn) SetReadDeadline(t time.Time) error { return c.read.want(t, true) }

// SetWriteDeadline implements net.Conn.
func (c *quietConn) SetWriteDeadline(t time.Time) error { return c.write.want(t, false) }

// SetDeadline implements net.Conn. It is what a hijacked connection gets: from then on every read is somebody's.
func (c *quietConn) SetDeadline(t time.Time) error {
	return errors.Join(c.read.want(t, false), c.write.want(t, false))
}

// Read implements net.Conn. "Nothing, and no error" is how the background read ends as if it had been aborted: a pipelined request
// stays where it is until it is its turn.
func (c *quietConn) Read(p []byte) (n int, err error) {
	if !c.read.begin(len(p) == 1) {
		return 0, nil
	}
	for {
		n, err = c.Conn.Read(p)
		if !c.read.again(err) {
			return n, err
		}
	}
}

// Write implements net.Conn.
func (c *quietConn) Write(p []byte) (int, error) {
	if !c.cork.on() {
		return c.flush(p)
	}
	ready := c.cork.add(p)
	if ready == nil {
		return len(p), nil
	}
	_, err := c.flush(ready)
	c.cork.pull()
	if err != nil {
		return 0, err // of what was held back too: net/http gives up the connection
	}
	return len(p), nil
}

func (c *quietConn) flush(p []byte) (n int, err error) {
	c.write.begin(false)
	for {
		var m int
		m, err = c.Conn.Write(p[n:])
		n += m
		if !c.write.again(err) {
			return n, err
		}
	}
}

// CloseWrite lets net/http end a connection gently.
func (c *quietConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// lazyDeadline is the deadline of one direction. The socket's own is never later than the one wanted while something runs; where it
// is earlier and passes, what runs goes on with the right one.
type lazyDeadline struct {
	mu      sync.Mutex
	set     func(time.Time) error
	wanted  time.Time
	applied time.Time
	running int
	skip    bool // the next read of one byte is the background read
}

// longAgo is after the moment that net/http sets to abort the background read, which does not make it another read.
var longAgo = time.Unix(2, 0)

func (d *lazyDeadline) want(t time.Time, zeroSkips bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = t
	if t.IsZero() {
		d.skip = zeroSkips
	} else if t.After(longAgo) {
		d.skip = false
	}
	if d.running > 0 {
		return d.apply()
	}
	return nil
}

func (d *lazyDeadline) apply() error {
	d.applied = d.wanted
	return d.set(d.wanted)
}

// begin is called before a read or write; false says not to.
func (d *lazyDeadline) begin(oneByte bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	skip := d.skip && oneByte
	d.skip = false
	if skip {
		return false
	}
	if !d.wanted.IsZero() && (d.applied.IsZero() || d.wanted.Before(d.applied)) {
		_ = d.apply() // fails on a closed connection only, and so will what follows
	}
	d.running++
	return true
}

// again is called after it, and says whether it ended too early: by a deadline that is no longer wanted.
func (d *lazyDeadline) again(err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	early := err != nil && errors.Is(err, os.ErrDeadlineExceeded) && (d.wanted.IsZero() || time.Now().Before(d.wanted))
	if early && d.apply() == nil {
		return true
	}
	d.running--
	return false
}
