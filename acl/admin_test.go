package acl_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
)

// recorder applies nothing and remembers everything; its answers are taken in turn, the last one again and again.
type recorder struct {
	*fake
	answers []error
	changes []acl.Change
}

func (r *recorder) Apply(_ context.Context, c acl.Change) error {
	r.changes = append(r.changes, c)
	return r.answers[min(len(r.changes), len(r.answers))-1]
}

func recording(answers []error, apps []*acl.App, keys ...*acl.Key) *recorder {
	return &recorder{fake: &fake{set: setOf("1", apps, keys...)}, answers: answers}
}

func TestAKeyNeverGetsMoreThanItsApp(t *testing.T) {
	words := strings.Fields
	for _, row := range []struct {
		app, key   []string
		table      acl.CommandTable
		complaints string // what the error names; "" when the key is made
	}{
		{words("strings:*"), nil, nil, ""},
		{words("strings:*"), words("strings:read"), nil, ""},
		{words("strings:*"), words("strings:*"), nil, ""},
		{words("strings:read strings:write"), words("strings:*"), nil, ""},
		{words("*"), words("*"), nil, ""},
		{words("*"), words("hashes:read commands:ZADD"), nil, ""},
		{words("commands:ZADD"), words("commands:ZADD"), nil, ""},
		{words("strings:read"), words("commands:GET"), table, ""},
		{words("strings:read"), words("strings:*"), nil, "strings:*"},
		{words("strings:read"), words("strings:write"), nil, "strings:write"},
		{words("strings:*"), words("strings:read hashes:read"), nil, "hashes:read"},
		{words("strings:*"), words("*"), nil, "*"},
		{words("strings:* commands:ZADD"), words("zsets:write"), nil, "zsets:write"},
		{words("strings:read"), words("commands:GET"), nil, "commands:GET"}, // nobody knows what GET is
		{words("strings:read"), words("commands:SET"), table, "commands:SET"},
		{words("strings:*"), words("commands:NOSUCH"), table, "NOSUCH"},
		{nil, words("strings:read"), nil, "strings:read"},
		{words("strings:*"), words("strings:reed"), nil, "strings:reed"},
	} {
		s := recording([]error{nil}, []*acl.App{app("shop", func(a *acl.App) { a.Permissions = row.app })})
		admin := acltest.Admin(t, s)
		admin.Commands = row.table
		token, _, err := admin.CreateKey(t.Context(), "shop", acl.KeyOptions{Permissions: row.key})
		if made := err == nil; made != (row.complaints == "") || made != (token != "") || made != (len(s.changes) == 1) {
			t.Errorf("a key of %v for an app of %v: %v", row.key, row.app, err)
		}
		if err != nil && !strings.Contains(err.Error(), row.complaints) {
			t.Errorf("a key of %v for an app of %v: %v does not name %s", row.key, row.app, err, row.complaints)
		}
	}
}

func TestAKeyForThePast(t *testing.T) {
	s := recording([]error{nil}, []*acl.App{app("shop", nil)})
	for _, at := range []time.Time{acltest.Start, acltest.Start.Add(-time.Hour)} {
		token, _, err := acltest.Admin(t, s).CreateKey(t.Context(), "shop", acl.KeyOptions{ExpiresAt: &at})
		if fields := faultFields(err); token != "" || !slices.Equal(fields, []string{"expires_at"}) {
			t.Errorf("a key until %v: %v", at, err)
		}
	}
}

func TestCommandsNobodyKnows(t *testing.T) {
	old := app("shop", func(a *acl.App) { a.Permissions = []string{"commands:NEWER"} })
	s := recording([]error{nil}, []*acl.App{old})
	admin := acltest.Admin(t, s)
	admin.Commands = table
	if _, err := admin.CreateApp(t.Context(), acl.App{ID: "a1", Namespace: "a1", Permissions: []string{"commands:GTE"}}); !slices.Equal(faultFields(err), []string{"permissions[0]"}) {
		t.Errorf("a misspelt command: %v", err)
	}
	if _, err := admin.EditApp(t.Context(), "shop", func(a *acl.App) { a.Permissions = append(a.Permissions, "commands:GTE") }); !slices.Equal(faultFields(err), []string{"permissions[1]"}) {
		t.Errorf("a misspelt command beside one of a newer version: %v", err)
	}
	if _, err := admin.EditApp(t.Context(), "shop", func(a *acl.App) { a.Permissions = append(a.Permissions, "commands:GET") }); err != nil {
		t.Errorf("a right command beside one of a newer version: %v", err)
	}
}

func TestAnEditIsMadeAgainOnWhatSomebodyElseWrote(t *testing.T) {
	for _, row := range []struct {
		answers []error
		tries   int
		want    error
	}{
		{[]error{nil}, 1, nil},
		{[]error{acl.ErrConflict, acl.ErrConflict, nil}, 3, nil},
		{[]error{acl.ErrConflict}, 5, acl.ErrConflict},
		{[]error{acl.ErrUnknown}, 1, acl.ErrUnknown}, // never repeated: it may have been made
		{[]error{acl.ErrNewer}, 1, acl.ErrNewer},
	} {
		_, k := key(t, "shop", nil)
		for name, change := range map[string]func(*acl.Admin) error{
			"edit":   func(a *acl.Admin) error { _, err := a.EditApp(t.Context(), "shop", func(*acl.App) {}); return err },
			"delete": func(a *acl.Admin) error { _, err := a.DeleteApp(t.Context(), "shop"); return err },
			"revoke": func(a *acl.Admin) error { _, err := a.RevokeKey(t.Context(), k.ID); return err },
		} {
			s := recording(row.answers, []*acl.App{app("shop", nil)}, k)
			if err := change(acltest.Admin(t, s)); !errors.Is(err, row.want) || len(s.changes) != row.tries {
				t.Errorf("%s answered %v: %v after %d tries, want %d", name, row.answers, err, len(s.changes), row.tries)
			}
		}
	}
}

func TestAnEditWorksOnACopy(t *testing.T) {
	end := acltest.Start.Add(time.Hour)
	was := app("shop", func(a *acl.App) {
		a.Limits, a.Retries, a.ExpiresAt, a.Revision = []acl.Limit{{ID: "x", Per: "app", Of: "requests", Limit: 1, PeriodMS: 1}}, &acl.Retries{}, &end, 7
	})
	s := recording([]error{nil}, []*acl.App{was})
	is, err := acltest.Admin(t, s).EditApp(t.Context(), "shop", func(a *acl.App) {
		a.Permissions[0], a.Limits[0].Limit, a.Retries.Read, *a.ExpiresAt = "hashes:*", 2, 2, end.Add(time.Hour)
		a.Revision, a.CreatedAt = 99, end // not theirs to edit
	})
	if err != nil {
		t.Fatal(err)
	}
	if was.Permissions[0] != "strings:*" || was.Limits[0].Limit != 1 || was.Retries.Read != 0 || !was.ExpiresAt.Equal(acltest.Start.Add(time.Hour)) {
		t.Errorf("the stored app was changed: %+v", was)
	}
	if is.Revision != 8 || !is.CreatedAt.Equal(was.CreatedAt) {
		t.Errorf("revision %d, created %v", is.Revision, is.CreatedAt)
	}
}

func TestAnUnknownOutcomeShowsNoToken(t *testing.T) {
	s := recording([]error{acl.ErrUnknown}, []*acl.App{app("shop", nil)})
	token, key, err := acltest.Admin(t, s).CreateKey(t.Context(), "shop", acl.KeyOptions{})
	if token != "" || key != nil || !errors.Is(err, acl.ErrUnknown) {
		t.Errorf("%q, %v, %v", token, key, err)
	}
}

func TestChangesThatMakeNoSense(t *testing.T) {
	_, k := key(t, "shop", nil)
	for name, c := range map[string]acl.Change{
		"no kind":                    {App: app("shop", nil)},
		"no app":                     {Op: acl.OpCreateApp, Key: k},
		"no key":                     {Op: acl.OpUpdateKey, App: app("shop", nil)},
		"an app and a key":           {Op: acl.OpUpdateApp, App: app("shop", nil), Key: k},
		"an update that deletes":     {Op: acl.OpUpdateApp, App: app("shop", func(a *acl.App) { a.State = acl.Deleted })},
		"a delete that does not":     {Op: acl.OpDeleteApp, App: app("shop", nil)},
		"a new app that is deleted":  {Op: acl.OpCreateApp, App: app("shop", func(a *acl.App) { a.State = acl.Deleted })},
		"a new app that is not good": {Op: acl.OpCreateApp, App: app("Shop", nil)},
		"a new key that is not good": {Op: acl.OpCreateKey, Key: &acl.Key{ID: "x"}},
	} {
		if c.Validate() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	moved := *k
	moved.App = "other"
	c := acl.Change{Op: acl.OpUpdateKey, Key: &moved}
	if err := c.CheckKey(app("other", nil), k); len(faultFields(err)) != 1 {
		t.Errorf("a key was moved to another app: %v", err)
	}
}
