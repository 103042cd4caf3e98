package acl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// editTries bounds how often an edit is made again on what somebody else wrote meanwhile.
const editTries = 5

// Admin makes the changes people ask for. It keeps nothing between calls: every change starts from what is stored now.
//
// With a storage that cannot be written (a file), each method returns what it would have stored together with the *ReadOnlyError that
// holds the YAML to paste; the token of CreateKey works as soon as that is done.
type Admin struct {
	Storage Storage
	Secret  Secret
	Clock   func() time.Time
	// Commands tells the class of a named command, so that `commands:GET` can be recognised as part of `strings:read` and a
	// misspelt command is refused. Nil does without: a key may then be given only commands its app is given by name.
	Commands CommandTable
	// By is who makes the changes, for the audit.
	By string
	// Clusters are those of the configuration. A new app must be on one of them or on a stored one; nil does not look.
	Clusters []string
}

// apply stamps a change and makes it.
func (a *Admin) apply(ctx context.Context, c Change) error {
	c.At, c.By = a.now(), a.By
	return a.Storage.Apply(ctx, c)
}

// List gives everything stored, tombstones and revoked keys included.
func (a *Admin) List(ctx context.Context) (*Set, error) { return a.Storage.Load(ctx) }

// App gives one stored app, a deleted one too.
func (a *Admin) App(ctx context.Context, id string) (*App, error) {
	set, err := a.Storage.Load(ctx)
	if err != nil {
		return nil, err
	}
	app := set.Apps[id]
	if app == nil {
		return nil, fmt.Errorf("app %q: %w", id, ErrNotFound)
	}
	return app, nil
}

// CreateApp stores a new app, what was left out set to the defaults.
func (a *Admin) CreateApp(ctx context.Context, app App) (*App, error) {
	app = app.WithDefaults()
	app.CreatedAt = a.now()
	app.ExpiresAt = inUTC(app.ExpiresAt)
	app.Revision = 0
	if err := errors.Join(app.Validate(), a.knownCommands(app.Permissions, nil)); err != nil {
		return nil, err
	}
	elsewhere := a.Clusters != nil && !slices.Contains(a.Clusters, app.Cluster)
	err := a.apply(ctx, Change{Op: OpCreateApp, App: &app, StoredCluster: elsewhere})
	return stored(&app, &app.Revision, err)
}

// EditApp changes an app through edit, which gets a copy of the stored one. It may be called again when somebody else changed the app
// meanwhile, so it must depend on nothing but its argument. Id, namespace, layout and cluster stay as they are.
func (a *Admin) EditApp(ctx context.Context, id string, edit func(*App)) (*App, error) {
	return a.changeApp(ctx, OpUpdateApp, id, edit)
}

// SuspendApp refuses the app's callers until it is resumed. Nothing of it is lost.
func (a *Admin) SuspendApp(ctx context.Context, id string) (*App, error) {
	return a.changeApp(ctx, OpUpdateApp, id, func(app *App) { app.State = Suspended })
}

// ResumeApp ends a suspension.
func (a *Admin) ResumeApp(ctx context.Context, id string) (*App, error) {
	return a.changeApp(ctx, OpUpdateApp, id, func(app *App) { app.State = Active })
}

// DeleteApp leaves a tombstone, which keeps id and namespace taken, and revokes the app's keys. It touches no data.
func (a *Admin) DeleteApp(ctx context.Context, id string) (*App, error) {
	return a.changeApp(ctx, OpDeleteApp, id, func(app *App) { app.State = Deleted })
}

func (a *Admin) changeApp(ctx context.Context, op Op, id string, edit func(*App)) (*App, error) {
	var err error
	for range editTries {
		var was *App
		if was, err = a.App(ctx, id); err != nil {
			return nil, err
		}
		app := was.clone()
		edit(app)
		app.CreatedAt, app.Revision, app.ExpiresAt = was.CreatedAt, was.Revision, inUTC(app.ExpiresAt)
		c := Change{Op: op, App: app}
		if err := errors.Join(c.Validate(), c.CheckApp(was), a.knownCommands(app.Permissions, was.Permissions)); err != nil {
			return nil, err
		}
		if err = a.apply(ctx, c); !errors.Is(err, ErrConflict) {
			return stored(app, &app.Revision, err)
		}
	}
	return nil, err
}

// KeyOptions are what a key may have of its own.
type KeyOptions struct {
	ExpiresAt   *time.Time // nil lives as long as the app
	Permissions []string   // nil has the app's
}

// CreateKey makes a key for an app and the token that opens it. Permissions may narrow the app's and never exceed them.
func (a *Admin) CreateKey(ctx context.Context, app string, o KeyOptions) (token string, key *Key, err error) {
	owner, err := a.App(ctx, app)
	if err != nil {
		return "", nil, err
	}
	now := a.now()
	if o.ExpiresAt != nil && !o.ExpiresAt.After(now) {
		return "", nil, &Fault{Field: "expires_at", Detail: o.ExpiresAt.Format(time.RFC3339) + " is past; use a later time"}
	}
	if err := errors.Join(a.knownCommands(o.Permissions, nil), a.narrower(owner, o.Permissions)); err != nil {
		return "", nil, err
	}
	token, key, err = NewKey(a.Secret, app, now, o.ExpiresAt, o.Permissions)
	if err != nil {
		return "", nil, err
	}
	err = a.apply(ctx, Change{Op: OpCreateKey, Key: key})
	if key, err = stored(key, &key.Revision, err); key == nil {
		return "", nil, err
	}
	return token, key, err
}

// RevokeKey closes a key for ever. Revoking it again changes nothing.
func (a *Admin) RevokeKey(ctx context.Context, id string) (*Key, error) {
	var err error
	for range editTries {
		var set *Set
		if set, err = a.Storage.Load(ctx); err != nil {
			return nil, err
		}
		was := set.Keys[id]
		if was == nil {
			return nil, fmt.Errorf("key %q: %w", id, ErrNotFound)
		}
		if was.RevokedAt != nil {
			return was, nil
		}
		now, key := a.now(), *was
		key.RevokedAt = &now
		if err = a.apply(ctx, Change{Op: OpUpdateKey, Key: &key}); !errors.Is(err, ErrConflict) {
			return stored(&key, &key.Revision, err)
		}
	}
	return nil, err
}

// narrower refuses what the intersection would silently take away again: somebody asking for more should hear so.
func (a *Admin) narrower(app *App, list []string) error {
	granted, _ := CompilePermissions(app.Permissions)
	over := granted.Excess(list, a.Commands)
	if len(over) == 0 {
		return nil
	}
	return &Fault{
		Field: "permissions",
		Detail: fmt.Sprintf("%s is more than app %q may do; a key may have any part of: %s",
			strings.Join(over, ", "), app.ID, strings.Join(app.Permissions, ", ")),
	}
}

// knownCommands leaves alone what was there before: a newer version may know it.
func (a *Admin) knownCommands(list, before []string) error {
	var f faults
	for i, entry := range list {
		name, named := strings.CutPrefix(entry, commandPrefix+":")
		if !named || a.Commands == nil || !commandPattern.MatchString(name) || slices.Contains(before, entry) {
			continue
		}
		if _, _, known := a.Commands(name); !known {
			f.add(fmt.Sprintf("permissions[%d]", i), "%q is not a command slotgate knows", name)
		}
	}
	return f.join()
}

func (a *Admin) now() time.Time { return a.Clock().UTC().Truncate(time.Second) }

// stored returns the entry as it is stored now, or as it would be when the storage is read-only.
func stored[T any](entry *T, revision *int64, err error) (*T, error) {
	if err != nil && !errors.Is(err, ErrReadOnly) {
		return nil, err
	}
	if err == nil {
		*revision++
	}
	return entry, err
}

// clone copies the app deeply enough to be edited.
func (a *App) clone() *App {
	b := *a
	b.Permissions = slices.Clone(a.Permissions)
	b.Limits = slices.Clone(a.Limits)
	b.ExpiresAt = inUTC(a.ExpiresAt)
	if a.Retries != nil {
		r := *a.Retries
		b.Retries = &r
	}
	return &b
}
