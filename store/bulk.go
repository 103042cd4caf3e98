package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// bulkReply receives the reply of a command that returns a string, straight from the connection (redis.RawWriteToCmd):
// its length is known before a byte of it is loaded, so that a value over the cap never fills memory.
//
// go-redis calls Write with the reply's first line and then with CR LF, and for a string ReadFrom with the rest
// (io.CopyN prefers it), in that order.
type bulkReply struct {
	budget *budget
	data   []byte // the value; nil if there is none
	found  bool
	grant  grant // other than granted: the value does not fit the budget; it was not kept
	size   int64 // of the value on the wire
	reply  error // an error reply of Redis
	header bool  // the first line was read
	drain  bool  // drop a value over the cap whatever its size: others wait for their replies behind it
}

// reset makes the reply ready for another try, and gives back what the last one took.
func (b *bulkReply) reset(from *budget) {
	if b.data != nil {
		from.give(b.size)
	}
	*b = bulkReply{budget: from, drain: true}
}

// take keeps a value that came another way, if it fits the budget.
func (b *bulkReply) take(data []byte) {
	b.found, b.size = true, int64(len(data))
	if b.grant = b.budget.take(b.size); b.grant == granted {
		b.data = data
	}
}

// drainLimit is the size up to which a value over the cap is read and dropped, to keep the connection. A larger one
// costs less as a new connection.
const drainLimit = 64 << 20

var errOverCap = errors.New("store: the value is over the cap; its connection was closed")

func (b *bulkReply) Write(p []byte) (int, error) {
	if b.header {
		return len(p), nil // CR LF behind the first line
	}
	b.header = true
	if len(p) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	switch p[0] {
	case '$':
		n, err := strconv.ParseInt(string(p[1:]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("store: a reply of unreadable length: %w", err)
		}
		b.found, b.size = n >= 0, max(n, 0)
	case '-':
		b.reply = replyError(bytes.Clone(p[1:]))
	case '_':
	default:
		b.reply = replyError("ERR unexpected reply")
	}
	return len(p), nil
}

// ReadFrom loads the value if it fits the budget; r ends behind the CR LF that follows it.
func (b *bulkReply) ReadFrom(r io.Reader) (int64, error) {
	if b.grant = b.budget.take(b.size); b.grant != granted {
		if b.size > drainLimit && !b.drain {
			return 0, errOverCap
		}
		return io.Copy(io.Discard, r)
	}
	// Two more bytes take the CR LF in the same read.
	buf := make([]byte, b.size+2)
	n, err := io.ReadFull(r, buf)
	b.data = buf[:b.size:b.size]
	return int64(n), err
}

// replyError is an error reply that go-redis did not turn into an error, since it was read raw. It is a redis.Error.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it as a reply, not a fault of the connection.
func (e replyError) RedisError() {}

// result returns what the command said: nil, redis.Nil, errOverCap, Redis' error or the connection's.
func (b *bulkReply) result(err error) error {
	switch {
	case b.grant != granted:
		return errOverCap
	case err != nil:
		return err
	case b.reply != nil:
		return b.reply
	case !b.found:
		return redis.Nil
	}
	return nil
}

// refused is the error for a value that was not kept, nil for one that was.
func (b *bulkReply) refused(write bool, limit int64) *Error {
	switch b.grant {
	case overCap:
		return errTooLarge(b.size, limit)
	case overloaded:
		return errOverloaded(write)
	}
	return nil
}

// redirected says whether err sends the command to another node. Raw commands are not redirected by go-redis.
func redirected(err error) bool {
	if _, ok := redis.IsMovedError(err); ok {
		return true
	}
	_, ok := redis.IsAskError(err)
	return ok
}
