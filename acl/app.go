package acl

import "time"

// Layout says how an app's keys are laid over the shards. It never changes after creation, because it is part of every stored key.
type Layout string

// The two layouts. Spread stores `ns:key` and uses every shard; Together stores `{ns}:key`, the whole app in one slot, so that every
// multi-key command works.
const (
	Spread   Layout = "spread"
	Together Layout = "together"
)

// State is the life of an app. A deleted app stays as a tombstone, which keeps its id and namespace taken for ever.
type State string

// The states of an app.
const (
	Active    State = "active"
	Suspended State = "suspended"
	Deleted   State = "deleted"
)

// Compression names the codec for the values of an app.
type Compression string

// The codecs. The empty value means Snappy.
const (
	Snappy        Compression = "snappy"
	NoCompression Compression = "off"
)

// Durability names how safe a write of one key must be before it is answered.
type Durability string

// The durabilities. The empty value means Async.
const (
	Async   Durability = "async"   // the primary has it
	Replica Durability = "replica" // its replicas have it too
	Fsync   Durability = "fsync"   // and it is on the disks of all of them
)

// ReadFrom names who may answer reads.
type ReadFrom string

// The ways to read. The empty value means ReadPrimary.
const (
	ReadPrimary ReadFrom = "primary" // what is read is the latest
	ReadReplica ReadFrom = "replica" // replicas too, which hold what the primary had some seconds ago
)

// Priority says which apps go first when the gateway or a shard has more to do than it can.
type Priority string

// The priorities. The empty value means Normal.
const (
	Critical Priority = "critical" // refused last
	Normal   Priority = "normal"
	Bulk     Priority = "bulk" // refused first: work that can wait
)

// DefaultCluster is the cluster of an app that names none.
const DefaultCluster = "default"

// An App is one tenant: a namespace on one cluster, and what may be done in it. Loaded apps are shared and must not be changed.
type App struct {
	ID        string `json:"id" yaml:"id"`
	Name      string `json:"name,omitempty" yaml:"name,omitempty"`
	Namespace string `json:"namespace" yaml:"namespace"`
	Layout    Layout `json:"layout" yaml:"layout,omitempty"`
	Cluster   string `json:"cluster" yaml:"cluster,omitempty"`
	State     State  `json:"state" yaml:"state,omitempty"`

	// Permissions is the allow-list; empty allows nothing.
	Permissions []string `json:"permissions" yaml:"permissions,omitempty"`
	Limits      []Limit  `json:"limits,omitempty" yaml:"limits,omitempty"`

	Compression Compression `json:"compression,omitempty" yaml:"compression,omitempty"`
	// CompressMinBytes is the size a value must have to be compressed; 0 takes the gateway's.
	CompressMinBytes int `json:"compress_min_bytes,omitempty" yaml:"compress_min_bytes,omitempty"`

	// Durability is that of writes which do not say another. Batches know Async only, and must say so if this is another.
	Durability Durability `json:"durability,omitempty" yaml:"durability,omitempty"`

	// Read says who answers reads which do not say it themselves, and MaxStalenessMS how old what replicas answer may be then, and in reads that
	// ask for a replica and name no bound; 0 takes the gateway's.
	Read           ReadFrom `json:"read,omitempty" yaml:"read,omitempty"`
	MaxStalenessMS int64    `json:"max_staleness_ms,omitempty" yaml:"max_staleness_ms,omitempty"`

	// Priority is that of the app's requests in an overload. A request may only lower it.
	Priority Priority `json:"priority,omitempty" yaml:"priority,omitempty"`

	// DefaultTTLMS applies to keys created without a TTL, MaxTTLMS to every way of setting one; 0 is none.
	DefaultTTLMS int64 `json:"default_ttl_ms,omitempty" yaml:"default_ttl_ms,omitempty"`
	MaxTTLMS     int64 `json:"max_ttl_ms,omitempty" yaml:"max_ttl_ms,omitempty"`

	Sizes   Sizes    `json:"sizes,omitzero" yaml:"sizes,omitempty"`
	Retries *Retries `json:"retries,omitempty" yaml:"retries,omitempty"` // nil takes the gateway's

	CreatedAt time.Time  `json:"created_at,omitzero" yaml:"created_at,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" yaml:"expires_at,omitempty"`

	// Revision counts the changes of this entry. A storage refuses an update that was made from an older one.
	Revision int64 `json:"revision,omitempty" yaml:"-"`
}

// Sizes are limits in bytes. A zero field of an app takes the gateway's.
type Sizes struct {
	KeyMaxBytes      int64 `json:"key_max_bytes,omitempty" yaml:"key_max_bytes,omitempty"`
	ValueMaxBytes    int64 `json:"value_max_bytes,omitempty" yaml:"value_max_bytes,omitempty"`
	RequestMaxBytes  int64 `json:"request_max_bytes,omitempty" yaml:"request_max_bytes,omitempty"`
	ResponseMaxBytes int64 `json:"response_max_bytes,omitempty" yaml:"response_max_bytes,omitempty"`
}

// Over gives s with its zero fields taken from base.
func (s Sizes) Over(base Sizes) Sizes {
	pick := func(own, inherited int64) int64 {
		if own > 0 {
			return own
		}
		return inherited
	}
	return Sizes{
		KeyMaxBytes:      pick(s.KeyMaxBytes, base.KeyMaxBytes),
		ValueMaxBytes:    pick(s.ValueMaxBytes, base.ValueMaxBytes),
		RequestMaxBytes:  pick(s.RequestMaxBytes, base.RequestMaxBytes),
		ResponseMaxBytes: pick(s.ResponseMaxBytes, base.ResponseMaxBytes),
	}
}

// Retries is how often the gateway repeats what Redis certainly did not execute; 0 is never.
type Retries struct {
	Read  int `json:"read" yaml:"read"`
	Write int `json:"write" yaml:"write"`
}

// A Key belongs to one app and opens it. The token itself is not kept: Hash is hex HMAC-SHA256 of it. Loaded keys are shared and must
// not be changed.
type Key struct {
	ID         string     `json:"id" yaml:"id"`
	App        string     `json:"app" yaml:"app"`
	Hash       string     `json:"hash" yaml:"hash"`
	Last4      string     `json:"last4,omitempty" yaml:"last4,omitempty"`
	CreatedAt  time.Time  `json:"created_at,omitzero" yaml:"created_at,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty" yaml:"expires_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty" yaml:"revoked_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" yaml:"-"` // to the minute, and only where the storage keeps it
	// Permissions narrows the app's. Nil means the app's; empty means nothing at all.
	Permissions []string `json:"permissions,omitzero" yaml:"permissions,omitempty"`
	// SecretID is that of the secret the hash was made with; empty: made before there were ids.
	SecretID string `json:"secret_id,omitempty" yaml:"secret_id,omitempty"`
	// ReplacedBy is the id of the key that a rotation made in this one's place; empty: none.
	ReplacedBy string `json:"replaced_by,omitempty" yaml:"replaced_by,omitempty"`

	Revision int64 `json:"revision,omitempty" yaml:"-"` // as App.Revision
}
