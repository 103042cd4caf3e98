package middleware

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/slotgate/slotgate/store"
)

// LogConfig says which requests are written: those that failed in the gateway or behind it (status >= 500) and those that were slow, up to
// FailuresPerS; of the others, client mistakes included, one in SampleOneIn. Neither a client nor a dead node must be able to fill the disk.
type LogConfig struct {
	SampleOneIn  int           // 1 = all, 0 = none
	Slow         time.Duration // 0 = nothing counts as slow
	FailuresPerS int           // lines of one code in a second, and as many about slow requests; 0 = all
}

// maxCause bounds the cause in a line; errors of the network repeat themselves when wrapped.
const maxCause = 512

// Log writes one line per request. Whether it is written is decided before anything is formatted.
func Log(log *slog.Logger, live *Live) Sink {
	var fine atomic.Uint64
	var bad cowMap[store.Code, *rate] // at most one for each code
	return func(e *Event) {
		cfg := &live.current.Load().AccessLog
		level := slog.LevelInfo
		switch {
		case e.Status >= 500:
			level = slog.LevelError
		case cfg.Slow > 0 && e.Duration >= cfg.Slow:
			level = slog.LevelWarn
		case cfg.SampleOneIn <= 0 || (fine.Add(1)-1)%uint64(cfg.SampleOneIn) != 0:
			return
		}
		if !log.Enabled(context.Background(), level) {
			return
		}
		leftOut := int64(0)
		if level > slog.LevelInfo && cfg.FailuresPerS > 0 {
			r, ok := bad.get(e.Code)
			if !ok {
				r = bad.getOrMake(e.Code, func() *rate { return new(rate) })
			}
			if ok, leftOut = r.take(e.Start.Add(e.Duration).Unix(), int64(cfg.FailuresPerS)); !ok {
				return
			}
		}
		write(log, level, e, leftOut)
	}
}

// rate counts what happens in a second.
type rate struct{ second, n atomic.Int64 }

// take says whether there were fewer than most in this second, or, at the first of a second, how many were too many in the one before. Two
// at once may count one too few.
func (r *rate) take(second, most int64) (ok bool, tooMany int64) {
	if old := r.second.Load(); old != second && r.second.CompareAndSwap(old, second) {
		return true, max(r.n.Swap(1)-most, 0)
	}
	return r.n.Add(1) <= most, 0
}

func write(log *slog.Logger, level slog.Level, e *Event, leftOut int64) {
	app, key := "", ""
	if e.Identity != nil {
		app, key = e.Identity.App.ID, e.Identity.Key.ID
	}
	attrs := make([]slog.Attr, 0, 14)
	attrs = append(attrs,
		slog.String("request_id", e.RequestID),
		slog.String("app", app),
		slog.String("key_id", key),
		slog.String("route", e.Route),
		slog.String("method", e.Method),
		slog.Int("status", e.Status),
		slog.String("code", string(e.Code)),
		slog.Int64("dur_us", e.Duration.Microseconds()),
		slog.Int64("bytes_in", e.BytesIn),
		slog.Int64("bytes_out", e.BytesOut),
	)
	if id := e.traceID(); id != "" {
		attrs = append(attrs, slog.String("trace_id", id))
	}
	if who := e.header.Get("Gateway-Served-By"); who != "" {
		attrs = append(attrs, slog.String("served_by", who))
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int64("left_out", leftOut))
	}
	// The cause of a client's mistake may quote what the client sent; that of a failure is ours.
	if e.Err != nil && e.Status >= 500 {
		attrs = append(attrs, slog.String("cause", truncate(e.Err.Error(), maxCause)))
	}
	log.LogAttrs(context.Background(), level, "request", attrs...)
}

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n]
}
