package tokens

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
)

const (
	// MaxJWKSBytes is the largest key set that is read. Ten RSA keys with their certificates have 40 KB.
	MaxJWKSBytes = 256 << 10
	// maxJWKs bounds what a set can cost.
	maxJWKs = 100
	// leastRSABits is what NIST SP 800-131A asks for, mostRSABits what a request can afford: 16,384 bits take 5 ms.
	leastRSABits = 2048
	mostRSABits  = 8192
)

// OutsideAlgorithms are those that tokens of outside issuers may be signed with. "none" and the HS family never are: with a shared key
// whoever verifies could sign as well.
var OutsideAlgorithms = []string{
	"EdDSA", "ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
}

// webKey is a public key as JSON (RFC 7517, RFC 7518 section 6, RFC 8037). It is read by hand, because it is three forms of two
// numbers each, and Go's own packages judge whether these make a key; the libraries for it bring encryption along.
type webKey struct {
	Type       string   `json:"kty"`
	Curve      string   `json:"crv,omitempty"`
	Use        string   `json:"use,omitempty"`
	Operations []string `json:"key_ops,omitempty"`
	Algorithm  string   `json:"alg,omitempty"`
	ID         string   `json:"kid,omitempty"`
	X          string   `json:"x,omitempty"`
	Y          string   `json:"y,omitempty"`
	N          string   `json:"n,omitempty"`
	E          string   `json:"e,omitempty"`
}

// parsedKey is a key of a set that can be used here.
type parsedKey struct {
	id, algorithm string
	public        any
}

// parseJWKS reads a set and keeps the keys that verify signatures by one of the algorithms; others, such as those for encryption, are
// passed over, since a set may have them. So are keys that are broken or too weak, which bad tells, for they must not take the good ones
// with them. A set without a key to use is an error.
func parseJWKS(text []byte, algorithms []string) (keys []parsedKey, bad []error, err error) {
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, nil, fmt.Errorf("it is not a JSON Web Key Set: %w", err)
	}
	if len(set.Keys) > maxJWKs {
		return nil, nil, fmt.Errorf("it has %d keys; at most %d are read", len(set.Keys), maxJWKs)
	}
	ids := map[string]bool{}
	for i, raw := range set.Keys {
		var k webKey
		if err := json.Unmarshal(raw, &k); err != nil {
			bad = append(bad, fmt.Errorf("key %d: %w", i, err))
			continue
		}
		algorithm := k.usable(algorithms)
		if algorithm == "" {
			continue
		}
		public, err := k.public()
		if err == nil && ids[k.ID] {
			err = errors.New("another key has this kid")
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("key %d (kid %q): %w", i, k.ID, err))
			continue
		}
		ids[k.ID] = true
		keys = append(keys, parsedKey{k.ID, algorithm, public})
	}
	if len(keys) == 0 {
		none := fmt.Errorf("none of its %d keys is one for signatures by %s", len(set.Keys), strings.Join(algorithms, ", "))
		return nil, nil, errors.Join(append([]error{none}, bad...)...)
	}
	return keys, bad, nil
}

// usable finds the one algorithm the key is used with, "" for none. A key that names none gets the first configured one that fits.
func (k *webKey) usable(algorithms []string) string {
	if k.Use != "" && k.Use != "sig" || k.Operations != nil && !slices.Contains(k.Operations, "verify") {
		return ""
	}
	for _, a := range algorithms {
		if (k.Algorithm == "" || k.Algorithm == a) && k.fits(a) {
			return a
		}
	}
	return ""
}

// fits says whether a key of this type signs by the algorithm.
func (k *webKey) fits(algorithm string) bool {
	switch algorithm {
	case "EdDSA":
		return k.Type == "OKP" && k.Curve == "Ed25519"
	case "ES256":
		return k.Type == "EC" && k.Curve == "P-256"
	case "ES384":
		return k.Type == "EC" && k.Curve == "P-384"
	case "ES512":
		return k.Type == "EC" && k.Curve == "P-521"
	}
	return k.Type == "RSA" && slices.Contains(OutsideAlgorithms, algorithm)
}

// public makes the key. Numbers that are none, points off the curve and RSA keys too short or too long are errors.
func (k *webKey) public() (any, error) {
	switch k.Type {
	case "OKP":
		x, err := number(k.X)
		if err != nil || len(x) != ed25519.PublicKeySize {
			return nil, errors.New("x is not an Ed25519 key")
		}
		return ed25519.PublicKey(x), nil
	case "EC":
		return k.point()
	}
	return k.modulus()
}

func (k *webKey) point() (*ecdsa.PublicKey, error) {
	curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[k.Curve]
	size := (curve.Params().BitSize + 7) / 8
	x, errX := number(k.X)
	y, errY := number(k.Y)
	if errX != nil || errY != nil || len(x) != size || len(y) != size {
		return nil, fmt.Errorf("x and y are not %d bytes in base64url each", size)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil, fmt.Errorf("x and y are no point of %s", k.Curve)
	}
	return public, nil
}

func (k *webKey) modulus() (*rsa.PublicKey, error) {
	n, errN := number(k.N)
	e, errE := number(k.E)
	if errN != nil || errE != nil || len(e) == 0 || len(e) > 4 {
		return nil, errors.New("n and e are not an RSA key in base64url")
	}
	public := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	if bits := public.N.BitLen(); bits < leastRSABits || bits > mostRSABits {
		return nil, fmt.Errorf("an RSA key of %d bits; use %d to %d", bits, leastRSABits, mostRSABits)
	}
	if public.E < 3 || public.E%2 == 0 || public.E > 1<<31-1 || public.N.Bit(0) == 0 {
		return nil, errors.New("n and e are no RSA key")
	}
	return public, nil
}

func number(encoded string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(encoded) }

// knownAlgorithm says whether the library has the algorithm and tokens of outside issuers may use it.
func knownAlgorithm(name string) bool {
	return slices.Contains(OutsideAlgorithms, name) && jwt.GetSigningMethod(name) != nil
}
