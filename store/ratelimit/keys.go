package ratelimit

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/slotgate/slotgate/acl"
)

// Keys of a limit. All begin with the gateway's own prefix, which no namespace can have, and have a hash tag that only the gateway
// makes: `{namespace/name}`, by which a purge of the app finds them. Neither a namespace nor a name can hold a brace or a slash.
//
//	slotgate:r:{ns/name}:s:<subject>   string, the states of the rules of scope subject: isolation atomic
//	slotgate:r:{ns/name}:t             string, those of the rules of scope limit
//	slotgate:r:{ns/name|<subject>}:s   isolation partitioned: a slot for each subject
//	<up to the tag>:i:<hash>           what an Idempotency-Key remembers, in the slot of what it was taken from
const keyPrefix = "slotgate:r:{"

// maxPlain is the longest subject, encoded, that is spelled out in a key; of a longer one the key has the hash. It keeps keys short
// where they are many, and still lets an operator read most.
const maxPlain = 64

// keys are where one subject of a limit is kept.
type keys struct {
	subject string // the state of its rules
	total   string // that of the rules of scope limit
	apart   bool   // they are in two slots
}

func keysOf(id *acl.Identity, name, subject string, i Isolation) keys {
	limit := keyPrefix + id.App.Namespace + "/" + name
	k := keys{total: limit + "}:t", apart: i == Partitioned}
	if k.apart {
		k.subject = limit + "|" + encode(subject) + "}:s"
	} else {
		k.subject = limit + "}:s:" + encode(subject)
	}
	return k
}

// recordKey is where the slot of a key of ours keeps what belongs to an Idempotency-Key, which may be long and private: 128 bits of
// its hash. The namespace is part of the tag.
func recordKey(key, idempotency string) string {
	sum := sha256.Sum256([]byte(idempotency))
	end := strings.IndexByte(key, '}')
	return key[:end+1] + ":i:" + base64.RawURLEncoding.EncodeToString(sum[:16])
}

// encode spells a subject with the bytes that are safe inside a hash tag: others are percent-encoded. A long one is `%%` and its
// hash, which no spelling begins with. Different subjects never get the same text.
func encode(subject string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(subject) {
		c := subject[i]
		if c <= ' ' || c >= 0x7F || strings.IndexByte("{}%:|", c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			c = digits[c&15]
		}
		b.WriteByte(c)
		if b.Len() > maxPlain {
			sum := sha256.Sum256([]byte(subject))
			return "%%" + hex.EncodeToString(sum[:])
		}
	}
	return b.String()
}
