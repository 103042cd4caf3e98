package acl

import (
	"errors"
	"fmt"
	"time"
)

// Op is the kind of a change.
type Op string

// The kinds of change. A create fails with ErrExists when the id or the namespace is taken, be it by a tombstone. An update or a
// delete carries the entry as it was read, edited; its Revision is compared with the stored one, and they must be equal.
const (
	OpCreateApp Op = "create_app"
	OpUpdateApp Op = "update_app"
	OpDeleteApp Op = "delete_app" // App carries State Deleted; the storage revokes the app's keys with it
	OpCreateKey Op = "create_key" // ErrNotFound when the app is missing or deleted
	OpUpdateKey Op = "update_key"
)

// A Change is one atomic step. App is set for the operations on apps, Key for those on keys.
type Change struct {
	Op  Op
	App *App
	Key *Key
	At  time.Time // when it was decided
}

// Validate reports what is wrong with the change in itself, whatever is stored. What is wrong with an edited entry is for CheckApp and
// CheckKey to say, which know what was wrong with it before.
func (c Change) Validate() error {
	switch c.Op {
	case OpCreateApp, OpUpdateApp, OpDeleteApp:
		if c.App == nil || c.Key != nil {
			return fmt.Errorf("acl: %s needs an app and nothing else", c.Op)
		}
		if (c.App.State == Deleted) != (c.Op == OpDeleteApp) {
			return fmt.Errorf("acl: %s of an app in state %s", c.Op, c.App.State)
		}
		if c.Op == OpCreateApp {
			return c.App.Validate()
		}
		return nil
	case OpCreateKey, OpUpdateKey:
		if c.Key == nil || c.App != nil {
			return fmt.Errorf("acl: %s needs a key and nothing else", c.Op)
		}
		if c.Op == OpCreateKey {
			return c.Key.Validate()
		}
		return nil
	}
	return fmt.Errorf("acl: no change %q", c.Op)
}

// CheckApp compares an app to be created, updated or deleted with the stored one, nil when there is none. Every storage applies it to
// what it read, then writes only if that is still what is stored.
func (c Change) CheckApp(stored *App) error {
	id := c.App.ID
	switch {
	case c.Op == OpCreateApp && stored == nil:
		return nil
	case c.Op == OpCreateApp && stored.State == Deleted:
		return fmt.Errorf("app %q was deleted, and its id stays taken: %w", id, ErrExists)
	case c.Op == OpCreateApp:
		return fmt.Errorf("app %q: %w", id, ErrExists)
	case stored == nil:
		return fmt.Errorf("app %q: %w", id, ErrNotFound)
	case stored.State == Deleted:
		return fmt.Errorf("app %q was deleted: %w", id, ErrNotFound)
	case stored.Revision != c.App.Revision:
		return fmt.Errorf("app %q: %w", id, ErrConflict)
	}
	return errors.Join(sameForEver(stored, c.App), introduced(stored.Validate(), c.App.Validate()))
}

// CheckKey does for keys what CheckApp does for apps; app is the stored app of the key.
func (c Change) CheckKey(app *App, stored *Key) error {
	id := c.Key.ID
	switch {
	case c.Op == OpCreateKey && (app == nil || app.State == Deleted):
		return fmt.Errorf("app %q: %w", c.Key.App, ErrNotFound)
	case c.Op == OpCreateKey && stored == nil:
		return nil
	case c.Op == OpCreateKey:
		return fmt.Errorf("key %q: %w", id, ErrExists)
	case stored == nil:
		return fmt.Errorf("key %q: %w", id, ErrNotFound)
	case stored.Revision != c.Key.Revision:
		return fmt.Errorf("key %q: %w", id, ErrConflict)
	case stored.App != c.Key.App || stored.Hash != c.Key.Hash:
		return &Fault{Field: "key", Detail: "a key keeps its app and its hash; create another key instead"}
	}
	return introduced(stored.Validate(), c.Key.Validate())
}

// introduced keeps the faults that are new. An entry written by a newer version may hold what this one does not know; that must not
// stop anybody from suspending the app or revoking the key.
func introduced(was, is error) error {
	old := map[string]bool{}
	for _, err := range list(was) {
		old[detail(err)] = true
	}
	var fresh faults
	for _, err := range list(is) {
		if !old[detail(err)] {
			fresh = append(fresh, err)
		}
	}
	return fresh.join()
}

func list(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return nil
}

// detail leaves out the field, because entries of a list move when others are added or removed.
func detail(err error) string {
	if f, ok := err.(*Fault); ok {
		return f.Detail
	}
	return err.Error()
}

// NamespaceTaken is the error of a create whose namespace belongs, or once belonged, to another app.
func NamespaceTaken(namespace, app string) error {
	return fmt.Errorf("namespace %q belongs to app %q, for ever: %w", namespace, app, ErrExists)
}

// sameForEver guards what stored data depends on: another namespace, layout or cluster would leave the app's keys behind.
func sameForEver(was, is *App) error {
	var f faults
	fixed := func(field, old, new string) {
		if old != new {
			f.add(field, "stays %q for ever, because stored keys depend on it; create another app instead", old)
		}
	}
	fixed("id", was.ID, is.ID)
	fixed("namespace", was.Namespace, is.Namespace)
	fixed("layout", string(was.Layout), string(is.Layout))
	fixed("cluster", was.Cluster, is.Cluster)
	return f.join()
}
