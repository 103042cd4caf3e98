package store

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
)

// do runs one command of the table for id and returns go-redis' generic reply; redis.Nil for a nil reply.
func (s *Store) do(ctx context.Context, id *acl.Identity, r *row, rest ...any) (any, error) {
	c, args, err := s.prepare(id, r, rest...)
	if err != nil {
		return nil, err
	}
	var reply any
	fail := c.try(ctx, r, s.retries(id, r.writes()), func() error {
		cmd := onceCmd{redis.NewCmd(ctx, args...)}
		if r.key > 0 {
			cmd.SetFirstKeyPos(int8(r.key))
		}
		e := c.client.Process(ctx, cmd)
		reply = cmd.Val()
		return e
	})
	return reply, fail
}

// prepare does all that comes before sending: the permission, the sizes of key and arguments, and the way to the cluster.
func (s *Store) prepare(id *acl.Identity, r *row, rest ...any) (*cluster, []any, error) {
	if err := r.allow(id); err != nil {
		return nil, nil, err
	}
	return s.route(id, r, rest...)
}

// route is prepare without the permission, for a step of an operation that was allowed as a whole.
func (s *Store) route(id *acl.Identity, r *row, rest ...any) (*cluster, []any, error) {
	args, err := r.args(id, rest...)
	if err != nil {
		return nil, nil, err
	}
	c, err := s.clusters.get(id.App.Cluster)
	if err != nil {
		return nil, nil, err
	}
	return c, args, nil
}

// fetch runs a command that returns one string and gives its stored bytes, if the budget has room for them. Errors:
// redis.Nil for an absent key, response_too_large (nothing was loaded), overloaded, or the outcome.
func (s *Store) fetch(ctx context.Context, id *acl.Identity, r *row, from *budget, rest ...any) ([]byte, error) {
	return s.fetchAs(ctx, id, r, r, from, rest...)
}

// fetchAs is fetch as a step of the operation whose row is as: that is the permission it needs, and if the operation
// writes, nothing was written yet when the step fails.
func (s *Store) fetchAs(ctx context.Context, id *acl.Identity, as, r *row, from *budget, rest ...any) ([]byte, error) {
	if err := as.allow(id); err != nil {
		return nil, err
	}
	c, args, err := s.route(id, r, rest...)
	if err != nil {
		return nil, err
	}
	b := bulkReply{}
	fail := c.try(ctx, r, s.retries(id, r.writes()), func() error {
		b.reset(from)
		b.drain = false // nobody waits behind it
		return c.fetchOnce(ctx, r, args, &b)
	})
	if err := b.refused(r.writes(), from.limit); err != nil {
		fail = err
	}
	if as.writes() {
		fail = withOutcome(fail, NotApplied)
	}
	if fail != nil {
		return nil, fail
	}
	return b.data, nil
}

// fetchOnce sends the command to the primary of its slot and, if the slot has moved, follows once through the client
// that knows how to.
func (c *cluster) fetchOnce(ctx context.Context, r *row, args []any, b *bulkReply) error {
	node, err := c.client.MasterForKey(ctx, args[r.key].(string))
	if err != nil {
		return err
	}
	raw := redis.NewRawWriteToCmd(ctx, b, args...)
	err = b.result(node.Process(ctx, raw))
	if err == nil || !redirected(err) {
		return unlessLarge(err)
	}
	c.reload(ctx)
	*b = bulkReply{budget: b.budget}
	return unlessLarge(c.followString(ctx, args, b))
}

// followString runs the command through redirects. The reply is loaded whole before its size is known; Redis bounds it
// (proto-max-bulk-len), and slots move rarely.
func (c *cluster) followString(ctx context.Context, args []any, b *bulkReply) error {
	cmd := onceString{redis.NewStringCmd(ctx, args...)}
	err := c.client.Process(ctx, cmd)
	if err != nil {
		return err
	}
	data, _ := cmd.Bytes()
	b.take(data)
	return nil
}

// unlessLarge hides errOverCap: the caller looks at grant, and the node did nothing wrong.
func unlessLarge(err error) error {
	if errors.Is(err, errOverCap) {
		return nil
	}
	return err
}
