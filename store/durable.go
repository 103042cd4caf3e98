package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/pipe"
	"github.com/slotgate/slotgate/store/slot"
)

// durableCmd is a write whose copies are waited for, sent at most once. The lane that sends it fills in what the wait has shown.
type durableCmd struct {
	redis.Cmder
	out    *reply // of a command of the table; nil = a script's, which go-redis reads
	need   int    // replicas that must have it
	copies copies
	fault  error // of the wait; nil = it was answered
}

// result is the reply: an integer, the list of a script, or nil for a status.
func (d *durableCmd) result() (any, error) {
	if d.out == nil {
		v, err := d.Cmder.(*redis.Cmd).Result()
		if list, _ := v.([]any); err == nil && !scriptReply(list).sound() {
			err = errNoReply
		}
		return v, err
	}
	if err := d.out.result(d.Err()); err != nil || d.out.says != integer {
		return nil, err
	}
	return d.out.n, nil
}

// copies is where a write is, as far as a wait has shown.
type copies struct {
	replicas int  // that have it, with Fsync on disk
	disk     bool // with Fsync: the primary has it on disk
}

// NoRetry makes go-redis send it once.
func (*durableCmd) NoRetry() bool { return true }

// refusal is a fault that the gateway finds by itself.
type refusal struct {
	verdict
	cause error // nil = none
	told  *told // nil = it is made for each caller
}

func (r *refusal) Error() string { return "store: " + r.detail }
func (r *refusal) Unwrap() error { return r.cause }

// durableWrite is a write that must be safe.
type durableWrite struct {
	level  Durability
	row    *row
	stored string         // the key
	args   []any          // with the command's name and the stored key
	script *script        // that they run, nil if there is none
	wrote  func(any) bool // whether a reply means that something was written: only then its copies matter
}

// command is go-redis' form of it for a try.
func (w *durableWrite) command(ctx context.Context) *durableCmd {
	if w.script != nil {
		return &durableCmd{Cmder: redis.NewCmd(ctx, w.args...)}
	}
	out := &reply{says: w.row.says, drain: true}
	return &durableCmd{Cmder: redis.NewRawWriteToCmd(ctx, out, w.args...), out: out}
}

// durably runs a durable write of the caller. The reply is that of durableCmd.result; redis.Nil passes.
func (s *Store) durably(ctx context.Context, id *acl.Identity, w durableWrite, receipt *Receipt) (any, error) {
	c, problem := s.clusters.get(id.App.Cluster)
	if problem != nil {
		return nil, problem
	}
	var v any
	var got copies
	err := c.try(ctx, w.row, s.retries(id, true), func() (at *way, err error) {
		at, v, got, err = c.settle(ctx, id, &w)
		if w.script != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			w.args[0], w.args[1] = "EVAL", w.script.source
			at, v, got, err = c.settle(ctx, id, &w)
		}
		return at, err
	})
	c.metrics.durably(c.name, w.level, err)
	if err != nil {
		return nil, err
	}
	if receipt != nil && w.wrote(v) {
		receipt.Reached, receipt.Copies = w.level, got.replicas
	}
	return v, nil
}

// doDurably is do for a write that must be safe.
func (s *Store) doDurably(ctx context.Context, id *acl.Identity, d Delivery, r *row, words []string) (answer, error) {
	stored, problem := storedKey(id, words[r.key-1])
	if problem != nil {
		return answer{}, problem
	}
	args := make([]any, 0, len(words)+1)
	args = append(args, r.name)
	for _, w := range words {
		args = append(args, w)
	}
	args[r.key] = stored
	v, err := s.durably(ctx, id, durableWrite{level: d.Durability, row: r, stored: stored, args: args, wrote: commandWrote(r)}, d.Receipt)
	if err != nil {
		return answer{}, err
	}
	n, _ := v.(int64)
	return answer{found: true, n: n}, nil
}

// commandWrote is done for a command sent as it is: removing nothing writes nothing.
func commandWrote(r *row) func(any) bool {
	return func(reply any) bool {
		n, ok := reply.(int64)
		return r != rowUnlink || !ok || n > 0
	}
}

// scriptWrote is done for the scripts that stand for a command. They return statusDone, and those about the expiry whether it was
// applied too.
func scriptWrote(r *row) func(any) bool {
	return func(reply any) bool {
		list, _ := reply.([]any)
		said := scriptReply(list)
		if r == rowPExpire || r == rowPExpireAt || r == rowPersist {
			return said.status() == statusDone && said.integer(1) == 1
		}
		return said.status() == statusDone
	}
}

// maxHops bounds how far one try of a durable write follows redirects, as MaxRedirects does for other commands.
const maxHops = 3

// settle sends a durable write to the primary of its slot and follows redirects by hand: WAIT counts for the connection of the write
// only, so the client that follows by itself cannot be used. A write that was done is a fault unless its copies are there.
func (c *cluster) settle(ctx context.Context, id *acl.Identity, write *durableWrite) (w *way, v any, got copies, err error) {
	number := slot.Of(write.stored)
	if w, err = c.wayTo(ctx, number); err != nil {
		return nil, nil, got, err
	}
	asking := false
	for hop := 0; ; hop++ {
		if w.health.refuses() { // without waiting behind those who were sent before
			c.doubt(number)
			return w, nil, copies{}, errCircuitOpen
		}
		// It holds no place: what it waits for is the copies, and its lane bounds how many wait.
		place, full := w.admitOne(ctx, id)
		if full != nil {
			return w, nil, copies{}, full
		}
		place.Release(false)
		cmd := write.command(ctx)
		if err = w.lane(c, write.level).do(ctx, cmd, asking); err == nil {
			got = cmd.copies
			if v, err = cmd.result(); err == nil && write.wrote(v) {
				err = cmd.unsettled(write.level)
			}
		} // else the pipe may still write there
		if err == nil || errors.Is(err, redis.Nil) {
			return w, v, got, err
		}
		c.doubt(number)
		next, ask := c.redirect(ctx, write.stored, err)
		if next == nil || hop == maxHops {
			return w, nil, copies{}, err
		}
		w, asking = next, ask
	}
}

// redirect is the way to the node that err sends the key to; nil if err is no redirect, or to a node that go-redis has not met yet.
func (c *cluster) redirect(ctx context.Context, stored string, err error) (w *way, ask bool) {
	addr, moved := redis.IsMovedError(err)
	if moved {
		c.reload(ctx)
	} else if addr, ask = redis.IsAskError(err); !ask {
		return nil, false
	} else {
		// A primary that gets its first slot is on no slot map yet. go-redis makes a client of it when a redirect of its own leads there,
		// and closes that one when it looks at the map again.
		_ = c.client.Process(ctx, onceCmd{redis.NewCmd(ctx, rowExists.name, stored)})
	}
	if node := c.nodes.client(addr); node != nil {
		return c.way(node), ask
	}
	c.reload(ctx)
	return nil, ask
}

// unsettled is the fault of a write that was done, nil if its copies are where they must be.
func (d *durableCmd) unsettled(level Durability) error {
	var reply redis.Error
	switch {
	case d.copies.replicas >= d.need && (level != Fsync || d.copies.disk):
		return nil
	case d.fault == nil:
		return unreplicated(fmt.Sprintf("the primary has the write; %d of %d replicas confirmed it in time", d.copies.replicas, d.need), nil)
	case errors.As(d.fault, &reply) && !demoted(reply):
		return unreplicated("the primary has the write; Redis refused to wait for its copies", d.fault)
	default:
		// The primary was lost together with what it had not passed on, or it was not: nobody can know yet.
		return &refusal{cause: d.fault, verdict: verdict{
			code: CodeBackendTimeout, reload: true, detail: "the primary took the write, and was lost before its copies were confirmed",
		}}
	}
}

func unreplicated(detail string, cause error) error {
	return &refusal{verdict: verdict{code: CodeAppliedNotReplicated, applied: true, detail: detail}, cause: cause}
}

// demoted says whether a node broke a wait off because it is no primary any more.
func demoted(err redis.Error) bool {
	return strings.HasPrefix(err.Error(), "UNBLOCKED") || strings.Contains(err.Error(), "replica instances")
}

// do sends a durable write with those of others, and waits for its copies. Its error says that nothing was sent, or is one of pipe's.
func (l *lane) do(ctx context.Context, cmd *durableCmd, asking bool) (err error) {
	if cmd.need, err = l.need(ctx); err != nil {
		return err
	}
	e := entryPool.Get().(*pipe.Entry)
	e.Cmds = e.Cmds[:0]
	if asking {
		e.Cmds = append(e.Cmds, onceCmd{redis.NewCmd(ctx, "ASKING")})
	}
	e.Cmds = append(e.Cmds, cmd)
	err = l.pipe.Do(ctx, e)
	if err == nil || errors.Is(err, pipe.ErrSaturated) {
		entryPool.Put(e)
	}
	return err
}
