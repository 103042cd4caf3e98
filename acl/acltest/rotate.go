package acltest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
)

func (s Suite) rotation(t *testing.T) {
	storage := s.New(t)
	admin := Admin(t, storage)
	create(t, admin)
	expires := Start.Add(90 * 24 * time.Hour)
	oldToken, first, err := admin.CreateKey(t.Context(), "shop", acl.KeyOptions{ExpiresAt: &expires, Permissions: []string{"strings:read"}})
	check(t, err)

	newToken, key, old, err := admin.RotateKey(t.Context(), first.ID, acl.RotateOptions{Overlap: time.Hour})
	check(t, err)
	set, err := admin.List(t.Context())
	check(t, err)
	is, was := set.Keys[key.ID], set.Keys[first.ID]
	if is == nil || is.App != "shop" || !slices.Equal(is.Permissions, []string{"strings:read"}) || !is.ExpiresAt.Equal(expires) || is.ReplacedBy != "" {
		t.Errorf("the new key is %+v", is)
	}
	if was.RevokedAt != nil || !was.ExpiresAt.Equal(Start.Add(time.Hour)) || was.ReplacedBy != key.ID || old.ID != first.ID {
		t.Errorf("the old key is %+v", was)
	}
	for _, row := range []struct {
		name     string
		at       time.Time
		old, new error
	}{
		{"both open within the overlap", Start.Add(time.Hour - time.Second), nil, nil},
		{"the new one alone after it", Start.Add(time.Hour), acl.ErrUnauthenticated, nil},
		{"none after the new one's end", expires, acl.ErrUnauthenticated, acl.ErrUnauthenticated},
	} {
		d := directoryAt(t, storage, row.at)
		if _, err := d.Authenticate(oldToken); err != row.old {
			t.Errorf("%s: the old key gives %v", row.name, err)
		}
		if _, err := d.Authenticate(newToken); err != row.new {
			t.Errorf("%s: the new key gives %v", row.name, err)
		}
	}

	t.Run("without an overlap the old key is revoked", func(t *testing.T) {
		_, next, old, err := admin.RotateKey(t.Context(), key.ID, acl.RotateOptions{})
		check(t, err)
		if old.RevokedAt == nil || !old.RevokedAt.Equal(Start) || next.ID == key.ID {
			t.Errorf("old %+v, new %+v", old, next)
		}
	})
	t.Run("a key never ends later for being rotated", func(t *testing.T) {
		soon := Start.Add(time.Minute)
		_, brief, err := admin.CreateKey(t.Context(), "shop", acl.KeyOptions{ExpiresAt: &soon})
		check(t, err)
		_, _, old, err := admin.RotateKey(t.Context(), brief.ID, acl.RotateOptions{Overlap: acl.MaxOverlap})
		check(t, err)
		if !old.ExpiresAt.Equal(soon) {
			t.Errorf("the old key ends at %v", old.ExpiresAt)
		}
	})
}

func (s Suite) refusedRotations(t *testing.T) {
	admin := Admin(t, s.New(t))
	_, key := create(t, admin)
	_, revoked, err := admin.CreateKey(t.Context(), "shop", acl.KeyOptions{})
	check(t, err)
	_, err = admin.RevokeKey(t.Context(), revoked.ID)
	check(t, err)
	soon := Start.Add(time.Second)
	_, expired, err := admin.CreateKey(t.Context(), "shop", acl.KeyOptions{ExpiresAt: &soon})
	check(t, err)
	_, rotated, err := admin.CreateKey(t.Context(), "shop", acl.KeyOptions{})
	check(t, err)
	_, next, _, err := admin.RotateKey(t.Context(), rotated.ID, acl.RotateOptions{Overlap: time.Hour})
	check(t, err)
	later := *admin
	later.Clock = func() time.Time { return Start.Add(time.Minute) }
	for _, row := range []struct {
		name, id string
		o        acl.RotateOptions
		want     string
	}{
		{"a negative overlap", key.ID, acl.RotateOptions{Overlap: -1}, "overlap"},
		{"an overlap of more than 30 days", key.ID, acl.RotateOptions{Overlap: acl.MaxOverlap + 1}, "30 days"},
		{"an end that is past", key.ID, acl.RotateOptions{ExpiresAt: &soon}, "past"},
		{"a revoked key", revoked.ID, acl.RotateOptions{}, "revoked"},
		{"an expired key", expired.ID, acl.RotateOptions{}, "expired"},
		{"a key that was rotated", rotated.ID, acl.RotateOptions{}, "rotate " + next.ID},
	} {
		_, _, _, err := later.RotateKey(t.Context(), row.id, row.o)
		var fault *acl.Fault
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	_, _, _, err = later.RotateKey(t.Context(), "000000000000", acl.RotateOptions{})
	wantError(t, acl.ErrNotFound, err)
	_, err = admin.DeleteApp(t.Context(), "shop")
	check(t, err)
	if _, _, _, err := admin.RotateKey(t.Context(), next.ID, acl.RotateOptions{}); err == nil {
		t.Error("a key of a deleted app was rotated")
	}
}
