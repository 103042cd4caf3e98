package middleware

import "github.com/gin-gonic/gin"

// The values are shared by all responses. That is safe: nothing writes into a header's slice in place, and an Add copies it, as it has
// no room.
var (
	noStore = []string{"no-store"}
	noSniff = []string{"nosniff"}
)

// SecurityHeaders forbids caches to keep any answer (two apps share every URL) and browsers to guess a type. A handler whose answer
// is the same for everybody may set another Cache-Control.
func SecurityHeaders() gin.HandlerFunc {
	return func(c *gin.Context) {
		h := c.Writer.Header()
		h["Cache-Control"] = noStore
		h["X-Content-Type-Options"] = noSniff
	}
}
