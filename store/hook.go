package store

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// nodeHook stands before every command to a node, whoever sends it: it refuses what goes to an open circuit, tells the node's
// health of what became of the others, and counts redirects, which go-redis follows without telling anybody.
type nodeHook struct {
	metrics *metrics
	cluster string
	node    string // label
	health  *health
}

// DialHook passes.
func (nodeHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook looks at a single command.
func (h nodeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.health.refuses() {
			cmd.SetErr(errCircuitOpen)
			return errCircuitOpen
		}
		h.health.begin()
		err := next(ctx, cmd)
		h.health.end(err)
		if err == nil || err == redis.Nil { //nolint:errorlint // the bare sentinel is the common case
			return err
		}
		h.metrics.redirected(h.cluster, h.node, err)
		if h.notSent(cmd, err) {
			if left(ctx) <= 0 {
				err = errGivenUp
			}
			err = &dialError{err}
			cmd.SetErr(err)
		}
		return err
	}
}

// notSent says whether a single command that failed with err cannot have reached the node whole: a write that fails has not
// written its last byte, and Redis runs only whole commands. HELLO is what go-redis says first on a new connection: without
// an answer to it, the command that the connection was made for has not been sent. A node that breaks such a connection is
// no better than one that takes none; one that is slow may only have been too slow for this caller.
func (h nodeHook) notSent(cmd redis.Cmder, err error) bool {
	var op *net.OpError
	var already *dialError
	switch {
	case errors.As(err, &already):
		return false
	case cmd.Name() == "hello" && isTransport(err):
		if !isTimeout(err) && !lost(err) {
			h.health.dialled(err)
		}
		return true
	}
	return errors.As(err, &op) && op.Op == "write"
}

// ProcessPipelineHook looks at every command of a pipeline.
func (h nodeHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.health.refuses() {
			refuse(cmds)
			return errCircuitOpen
		}
		h.health.begin()
		err := next(ctx, cmds)
		h.health.end(err)
		if err != nil {
			for _, cmd := range cmds {
				h.metrics.redirected(h.cluster, h.node, cmd.Err())
			}
		}
		return err
	}
}

// refuse says that commands were not sent because their node's circuit is open.
func refuse(cmds []redis.Cmder) {
	for _, cmd := range cmds {
		cmd.SetErr(errCircuitOpen)
	}
}
