package acl

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"hash/crc32"
	"sync"
	"time"
	"unsafe"
)

// TokenPattern is what a token looks like, for secret scanners:
//
//	sg_ID_SECRETCHECKSUM
//
// ID is 12, SECRET 43 (256 random bits) and CHECKSUM 6 base62 digits (0-9A-Za-z): the CRC-32 (IEEE) of everything before it. The
// underscores are not base62, so a double click selects the whole. The checksum lets a scanner tell a token from chance, and the
// gateway turn down a truncated one without a look-up; it protects nothing.
const TokenPattern = `\bsg_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}\b`

const (
	tokenPrefix = "sg_"
	idLen       = 12
	secretLen   = 43
	sumLen      = 6
	idStart     = len(tokenPrefix)
	secretStart = idStart + idLen + 1
	sumStart    = secretStart + secretLen
	tokenLen    = sumStart + sumLen

	base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewKey makes a key for the app and the token that opens it. The token is in nobody's hands but the caller's: show it once.
// Permissions nil gives the key the app's.
func NewKey(secret Secret, app string, now time.Time, expires *time.Time, permissions []string) (token string, key *Key, err error) {
	now = now.UTC().Truncate(time.Second)
	token = mintToken()
	mac := newTokenMAC(secret)
	hash := mac.of(token)
	key = &Key{
		ID:          token[idStart : idStart+idLen],
		App:         app,
		SecretID:    secret.ID(),
		Hash:        hex.EncodeToString(hash[:]),
		Last4:       token[tokenLen-4:],
		CreatedAt:   now,
		ExpiresAt:   inUTC(expires),
		Permissions: permissions,
	}
	if err := key.Validate(); err != nil {
		return "", nil, err
	}
	return token, key, nil
}

func mintToken() string {
	b := make([]byte, 0, tokenLen)
	b = append(b, tokenPrefix...)
	b = appendRandom(b, idLen)
	b = append(b, '_')
	b = appendRandom(b, secretLen)
	sum := crc32String(string(b))
	b = b[:tokenLen]
	for i := tokenLen - 1; i >= sumStart; i-- {
		b[i] = base62[sum%uint32(len(base62))]
		sum /= uint32(len(base62))
	}
	return string(b)
}

// appendRandom adds n digits, each as likely as any other.
func appendRandom(b []byte, n int) []byte {
	const fair = 256 - 256%len(base62) // a byte from here on would favour the first digits
	var raw [64]byte
	for n > 0 {
		rand.Read(raw[:]) // never fails: it would end the program first
		for _, r := range raw {
			if n > 0 && int(r) < fair {
				b = append(b, base62[int(r)%len(base62)])
				n--
			}
		}
	}
	return b
}

// wellFormed checks length, alphabet and checksum, all of which are public knowledge, so nothing here needs constant time.
func wellFormed(token string) bool {
	if len(token) != tokenLen || token[:idStart] != tokenPrefix || token[secretStart-1] != '_' {
		return false
	}
	if !allDigits(token[idStart:secretStart-1]) || !allDigits(token[secretStart:]) {
		return false
	}
	sum := crc32String(token[:sumStart])
	for i := tokenLen - 1; i >= sumStart; i-- {
		if token[i] != base62[sum%uint32(len(base62))] {
			return false
		}
		sum /= uint32(len(base62))
	}
	return true
}

// crc32String is crc32.ChecksumIEEE of a string, without the copy that its bytes would be: they are only read. 22 ns, where a loop
// over the table takes 100.
func crc32String(s string) uint32 {
	return crc32.ChecksumIEEE(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// digit tells the base62 digits by a look-up: 62 bytes of every token are looked at.
var digit = func() (is [256]bool) {
	for _, c := range []byte(base62) {
		is[c] = true
	}
	return is
}()

func allDigits(s string) bool {
	for i := range len(s) {
		if !digit[s[i]] {
			return false
		}
	}
	return true
}

// A tokenMAC is HMAC-SHA256 under the key-hash sub-key, for any number of requests at once. Hashes that were used already know the two
// blocks that depend on the key alone, half of the work.
type tokenMAC struct{ pool sync.Pool }

type pooledMAC struct {
	hash.Hash
	in  [idLen + secretLen]byte
	out [sha256.Size]byte
}

// newTokenMACs are the MACs under a secret and those beside it, the one in force first.
func newTokenMACs(secret Secret) []*tokenMAC {
	all := []*tokenMAC{newTokenMAC(secret)}
	for _, other := range secret.Others() {
		all = append(all, newTokenMAC(other))
	}
	return all
}

func newTokenMAC(secret Secret) *tokenMAC {
	sub := secret.Sub(LabelKeyHash)
	return &tokenMAC{sync.Pool{New: func() any { return &pooledMAC{Hash: hmac.New(sha256.New, sub)} }}}
}

// of hashes id and secret of a well-formed token. The id is in it so that a hash is worth nothing under another id; the two have
// fixed lengths, so nothing need stand between them.
func (m *tokenMAC) of(token string) (sum [sha256.Size]byte) {
	p := m.pool.Get().(*pooledMAC)
	n := copy(p.in[:], token[idStart:idStart+idLen])
	copy(p.in[n:], token[secretStart:sumStart])
	p.Reset()
	p.Write(p.in[:])
	p.Sum(p.out[:0])
	sum = p.out
	clear(p.in[:]) // no secret stays in the pool
	m.pool.Put(p)
	return sum
}

// sameHash compares in constant time.
func sameHash(a, b *[sha256.Size]byte) bool { return hmac.Equal(a[:], b[:]) }

func inUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
