package middleware

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl/alive"
)

// Recover turns a panic below it into 500 internal and logs it with its stack; panicked (nil is fine) counts it. What net/http itself
// panics with to abort a connection passes through. When the response has already begun, the renderer aborts the connection.
func Recover(log *slog.Logger, panicked func()) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares the value itself
				panic(v)
			}
			if panicked != nil {
				panicked()
			}
			err := fmt.Errorf("panic: %s", alive.Describe(v))
			log.Error("panic in a handler",
				"request_id", of(c).event.RequestID, "route", c.FullPath(), "panic", err, "stack", string(debug.Stack()))
			_ = c.Error(err) // not refuse: the handler may have asked the store
			c.Abort()
		}()
		c.Next()
	}
}
