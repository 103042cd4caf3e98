package acl

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

// MinSecretBytes is the least a secret may have: as many bits as HMAC-SHA256 gives.
const MinSecretBytes = 32

// Labels of the sub-keys in use. A label is never used for two purposes.
const (
	LabelKeyHash   = "key-hash"
	LabelCursorMAC = "cursor-mac"
	LabelJWTEdDSA  = "jwt-eddsa" // the seed of an Ed25519 key
	LabelJWTHS256  = "jwt-hs256"
	LabelSecretID  = "secret-id"
)

// A Secret is the one secret all gateways share. It is never used itself: each purpose has a sub-key of its own, so that a leak
// through one tells nothing of the others. Printing one prints nothing of it.
//
// While a secret is changed there are others beside it: everything is made with the secret itself, and what was made with the others
// is accepted too.
type Secret struct {
	root   []byte
	others []Secret
}

// NewSecret takes the bytes of the secret, white space around them aside.
func NewSecret(b []byte) (Secret, error) {
	b = bytes.TrimSpace(b)
	if len(b) < MinSecretBytes {
		return Secret{}, fmt.Errorf("the secret has %d bytes; it needs %d or more (make one with: openssl rand -base64 48)", len(b), MinSecretBytes)
	}
	return Secret{root: bytes.Clone(b)}, nil
}

// maxSecrets is the one in force with those before and after it: nobody changes two things at once.
const maxSecrets = 3

// parseSecrets takes a file's content: one secret, or a YAML list of them, the one in force first. Line ends alone do not make a list,
// because they may be part of a secret.
func parseSecrets(b []byte) (Secret, error) {
	if b = bytes.TrimSpace(b); !bytes.HasPrefix(b, []byte("- ")) {
		return NewSecret(b)
	}
	var list []*string                   // pointers, as an empty entry would be passed over otherwise
	if yaml.Unmarshal(b, &list) != nil { // its error would quote the secret
		return Secret{}, errors.New("it begins as a YAML list and is none; write one secret, or each after a dash on a line of its own")
	}
	if len(list) > maxSecrets {
		return Secret{}, fmt.Errorf("it has %d secrets; write at most %d, the one in force first", len(list), maxSecrets)
	}
	var all []Secret
	for i, text := range list {
		if text == nil {
			return Secret{}, fmt.Errorf("number %d of the list is empty; write a secret there, or take the dash away", i+1)
		}
		s, err := NewSecret([]byte(*text))
		if err != nil {
			return Secret{}, fmt.Errorf("number %d of the list: %w", i+1, err)
		}
		for _, other := range all {
			if bytes.Equal(other.root, s.root) {
				return Secret{}, fmt.Errorf("number %d of the list is there before; each must be another", i+1)
			}
		}
		all = append(all, s)
	}
	all[0].others = all[1:]
	return all[0], nil
}

// Others are the secrets that are accepted beside this one, while it is changed; usually none.
func (s Secret) Others() []Secret { return s.others }

// ID tells secrets apart, and nothing of them.
func (s Secret) ID() string { return hex.EncodeToString(s.Sub(LabelSecretID)[:4]) }

// LoadSecret reads the secret from a file, and those beside it.
func LoadSecret(path string) (Secret, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Secret{}, fmt.Errorf("reading the secret: %w", err)
	}
	s, err := parseSecrets(b)
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
