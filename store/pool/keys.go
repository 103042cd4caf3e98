package pool

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/slotgate/slotgate/acl"
)

// keys of a pool are these behind `slotgate:p:{namespace/name}`. The prefix is one that no namespace can have, and the hash tag, by which
// a purge of the app finds them, only the gateway makes: neither a namespace nor a name can hold a brace or a slash. Members are never part
// of a key, so they may have any bytes. A member is eligible if it is available and does not cool.
//
//	:d      hash, the definition, see package definitions
//	:st     string, fourteen doubles: when the first member has cooled, or 0; position that round robin has served last; place and level of
//	        the classic variant; last fence; when the first lease may have expired, or 0; leases abandoned; last position given; 1 if a
//	        member has had meta; 1 if more than 64 members are eligible; an epoch, which grows with each change of them and of their weights,
//	        and with each schedule; three of the schedule, see scripts/schedule.lua. It is there as long as the definition is: where it is missing, scripts write nothing
//	:m      hash, member -> doubles weight, position, 1 if available; then its meta
//	:cnt    sorted set of the eligible by allocations
//	:ring   sorted set of the eligible by position
//	:w      string, for each of the ring two doubles: weight, and what the smooth variant has to its credit
//	:sch    string, turns of weighted round robin, see scripts/schedule.lua
//	:off    sorted set of the others by allocations, also of members that were removed
//	:gone   sorted set of the removed that are in off, by the time in us of that: the last MaxHistory
//	:cool   sorted set of members by the time in us when they have cooled
//	:inf    sorted set of the eligible by leases
//	:ioff   hash, leases of the others
//	:lease  sorted set of leases by expiry in us
//	:ld     hash, lease -> doubles fence, start in us; then the member
//	:a      hash, member -> what is known of its health, see scripts/health.lua
//	:ws     string, the sums of the weights, see scripts/random.lua; :as those of adaptive, see scripts/adaptive.lua
//	:s:<h>  string, the member that a sticky key has
//	:i:<h>  what an Idempotency-Key remembers
type keys string

// Blank is the state of a pool that was just defined.
var Blank = strings.Repeat("\x00", 14*8)

// DefinitionKey is where the definition of a pool is kept.
func DefinitionKey(id *acl.Identity, name string) string { return string(keysOf(id, name)) + "d" }

// Keys are the others that end with a pool; the first of them begins with it, as Blank. What sticky keys have and Idempotency-Keys remember
// stays until it expires.
func Keys(id *acl.Identity, name string) []string { return keysOf(id, name).all() }

func keysOf(id *acl.Identity, name string) keys {
	return keys("slotgate:p:{" + id.App.Namespace + "/" + name + "}:")
}

func (k keys) state() string        { return string(k) + "st" }
func (k keys) members() string      { return string(k) + "m" }
func (k keys) counts() string       { return string(k) + "cnt" }
func (k keys) ring() string         { return string(k) + "ring" }
func (k keys) weights() string      { return string(k) + "w" }
func (k keys) schedule() string     { return string(k) + "sch" }
func (k keys) off() string          { return string(k) + "off" }
func (k keys) gone() string         { return string(k) + "gone" }
func (k keys) cooling() string      { return string(k) + "cool" }
func (k keys) inflight() string     { return string(k) + "inf" }
func (k keys) heldOff() string      { return string(k) + "ioff" }
func (k keys) expiries() string     { return string(k) + "lease" }
func (k keys) health() string       { return string(k) + "a" }
func (k keys) sums() string         { return string(k) + "ws" }
func (k keys) adaptiveSums() string { return string(k) + "as" }
func (k keys) leases() string       { return string(k) + "ld" }

// sticky is where the pool keeps whom a sticky key has, by 128 bits of its hash.
func (k keys) sticky(key string) string {
	sum := sha256.Sum256([]byte(key))
	return string(k) + "s:" + base64.RawURLEncoding.EncodeToString(sum[:16])
}

// record is where the pool keeps what belongs to an Idempotency-Key, which may be long and private: 128 bits of its hash.
func (k keys) record(idempotency string) string {
	sum := sha256.Sum256([]byte(idempotency))
	return string(k) + "i:" + base64.RawURLEncoding.EncodeToString(sum[:16])
}

// all but what sticky keys have and the records, which expire.
func (k keys) all() []string {
	return []string{k.state(), k.members(), k.counts(), k.ring(), k.weights(), k.off(), k.cooling(), k.inflight(), k.heldOff(),
		k.expiries(), k.leases(), k.health(), k.sums(), k.adaptiveSums(), k.gone(), k.schedule()}
}

// held are the keys of leases, in the order of the scripts.
func (k keys) held() []string { return []string{k.inflight(), k.expiries(), k.leases(), k.heldOff()} }
