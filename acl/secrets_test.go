package acl_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
)

func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestASecretIsChanged(t *testing.T) {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	load := func(text string) acl.Secret {
		t.Helper()
		s, err := acl.LoadSecret(secretFile(t, text))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first, both, exchanged, second := load(one), load("- '"+one+"'\n- '"+two+"'\n"), load("- '"+two+"'\n- '"+one+"'\n"), load(two)
	if both.ID() != first.ID() || exchanged.ID() != second.ID() || first.ID() == second.ID() || len(both.Others()) != 1 {
		t.Error("the first of the list is not the one in force")
	}
	storage := acl.Storage(&fake{set: setOf("1", []*acl.App{app("shop", nil)})})
	for name, row := range map[string]struct {
		by          acl.Secret
		accepted    []acl.Secret
		notAccepted []acl.Secret
	}{
		"made before the change":   {first, []acl.Secret{first, both, exchanged}, []acl.Secret{second}},
		"made while it is changed": {exchanged, []acl.Secret{both, exchanged, second}, []acl.Secret{first}},
	} {
		token, key, err := acl.NewKey(row.by, "shop", acltest.Start, nil, nil)
		if err != nil || key.SecretID != row.by.ID() {
			t.Fatal(key, err)
		}
		storage = &fake{set: setOf("1", []*acl.App{app("shop", nil)}, key)}
		opens := func(s acl.Secret) bool {
			d := acl.NewDirectory(storage, s, acl.Defaults{}, slog.New(slog.DiscardHandler), func() time.Time { return acltest.Start })
			if err := d.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err := d.Authenticate(token)
			return err == nil
		}
		for i, s := range row.accepted {
			if !opens(s) {
				t.Errorf("a key %s is refused by gateway %d", name, i)
			}
		}
		for i, s := range row.notAccepted {
			if opens(s) {
				t.Errorf("a key %s opens gateway %d", name, i)
			}
		}
	}
}

func TestBadListsOfSecrets(t *testing.T) {
	good := strings.Repeat("hunter2 ", 5)
	for text, want := range map[string]string{
		"- " + good + "\n- short":     "number 2 of the list",
		"- # later\n- " + good:        "number 1 of the list is empty",
		"- #00":                       "number 1 of the list is empty",
		"- " + good + "\n- " + good:   "is there before",
		"- " + good + "\n- {a: b}":    "is none",
		"- " + good + "\n  - :\n\t- ": "is none",
		"- " + good + "\n- " + good + "2\n- " + good + "3\n- " + good + "4": "at most 3",
	} {
		_, err := acl.LoadSecret(secretFile(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
	// Two lines were one secret before there were lists, and stay one.
	lines := strings.Repeat("a", 76) + "\n" + strings.Repeat("b", 12)
	if s, err := acl.LoadSecret(secretFile(t, lines)); err != nil || len(s.Others()) != 0 {
		t.Errorf("a secret of two lines: %v", err)
	}
}
