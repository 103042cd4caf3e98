package acl

import "time"

// ByKey finds what the key with this id may do now. It is for a caller who has proved to hold the key by other means than its token;
// its errors are those of Authenticate, and ErrUnauthenticated also stands for a key that does not exist. now is the moment, which the
// caller has looked at already.
func (d *Directory) ByKey(keyID string, now time.Time) (*Identity, error) {
	t := d.current.Load()
	if t == nil {
		return nil, ErrNotReady
	}
	e := t.entries[keyID]
	if e == nil {
		return nil, d.stranger()
	}
	return e.admit(now)
}

// ByApp finds what the app itself may do now, for a caller who was told to be of it by somebody the operator trusts. The identity has a
// key without an id, as old as the app. Errors as of ByKey.
func (d *Directory) ByApp(appID string, now time.Time) (*Identity, error) {
	t := d.current.Load()
	if t == nil {
		return nil, ErrNotReady
	}
	app := t.apps[appID]
	if app == nil {
		return nil, d.stranger()
	}
	if app.State == Deleted {
		return nil, ErrUnauthenticated
	}
	if err := app.admits(now); err != nil {
		return nil, err
	}
	if made, ok := t.keyless.Load(appID); ok {
		return made.(*Identity), nil
	}
	granted, _ := CompilePermissions(app.Permissions) // what it does not know was logged when the app was loaded
	made, _ := t.keyless.LoadOrStore(appID, t.defaults.identity(app, &Key{App: appID, CreatedAt: app.CreatedAt}, granted, granted))
	return made.(*Identity), nil
}

// admit gives the entry's identity if it may be used now, and notes the use.
func (e *entry) admit(now time.Time) (*Identity, error) {
	if !e.open(now) {
		return nil, ErrUnauthenticated
	}
	if err := e.identity.App.admits(now); err != nil {
		return nil, err
	}
	e.used(now)
	return e.identity, nil
}

// admits says why an app that exists has no callers now.
func (a *App) admits(now time.Time) error {
	switch {
	case a.State != Active:
		return ErrAppSuspended // also a state only a newer version knows
	case a.ExpiresAt != nil && !now.Before(*a.ExpiresAt):
		return ErrAppExpired
	}
	return nil
}
