package acl

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxOverlap is the longest that a rotated key goes on beside the one that replaces it. A month is the release cycle of slow callers;
// whoever needs longer needs two keys.
const MaxOverlap = 30 * 24 * time.Hour

// RotateOptions are what a rotation may be told.
type RotateOptions struct {
	// Overlap is how long the old key still opens; 0 revokes it at once.
	Overlap time.Duration
	// ExpiresAt is the end of the new key; nil gives it as long a life as the old one was made with.
	ExpiresAt *time.Time
}

// RotateKey makes a key with the permissions of another, and ends that one after the overlap, never later than it would have ended.
// Both happen or neither. A key can be rotated once; the one that replaced it is the next to rotate.
func (a *Admin) RotateKey(ctx context.Context, id string, o RotateOptions) (token string, key, old *Key, err error) {
	if o.Overlap < 0 || o.Overlap > MaxOverlap {
		return "", nil, nil, &Fault{Field: "overlap", Detail: fmt.Sprintf("%v must be 0 (the old key ends at once) to 30 days", o.Overlap)}
	}
	for range editTries {
		var set *Set
		if set, err = a.Storage.Load(ctx); err != nil {
			return "", nil, nil, err
		}
		now, was := a.now(), set.Keys[id]
		if err := rotatable(id, was, now); err != nil {
			return "", nil, nil, err
		}
		expires, err := rotatedExpiry(was, o, now)
		if err != nil {
			return "", nil, nil, err
		}
		token, key, err = NewKey(a.Secret, was.App, now, expires, was.Permissions)
		if err != nil {
			return "", nil, nil, err
		}
		old = ending(was, key.ID, now, o.Overlap)
		err = a.apply(ctx, Change{Op: OpRotateKey, Key: key, Old: old})
		if errors.Is(err, ErrConflict) {
			continue
		}
		if old, err = stored(old, &old.Revision, err); old == nil {
			return "", nil, nil, err
		}
		key, err = stored(key, &key.Revision, err)
		return token, key, old, err
	}
	return "", nil, nil, ErrConflict
}

func rotatable(id string, was *Key, now time.Time) error {
	switch {
	case was == nil:
		return fmt.Errorf("key %q: %w", id, ErrNotFound)
	case was.ReplacedBy != "":
		return &Fault{Field: "key", Detail: fmt.Sprintf("%s was rotated before; rotate %s, which replaced it", id, was.ReplacedBy)}
	case was.RevokedAt != nil:
		return &Fault{Field: "key", Detail: id + " is revoked; create a key instead"}
	case was.ExpiresAt != nil && !was.ExpiresAt.After(now):
		return &Fault{Field: "key", Detail: id + " has expired; create a key instead"}
	}
	return nil
}

// rotatedExpiry gives the new key the old one's length of life.
func rotatedExpiry(was *Key, o RotateOptions, now time.Time) (*time.Time, error) {
	switch {
	case o.ExpiresAt != nil && !o.ExpiresAt.After(now):
		return nil, &Fault{Field: "expires_at", Detail: o.ExpiresAt.Format(time.RFC3339) + " is past; use a later time"}
	case o.ExpiresAt != nil:
		return o.ExpiresAt, nil
	case was.ExpiresAt == nil:
		return nil, nil
	case was.CreatedAt.IsZero():
		return nil, &Fault{Field: "expires_at", Detail: "the old key expires, but not known is after how long; say when the new one should"}
	}
	at := now.Add(was.ExpiresAt.Sub(was.CreatedAt))
	return &at, nil
}

// ending is the old key as it is left.
func ending(was *Key, by string, now time.Time, overlap time.Duration) *Key {
	old := *was
	old.ReplacedBy = by
	end := now.Add(overlap)
	switch {
	case overlap == 0:
		old.RevokedAt = &now
	case old.ExpiresAt == nil || end.Before(*old.ExpiresAt):
		old.ExpiresAt = &end
	}
	return &old
}
