package middleware

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// LogConfig says which requests are written. A request that failed in the gateway or behind it (status >= 500), or was slow, always
// is; of the others, client mistakes included, one in SampleOneIn: a client must not be able to fill the disk.
type LogConfig struct {
	SampleOneIn int           // 1 = all, 0 = none
	Slow        time.Duration // 0 = nothing counts as slow
}

// maxCause bounds the cause in a line; errors of the network repeat themselves when wrapped.
const maxCause = 512

// Log writes one line per request. Whether it is written is decided before anything is formatted.
func Log(log *slog.Logger, live *Live) Sink {
	var fine atomic.Uint64
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
		if log.Enabled(context.Background(), level) {
			write(log, level, e)
		}
	}
}

func write(log *slog.Logger, level slog.Level, e *Event) {
	app, key := "", ""
	if e.Identity != nil {
		app, key = e.Identity.App.ID, e.Identity.Key.ID
	}
	attrs := make([]slog.Attr, 0, 12)
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
