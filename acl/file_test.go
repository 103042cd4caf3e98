package acl_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
)

const quick = 5 * time.Millisecond

// write replaces the file by a rename, as people should.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func tempFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "apps.yaml")
	write(t, path, text)
	return path
}

func TestAGoodFile(t *testing.T) {
	set, err := acl.NewFile("testdata/good.yaml", 0).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shop, plain := set.Apps["shop"], set.Apps["plain"]
	if shop.Layout != acl.Together || shop.Namespace != "shop-eu" || shop.Sizes.ValueMaxBytes != 65536 || shop.Retries.Read != 2 ||
		shop.Limits[0].Burst != 100 || !shop.ExpiresAt.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) || shop.Compression != acl.NoCompression {
		t.Errorf("shop is %+v", shop)
	}
	if want := []acl.Limit{
		{
			ID: "each", Per: "key", Of: "bytes", Class: "strings:write", Route: "/v1/strings/:key", Limit: 7, PeriodMS: 60_000,
			Algorithm: "fixed_window", Mode: "exact", OnError: "closed",
		},
		{ID: "at-once", Per: "app", Of: "concurrency", Limit: 3},
	}; !slices.Equal(shop.Limits[1:], want) {
		t.Errorf("shop's limits are %+v", shop.Limits)
	}
	if plain.Layout != acl.Spread || plain.State != acl.Active || plain.Cluster != "default" || !slices.Equal(plain.Permissions, shop.Permissions) {
		t.Errorf("plain is %+v", plain)
	}
	number := set.Keys["000000000001"] // YAML would have it a number
	if len(set.Keys) != 3 || set.Keys["4fTq0aXw9LmZ"].Permissions != nil || len(number.Permissions) != 2 ||
		!number.ExpiresAt.Equal(time.Date(2026, 6, 1, 10, 0, 0, 0, time.UTC)) || set.Keys["000000000002"].RevokedAt == nil {
		t.Errorf("keys are %+v", set.Keys)
	}
}

func TestBustedFiles(t *testing.T) {
	for name, want := range map[string][]string{
		"empty":                 {"it is empty", "apps: []"},
		"only_comment":          {"it is empty"},
		"no_apps":               {"line 1: apps: is missing", "apps: []"},
		"not_yaml":              {"line 4"},
		"a_list":                {"line 1: must be a mapping"},
		"two_documents":         {"more than one YAML document"},
		"unknown_field":         {"line 4: field permissons is not known here"},
		"unknown_section":       {"line 2: field users is not known here"},
		"field_twice":           {"line 4", "namespace", "line 3"},
		"wrong_type":            {"line 4: `soon` must be a whole number"},
		"number_too_large":      {"line 4: `9223372...` must be a whole number of 64 bits"},
		"namespace":             {"line 4: namespace:", "shop-eu"},
		"namespace_missing":     {"line 4: namespace:"},
		"permission":            {"line 6: permissions[1]:", "strings:write"},
		"limit":                 {"line 6: limits[0].per:", "must be app or key"},
		"app_twice":             {"line 4: id:", "twice"},
		"namespace_twice":       {"line 6: namespace:", `app "one"`},
		"key_twice":             {"line 5: id:", "twice"},
		"key_without_app":       {"line 5: app:", `no app "nobody"`},
		"key_hash":              {"line 6: hash:", "64"},
		"key_permissions_empty": {"line 7: permissions:", "leave it out"},
		"key_permissions_none":  {"line 7: permissions:", "leave it out"},
		"cluster_twice":         {"line 3: name:", "twice"},
		"cluster_address":       {"line 3: addrs[1]:", "host:port"},
		"cluster_password":      {"line 4: field password is not known here"},
		"key_asks_for_more":     {"line 7: permissions:", "hashes:read"},
	} {
		path := "testdata/busted_" + name + ".yaml"
		set, err := acl.NewFile(path, 0).Load(t.Context())
		if err == nil || set != nil {
			t.Errorf("%s was accepted: %v", name, set)
			continue
		}
		for _, part := range append(want, path) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not say %q", name, err, part)
			}
		}
		if strings.Contains(err.Error(), "acl.") || strings.Count(err.Error(), "\n") > 1 {
			t.Errorf("%s: %v shows Go types, or more than the one fault", name, err)
		}
	}
	files, _ := filepath.Glob("testdata/busted_*.yaml")
	if len(files) != 26 {
		t.Errorf("%d busted files, 26 of them tested", len(files))
	}
}

func TestAllFaultsOfAFileAreNamedAtOnce(t *testing.T) {
	path := tempFile(t, "apps:\n  - {id: A, namespace: B}\n  - {id: ok, namespace: ok, max_ttl_ms: -1}\nkeys:\n  - {id: x, app: ok, hash: y}\n")
	_, err := acl.NewFile(path, 0).Load(t.Context())
	for _, want := range []string{"line 2: id", "line 2: namespace", "line 3: max_ttl_ms", "line 5: id", "line 5: hash"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

const oneApp = "apps:\n  - {id: %s, namespace: %s, permissions: [\"*\"]}\n"

func TestAFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "apps.yaml") // not there yet
	log := &logText{}
	d := newDirectory(t, acl.NewFile(path, quick), newClock(), slog.New(slog.NewTextHandler(log, nil)))
	run(t, d)
	acltest.Eventually(t, "the missing file is logged", func() bool { return log.count("no such file") > 0 })
	has := func(id string) func() bool { return func() bool { return d.Lookup(id) != nil } }
	put := func(id string) { write(t, path, fmt.Sprintf(oneApp, id, id)) }

	put("first")
	acltest.Eventually(t, "the file is there", has("first"))
	put("secnd") // as long as the first, within the same moment
	acltest.Eventually(t, "another file", has("secnd"))
	if err := os.WriteFile(path, []byte(fmt.Sprintf(oneApp, "third", "third")), 0o600); err != nil {
		t.Fatal(err)
	}
	acltest.Eventually(t, "the same file, written over", has("third"))

	write(t, path, "apps:\n  - {id: BAD, namespace: bad}\n")
	acltest.Eventually(t, "the bad file is logged", func() bool { return log.count("BAD") > 0 })
	if d.Lookup("third") == nil {
		t.Error("a bad file took the old set away")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	acltest.Eventually(t, "the removal is logged", func() bool { return log.count("no such file") > 1 })
	if d.Lookup("third") == nil {
		t.Error("a removed file took the old set away")
	}
	if n := log.count("BAD"); n != 1 {
		t.Errorf("the bad file was logged %d times, want once", n)
	}
	put("fifth")
	acltest.Eventually(t, "the file is good again", func() bool { return has("fifth")() && !has("third")() })
}

func TestATouchedFileIsNoChange(t *testing.T) {
	path := tempFile(t, fmt.Sprintf(oneApp, "shop", "shop"))
	f := acl.NewFile(path, quick)
	before, err := f.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, age := range []time.Duration{time.Hour, time.Minute, 0} {
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if after, err := f.Load(t.Context()); err != nil || after != before {
			t.Errorf("touched %v ago it is another set: %v, %v", age, after, err)
		}
	}
	for name, row := range map[string]struct {
		age   time.Duration
		write func(path, text string)
	}{
		"another file in its place":          {time.Hour, func(path, text string) { write(t, path, text) }},
		"the same file, young, written over": {0, func(path, text string) { _ = os.WriteFile(path, []byte(text), 0o600) }},
	} {
		at := time.Now().Add(-row.age)
		for _, id := range []string{"aaaa", "bbbb"} { // of one size, and of one time
			row.write(path, fmt.Sprintf(oneApp, id, id))
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
			if set, err := f.Load(t.Context()); err != nil || set.Apps[id] == nil {
				t.Errorf("%s was not read: %v, %v", name, set, err)
			}
		}
	}
}

func TestAFileIsNotWritten(t *testing.T) {
	text := fmt.Sprintf(oneApp, "shop", "shop")
	path := tempFile(t, text)
	admin := acltest.Admin(t, acl.NewFile(path, 0))
	made, err := admin.CreateApp(t.Context(), acl.App{ID: "new", Namespace: "new", Permissions: []string{"strings:*"}})
	var paste *acl.ReadOnlyError
	if !errors.Is(err, acl.ErrReadOnly) || !errors.As(err, &paste) || made == nil {
		t.Fatalf("%v, %v; want what to paste", made, err)
	}
	for _, want := range []string{"under apps", "- id: new", "namespace: new", `- strings:*`, "created_at: 2026-05-01T12:00:00Z"} {
		if !strings.Contains(paste.YAML, want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	if strings.Contains(paste.YAML, "expires_at") || strings.Contains(paste.YAML, "sizes") || strings.Contains(paste.YAML, "revision") {
		t.Errorf("what is not set is pasted:\n%s", paste.YAML)
	}
	token, key, err := admin.CreateKey(t.Context(), "shop", acl.KeyOptions{})
	if !errors.As(err, &paste) || token == "" || !strings.Contains(paste.YAML, key.Hash) || strings.Contains(paste.YAML, token[16:59]) {
		t.Errorf("a key: %v", err)
	}
	if _, err := admin.CreateApp(t.Context(), acl.App{ID: "shop", Namespace: "other"}); !errors.Is(err, acl.ErrExists) {
		t.Errorf("a taken id: %v", err)
	}
	if now, _ := os.ReadFile(path); string(now) != text {
		t.Errorf("the file was changed:\n%s", now)
	}
}

// pasted is a file together with somebody who pastes what it is told to.
type pasted struct {
	*acl.File
	t    testing.TB
	path string
}

func (p pasted) Apply(ctx context.Context, c acl.Change) error {
	err := p.File.Apply(ctx, c)
	var paste *acl.ReadOnlyError
	if !errors.As(err, &paste) {
		return err
	}
	old, readErr := os.ReadFile(p.path)
	if readErr != nil {
		return readErr
	}
	body, patch := map[string][]map[string]any{}, map[string][]map[string]any{}
	if err := errors.Join(yaml.Unmarshal(old, &body), yaml.Unmarshal([]byte(paste.YAML), &patch)); err != nil {
		return err
	}
	if c.Op == acl.OpDeleteCluster {
		body["clusters"] = slices.DeleteFunc(body["clusters"], func(old map[string]any) bool { return old["name"] == c.Cluster.Name })
	}
	for list, entries := range patch {
		id := "id"
		if list == "clusters" {
			id = "name"
		}
		for _, entry := range entries {
			body[list] = slices.DeleteFunc(body[list], func(old map[string]any) bool { return old[id] == entry[id] })
			body[list] = append(body[list], entry)
		}
	}
	text, err := yaml.Marshal(body)
	write(p.t, p.path, string(text))
	return err
}

func TestStorageInAFile(t *testing.T) {
	acltest.Suite{New: func(t *testing.T) acl.Storage {
		path := tempFile(t, "apps: []\n")
		return pasted{acl.NewFile(path, quick), t, path}
	}}.Run(t)
}

// TestAChangeThatAnotherReaderMetIsAnnounced changes the file and back between two looks of Watch, while somebody else loads it.
func TestAChangeThatAnotherReaderMetIsAnnounced(t *testing.T) {
	first, second := fmt.Sprintf(oneApp, "shop", "shop"), fmt.Sprintf(oneApp, "mail", "mail")
	path := tempFile(t, first)
	f := acl.NewFile(path, 300*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	announced := make(chan struct{}, 10)
	done := make(chan error)
	go func() { done <- f.Watch(ctx, func() { announced <- struct{}{} }) }()
	<-announced // the first look
	write(t, path, second)
	if set, err := f.Load(t.Context()); err != nil || set.Apps["mail"] == nil {
		t.Fatal(set, err)
	}
	write(t, path, first)
	select {
	case <-announced:
	case <-time.After(acltest.Deadline):
		t.Error("whoever has loaded the file meanwhile keeps what it is no more")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
