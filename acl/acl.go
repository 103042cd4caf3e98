// Package acl says who may call the gateway and what they may do: apps, their keys, permissions and limits, the storage interface
// with its file implementation, and the in-process directory that authenticates every request.
//
// It promises that a key token is checked in constant time against a keyed hash (the token itself is never stored), that one and the
// same error is given for every reason a token is refused, that permissions are an allow-list in which anything not granted is denied,
// and that a fault of the storage never takes away what was loaded before. It refuses to know Redis: the command table, the key
// prefixing and the other storage live in store and its sub-packages, which import this package and not the other way round.
package acl

import (
	"errors"
	"fmt"
)

// The reasons a caller is refused. ErrUnauthenticated stands for every fault of the token itself (missing, malformed, unknown, wrong,
// expired, revoked, app deleted), so that an answer never tells which; the others are told only to a caller who holds a good key.
var (
	ErrUnauthenticated = errors.New("acl: not authenticated")
	ErrAppSuspended    = errors.New("acl: app is suspended")
	ErrAppExpired      = errors.New("acl: app has expired")
	// ErrNotReady says that no set of apps was ever loaded, or that the storage is out of reach and the token is of a key that may have been
	// made meanwhile, so nothing can be said about it: the caller should try again.
	ErrNotReady = errors.New("acl: apps and keys are not loaded, or not since the key was made")
)

// The reasons a change is refused.
var (
	ErrReadOnly = errors.New("acl: storage is read-only")                        // a file; the error is a *ReadOnlyError
	ErrExists   = errors.New("acl: already exists")                              // id or namespace taken, by a deleted app too
	ErrNotFound = errors.New("acl: not found")                                   // or deleted
	ErrInUse    = errors.New("acl: still in use")                                // a cluster with apps on it
	ErrConflict = errors.New("acl: changed by somebody else meanwhile")          // read again, then decide again
	ErrNewer    = errors.New("acl: written by a newer version of slotgate")      // change it with that version
	ErrUnknown  = errors.New("acl: it is not known whether the change was made") // look before repeating
)

// A Fault is one wrong setting: the field as it is written in JSON and YAML, and what would be right.
type Fault struct {
	Field  string
	Detail string
}

func (f *Fault) Error() string { return f.Field + ": " + f.Detail }

// faults collects every fault of one value, because whoever mends a file wants to mend it once.
type faults []error

func (f *faults) add(field, format string, args ...any) {
	*f = append(*f, &Fault{Field: field, Detail: fmt.Sprintf(format, args...)})
}

func (f *faults) join() error { return errors.Join(*f...) }
