package store

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
)

// answer is what a command without a large reply said.
type answer struct {
	found bool  // not the nil reply
	n     int64 // an integer
}

// do runs a command of the caller whose reply is small: a status, an integer or nothing. words follow its name.
func (s *Store) do(ctx context.Context, id *acl.Identity, d Delivery, r *row, words ...string) (answer, error) {
	if err := r.allow(id); err != nil {
		return answer{}, err
	}
	if d.Durability != Async {
		return s.doDurably(ctx, id, d, r, words)
	}
	cl, err := s.send(ctx, id, r, nil, words...)
	if cl == nil {
		return answer{}, err
	}
	a := answer{found: cl.out.found, n: cl.out.n}
	cl.release()
	return a, err
}

// fetch runs a command that returns one string and gives its stored bytes, if the budget has room for them. Errors:
// redis.Nil for an absent key, response_too_large (nothing was loaded), overloaded, or the outcome.
func (s *Store) fetch(ctx context.Context, id *acl.Identity, r *row, from *budget, words ...string) ([]byte, error) {
	return s.fetchAs(ctx, id, r, r, from, words...)
}

// fetchAs is fetch as a step of the operation whose row is as: that is the permission it needs, and if the operation
// writes, nothing was written yet when the step fails.
func (s *Store) fetchAs(ctx context.Context, id *acl.Identity, as, r *row, from *budget, words ...string) ([]byte, error) {
	if err := as.allow(id); err != nil {
		return nil, err
	}
	cl, fail := s.send(ctx, id, r, from, words...)
	var data []byte
	if cl != nil {
		if err := cl.out.refused(r.writes(), from.limit); err != nil {
			fail = err
		}
		data = cl.out.data
		cl.release()
	}
	if as.writes() && as != r {
		fail = withOutcome(fail, NotApplied)
	}
	if fail != nil {
		return nil, fail
	}
	return data, nil
}

// send makes a call and runs it until its answer is final. The call, which the caller must release, is nil if there was
// none to send or if it was left to the pipe.
func (s *Store) send(ctx context.Context, id *acl.Identity, r *row, from *budget, words ...string) (*call, error) {
	c, problem := s.clusters.get(id.App.Cluster)
	if problem != nil {
		return nil, problem
	}
	cl, problem := newCall(id, r, words...)
	if problem != nil {
		return nil, problem
	}
	if from != nil {
		c.replies.Allow(from.limit)
	}
	kept := false
	err := c.try(ctx, r, s.retries(id, r.writes()), func() (*way, error) {
		var e error
		cl.out.reset(from, nil)
		kept, e = c.once(ctx, id, cl)
		if errors.Is(e, errOverCap) {
			e = nil // the caller looks at grant; the node did nothing wrong
		}
		return cl.at, e
	})
	if kept {
		return nil, err
	}
	return cl, err
}

// notNone makes an unexpected nil reply the fault of the node that it is.
func notNone(err error, write bool) error {
	if errors.Is(err, redis.Nil) {
		return verdict{code: CodeBackendError, detail: "the node answered with nothing where there must be something"}.problem(write, err)
	}
	return err
}
