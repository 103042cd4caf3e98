package store

import (
	"context"
	"sync"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
)

// maxWords is the most words of a command that a call carries: SET key value PX ms NX.
const maxWords = 8

// call is one command on its way: its words, its reply, and go-redis' form of it. Calls are reused: go-redis takes the
// words by pointer, so that neither they nor the command cost an allocation. A call belongs to one goroutine, or to the
// pipe while it is there.
type call struct {
	out   reply
	row   *row
	at    *way                               // where it was sent last; nil = nowhere yet
	n     int                                // words, the name counted
	words [maxWords]string                   // from 1
	args  [maxWords]any                      // the name, then pointers to words
	cmds  [maxWords + 1]*redis.RawWriteToCmd // by the number of words
	key   []byte                             // memory of the prefixed key
}

var callPool = sync.Pool{New: func() any {
	c := new(call)
	for i := range c.args {
		c.args[i] = &c.words[i]
	}
	return c
}}

// newCall makes a call of the command r from its words without the name: the key, at the position that the table gives,
// is prefixed, everything else stays as it came. The words must not change until the call is released. Errors: a wrong
// number of words is invalid_request, a key that is empty or over the limit invalid_key.
func newCall(id *acl.Identity, r *row, words ...string) (*call, *Error) {
	return refill(nil, id, r, words...)
}

// refill is newCall in the memory of a call that is over; nil takes one from the pool.
func refill(c *call, id *acl.Identity, r *row, words ...string) (*call, *Error) {
	n := len(words) + 1
	if n > maxWords || n != r.arity && (r.arity > 0 || n < -r.arity) {
		return nil, NewError(CodeInvalidRequest, "wrong number of arguments for "+r.name)
	}
	if r.key > 0 {
		if err := checkKey(id, words[r.key-1]); err != nil {
			return nil, err
		}
	}
	if c == nil {
		c = callPool.Get().(*call)
	}
	c.row, c.n = r, n
	c.args[0] = r.word
	copy(c.words[1:], words)
	if r.key > 0 {
		c.key = append(append(c.key[:0], id.Prefix...), words[r.key-1]...)
		c.words[r.key] = text(c.key)
	}
	return c, nil
}

// text is data as a string without a copy: data must not change while the string is in use.
func text(data []byte) string { return unsafe.String(unsafe.SliceData(data), len(data)) }

// stored is the key as Redis holds it. It lives as long as the call is not released.
func (c *call) stored() string { return c.words[c.row.key] }

// size is how many bytes the words have.
func (c *call) size() int {
	n := 0
	for _, w := range c.words[:c.n] {
		n += len(w)
	}
	return n
}

// command is go-redis' form of the call for a try: it sends itself once, whatever happens (RawWriteToCmd.NoRetry).
func (c *call) command() *redis.RawWriteToCmd {
	cmd := c.cmds[c.n]
	if cmd == nil {
		cmd = redis.NewRawWriteToCmd(context.Background(), &c.out, c.args[:c.n]...)
		c.cmds[c.n] = cmd
	}
	cmd.SetErr(nil)
	c.out.says = c.row.says
	return cmd
}

// generic is the call as a command that go-redis redirects and reads itself, sent once. Its words are the
// call's: it must be over before the call is released.
func (c *call) generic(ctx context.Context) onceCmd {
	args := make([]any, c.n)
	args[0] = c.row.name
	for i := 1; i < c.n; i++ {
		args[i] = c.words[i]
	}
	cmd := onceCmd{redis.NewCmd(ctx, args...)}
	cmd.SetFirstKeyPos(int8(c.row.key))
	return cmd
}

// release gives the call back for another command. What it has read stays with whoever took it.
func (c *call) release() {
	c.forget()
	callPool.Put(c)
}

// forget lets go of what the call refers to.
func (c *call) forget() {
	clear(c.words[:c.n])
	c.at = nil
	c.out = reply{}
}
