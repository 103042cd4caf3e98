package store

import (
	"context"
	"time"
)

// Observer is told what a request sends to Redis. A request's context answers ObserverKey with one, or with nil: then nobody watches,
// and nothing is done for it. Its method is called from any goroutine, after the fact; it must not block.
type Observer interface {
	Sent(Sent)
}

// Sent is a command, or a chunk of a batch, that is over, repetitions included. It has no key and no value.
type Sent struct {
	Cluster  string
	Node     string // address of the node that was asked last; "" = none was known
	Command  string // upper case
	Replica  bool   // it is one that answers reads
	Commands int    // of a chunk; 1 = not a batch's
	Start    time.Time
	End      time.Time
	// Code is what became of it, of the first that failed in a chunk; "" = it was done.
	Code       Code
	RedisError string // the prefix of Redis' error; "" = it was not Redis that refused
}

type observerKey struct{}

// ObserverKey is the context key of the Observer of a request.
func ObserverKey() any { return observerKey{} }

// report tells the request's observer of a command that is over. It says nothing of the Redis commands that belong to the way there.
func (c *cluster) report(ctx context.Context, r *row, w *way, start time.Time, v verdict) {
	if o := observerOf(ctx); o != nil {
		s := c.sent(r, w, start)
		s.Code, s.RedisError = v.code, v.prefix
		o.Sent(s)
	}
}

// report tells the request's observer of a chunk whose items are settled.
func (b *batch) report(ctx context.Context, w *way, items []int, start time.Time) {
	o := observerOf(ctx)
	if o == nil {
		return
	}
	s := b.cluster.sent(b.row, w, start)
	s.Commands = len(items)
	for _, i := range items {
		if e := b.items[i].err; e != nil {
			s.Code, s.RedisError = e.Code, e.RedisError
			break
		}
	}
	o.Sent(s)
}

func (c *cluster) sent(r *row, w *way, start time.Time) Sent {
	s := Sent{Cluster: c.name, Command: r.name, Commands: 1, Start: start, End: time.Now()}
	if w != nil {
		s.Node, s.Replica = w.node.Options().Addr, w.replica
	}
	return s
}

func observerOf(ctx context.Context) Observer {
	o, _ := ctx.Value(observerKey{}).(Observer)
	return o
}
