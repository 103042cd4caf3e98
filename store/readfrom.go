package store

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/balance"
	"github.com/slotgate/slotgate/store/pipe"
	"github.com/slotgate/slotgate/store/slot"
)

// asked is what became of a read that a node was asked for.
type asked struct {
	err    error
	absent bool // there is no such key at the node
}

// final says whether the node has answered, be it that the command does not suit the value.
func (a asked) final() bool {
	return a.err == nil || errors.Is(a.err, redis.Nil) || classify(a.err).noEffect
}

// askSomebody asks the node that the shard of a slot chooses for a read, and if that fails another one. It is false if the primary has
// to be asked in the ordinary way:
//
//   - Nobody else may be asked, or all who were have failed. Of the two tries the second is paid for like any repetition.
//   - The slot has moved: who knows where to follows redirects.
//   - A replica says that there is no such key. While a slot moves, keys leave the replicas of its old primary one by one, and of all the
//     nodes only that primary says where they are.
//   - What the node holds has turned out to be older than was known (balance.Choice.Holds).
//
// send asks a node once and follows nothing; its context ends in time for another try.
func (s *Store) askSomebody(ctx context.Context, rd Reading, c *cluster, number int, class balance.Class, send func(context.Context, *way) asked) bool {
	if s.cfg.Replicas.Off {
		return false
	}
	rs := c.replicaReads()
	done, result := false, readUnknown
	if sh := rs.shard(number); sh != nil {
		rs.askTwice(ctx, sh, s.within(rd, class), number, send, func(node balance.Node, got asked, believed bool) {
			result = readFailed
			if !got.final() {
				return
			}
			switch done = believed && (node.Primary || !got.absent); {
			case done:
				result = readByReplica
				if node.Primary {
					result = readByPrimary
				}
				rd.Served.one(!node.Primary, node.ID)
			case believed:
				result = readAbsent
			default:
				result = readDoubted
			}
		})
	}
	c.metrics.readFrom(c.name, result, 1)
	return done
}

// within is what a read wants of its node.
func (s *Store) within(rd Reading, class balance.Class) balance.Read {
	r := balance.Read{Within: rd.Within, Class: class}
	if r.Within == 0 {
		r.Within = s.cfg.Replicas.Within
	}
	return r
}

// askTwice asks a node of the shard, and another one if the first has failed in a way that the other need not. keep is told what each has
// said, and whether it may be believed. Nobody is asked if nobody may be.
func (rs *replicas) askTwice(ctx context.Context, sh *replicaShard, read balance.Read, number int, send func(context.Context, *way) asked, keep func(n balance.Node, got asked, believed bool)) {
	c := rs.cluster
	var failed *way
	for {
		choice, ok := sh.set.Pick(time.Now(), read)
		if !ok {
			return
		}
		if failed != nil {
			c.metrics.retried(c.name, failed)
		}
		node := choice.Node()
		got, believed := rs.ask(ctx, choice, number, len(sh.nodes) > 1, send)
		keep(node, got, believed)
		if got.final() {
			return
		}
		v := classify(got.err)
		c.metrics.failed(c.name, v)
		if v.moving {
			rs.lookSoon(time.Now())
			return
		}
		if read.Not != "" || ctx.Err() != nil || !c.mayRetry(v) {
			return
		}
		failed, read.Not = node.Via.(*replicaNode).way, node.ID
	}
}

// ask asks the node of a choice, and tells its shard what became of it. others says that there are more nodes, for which time is left. believed
// says that what it holds is not too old.
func (rs *replicas) ask(ctx context.Context, choice balance.Choice, number int, others bool, send func(context.Context, *way) asked) (got asked, believed bool) {
	o := balance.Unknown // of a panic
	defer func() { choice.Done(time.Now(), o) }()
	node := choice.Node()
	w := node.Via.(*replicaNode).way
	if node.Primary { // without READONLY, so that one that has become a replica says so
		var err error
		if w, err = rs.cluster.wayTo(ctx, number); err != nil {
			return asked{err: err}, false
		}
	}
	start := time.Now()
	try := ctx
	if others {
		var cancel context.CancelFunc
		try, cancel = firstTry(ctx, start)
		defer cancel()
	}
	got = send(try, w)
	o = outcomeFor(got, time.Since(start), ctx)
	return got, choice.Holds()
}

// firstTry leaves half of the time for another one.
func firstTry(ctx context.Context, now time.Time) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, now.Add(deadline.Sub(now)/2))
}

// outcomeFor is what the end of a read says about its node. What the caller or the gateway itself has cut short says nothing.
func outcomeFor(got asked, took time.Duration, caller context.Context) balance.Outcome {
	if got.final() {
		return balance.Answered
	}
	v := classify(got.err)
	switch {
	case v.moving, v.shed, errors.Is(caller.Err(), context.Canceled):
		return balance.Unknown
	case v.unreachable, v.prefix == "LOADING", v.prefix == "MASTERDOWN", v.prefix == "CLUSTERDOWN":
		return balance.Refused
	case isTimeout(got.err), errors.Is(got.err, pipe.ErrAbandoned), v.notExecuted && v.prefix == "": // among these are those that waited for a connection
		if took < lostAfter {
			return balance.Unknown
		}
		return balance.Late
	case isTransport(got.err):
		return balance.Refused
	}
	return balance.Failed
}

// fetchFrom is fetchAs, of an operation that reads, for who lets replicas answer.
func (s *Store) fetchFrom(ctx context.Context, id *acl.Identity, rd Reading, as, r *row, from *budget, words ...string) ([]byte, error) {
	if !rd.Replicas {
		return s.fetchAs(ctx, id, as, r, from, words...)
	}
	if err := as.allow(id); err != nil {
		return nil, err
	}
	var data []byte
	done, err := s.callFrom(ctx, id, rd, callOf{row: r, from: from, take: func(out *reply) error {
		if err := out.refused(false, from.limit); err != nil {
			return err
		}
		data = out.data
		return nil
	}}, words...)
	if !done {
		data, err = s.fetchAs(ctx, id, as, r, from, words...)
		servedBy(rd, err)
	}
	return data, err
}

// ttlFrom is the remaining lifetime of a key that was just read, for who lets replicas answer; -1 = none.
func (s *Store) ttlFrom(ctx context.Context, id *acl.Identity, key string, rd Reading) (int64, error) {
	rd.Served = nil // who has answered with the value matters
	ms := int64(0)
	done, err := s.callFrom(ctx, id, rd, callOf{row: rowPTTL, absent: func(out *reply) bool { return out.n == -2 }, take: func(out *reply) error {
		ms = max(out.n, -1)
		return nil
	}}, key)
	if !done {
		return s.ttl(ctx, id, key, GetOptions{})
	}
	return ms, notNone(err, false)
}

// callOf is a call that somebody may answer.
type callOf struct {
	row    *row
	from   *budget            // nil = no string is expected
	absent func(*reply) bool  // whether a reply means that there is no such key; nil = none but the nil reply does
	take   func(*reply) error // takes what it needs out of the reply
}

// callFrom lets somebody answer a call. done is as askSomebody has it. Errors: redis.Nil, those of take, or an outcome.
func (s *Store) callFrom(ctx context.Context, id *acl.Identity, rd Reading, o callOf, words ...string) (done bool, err error) {
	r, from := o.row, o.from
	c, problem := s.clusters.get(id.App.Cluster)
	if problem != nil {
		return true, problem
	}
	cl, problem := newCall(id, r, words...)
	if problem != nil {
		return true, problem
	}
	if from != nil {
		c.replies.Allow(from.limit)
	}
	start := time.Now()
	var last asked
	var at *way
	var lent *budget
	done = s.askSomebody(ctx, rd, c, slot.Of(cl.stored()), balance.Point, func(ctx context.Context, w *way) asked {
		if cl == nil { // the last one was left to a pipe
			cl, _ = newCall(id, r, words...)
		}
		lent.keep(0)
		lent = from.lend()
		cl.out.reset(lent, nil)
		at, cl.at = w, w
		if last = c.sendCall(ctx, id, w, &cl); last.err == nil && o.absent != nil {
			last.absent = o.absent(&cl.out)
		}
		return last
	})
	if !done {
		lent.keep(0)
		if cl != nil {
			cl.release()
		}
		return false, nil
	}
	defer cl.release()
	c.settled(ctx, r, at, start, last.err)
	if last.err == nil {
		return true, o.take(&cl.out)
	}
	if errors.Is(last.err, redis.Nil) {
		return true, redis.Nil
	}
	return true, classify(last.err).problem(false, last.err)
}

// sendCall sends a call once. It takes one that is left to the pipe away from the caller.
func (c *cluster) sendCall(ctx context.Context, id *acl.Identity, w *way, cl **call) asked {
	place, err := w.admitOne(ctx, id)
	if err != nil {
		return asked{err: err}
	}
	kept, err := c.deliver(ctx, w, *cl, place)
	if kept {
		*cl = nil
		return asked{err: err}
	}
	if errors.Is(err, errOverCap) {
		err = nil // the caller looks at grant; the node did nothing wrong
	}
	return asked{err, errors.Is(err, redis.Nil)}
}

// runFrom is runStep of a script that reads, for who lets replicas answer. absent says whether a reply means that there is no such key.
func (s *Store) runFrom(ctx context.Context, id *acl.Identity, rd Reading, r *row, sc script, absent func(scriptReply) bool, key string, argv ...any) (scriptReply, error) {
	if !rd.Replicas {
		return s.runStep(ctx, id, Delivery{}, r, sc, key, argv...)
	}
	stored, problem := storedKey(id, key)
	if problem != nil {
		return nil, problem
	}
	c, problem := s.clusters.get(id.App.Cluster)
	if problem != nil {
		return nil, problem
	}
	c.replies.Allow(decodeLimit(id))
	start := time.Now()
	var reply scriptReply
	var last asked
	var at *way
	done := s.askSomebody(ctx, rd, c, slot.Of(stored), balance.Range, func(ctx context.Context, w *way) asked {
		at, reply = w, nil
		place, err := w.admitOne(ctx, id)
		if err != nil {
			last = asked{err: err}
			return last
		}
		defer place.Release(false)
		if reply, err = w.script(ctx, sc, stored, argv); err == nil && !reply.sound() {
			err = errNoReply
		}
		last = asked{err, err == nil && absent(reply)}
		return last
	})
	if !done {
		reply, err := s.runStep(ctx, id, Delivery{}, r, sc, key, argv...)
		servedBy(rd, err)
		return reply, err
	}
	c.settled(ctx, r, at, start, last.err)
	if last.err != nil {
		return nil, classify(last.err).problem(false, last.err)
	}
	return reply, nil
}

// script runs a script that reads at the node, which may not know it: replicas are not told of those that their primary knows.
func (w *way) script(ctx context.Context, sc script, stored string, argv []any) (scriptReply, error) {
	run := func(first ...any) (any, error) {
		cmd := onceCmd{redis.NewCmd(ctx, append(append(first, "1", stored), argv...)...)}
		w.exec(ctx, []redis.Cmder{cmd})
		return cmd.Val(), cmd.Err()
	}
	val, err := run("EVALSHA", sc.sha)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		val, err = run("EVAL", sc.source)
	}
	return asReply(val), err
}

// settled counts a read that was answered.
func (c *cluster) settled(ctx context.Context, r *row, w *way, start time.Time, err error) {
	c.retries.requests.Add(1)
	c.observe(r, w, start)
	v := verdict{}
	if err != nil && !errors.Is(err, redis.Nil) {
		v = classify(err)
		c.metrics.failed(c.name, v)
	}
	c.report(ctx, r, w, start, v)
}

// servedBy notes that the primary has answered, if it has.
func servedBy(rd Reading, err error) {
	if !rd.Replicas {
		return
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Status() >= 500 {
		return
	}
	rd.Served.one(false, "")
}
