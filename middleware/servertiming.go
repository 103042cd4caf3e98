package middleware

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
)

// The preference is a token of our own, as RFC 7240 allows; what is not asked for is not measured.
const (
	headerPrefer       = "Prefer"
	preferServerTiming = "server-timing"
	headerServerTiming = "Server-Timing"
)

// ServerTiming answers a request with "Prefer: server-timing" with a Server-Timing header: how long Redis worked on it, all chunks of
// a batch that ran together counted once, and how long the gateway has had it when the answer began. It stands behind Authenticate:
// who has no key learns no times.
func ServerTiming(clock Clock) gin.HandlerFunc {
	clock = clock.orReal()
	return func(c *gin.Context) {
		if asked := c.Request.Header[headerPrefer]; len(asked) == 0 || !wantsTiming(asked) {
			return
		}
		r := of(c)
		r.watch().timed = true
		w := &timedWriter{ResponseWriter: c.Writer, request: r, clock: clock}
		c.Writer = w // for good: the renderer of errors, which stands outside, writes through it too
		c.Next()
		w.before() // an answer without a body is begun by gin, past this writer
	}
}

func wantsTiming(lines []string) bool {
	for _, line := range lines {
		for preference := range strings.SplitSeq(line, ",") {
			preference, _, _ = strings.Cut(preference, ";")
			if strings.EqualFold(strings.TrimSpace(preference), preferServerTiming) {
				return true
			}
		}
	}
	return false
}

// timedWriter adds the header as late as possible.
type timedWriter struct {
	gin.ResponseWriter
	request *request
	clock   Clock
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *timedWriter) before() {
	if w.Written() {
		return
	}
	redis, total := w.request.watch().inRedis(), w.clock().Sub(w.request.event.Start)
	value := append(make([]byte, 0, 48), "redis;dur="...)
	value = appendMillis(value, redis)
	value = append(value, ", total;dur="...)
	value = appendMillis(value, total)
	w.Header()[headerServerTiming] = []string{string(value)}
}

// appendMillis writes milliseconds with microseconds behind the point.
func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d.Microseconds())/1000, 'f', 3, 64)
}

// Write implements gin.ResponseWriter.
func (w *timedWriter) Write(p []byte) (int, error) {
	w.before()
	return w.ResponseWriter.Write(p)
}

// WriteString implements gin.ResponseWriter.
func (w *timedWriter) WriteString(s string) (int, error) {
	w.before()
	return w.ResponseWriter.WriteString(s)
}

// WriteHeaderNow implements gin.ResponseWriter.
func (w *timedWriter) WriteHeaderNow() {
	w.before()
	w.ResponseWriter.WriteHeaderNow()
}

// Flush implements gin.ResponseWriter.
func (w *timedWriter) Flush() {
	w.before()
	w.ResponseWriter.Flush()
}
