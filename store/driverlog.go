package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// driverLogLines a second are passed on: a node that is down costs go-redis a line for every dial.
const driverLogLines = 10

// LogDriver sends what go-redis prints to log, at most 10 lines a second. go-redis has one logger for the whole
// process, so this is for the program's start, not for each Store.
func LogDriver(log *slog.Logger) { redis.SetLogger(&driverLog{log: log}) }

type driverLog struct {
	log     *slog.Logger
	mu      sync.Mutex
	second  int64
	lines   int
	dropped int
}

// Printf implements go-redis' logger.
func (d *driverLog) Printf(ctx context.Context, format string, v ...any) {
	dropped, ok := d.allow(time.Now().Unix())
	if !ok {
		return
	}
	d.log.WarnContext(ctx, "redis driver", "text", fmt.Sprintf(format, v...), "dropped_lines", dropped)
}

// allow counts a line of this second; dropped is how many were kept back since the last one that passed.
func (d *driverLog) allow(second int64) (dropped int, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.second != second {
		d.second, d.lines = second, 0
	}
	if d.lines++; d.lines > driverLogLines {
		d.dropped++
		return 0, false
	}
	dropped, d.dropped = d.dropped, 0
	return dropped, true
}
