package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// redisLog is where the Redis client's own messages go: nowhere, until a gateway runs. The client keeps its logger in a
// variable of its package, so there is one for the process, set once in main.
var redisLog redisLogger

// redisLogger passes on one message a second at most. While a node is down the client writes a line for every
// connection that fails, and the gateway's own log and metrics already say what it means for requests.
type redisLogger struct {
	log     atomic.Pointer[slog.Logger]
	last    atomic.Int64 // unix seconds
	dropped atomic.Int64
}

func (l *redisLogger) use(log *slog.Logger) { l.log.Store(log) }

// Printf implements the client's interface.
func (l *redisLogger) Printf(ctx context.Context, format string, args ...any) {
	log := l.log.Load()
	if log == nil {
		return
	}
	now, last := time.Now().Unix(), l.last.Load()
	if now == last || !l.last.CompareAndSwap(last, now) {
		l.dropped.Add(1)
		return
	}
	log.WarnContext(ctx, "redis client", "message", fmt.Sprintf(format, args...), "dropped_before", l.dropped.Swap(0))
}
