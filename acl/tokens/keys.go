package tokens

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/golang-jwt/jwt/v5"

	"github.com/slotgate/slotgate/acl"
)

// The algorithms of the gateways' own tokens. With EdDSA others can verify them too, by the set at /.well-known/jwks.json; HS256 is for
// who must have it, and costs less to verify.
const (
	EdDSA = "EdDSA"
	HS256 = "HS256"
)

// Keys are what the gateways sign their tokens with, derived from the secret they share. The first signs, all verify, so that a secret
// can be changed while tokens made with the one before are in use. They are immutable.
type Keys struct {
	algorithm jwt.SigningMethod
	first     any      // the private key that signs
	ids       []string // in order
	public    map[string]any
}

// DeriveKeys makes the keys of an algorithm, EdDSA or HS256, from the secret in force and those that are still or already accepted.
func DeriveKeys(algorithm string, current acl.Secret, others ...acl.Secret) (*Keys, error) {
	k := &Keys{algorithm: jwt.GetSigningMethod(algorithm), public: map[string]any{}}
	for _, secret := range append([]acl.Secret{current}, others...) {
		var id string
		var private, public any
		switch algorithm {
		case EdDSA:
			pair := ed25519.NewKeyFromSeed(secret.Sub(acl.LabelJWTEdDSA))
			half := pair.Public().(ed25519.PublicKey)
			id, private, public = thumbprint(half), pair, half
		case HS256:
			shared := secret.Sub(acl.LabelJWTHS256)
			id, private, public = hiddenID(shared), shared, shared
		default:
			return nil, fmt.Errorf("no algorithm %q for tokens; there are %s and %s", algorithm, EdDSA, HS256)
		}
		if k.first == nil {
			k.first = private
		}
		if _, twice := k.public[id]; !twice {
			k.ids = append(k.ids, id)
			k.public[id] = public
		}
	}
	return k, nil
}

// thumbprint is the id of a public key by RFC 7638: everybody who has the key finds the same.
func thumbprint(public ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(public) + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// hiddenID is the id of a shared key, and tells nothing of it.
func hiddenID(shared []byte) string {
	m := hmac.New(sha256.New, shared)
	m.Write([]byte("kid"))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil)[:16])
}

// JWKS is the set of public keys (RFC 7517) by which others can verify the gateways' tokens. Shared keys are never in it.
func (k *Keys) JWKS() []byte {
	set := struct {
		Keys []webKey `json:"keys"`
	}{[]webKey{}}
	for _, id := range k.ids {
		if public, ok := k.public[id].(ed25519.PublicKey); ok {
			set.Keys = append(set.Keys, webKey{
				Type: "OKP", Curve: "Ed25519", Use: "sig", Algorithm: EdDSA, ID: id, X: base64.RawURLEncoding.EncodeToString(public),
			})
		}
	}
	text, _ := json.Marshal(set) // strings alone: it cannot fail
	return text
}
