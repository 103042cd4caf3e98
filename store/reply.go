package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/wire"
)

// reply receives the reply of a command straight from the connection (redis.RawWriteToCmd): the length of a string is
// known before a byte of it is loaded, so that a value over the cap never fills memory, and no value is copied twice.
//
// go-redis calls Write with the reply's first line and then with CR LF, and for a string ReadFrom with the rest
// (io.CopyN prefers it), in that order.
type reply struct {
	budget *budget // nil: strings are not expected, and are dropped
	arena  *arena  // where strings go; nil = memory of their own
	data   []byte  // the string; nil if there is none
	found  bool    // not the nil reply
	n      int64   // an integer
	size   int64   // of the string on the wire
	fault  error   // an error reply of Redis
	grant  grant   // other than granted: the string does not fit the budget; it was not kept
	header bool    // the first line was read
	bad    bool    // it is of the wrong kind
	whole  bool    // the last byte was read: what comes over the connection afterwards is about others
	says   kind    // what the command replies
	drain  bool    // drop a value over the cap whatever its size: others wait for their replies behind it
}

// reset makes the reply ready for another try, and gives back what the last one took.
func (b *reply) reset(from *budget, in *arena) {
	if b.data != nil && b.budget != nil {
		b.budget.give(b.size)
	}
	*b = reply{budget: from, arena: in, says: b.says, drain: true}
}

// take keeps a string that came another way, if it fits the budget.
func (b *reply) take(data []byte) {
	b.found, b.whole, b.size = true, true, int64(len(data))
	if b.grant = b.room(); b.grant == granted {
		b.data = data
	}
}

// takeAny keeps the reply of a command that go-redis has read. Error: errMismatch.
func (b *reply) takeAny(v any) error {
	b.whole = true
	switch v := v.(type) {
	case string:
		if b.says == integer {
			return errMismatch
		}
		b.take([]byte(v))
	case int64:
		if b.says != anything && b.says != integer {
			return errMismatch
		}
		b.found, b.n = true, v
	case nil:
	default:
		return errMismatch
	}
	return nil
}

// notKept notes a string of which only the length came, see package wire.
func (b *reply) notKept(size int64) {
	b.found, b.whole, b.size, b.grant = true, true, size, overCap
}

// kind is what a command replies, unless that is an error. A reply of another kind is nobody's, or somebody else's: the replies of its
// connection may be out of step, so it is not used again.
type kind uint8

const (
	anything     kind = iota
	stringOrNone      // a string, or none
	integer
	status // a line of text, or none
)

// fits says whether a reply whose first line this is can be the command's.
func (k kind) fits(line []byte) bool {
	if k == anything || line[0] == '-' {
		return true
	}
	switch line[0] {
	case '$':
		return k == stringOrNone || k == status && len(line) == 3 && line[1] == '-' // $-1
	case ':':
		return k == integer
	case '+':
		return k == status
	}
	return false
}

// errMismatch is what a reply of the wrong kind comes to.
var errMismatch = errors.New("store: the node sent a reply of another kind than the command has; its connection was closed")

func (b *reply) room() grant {
	if b.budget == nil {
		return granted
	}
	return b.budget.take(b.size)
}

// drainLimit is the size up to which a value over the cap is read and dropped, to keep the connection. A larger one
// costs less as a new connection.
const drainLimit = 64 << 20

var errOverCap = errors.New("store: the value is over the cap; its connection was closed")

func (b *reply) Write(p []byte) (int, error) {
	if b.header {
		b.whole = true
		return len(p), nil // CR LF behind the first line
	}
	b.header = true
	if len(p) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	if !b.says.fits(p) {
		b.bad = true
		return 0, errMismatch
	}
	switch p[0] {
	case '$':
		n, ok := parseLength(p[1:])
		if !ok {
			return 0, fmt.Errorf("store: a reply of unreadable length: %.20q", p)
		}
		b.found, b.size = n >= 0, max(n, 0)
	case ':':
		n, err := strconv.ParseInt(string(p[1:]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("store: an unreadable integer: %w", err)
		}
		b.found, b.n = true, n
	case '+':
		b.found = true
	case '-':
		if size, ok := wire.OverCap(string(p[1:])); ok {
			if b.says == integer || b.says == status {
				b.bad = true
				return 0, errMismatch
			}
			if !b.drain {
				b.size, b.grant = size, overCap
				return 0, errOverCap // its bytes are still to come, and nobody waits behind them
			}
			b.notKept(size)
			return len(p), nil
		}
		b.fault = replyError(bytes.Clone(p[1:]))
	case '_':
	default:
		b.fault = replyError("ERR unexpected reply")
	}
	return len(p), nil
}

// parseLength reads the length of a string, -1 for none, up to Redis' own 512 MB and more.
func parseLength(p []byte) (n int64, ok bool) {
	if len(p) == 0 || len(p) > 12 {
		return 0, false
	}
	if len(p) == 2 && p[0] == '-' && p[1] == '1' {
		return -1, true
	}
	for _, c := range p {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// ReadFrom loads the string if it fits the budget; r ends behind the CR LF that follows it.
func (b *reply) ReadFrom(r io.Reader) (int64, error) {
	b.whole = false
	if b.budget == nil {
		n, err := io.Copy(io.Discard, r)
		b.whole = err == nil
		return n, err
	}
	if b.grant = b.room(); b.grant != granted {
		if b.size > drainLimit && !b.drain {
			return 0, errOverCap
		}
		n, err := io.Copy(io.Discard, r)
		b.whole = err == nil
		return n, err
	}
	// Two more bytes take the CR LF in the same read.
	buf := b.arena.take(b.size + 2)
	n, err := io.ReadFull(r, buf)
	b.data = buf[:b.size:b.size]
	b.whole = err == nil
	return int64(n), err
}

// replyError is an error reply that go-redis did not turn into an error, since it was read raw. It is a redis.Error.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it as a reply, not a fault of the connection.
func (e replyError) RedisError() {}

// errUnanswered is the state of a reply that nobody has written to, though nothing is said to have failed.
var errUnanswered = errors.New("store: the command was not answered")

// errCutOff is the state of a reply behind one that its receiver gave up, and the connection with it.
var errCutOff = fmt.Errorf("store: the connection was closed because of another reply: %w", io.ErrUnexpectedEOF)

// result returns what the command said: nil, redis.Nil, errOverCap, Redis' error or the connection's. err is what
// go-redis says of the command, which for a pipeline that broke is the same of all, answered or not.
func (b *reply) result(err error) error {
	switch {
	case b.grant != granted:
		return errOverCap
	case err != nil && !b.whole && !b.bad && (errors.Is(err, errOverCap) || errors.Is(err, errMismatch)): // which are told of everybody behind the one they are about
		return errCutOff
	case err != nil && !b.whole:
		return err
	case !b.header && !b.whole:
		return errUnanswered
	case b.fault != nil:
		return b.fault
	case !b.found:
		return redis.Nil
	}
	return nil
}

// refused is the error for a value that was not kept, nil for one that was.
func (b *reply) refused(write bool, limit int64) *Error {
	switch b.grant {
	case overCap:
		return errTooLarge(b.size, limit)
	case overloaded:
		return errOverloaded(write)
	case granted:
	}
	return nil
}

// redirected says whether err sends the command to another node. Raw commands are not redirected by go-redis.
func redirected(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := redis.IsMovedError(err); ok {
		return true
	}
	_, ok := redis.IsAskError(err)
	return ok
}

// arena is memory for many strings that live and die together. One goroutine at a time may take from it.
type arena struct {
	block  []byte
	expect int // bytes of the first block
}

// Sizes of an arena in bytes: the first block is for values of the usual size, the next ones are as large as it may be.
const (
	expectedValue = 128
	arenaBlock    = 16 << 10
)

// take returns n bytes of memory. A nil arena makes each piece anew.
func (a *arena) take(n int64) []byte {
	if a == nil || n > arenaBlock/4 {
		return make([]byte, n)
	}
	if int64(len(a.block)) < n {
		a.block = make([]byte, max(min(int64(a.expect), arenaBlock), n))
		a.expect = arenaBlock
	}
	piece := a.block[:n:n]
	a.block = a.block[n:]
	return piece
}
