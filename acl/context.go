package acl

import (
	"context"
	"sync/atomic"
	"time"
)

// An Identity is who calls and what they may do, worked out once when the directory is built. It is immutable and shared by requests.
type Identity struct {
	App         *App
	Key         *Key        // never nil; without an ID when the caller came with a token of an outside issuer
	JWT         *JWT        // the token the caller came with; nil = the key itself
	Permissions Permissions // the app's, narrowed by the key's and the token's
	Prefix      string      // what every key of the app begins with in Redis: "ns:" or "{ns}:"
	Sizes       Sizes       // the app's over the gateway's
	// CompressMinBytes is the smallest value to compress; 0 is never.
	CompressMinBytes int
	// Memo is shared by all identities of one key; nil = nothing can be kept. The app never changes while it lives.
	Memo *Memo
}

// A Memo keeps one value beside an identity, for a guard that would otherwise look up by name, at each request, what follows from the
// app: with 10,000 apps such a map is cold, and each look-up some cache misses. The zero value is empty. It is safe for concurrent use; a value
// is replaced, never changed, and all values must be of one type.
type Memo struct{ atomic.Value }

// A JWT is what is worth knowing of a short-lived token that was verified.
type JWT struct {
	ID        string // its jti; "" when it has none
	Issuer    string
	ExpiresAt time.Time
}

type identityKey struct{}

// NewContext gives ctx the identity of the caller.
func NewContext(ctx context.Context, id *Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// ContextKey is the context key of the identity, for contexts that carry it as a field instead of a link. The value is an *Identity.
func ContextKey() any { return identityKey{} }

// FromContext gives the identity of the caller, nil when nobody was authenticated.
func FromContext(ctx context.Context) *Identity {
	id, _ := ctx.Value(identityKey{}).(*Identity)
	return id
}
