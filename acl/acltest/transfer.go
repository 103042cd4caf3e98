package acltest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
)

func export(t *testing.T, admin *acl.Admin) string {
	t.Helper()
	set, err := admin.List(t.Context())
	check(t, err)
	var text strings.Builder
	check(t, acl.Export(&text, set))
	return text.String()
}

func parse(t *testing.T, text string) *acl.Set {
	t.Helper()
	set, err := acl.ParseExport(strings.NewReader(text))
	check(t, err)
	return set
}

func (s Suite) transfer(t *testing.T) {
	admin := Admin(t, s.New(t))
	token, key := create(t, admin)
	_, err := admin.AddCluster(t.Context(), eu())
	check(t, err)
	_, _, _, err = admin.RotateKey(t.Context(), key.ID, acl.RotateOptions{Overlap: time.Hour})
	check(t, err)
	if s.KeepsRevisions { // a deleted app in a file keeps its keys, which an import would revoke
		_, err = admin.CreateApp(t.Context(), acl.App{ID: "gone", Namespace: "gone-ns"})
		check(t, err)
		_, _, err = admin.CreateKey(t.Context(), "gone", acl.KeyOptions{})
		check(t, err)
		_, err = admin.DeleteApp(t.Context(), "gone")
		check(t, err)
	}
	text := export(t, admin)
	if strings.Contains(text, token[16:59]) || strings.Contains(text, "revision") {
		t.Errorf("the export is\n%s", text)
	}
	path := filepath.Join(t.TempDir(), "apps.yaml")
	check(t, os.WriteFile(path, []byte(text), 0o600))
	file := Admin(t, acl.NewFile(path, 0))
	if again := export(t, file); again != text {
		t.Errorf("a file of it exports\n%s\nwant\n%s", again, text)
	}
	if _, err := directoryAt(t, file.Storage, Start).Authenticate(token); err != nil {
		t.Errorf("the key does not open the file: %v", err)
	}

	other := Admin(t, s.New(t))
	plan, err := other.PlanImport(t.Context(), parse(t, text))
	check(t, err)
	if len(plan.Changes) == 0 {
		t.Error("nothing would change")
	}
	check(t, other.Import(t.Context(), plan))
	if s.KeepsRevisions {
		if again := export(t, other); again != text {
			t.Errorf("imported, it exports\n%s\nwant\n%s", again, text)
		}
		if _, err := other.CreateApp(t.Context(), acl.App{ID: "new", Namespace: "gone-ns"}); !errors.Is(err, acl.ErrExists) {
			t.Errorf("a deleted app's namespace is free after an import: %v", err)
		}
		plan, err = other.PlanImport(t.Context(), parse(t, text))
		if err != nil || len(plan.Changes) != 0 {
			t.Errorf("an import made again would make %v, %v", plan.Changes, err)
		}
	}
}

// importsOfRotatedKeys takes exports of before a rotation. The rotation ended the key as a revocation would, only later.
func (s Suite) importsOfRotatedKeys(t *testing.T) {
	admin := Admin(t, s.New(t))
	_, key := create(t, admin)
	before := export(t, admin)
	_, _, old, err := admin.RotateKey(t.Context(), key.ID, acl.RotateOptions{Overlap: time.Hour})
	check(t, err)
	after := export(t, admin)
	ends := "expires_at: " + old.ExpiresAt.Format(time.RFC3339)
	later := strings.Replace(after, ends, "expires_at: "+old.ExpiresAt.Add(time.Hour).Format(time.RFC3339), 1)
	for name, text := range map[string]string{
		"an export of before": before, "a later end": later, "no end": strings.Replace(after, ends, "", 1),
	} {
		if text == after {
			t.Fatalf("%s: %q is not in\n%s", name, ends, after)
		}
		if _, err := admin.PlanImport(t.Context(), parse(t, text)); err == nil || !strings.Contains(err.Error(), "was rotated here") {
			t.Errorf("%s: %v", name, err)
		}
	}
	sooner := strings.Replace(after, ends, "expires_at: "+old.ExpiresAt.Add(-time.Minute).Format(time.RFC3339), 1)
	if plan, err := admin.PlanImport(t.Context(), parse(t, sooner)); err != nil || len(plan.Changes) != 1 {
		t.Errorf("an earlier end: %v, %v", plan.Changes, err)
	}
}

func (s Suite) refusedImports(t *testing.T) {
	admin := Admin(t, s.New(t))
	_, key := create(t, admin)
	_, err := admin.CreateApp(t.Context(), acl.App{ID: "gone", Namespace: "gone-ns"})
	check(t, err)
	_, err = admin.DeleteApp(t.Context(), "gone")
	check(t, err)
	_, err = admin.RevokeKey(t.Context(), key.ID)
	check(t, err)
	text := export(t, admin)
	hash := strings.Repeat("a", 64)
	for name, row := range map[string]struct{ file, want string }{
		"a namespace that was a deleted app's": {"apps: [{id: new, namespace: gone-ns}]", `namespace "gone-ns" belongs to app "gone", for ever`},
		"a namespace that is another app's":    {"apps: [{id: new, namespace: shop-ns}]", `namespace "shop-ns" belongs to app "shop"`},
		"a deleted app that would live again":  {"apps: [{id: gone, namespace: gone-ns}]", `app "gone" was deleted`},
		"another layout":                       {"apps: [{id: shop, namespace: shop-ns, cluster: eu}]", "layout: stays"},
		"a living app that is deleted there":   {"apps: [{id: shop, namespace: shop-ns, layout: together, cluster: eu, state: deleted}]", "delete it with app delete"},
		"a revoked key that would open again": {
			"apps: [{id: shop, namespace: shop-ns, layout: together, cluster: eu}]\nkeys: [{id: " + key.ID + ", app: shop, hash: " + key.Hash + "}]", "is revoked here",
		},
		"another hash of a key": {
			"apps: [{id: shop, namespace: shop-ns, layout: together, cluster: eu}]\nkeys: [{id: " + key.ID + ", app: shop, hash: " + hash + ", revoked_at: 2026-01-01T00:00:00Z}]", "keeps its app and its hash",
		},
	} {
		_, err := admin.PlanImport(t.Context(), parse(t, "clusters: [{name: us, addrs: ['a:1']}]\n"+row.file))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	admin.Clusters = []string{"eu"}
	_, err = admin.PlanImport(t.Context(), parse(t, "clusters: [{name: eu, addrs: ['a:1']}]\napps: [{id: new, namespace: new, cluster: mars}]"))
	if err == nil || !strings.Contains(err.Error(), "cluster eu: is one of the configuration file") || !strings.Contains(err.Error(), `there is no cluster "mars"`) {
		t.Errorf("clusters that cannot be: %v", err)
	}
	if again := export(t, admin); again != text {
		t.Errorf("a refused import changed something:\n%s", again)
	}
}
