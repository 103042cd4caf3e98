package acl

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"os"
)

// MinSecretBytes is the least a secret may have: as many bits as HMAC-SHA256 gives.
const MinSecretBytes = 32

// Labels of the sub-keys in use. A label is never used for two purposes.
const (
	LabelKeyHash   = "key-hash"
	LabelCursorMAC = "cursor-mac"
	LabelJWTEdDSA  = "jwt-eddsa" // the seed of an Ed25519 key
	LabelJWTHS256  = "jwt-hs256"
)

// A Secret is the one secret all gateways share. It is never used itself: each purpose has a sub-key of its own, so that a leak
// through one tells nothing of the others. Printing one prints nothing of it.
type Secret struct{ root []byte }

// NewSecret takes the bytes of the secret, white space around them aside.
func NewSecret(b []byte) (Secret, error) {
	b = bytes.TrimSpace(b)
	if len(b) < MinSecretBytes {
		return Secret{}, fmt.Errorf("the secret has %d bytes; it needs %d or more (make one with: openssl rand -base64 48)", len(b), MinSecretBytes)
	}
	return Secret{root: bytes.Clone(b)}, nil
}

// LoadSecret reads the secret from a file.
func LoadSecret(path string) (Secret, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Secret{}, fmt.Errorf("reading the secret: %w", err)
	}
	s, err := NewSecret(b)
	if err != nil {
		return Secret{}, fmt.Errorf("reading the secret from %s: %w", path, err)
	}
	return s, nil
}

// Sub gives the 32-byte sub-key for a purpose.
func (s Secret) Sub(label string) []byte {
	m := hmac.New(sha256.New, s.root)
	m.Write([]byte("slotgate/" + label))
	return m.Sum(nil)
}

// String hides the secret from every log and every %v.
func (s Secret) String() string { return "[secret]" }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return "[secret]" }
