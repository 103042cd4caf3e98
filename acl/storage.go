package acl

import (
	"context"
	"time"
)

// A Set is everything a storage knows at one moment. It is immutable. Equal versions mean equal sets.
type Set struct {
	Version string
	Apps    map[string]*App // by id, tombstones included
	Keys    map[string]*Key // by id, revoked ones included
}

// Op is the kind of a change.
type Op string

// The kinds of change. A create fails with ErrExists when the id or the namespace is taken, be it by a tombstone. An update or
// delete carries the entry as it was read, edited; its Revision is compared with the stored one, ErrConflict when they differ.
const (
	OpCreateApp Op = "create_app"
	OpUpdateApp Op = "update_app"
	OpDeleteApp Op = "delete_app" // App carries State Deleted; the storage revokes the app's keys with it, at At
	OpCreateKey Op = "create_key" // ErrNotFound when the app is missing or deleted
	OpUpdateKey Op = "update_key"
)

// A Change is one atomic step. App is set for the app operations, Key for the key operations.
type Change struct {
	Op  Op
	App *App
	Key *Key
	At  time.Time // when it was decided
}

// Storage keeps apps and keys. Every method may be called at once from several goroutines.
type Storage interface {
	// Load gives the whole set, consistent in itself. What it returns is shared: do not change it.
	Load(ctx context.Context) (*Set, error)
	// Watch blocks until ctx ends and calls changed on every possible change, at least once at its start, never concurrently.
	// It lives through outages; it returns early only when watching is impossible.
	Watch(ctx context.Context, changed func()) error
	// Apply makes one change or none.
	Apply(ctx context.Context, c Change) error
	// Touch records when keys were last used. It is best effort; older moments never replace newer ones.
	Touch(ctx context.Context, used map[string]time.Time) error
}

// A ReadOnlyError is the answer of a storage that cannot be written: the YAML to paste by hand.
type ReadOnlyError struct {
	Path string
	YAML string
}

func (e *ReadOnlyError) Error() string {
	return "acl: " + e.Path + " is read-only for slotgate; put this into it:\n" + e.YAML
}

// Is makes the error an ErrReadOnly.
func (e *ReadOnlyError) Is(target error) bool { return target == ErrReadOnly }
