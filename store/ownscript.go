package store

import (
	"context"
	"errors"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/slot"
)

// Script is a script of a package above this one, on keys that the gateway makes and callers never name.
type Script struct{ script }

// NewScript makes a script of its source.
func NewScript(source string) *Script { return &Script{newScript(source)} }

// errTwoSlots would be a mistake of ours.
var errTwoSlots = errors.New("store: a script of ours on keys of two slots")

// RunLimit is RunScript for what decides rate limits: a peek where access is Read, otherwise a take, a refund or a reset. Which one the
// caller may do is looked at by who knows what it is: here any of them is enough.
func (s *Store) RunLimit(ctx context.Context, id *acl.Identity, access acl.Access, sc *Script, keys []string, argv []any) ([]any, error) {
	command := "RATELIMIT|TAKE"
	if access == acl.Read {
		command = "RATELIMIT|PEEK"
	} else {
		for _, other := range [...]string{"RATELIMIT|TAKE", "RATELIMIT|REFUND", "RATELIMIT|RESET"} {
			if Allow(id, other) == nil {
				command = other
				break
			}
		}
	}
	return s.RunScript(ctx, id, command, sc, keys, argv...)
}

// RunShared runs a script that decides a limit of the gateway's own, in a cluster of this name: no app asks, so no permission is needed. It
// is sent once, and EVAL after NOSCRIPT, in the pipe that callers of the node share. Without a deadline of ctx it may last as long as its
// slot moves. Errors: an outcome.
func (s *Store) RunShared(ctx context.Context, cluster string, sc *Script, keys []string, argv []any) ([]any, error) {
	c, err := s.clusters.get(cluster)
	if err != nil {
		return nil, err
	}
	args, number, err := sc.words(keys, argv)
	if err != nil {
		return nil, err
	}
	retries := max(s.cfg.Retries.Write, 0)
	return c.runScriptBy(ctx, nil, c.evaluateShared, rowTake, retries, number, sc.script, args, flat)
}

// words are the words of EVALSHA, and the slot of keys. Error: keys of two slots.
func (sc *Script) words(keys []string, argv []any) ([]any, int, *Error) {
	number := slot.Of(keys[0])
	args := append(make([]any, 0, 3+len(keys)+len(argv)), "EVALSHA", sc.sha, len(keys))
	for _, key := range keys {
		if slot.Of(key) != number {
			return nil, 0, NewError(CodeInternal, "").WithCause(errTwoSlots)
		}
		args = append(args, key)
	}
	return append(args, argv...), number, nil
}

// RunScript runs a script on keys of one slot, at least one, in the cluster of the caller's app. command is the row of the table whose
// permission the caller needs. It is sent as every write is: once, and EVAL after NOSCRIPT. One that only reads is repeated as a read is.
// The reply is an array of int64 and string, and that of a script that returns a string has it alone. Errors: forbidden, or an outcome.
func (s *Store) RunScript(ctx context.Context, id *acl.Identity, command string, sc *Script, keys []string, argv ...any) ([]any, error) {
	r, problem := lookup(command)
	if problem != nil {
		return nil, problem
	}
	if err := r.allow(id); err != nil {
		return nil, err
	}
	c, err := s.clusters.get(id.App.Cluster)
	if err != nil {
		return nil, err
	}
	args, number, err := sc.words(keys, argv)
	if err != nil {
		return nil, err
	}
	c.replies.Allow(decodeLimit(id))
	return c.runScript(ctx, id, r, s.retries(id, r.writes()), number, sc.script, args, flat)
}

// flat says whether a reply is a list of integers and strings.
func flat(reply scriptReply) bool {
	for _, v := range reply {
		switch v.(type) {
		case int64, string:
		default:
			return false
		}
	}
	return len(reply) > 0
}

// Allow says whether the caller may run the command of the table. Error: forbidden, or command_not_allowed.
func Allow(id *acl.Identity, command string) error {
	r, err := lookup(command)
	if err == nil {
		err = r.allow(id)
	}
	if err != nil {
		return err
	}
	return nil
}
