package middleware_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
)

func TestServerTiming(t *testing.T) {
	clock := newClock()
	at := func(ms int) time.Time { return clock.now().Add(time.Duration(ms) * time.Millisecond) }
	sent := func(from, to int) store.Sent {
		return store.Sent{Command: "GET", Commands: 1, Start: at(from), End: at(to)}
	}
	finish := map[string]gin.HandlerFunc{
		"body": func(c *gin.Context) { c.String(200, "hello") },
		"stream": func(c *gin.Context) {
			_, _ = io.WriteString(c.Writer, "a")
			c.Writer.Flush()
			clock.advance(time.Hour)
			_, _ = io.WriteString(c.Writer, "b")
		},
		"none":  func(c *gin.Context) { c.Status(204) },
		"now":   func(c *gin.Context) { c.Status(204); c.Writer.WriteHeaderNow() },
		"error": func(c *gin.Context) { _ = c.Error(store.NewError(store.CodeKeyNotFound, "")) },
		"panic": func(*gin.Context) { panic("x") },
	}
	for name, c := range map[string]struct {
		prefer []string
		sent   []store.Sent
		finish string
		want   string
	}{
		"the time in Redis and the whole":         {[]string{"server-timing"}, []store.Sent{sent(1, 3)}, "body", "redis;dur=2.000, total;dur=12.345"},
		"no command":                              {[]string{"server-timing"}, nil, "body", "redis;dur=0.000, total;dur=12.345"},
		"one after the other adds up":             {[]string{"server-timing"}, []store.Sent{sent(1, 3), sent(4, 9)}, "body", "redis;dur=7.000, total;dur=12.345"},
		"what ran together counts once":           {[]string{"server-timing"}, []store.Sent{sent(5, 6), sent(1, 9), sent(2, 3), sent(8, 10)}, "body", "redis;dur=9.000, total;dur=12.345"},
		"beside another preference":               {[]string{"return=minimal; x=y, Server-Timing"}, nil, "body", "redis;dur=0.000, total;dur=12.345"},
		"in a line of its own":                    {[]string{"return=minimal", "server-timing;x"}, nil, "body", "redis;dur=0.000, total;dur=12.345"},
		"until the answer begins":                 {[]string{"server-timing"}, nil, "stream", "redis;dur=0.000, total;dur=12.345"},
		"of an answer without a body":             {[]string{"server-timing"}, []store.Sent{sent(1, 3)}, "none", "redis;dur=2.000, total;dur=12.345"},
		"of one that is begun early":              {[]string{"server-timing"}, []store.Sent{sent(1, 3)}, "now", "redis;dur=2.000, total;dur=12.345"},
		"of an error":                             {[]string{"server-timing"}, []store.Sent{sent(1, 3)}, "error", "redis;dur=2.000, total;dur=12.345"},
		"of a panic":                              {[]string{"server-timing"}, []store.Sent{sent(1, 3)}, "panic", "redis;dur=2.000, total;dur=12.345"},
		"not when nothing is preferred":           {nil, []store.Sent{sent(1, 3)}, "body", ""},
		"not when something else is preferred":    {[]string{"return=minimal, wait=5"}, nil, "body", ""},
		"not for a word that only begins like it": {[]string{"server-timings"}, nil, "body", ""},
		"not for a value":                         {[]string{"server-timing=no"}, nil, "body", ""},
		"not for nonsense":                        {[]string{",,;;==\"", strings.Repeat(",", 4000)}, nil, "body", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, func(cfg *middleware.Config) { cfg.Clock = clock.now; cfg.Deadline.Default = 2 * time.Hour }, func(_, v1 gin.IRouter) {
				v1.GET("/x", func(ctx *gin.Context) {
					if o, ok := ctx.Request.Context().Value(store.ObserverKey()).(store.Observer); ok {
						for _, s := range c.sent {
							o.Sent(s)
						}
					}
					clock.advance(12_345 * time.Microsecond)
					finish[c.finish](ctx)
				})
			})
			var headers []string
			for _, p := range c.prefer {
				headers = append(headers, "Prefer: "+p)
			}
			if got := g.get(t, "/v1/x", headers...).header.Values("Server-Timing"); strings.Join(got, "|") != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	t.Run("who has no key learns no times", func(t *testing.T) {
		g := start(t, nil, keyRoutes)
		a := g.do(t, http.MethodGet, "/v1/strings/a", nil, "Prefer: server-timing")
		if a.status != 401 || a.header.Get("Server-Timing") != "" {
			t.Errorf("%d with %q", a.status, a.header.Get("Server-Timing"))
		}
	})
}

// BenchmarkServerTimingOff is what the guard costs a request that does not ask.
func BenchmarkServerTimingOff(b *testing.B) { benchmarkGuards(b, middleware.ServerTiming(nil)) }
