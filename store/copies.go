package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// shardCopies is how many replicas a primary's writes must reach.
type shardCopies struct {
	need int
	read time.Time
}

// copiesMaxAge bounds for how long a replica that was added, or that came back after a failover, is not waited for.
const copiesMaxAge = time.Second

// need is how many replicas must confirm a write of this lane. It is asked before anything is sent, so that what can't be had is
// refused with nothing written. While one caller asks anew, the others go by what is known.
func (l *lane) need(ctx context.Context) (int, error) {
	k := l.known.Load()
	if k != nil {
		if time.Since(k.read) < copiesMaxAge || !l.asking.CompareAndSwap(false, true) {
			return k.need, nil
		}
		defer l.asking.Store(false)
	}
	need, err := l.ask(ctx)
	if err != nil {
		l.known.Store(nil)
		return 0, err
	}
	l.known.Store(&shardCopies{need: need, read: time.Now()})
	return need, nil
}

// ask asks the node for its replicas, and tries the command that waits for nothing: it tells whether the node knows it, whether the
// gateway's user may use it, and whether there is a disk to wait for.
func (l *lane) ask(ctx context.Context) (int, error) {
	probe := []any{"WAIT", 0, 1}
	if l.level == Fsync {
		probe = []any{"WAITAOF", 1, 0, 1} // refused without appendonly
	}
	list, try := onceCmd{redis.NewCmd(ctx, "CLUSTER", "NODES")}, onceCmd{redis.NewCmd(ctx, probe...)}
	p := l.client.Pipeline()
	_ = p.Process(ctx, list)
	_ = p.Process(ctx, try)
	_, _ = p.Exec(ctx)
	for _, cmd := range []onceCmd{list, try} {
		if err := cmd.Err(); err != nil {
			return 0, l.refused(err)
		}
	}
	text, _ := list.Text()
	view, ok := parseReplicas(text)
	if !ok {
		return 0, unsent(verdict{code: CodeBackendError, detail: "the node's list of the cluster can't be read"}, nil)
	}
	return l.enough(view)
}

// refused is the fault of a question that was not answered.
func (l *lane) refused(err error) error {
	v := classify(err)
	var reply redis.Error
	if l.level == Fsync && errors.As(err, &reply) && strings.Contains(reply.Error(), "appendonly is disabled") {
		v = verdict{code: CodeUnsupportedByCluster, detail: "durability=fsync needs an append-only file, and the primary has none (appendonly no)"}
	} else if v.code == CodeUnsupportedByCluster {
		v.detail = "durability=fsync needs WAITAOF, which Redis has from 7.2 on"
	}
	return unsent(v, err)
}

// enough is how many of the replicas must confirm.
func (l *lane) enough(view replicaView) (int, error) {
	need := max(l.replicas, 1)
	switch {
	case !view.primary:
		return 0, unsent(verdict{code: CodeClusterDown, again: true, reload: true, detail: "the node has become a replica"}, nil)
	case view.cluster == 0:
		return 0, unsent(verdict{code: CodeUnsupportedByCluster, detail: "the cluster has no replicas that could keep a copy"}, nil)
	case view.own < need:
		return 0, unsent(verdict{code: CodeClusterDown, again: true,
			detail: fmt.Sprintf("the shard of this key has %d replicas at the moment, and a durable write needs %d", view.own, need)}, nil)
	case l.replicas == 0:
		return view.own, nil
	}
	return need, nil
}

// unsent is a fault before anything was sent.
func unsent(v verdict, cause error) error {
	v.notExecuted, v.noEffect = true, false
	return &refusal{verdict: v, cause: cause}
}

// replicaView is what a node says of replicas.
type replicaView struct {
	primary bool // the node is one
	own     int  // its replicas, those that have failed too
	cluster int  // the replicas of all
}

// parseReplicas reads the answer to CLUSTER NODES: lines of "id address flags primary …", the node's own with the flag myself. A
// replica that has failed stays on the list until it is told to be forgotten, unlike in CLUSTER SLOTS.
func parseReplicas(list string) (v replicaView, ok bool) {
	of := map[string]int{}
	self := ""
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		flags := strings.Split(fields[2], ",")
		if slices.Contains(flags, "myself") {
			self, v.primary = fields[0], slices.Contains(flags, "master")
		}
		if slices.Contains(flags, "slave") {
			of[fields[3]]++
			v.cluster++
		}
	}
	v.own = of[self]
	return v, self != ""
}
