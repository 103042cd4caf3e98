package control_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
	"github.com/slotgate/slotgate/store/control"
)

const (
	appsHash = "slotgate:{acl}:apps"
	keysHash = "slotgate:{acl}:keys"
)

func TestOneDamagedEntryHarmsNobodyElse(t *testing.T) {
	m := miniredis.RunT(t)
	var log strings.Builder
	s := control.New(control.Config{Client: newClient(t, m.Addr()), Log: slog.New(slog.NewTextHandler(&log, nil))})
	admin, _, key := created(t, s)
	for id, raw := range map[string]string{
		"bad-json":   `{"v":1,"id":"bad-json",`,
		"bad-type":   `{"v":1,"id":"bad-type","namespace":7}`,
		"no-version": `{"id":"no-version","namespace":"no-version"}`,
		"far-future": `{"v":3,"id":"far-future","namespace":"far-future"}`,
	} {
		m.HSet(appsHash, id, raw)
	}
	m.HSet(keysHash, "000000000000", "?")
	for range 2 {
		set, err := s.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(set.Apps) != 1 || set.Apps["shop"] == nil || len(set.Keys) != 1 || set.Keys[key.ID] == nil {
			t.Errorf("loaded %v and %v", set.Apps, set.Keys)
		}
	}
	for _, id := range []string{"app=bad-json", "app=bad-type", "app=no-version", "app=far-future", "key=000000000000"} {
		if n := strings.Count(log.String(), id); n != 1 {
			t.Errorf("%s was logged %d times in two loads, want once:\n%s", id, n, log.String())
		}
	}
	if _, err := admin.CreateApp(t.Context(), acl.App{ID: "bad-json", Namespace: "another"}); err == nil {
		t.Error("a damaged entry was overwritten")
	}
}

func TestEntriesOfTheNextVersion(t *testing.T) {
	m := miniredis.RunT(t)
	s := open(newClient(t, m.Addr()), never)
	admin, _, key := created(t, s)
	change := func(hash, id, from, to string) {
		t.Helper()
		raw := m.HGet(hash, id)
		if !strings.Contains(raw, from) {
			t.Fatalf("%s is not in %s", from, raw)
		}
		m.HSet(hash, id, strings.Replace(raw, from, to, 1))
	}

	t.Run("a member this version does not know survives its edit", func(t *testing.T) {
		change(appsHash, "shop", `{"v":1,`, `{"v":1,"colour":{"deep":[1.50]},`)
		change(keysHash, key.ID, `{"v":1,`, `{"v":1,"colour":"red",`)
		if _, err := admin.SuspendApp(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.RevokeKey(t.Context(), key.ID); err != nil {
			t.Fatal(err)
		}
		for _, hash := range []string{m.HGet(appsHash, "shop"), m.HGet(keysHash, key.ID)} {
			var entry map[string]json.RawMessage
			if err := json.Unmarshal([]byte(hash), &entry); err != nil {
				t.Fatal(err)
			}
			if got := string(entry["colour"]); got != `{"deep":[1.50]}` && got != `"red"` {
				t.Errorf("colour is %q in %s", got, hash)
			}
		}
	})
	t.Run("a member that was cleared does not come back", func(t *testing.T) {
		for _, ttl := range []int64{5, 0} {
			app, err := admin.EditApp(t.Context(), "shop", func(a *acl.App) { a.MaxTTLMS = ttl })
			if err != nil {
				t.Fatal(err)
			}
			stored, err := admin.App(t.Context(), "shop")
			if err != nil || stored.MaxTTLMS != ttl || stored.Revision != app.Revision {
				t.Errorf("%+v, %v", stored, err)
			}
		}
	})
	t.Run("what this version cannot validate can still be suspended and revoked", func(t *testing.T) {
		if _, err := admin.ResumeApp(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		_, key, err := admin.CreateKey(t.Context(), "shop", acl.KeyOptions{Permissions: []string{"strings:read"}})
		if err != nil {
			t.Fatal(err)
		}
		change(appsHash, "shop", `"strings:*"`, `"graphs:read","strings:*"`)
		change(keysHash, key.ID, `"strings:read"`, `"graphs:read"`)
		if _, err := admin.SuspendApp(t.Context(), "shop"); err != nil {
			t.Error(err)
		}
		if _, err := admin.RevokeKey(t.Context(), key.ID); err != nil {
			t.Error(err)
		}
	})
	t.Run("the next format is read but left alone", func(t *testing.T) {
		change(appsHash, "shop", `"v":1`, `"v":2`)
		if app, err := admin.App(t.Context(), "shop"); err != nil || app.Namespace != "shop" {
			t.Errorf("%+v, %v", app, err)
		}
		if _, err := admin.ResumeApp(t.Context(), "shop"); !errors.Is(err, acl.ErrNewer) {
			t.Errorf("error %v, want that it is newer", err)
		}
	})
}

func TestUnchangedEntriesKeepTheirPointers(t *testing.T) {
	s := open(newClient(t, miniredis.RunT(t).Addr()), never)
	admin, _, key := created(t, s)
	before, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateApp(t.Context(), acl.App{ID: "other", Namespace: "other"}); err != nil {
		t.Fatal(err)
	}
	after, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if before.Apps["shop"] != after.Apps["shop"] || before.Keys[key.ID] != after.Keys[key.ID] {
		t.Error("a change to one app replaced another")
	}
}

func TestTheTokenIsNowhereInRedis(t *testing.T) {
	m := miniredis.RunT(t)
	_, token, _ := created(t, open(newClient(t, m.Addr()), never))
	secret := token[16:59]
	if dump := m.Dump(); strings.Contains(dump, secret) || strings.Contains(dump, string(acltest.Secret(t).Sub(acl.LabelKeyHash))) {
		t.Error("Redis knows a secret")
	}
}
