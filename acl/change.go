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
	OpRotateKey Op = "rotate_key" // Key is the new one, Old the one it replaces, edited

	OpCreateCluster Op = "create_cluster"
	OpUpdateCluster Op = "update_cluster"
	OpDeleteCluster Op = "delete_cluster" // ErrInUse while an app is on it; nothing of it is kept, and its name is free
)

// A Change is one atomic step. App is set for the operations on apps, Key for those on keys, Old only for a rotation, Cluster for
// those on clusters.
type Change struct {
	Op      Op
	App     *App
	Key     *Key
	Old     *Key
	Cluster *Cluster
	At      time.Time // when it was decided
	By      string    // who decided; the storage writes it to its audit together with the change, or refuses the change
	// StoredCluster says of a new app that its cluster is none of the configuration, so it must be stored.
	StoredCluster bool

	whole Op // of a part: the operation it is a part of
}

// Validate reports what is wrong with the change in itself, whatever is stored. What is wrong with an edited entry is for CheckApp and
// CheckKey to say, which know what was wrong with it before.
func (c Change) Validate() error {
	switch c.Op {
	case OpCreateApp, OpUpdateApp, OpDeleteApp:
		if c.App == nil || c.Key != nil || c.Cluster != nil {
			return fmt.Errorf("acl: %s needs an app and nothing else", c.Op)
		}
		if (c.App.State == Deleted) != (c.Op == OpDeleteApp) {
			return fmt.Errorf("acl: %s of an app in state %s", c.Op, c.App.State)
		}
		if c.Op == OpCreateApp {
			return c.App.Validate()
		}
		return nil
	case OpCreateKey, OpUpdateKey, OpRotateKey:
		if c.Key == nil || c.App != nil || c.Cluster != nil || (c.Old != nil) != (c.Op == OpRotateKey) {
			return fmt.Errorf("acl: %s needs a key, a rotation the old one too, and nothing else", c.Op)
		}
		if c.Op == OpUpdateKey {
			return nil
		}
		return c.Key.Validate()
	case OpCreateCluster, OpUpdateCluster, OpDeleteCluster:
		if c.Cluster == nil || c.App != nil || c.Key != nil {
			return fmt.Errorf("acl: %s needs a cluster and nothing else", c.Op)
		}
		if c.Op == OpCreateCluster {
			return c.Cluster.Validate()
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

// Parts gives the two steps of a rotation, or the change itself: what CheckKey is to be asked about.
func (c Change) Parts() []Change {
	if c.Op != OpRotateKey {
		return []Change{c}
	}
	c.whole = c.Op
	create, update := c, c
	create.Op, create.Old = OpCreateKey, nil
	update.Op, update.Key, update.Old = OpUpdateKey, c.Old, nil
	return []Change{create, update}
}

// CheckKey does for keys what CheckApp does for apps; app is the stored app of the key. A rotation is asked about in its Parts.
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
