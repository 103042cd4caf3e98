package acl_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
)

func TestContactIsTheLatestTry(t *testing.T) {
	var h acl.Heard
	if c := h.Contact(); !c.Last.IsZero() || c.Err != nil {
		t.Errorf("before any try: %+v", c)
	}
	h.Note(acltest.Start, nil)
	h.Note(acltest.Start.Add(time.Second), errors.New("away"))
	if c := h.Contact(); !c.Last.Equal(acltest.Start) || c.Err == nil {
		t.Errorf("after an answer and a failure: %+v", c)
	}
	h.Note(acltest.Start.Add(time.Minute), nil)
	if c := h.Contact(); !c.Last.Equal(acltest.Start.Add(time.Minute)) || c.Err != nil {
		t.Errorf("after the next answer: %+v", c)
	}
}

func TestAFileThatCannotBeReadIsOutOfContact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "apps.yaml")
	d := newDirectory(t, acl.NewFile(path, 0), newClock(), nil)
	if d.Refresh(t.Context()) == nil || d.Contact().Err == nil {
		t.Error("a file that is not there answers")
	}
	write(t, path, "apps: []\n")
	refresh(t, d)
	if c := d.Contact(); c.Err != nil || c.Last.IsZero() {
		t.Errorf("%+v", c)
	}
}

func TestAStorageThatDoesNotTellIsTakenToAnswer(t *testing.T) {
	c := newClock()
	d := newDirectory(t, &fake{set: setOf("1", nil)}, c, nil)
	if got := d.Contact(); got.Err != nil || !got.Last.Equal(c.now()) {
		t.Errorf("%+v", got)
	}
}

func TestEachKeyThatOpens(t *testing.T) {
	c := newClock()
	elsewhere := acltest.Start.Add(time.Hour)
	token, here := key(t, "shop", nil)
	_, idle := key(t, "shop", nil)
	_, there := key(t, "shop", func(k *acl.Key) { k.LastUsedAt = &elsewhere })
	_, revoked := key(t, "shop", func(k *acl.Key) { k.RevokedAt = &elsewhere })
	_, orphan := key(t, "gone", nil)
	s := &fake{set: setOf("1", []*acl.App{app("shop", nil), app("gone", func(a *acl.App) { a.State = acl.Deleted })}, here, idle, there, revoked, orphan)}
	d := newDirectory(t, s, c, nil)
	d.EachKey(func(*acl.Key, time.Time) { t.Error("a key before anything was loaded") })
	refresh(t, d)
	if _, err := d.Authenticate(token); err != nil {
		t.Fatal(err)
	}
	used := map[string]time.Time{}
	d.EachKey(func(k *acl.Key, at time.Time) { used[k.ID] = at })
	if len(used) != 3 || !used[here.ID].Equal(acltest.Start.Truncate(time.Minute)) || !used[idle.ID].IsZero() || !used[there.ID].Equal(elsewhere) {
		t.Errorf("%v", used)
	}
}

// silent is a storage that tells whether it can be reached.
type silent struct {
	*fake
	err error
}

func (s *silent) Contact() acl.Contact { return acl.Contact{Err: s.err} }

func TestAKeyMadeOutOfSight(t *testing.T) {
	known, k := key(t, "shop", nil)
	late, _ := key(t, "shop", nil)
	s := &silent{fake: &fake{set: setOf("1", []*acl.App{app("shop", nil)}, k)}}
	clock := newClock()
	d := newDirectory(t, s, clock, nil)
	refresh(t, d)
	wrong := known[:20] + late[20:]
	for _, c := range []struct {
		err         error
		token       string
		want, byKey error
		why         string
	}{
		{nil, late, acl.ErrUnauthenticated, acl.ErrUnauthenticated, "is not one while the storage answers"},
		{errors.New("down"), late, acl.ErrNotReady, acl.ErrNotReady, "may have been made while it does not"},
		{errors.New("down"), known, nil, nil, "that is known goes on"},
		{errors.New("down"), wrong, acl.ErrUnauthenticated, nil, "of a known id with another secret is wrong for good"},
		{errors.New("down"), late[:len(late)-1] + "!", acl.ErrUnauthenticated, acl.ErrNotReady, "that is none is none"},
	} {
		s.err = c.err
		if _, err := d.Authenticate(c.token); !errors.Is(err, c.want) {
			t.Errorf("a key %s: %v, want %v", c.why, err, c.want)
		}
		if _, err := d.ByKey(c.token[3:15], clock.now()); !errors.Is(err, c.byKey) {
			t.Errorf("a token of a key %s: %v, want %v", c.why, err, c.byKey)
		}
	}
	if _, err := d.ByApp("depot", clock.now()); !errors.Is(err, acl.ErrNotReady) {
		t.Errorf("an app made out of sight: %v", err)
	}
}
