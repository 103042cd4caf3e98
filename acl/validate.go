package acl

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxExact is the largest integer that survives a double, which is what JSON readers and Redis' Lua make of numbers.
	maxExact = 1 << 53
	// maxStringBytes is the largest string Redis keeps (proto-max-bulk-len).
	maxStringBytes = 512 << 20
	// maxKeyBytes is where the URI limits of common proxies make a longer key pointless.
	maxKeyBytes = 64 << 10
	// maxRetries bounds how long a request may hold on to a failing cluster, whatever its deadline.
	maxRetries     = 10
	maxNameBytes   = 200
	maxPermissions = 256
	reservedPrefix = "slotgate"
)

var (
	namePattern     = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{1,62}$`)
	clusterPattern  = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	limitPattern    = clusterPattern
	keyIDPattern    = regexp.MustCompile(`^[0-9A-Za-z]{12}$`)
	hashPattern     = regexp.MustCompile(`^[0-9a-f]{64}$`)
	secretIDPattern = regexp.MustCompile(`^[0-9a-f]{8}$`)
	last4Pattern    = regexp.MustCompile(`^[0-9A-Za-z]{4}$`)
)

const nameRule = "2 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit, such as shop-eu"

// WithDefaults fills what was left out: spread over the default cluster, active, compressed with Snappy.
func (a App) WithDefaults() App {
	if a.Name == "" {
		a.Name = a.ID
	}
	if a.Layout == "" {
		a.Layout = Spread
	}
	if a.Cluster == "" {
		a.Cluster = DefaultCluster
	}
	if a.State == "" {
		a.State = Active
	}
	if a.Compression == "" {
		a.Compression = Snappy
	}
	return a
}

// Validate reports every fault of the app, each a *Fault naming the field and a right value. It knows nothing of other apps.
func (a *App) Validate() error {
	var f faults
	if !namePattern.MatchString(a.ID) {
		f.add("id", "%q is not an id; use %s", a.ID, nameRule)
	}
	a.validateName(&f)
	a.validateNamespace(&f)
	if a.Layout != Spread && a.Layout != Together {
		f.add("layout", "%q must be spread (keys use all shards) or together (the whole app in one slot)", a.Layout)
	}
	if !clusterPattern.MatchString(a.Cluster) {
		f.add("cluster", "%q is not a cluster name; use one of the configured clusters, such as default", a.Cluster)
	}
	if a.State != Active && a.State != Suspended && a.State != Deleted {
		f.add("state", "%q must be active, suspended or deleted", a.State)
	}
	validatePermissions(&f, a.Permissions)
	validateLimits(&f, a.Limits)
	a.validateCompression(&f)
	a.validateDurability(&f)
	a.validateRead(&f)
	a.validatePriority(&f)
	a.validateTTLs(&f)
	a.Sizes.validate(&f)
	a.Retries.validate(&f)
	return f.join()
}

func (a *App) validateName(f *faults) {
	switch {
	case len(a.Name) > maxNameBytes:
		f.add("name", "has %d bytes; use at most %d", len(a.Name), maxNameBytes)
	case !utf8.ValidString(a.Name) || strings.ContainsFunc(a.Name, func(r rune) bool { return !unicode.IsPrint(r) }):
		f.add("name", "%q must be printable text on one line", a.Name)
	}
}

func (a *App) validateNamespace(f *faults) {
	switch {
	case !namePattern.MatchString(a.Namespace):
		f.add("namespace", "%q is not a namespace; use %s", a.Namespace, nameRule)
	case strings.HasPrefix(a.Namespace, reservedPrefix):
		f.add("namespace", "%q begins with %s, which is the gateway's own; use another, such as app-%s", a.Namespace, reservedPrefix, a.Namespace)
	}
}

func (a *App) validateCompression(f *faults) {
	if a.Compression != Snappy && a.Compression != NoCompression {
		f.add("compression", "%q must be snappy or off", a.Compression)
	}
	if a.CompressMinBytes < 0 || a.CompressMinBytes > maxStringBytes {
		f.add("compress_min_bytes", "%d must be 1 to %d, or 0 for the gateway's", a.CompressMinBytes, maxStringBytes)
	}
}

func (a *App) validateDurability(f *faults) {
	switch a.Durability {
	case "", Async, Replica, Fsync:
	default:
		f.add("durability", "%q must be async, replica or fsync", a.Durability)
	}
}

// Bounds of App.MaxStalenessMS. Replicas are looked at every second, so that what is known of them is up to two old; and it is remembered for a
// minute.
const (
	LeastStalenessMS = 2000
	MostStalenessMS  = 60_000
)

func (a *App) validateRead(f *faults) {
	switch a.Read {
	case "", ReadPrimary, ReadReplica:
	default:
		f.add("read", "%q must be primary or replica", a.Read)
	}
	if ms := a.MaxStalenessMS; ms != 0 && (ms < LeastStalenessMS || ms > MostStalenessMS) {
		f.add("max_staleness_ms", "%d must be %d to %d milliseconds, or 0 for the gateway's", ms, LeastStalenessMS, MostStalenessMS)
	}
}

func (a *App) validatePriority(f *faults) {
	switch a.Priority {
	case "", Critical, Normal, Bulk:
	default:
		f.add("priority", "%q must be critical, normal or bulk", a.Priority)
	}
}

func (a *App) validateTTLs(f *faults) {
	for _, ttl := range []struct {
		field string
		ms    int64
	}{{"default_ttl_ms", a.DefaultTTLMS}, {"max_ttl_ms", a.MaxTTLMS}} {
		if ttl.ms < 0 || ttl.ms > maxExact {
			f.add(ttl.field, "%d must be 1 to %d milliseconds, or 0 for none", ttl.ms, int64(maxExact))
		}
	}
	if a.MaxTTLMS > 0 && a.DefaultTTLMS > a.MaxTTLMS {
		f.add("default_ttl_ms", "%d is more than max_ttl_ms; use at most %d", a.DefaultTTLMS, a.MaxTTLMS)
	}
}

func (s Sizes) validate(f *faults) {
	for _, size := range []struct {
		field    string
		got, max int64
	}{
		{"key_max_bytes", s.KeyMaxBytes, maxKeyBytes},
		{"value_max_bytes", s.ValueMaxBytes, maxStringBytes},
		{"request_max_bytes", s.RequestMaxBytes, maxStringBytes},
		{"response_max_bytes", s.ResponseMaxBytes, maxStringBytes},
	} {
		if size.got < 0 || size.got > size.max {
			f.add("sizes."+size.field, "%d must be 1 to %d, or 0 for the gateway's", size.got, size.max)
		}
	}
}

func (r *Retries) validate(f *faults) {
	if r == nil {
		return
	}
	if r.Read < 0 || r.Read > maxRetries {
		f.add("retries.read", "%d must be 0 to %d", r.Read, maxRetries)
	}
	if r.Write < 0 || r.Write > maxRetries {
		f.add("retries.write", "%d must be 0 to %d", r.Write, maxRetries)
	}
}

func validatePermissions(f *faults, list []string) {
	if len(list) > maxPermissions {
		f.add("permissions", "has %d entries; use at most %d", len(list), maxPermissions)
		return
	}
	for i, entry := range list {
		if err := new(rule).grant(entry); err != nil {
			f.add(fmt.Sprintf("permissions[%d]", i), "%v", err)
		}
	}
}

// Validate reports every fault of the key, each a *Fault naming the field and a right value. It knows nothing of the key's app.
func (k *Key) Validate() error {
	var f faults
	if !keyIDPattern.MatchString(k.ID) {
		f.add("id", "%q is not a key id; it is the 12 letters and digits after sg_ in the token", k.ID)
	}
	if !namePattern.MatchString(k.App) {
		f.add("app", "%q is not an app id; use %s", k.App, nameRule)
	}
	if !hashPattern.MatchString(k.Hash) {
		f.add("hash", "must be the 64 lower-case hexadecimal digits that key create printed")
	}
	if k.Last4 != "" && !last4Pattern.MatchString(k.Last4) {
		f.add("last4", "%q must be the last 4 letters and digits of the token, or left out", k.Last4)
	}
	if k.Permissions != nil && len(k.Permissions) == 0 {
		// An empty list and a missing one read alike in YAML but mean nothing and everything; nobody should have to know which.
		f.add("permissions", "is empty; leave it out for the app's permissions, or name those the key has")
	}
	validatePermissions(&f, k.Permissions)
	if k.SecretID != "" && !secretIDPattern.MatchString(k.SecretID) {
		f.add("secret_id", "%q must be the 8 hexadecimal digits that key create printed, or left out", k.SecretID)
	}
	if k.ReplacedBy != "" && (!keyIDPattern.MatchString(k.ReplacedBy) || k.ReplacedBy == k.ID) {
		f.add("replaced_by", "%q is not the id of another key; leave it out for a key that was not rotated", k.ReplacedBy)
	}
	if k.ExpiresAt != nil && !k.CreatedAt.IsZero() && !k.ExpiresAt.After(k.CreatedAt) {
		f.add("expires_at", "must be after created_at")
	}
	return f.join()
}
