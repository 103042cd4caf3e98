package acl

import (
	"context"
	"time"
)

// A Set is everything a storage knows at one moment. It is immutable. Equal versions mean equal sets, but for the last use of keys.
type Set struct {
	Version  string
	Apps     map[string]*App     // by id, tombstones included
	Keys     map[string]*Key     // by id, revoked ones included
	Clusters map[string]*Cluster // by name, those that are not in the configuration
}

// Storage keeps apps and keys: File here, and one in Redis in store/control. Every method may be called from several goroutines.
type Storage interface {
	// Load gives the whole set, consistent in itself. What it returns is shared: do not change it.
	Load(ctx context.Context) (*Set, error)
	// Watch blocks until ctx ends and calls changed on every possible change, at least once soon after its start, never concurrently.
	// It lives through outages; it returns early only when watching is impossible.
	Watch(ctx context.Context, changed func()) error
	// Apply makes one change or none, and writes who made it to the audit, or makes none. Entries of the change are not kept; the
	// stored entry has the next revision.
	Apply(ctx context.Context, c Change) error
	// Touch records when keys were last used. It is best effort; an older moment never replaces a newer one.
	Touch(ctx context.Context, used map[string]time.Time) error
}

// A ReadOnlyError is the answer of a storage that cannot be written: the YAML to paste by hand.
type ReadOnlyError struct {
	Path string
	YAML string
}

func (e *ReadOnlyError) Error() string {
	return "acl: slotgate does not write " + e.Path + "; put this into it:\n" + e.YAML
}

// Is makes the error an ErrReadOnly.
func (e *ReadOnlyError) Is(target error) bool { return target == ErrReadOnly }
