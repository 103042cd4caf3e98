package middleware

import (
	"errors"
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/tokens"
	"github.com/slotgate/slotgate/store"
)

// Authenticator finds whose app key or token it is. Its errors are acl's; any it does not know is a 401.
type Authenticator interface {
	Authenticate(token string) (*acl.Identity, error)
}

// AuthConfig is what Authenticate needs besides the directory.
type AuthConfig struct {
	Throttle       *Throttle           // nil: failures are not throttled
	TrustedProxies []netip.Prefix      // whose X-Forwarded-For is believed
	Failed         func(reason string) // counts a failure; the reason is for metrics, never for the client; nil is fine
}

// One answer for a missing, malformed, unknown, expired and revoked key or token.
var errUnauthenticated = store.NewError(store.CodeUnauthenticated, "a valid app key or token is required: Authorization: Bearer sg_...")

// Authenticate finds out who calls, from the Authorization header alone, and puts the identity into the request's context. A failure counts
// against the peer, and is 429 instead of 401 when the peer has had too many; a good key passes whatever its peer did.
func Authenticate(auth Authenticator, cfg AuthConfig) gin.HandlerFunc {
	return func(c *gin.Context) {
		token, ok := credentials(c.Request.Header["Authorization"])
		if !ok {
			refuse(c, cfg.failure(c, "no_credentials"))
			return
		}
		id, err := auth.Authenticate(token)
		if err != nil {
			refuse(c, cfg.refusal(c, err))
			return
		}
		of(c).event.Identity = id
	}
}

// refusal tells what a caller with a good key may know; everybody else gets the one answer.
func (cfg *AuthConfig) refusal(c *gin.Context, err error) error {
	switch {
	case errors.Is(err, acl.ErrAppSuspended):
		cfg.count("app_suspended")
		return store.NewError(store.CodeAppSuspended, "the app is suspended")
	case errors.Is(err, acl.ErrAppExpired):
		cfg.count("app_expired")
		return store.NewError(store.CodeAppExpired, "the app has expired")
	case errors.Is(err, acl.ErrNotReady):
		cfg.count("not_ready")
		return store.NewError(store.CodeClusterDown, "the gateway cannot load its apps and keys now, and does not know this one").WithCause(err)
	}
	reason := "bad_key"
	if refusal, ok := errors.AsType[tokens.Refusal](err); ok {
		reason = "token_" + string(refusal)
	}
	return cfg.failure(c, reason)
}

func (cfg *AuthConfig) failure(c *gin.Context, reason string) error {
	if cfg.Throttle != nil {
		if retry, over := cfg.Throttle.Fail(peerOf(c.Request, cfg.TrustedProxies)); over {
			cfg.count("throttled")
			return &store.Error{
				Code:       store.CodeTooManyFailures,
				Detail:     "too many requests with a bad key came from this address",
				RetryAfter: max(retry, time.Second),
			}
		}
	}
	cfg.count(reason)
	return errUnauthenticated
}

func (cfg *AuthConfig) count(reason string) {
	if cfg.Failed != nil {
		cfg.Failed(reason)
	}
}
