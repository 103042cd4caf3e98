package tokens

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/slotgate/slotgate/acl"
)

// The reasons a token is not made; one more is *WiderError.
var (
	// ErrFromToken keeps a stolen token from being renewed for ever.
	ErrFromToken = errors.New("acl/tokens: a token is not exchanged for another; send the app key")
	// ErrTooLong says that the permissions do not fit into MaxBytes.
	ErrTooLong = fmt.Errorf("acl/tokens: the token would have more than %d bytes; ask for fewer permissions", MaxBytes)
)

// A WiderError is the answer to who asks for more than the key may do.
type WiderError struct{ Entries []string }

func (e *WiderError) Error() string {
	return "acl/tokens: the key may not do " + strings.Join(e.Entries, ", ")
}

// An Issuer makes the gateways' own tokens. It keeps nothing between calls and may be used by any number of them at once.
type Issuer struct {
	Realm    Realm
	Keys     *Keys
	Commands acl.CommandTable // tells that commands:GET is a part of strings:read; nil = only what the key has by name
	Now      func() time.Time // nil = time.Now
}

// Issued is a token and what it says.
type Issued struct {
	Token       string
	IssuedAt    time.Time // whole seconds, as ExpiresAt
	ExpiresAt   time.Time // never after the key's or the app's
	Permissions []string
}

// Issue makes a token for who came with an app key. It lives for ttl, which the caller has found to be MinTTL to MaxTTL, and may do
// what is in permissions: a valid list, nil for all that the key may do now.
func (i *Issuer) Issue(id *acl.Identity, ttl time.Duration, permissions []string) (Issued, error) {
	if id.JWT != nil {
		return Issued{}, ErrFromToken
	}
	if permissions == nil {
		permissions = id.Permissions.Entries(i.Commands)
	} else if wider := id.Permissions.Excess(permissions, i.Commands); len(wider) > 0 {
		return Issued{}, &WiderError{wider}
	}
	now := i.now().UTC().Truncate(time.Second)
	made := Issued{IssuedAt: now, ExpiresAt: now.Add(ttl), Permissions: permissions}
	for _, end := range []*time.Time{id.Key.ExpiresAt, id.App.ExpiresAt} {
		if end != nil && end.Before(made.ExpiresAt) {
			made.ExpiresAt = end.UTC().Truncate(time.Second)
		}
	}
	var err error
	if made.Token, err = i.sign(id, &made); err != nil {
		return Issued{}, fmt.Errorf("signing a token: %w", err)
	}
	if len(made.Token) > MaxBytes {
		return Issued{}, ErrTooLong
	}
	return made, nil
}

func (i *Issuer) sign(id *acl.Identity, made *Issued) (string, error) {
	token := jwt.NewWithClaims(i.Keys.algorithm, jwt.MapClaims{
		"iss":            i.Realm.Issuer,
		"aud":            i.Realm.Audience,
		"sub":            id.App.ID,
		claimKey:         id.Key.ID,
		claimPermissions: made.Permissions,
		"iat":            made.IssuedAt.Unix(),
		"nbf":            made.IssuedAt.Unix(),
		"exp":            made.ExpiresAt.Unix(),
		"jti":            rand.Text(),
	})
	token.Header["kid"] = i.Keys.ids[0]
	return token.SignedString(i.Keys.first)
}

func (i *Issuer) now() time.Time {
	if i.Now == nil {
		return time.Now()
	}
	return i.Now()
}
