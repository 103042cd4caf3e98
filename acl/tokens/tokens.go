// Package tokens makes short-lived JSON Web Tokens for the holders of app keys, and finds out whose a token is: one of the gateways'
// own, or one of an issuer the operator trusts.
//
// It promises that nothing of a token is believed before its signature was verified under a key that knows its one algorithm; that a
// token never does more than its key or app may do at this moment, so that whatever is taken from those is taken from the token with
// the next request; that every gateway with the same secret accepts what another made; and that no request waits for an issuer. It
// refuses to say why a token was turned down, but for the operator's metrics.
package tokens

import (
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/slotgate/slotgate/acl"
)

const (
	// MaxBytes is the longest token that is looked at. One that names every class has 600 bytes; those of outside issuers carry groups and
	// names and have 1 to 2 KiB.
	MaxBytes = 4096
	// leeway is how far the clocks of two machines may be apart.
	leeway = 30 * time.Second
)

// Lifetimes of the gateways' own tokens. The longest is what a token that was stolen from a log is worth.
const (
	MinTTL     = time.Minute
	DefaultTTL = 5 * time.Minute
	MaxTTL     = 15 * time.Minute
)

// The claims that are the gateways' own.
const (
	claimKey         = "key_id" // of the app key the token was made with
	claimPermissions = "permissions"
	// DefaultAppClaim tells the app in a token of an outside issuer.
	DefaultAppClaim = "slotgate_app"
)

// Realm is who makes a token and for whom. Both are required in every token.
type Realm struct{ Issuer, Audience string }

// A Refusal is why a token opens nothing: one of a few words, for metrics and never for the caller. It is an acl.ErrUnauthenticated.
type Refusal string

// The refusals.
const (
	Malformed     Refusal = "malformed"      // no token at all, or too long, or with claims of the wrong type
	UnknownIssuer Refusal = "unknown_issuer" // of nobody we know
	UnknownKey    Refusal = "unknown_key"    // of an issuer we know, signed with a key we do not
	BadSignature  Refusal = "bad_signature"  // or another algorithm than the key's
	WrongAudience Refusal = "wrong_audience"
	Expired       Refusal = "expired"
	NotYetValid   Refusal = "not_yet_valid"  // or issued in the future
	UnknownCaller Refusal = "unknown_caller" // the key or app of the token is not there any more, or was never named
)

// Error is the text for logs.
func (r Refusal) Error() string { return "acl/tokens: the token is refused: " + string(r) }

// Is makes every refusal the one error of a caller who is not authenticated.
func (r Refusal) Is(target error) bool { return target == acl.ErrUnauthenticated }

// refusalOf finds the word for an error of the parser.
func refusalOf(err error) Refusal {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed), errors.Is(err, errClaim):
		return Malformed
	case errors.Is(err, jwt.ErrTokenSignatureInvalid), errors.Is(err, jwt.ErrTokenUnverifiable):
		return BadSignature
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return UnknownIssuer
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return WrongAudience
	case errors.Is(err, jwt.ErrTokenExpired):
		return Expired
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return NotYetValid
	}
	return Malformed // such as a required claim that is missing
}
