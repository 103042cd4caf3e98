package store

import "slices"

// Delivery says how surely a write of one key must be done. The zero value is a write that the primary has executed, once.
type Delivery struct {
	Durability  Durability
	Idempotency Idempotency
	// Receipt is filled when the write succeeds; nil = the caller does not want to know.
	Receipt *Receipt

	kept string // what the record keeps behind the reply, see keeping
}

// Durability is how safe a write must be before it is answered.
type Durability uint8

// The durabilities.
const (
	Async   Durability = iota // the primary has executed it; Redis copies it to its replicas afterwards
	Replica                   // the configured number of replicas has it too
	Fsync                     // and it is on their disks and the primary's
)

// durabilityNames are the words of the API.
var durabilityNames = [...]string{Async: "async", Replica: "replica", Fsync: "fsync"}

// ParseDurability finds the durability of a name: async, replica or fsync.
func ParseDurability(name string) (d Durability, ok bool) {
	i := slices.Index(durabilityNames[:], name)
	return Durability(max(i, 0)), i >= 0
}

// String is the name.
func (d Durability) String() string { return durabilityNames[d] }

// Idempotency makes the repetition of a write return the first answer instead of writing again. The zero value is none.
type Idempotency struct {
	// Key names the write, among all writes of the app to the same hash slot: the record of a write lies where its key does, so that
	// its use for a key in another slot is not seen. "" = none.
	Key string
	// Fingerprint is a digest of everything that makes the request what it is. The same Key with another one is refused.
	Fingerprint [32]byte
}

// Receipt is what a caller may want to know of a write that was done, beside its result.
type Receipt struct {
	// Replayed says that the write was done by an earlier request with the same Idempotency.Key, whose result this is.
	Replayed bool
	// Reached is the durability that was waited for and reached, and Copies the replicas that have the write, on disk with Fsync. Async:
	// nobody waited, because nobody asked, or because nothing had to be written.
	Reached Durability
	Copies  int
}
