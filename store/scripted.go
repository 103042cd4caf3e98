package store

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/slot"
)

// Script is a Lua script of a package above this one, on the gateway's own keys. It returns an array. The zero value is none.
type Script struct{ script script }

// NewScript makes a Script of its text.
func NewScript(source string) Script { return Script{newScript(source)} }

// ownPrefix begins every key that the gateway keeps for itself. No namespace can begin so.
const ownPrefix = "slotgate:"

// RunScript runs a script on keys of the gateway's own, all in one slot, in the cluster of the caller's app. command is the row of the
// command table whose permission the caller needs, and that says whether the script writes: then it is sent once, and repeated only if
// Redis certainly did not run it. Errors: forbidden, and those of a command.
func (s *Store) RunScript(ctx context.Context, id *acl.Identity, command string, sc Script, keys []string, argv ...any) ([]any, error) {
	r, problem := lookup(command)
	if problem != nil {
		return nil, problem
	}
	if err := r.allow(id); err != nil {
		return nil, err
	}
	args := append(make([]any, 0, len(keys)+len(argv)+3), "EVALSHA", sc.script.sha, len(keys))
	for _, key := range keys {
		if !strings.HasPrefix(key, ownPrefix) {
			panic("store: a script of the gateway's own on somebody else's key")
		}
		args = append(args, key)
	}
	args = append(args, argv...)
	c, err := s.clusters.get(id.App.Cluster)
	if err != nil {
		return nil, err
	}
	c.replies.Allow(decodeLimit(id))
	var reply []any
	fail := c.try(ctx, r, s.retries(id, r.writes()), func() (*way, error) {
		number := slot.Of(keys[0])
		w, e := c.wayTo(ctx, number)
		if e != nil {
			return nil, e
		}
		args[0], args[1] = "EVALSHA", sc.script.sha // the node of an earlier try may have known the script no better
		val, e := c.evaluate(ctx, w, args)
		if redis.HasErrorPrefix(e, "NOSCRIPT") {
			args[0], args[1] = "EVAL", sc.script.source
			val, e = c.evaluate(ctx, w, args)
		}
		if e != nil {
			c.doubt(number)
			return w, e
		}
		var ok bool
		if reply, ok = val.([]any); !ok {
			return w, errNoReply
		}
		return w, nil
	})
	return reply, fail
}
