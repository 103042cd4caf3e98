package acltest

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
)

func eu() acl.Cluster {
	return acl.Cluster{
		Name: "eu", Addrs: []string{"10.0.0.1:6379", "[fd00::1]:6379"}, Username: "gw", PasswordFile: "/etc/slotgate/passwords/eu",
		TLS: acl.ClusterTLS{
			Enabled: true, CAFile: "/etc/slotgate/passwords/eu-ca.pem", CertFile: "/etc/slotgate/passwords/eu.pem",
			KeyFile: "/etc/slotgate/passwords/eu-key.pem", ServerName: "redis.example",
		},
	}
}

func (s Suite) clusters(t *testing.T) {
	admin := Admin(t, s.New(t))
	admin.Clusters = []string{"default"}
	added, err := admin.AddCluster(t.Context(), eu())
	check(t, err)
	set, err := admin.List(t.Context())
	check(t, err)
	want := eu()
	want.CreatedAt = Start
	if s.KeepsRevisions {
		want.Revision = 1
	}
	if got := set.Clusters["eu"]; got == nil || !reflect.DeepEqual(*got, want) || added.Name != "eu" {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	_, err = admin.AddCluster(t.Context(), eu())
	wantError(t, acl.ErrExists, err)

	_, err = admin.EditCluster(t.Context(), "eu", func(c *acl.Cluster) { c.Addrs, c.Name = []string{"10.0.0.9:6379"}, "us" })
	check(t, err)
	set, err = admin.List(t.Context())
	check(t, err)
	if got := set.Clusters["eu"]; got == nil || !slices.Equal(got.Addrs, []string{"10.0.0.9:6379"}) || got.Username != "gw" || len(set.Clusters) != 1 {
		t.Errorf("changed to %+v", got)
	}
	_, err = admin.EditCluster(t.Context(), "eu", func(c *acl.Cluster) { c.TLS = acl.ClusterTLS{} })
	check(t, err)
	if set, err = admin.List(t.Context()); err != nil || set.Clusters["eu"].TLS != (acl.ClusterTLS{}) {
		t.Errorf("TLS is not switched off: %+v, %v", set.Clusters["eu"], err)
	}
	_, err = admin.EditCluster(t.Context(), "us", func(*acl.Cluster) {})
	wantError(t, acl.ErrNotFound, err)

	_, err = admin.CreateApp(t.Context(), acl.App{ID: "shop", Namespace: "shop", Cluster: "eu"})
	check(t, err)
	_, err = admin.RemoveCluster(t.Context(), "eu")
	wantError(t, acl.ErrInUse, err)
	if !strings.Contains(err.Error(), "shop") {
		t.Errorf("%v does not say by whom", err)
	}
	_, err = admin.DeleteApp(t.Context(), "shop")
	check(t, err)
	_, err = admin.RemoveCluster(t.Context(), "eu")
	check(t, err)
	_, err = admin.RemoveCluster(t.Context(), "eu")
	wantError(t, acl.ErrNotFound, err)
	if set, err = admin.List(t.Context()); err != nil || len(set.Clusters) != 0 {
		t.Errorf("%v, %v", set.Clusters, err)
	}
	_, err = admin.AddCluster(t.Context(), eu())
	check(t, err) // a name is free again
}

func (s Suite) refusedClusters(t *testing.T) {
	admin := Admin(t, s.New(t))
	admin.Clusters = []string{"default"}
	for name, row := range map[string]struct {
		edit func(*acl.Cluster)
		want string
	}{
		"no name":                        {func(c *acl.Cluster) { c.Name = "" }, "name: "},
		"a name in capitals":             {func(c *acl.Cluster) { c.Name = "EU" }, "name: "},
		"the name of a configured one":   {func(c *acl.Cluster) { c.Name = "default" }, "name: \"default\" is a cluster of the configuration"},
		"no address":                     {func(c *acl.Cluster) { c.Addrs = nil }, "addrs: has 0"},
		"too many addresses":             {func(c *acl.Cluster) { c.Addrs = slices.Repeat([]string{"a:1"}, 101) }, "addrs: has 101"},
		"an address without a port":      {func(c *acl.Cluster) { c.Addrs = []string{"a:1", "b"} }, "addrs[1]: \"b\" is not host:port"},
		"an address without a host":      {func(c *acl.Cluster) { c.Addrs = []string{":6379"} }, "addrs[0]: "},
		"port 0":                         {func(c *acl.Cluster) { c.Addrs = []string{"a:0"} }, "addrs[0]: "},
		"a URL":                          {func(c *acl.Cluster) { c.Addrs = []string{"redis://a:1"} }, "addrs[0]: \"redis://a:1\" is a URL"},
		"a user with a blank":            {func(c *acl.Cluster) { c.Username = "a b" }, "username: "},
		"a user with a line end":         {func(c *acl.Cluster) { c.Username = "a\nb" }, "username: "},
		"a password file by half a path": {func(c *acl.Cluster) { c.PasswordFile = "eu" }, "password_file: "},
		"an authority by half a path":    {func(c *acl.Cluster) { c.TLS.CAFile = "ca.pem" }, "tls.ca_file: "},
		"a certificate by half a path":   {func(c *acl.Cluster) { c.TLS.CertFile = "../cert.pem" }, "tls.cert_file: "},
		"a path with a line end":         {func(c *acl.Cluster) { c.TLS.KeyFile = "/a\nb" }, "tls.key_file: "},
		"a certificate without its key":  {func(c *acl.Cluster) { c.TLS.KeyFile = "" }, "tls.key_file: is empty"},
		"a key without its certificate":  {func(c *acl.Cluster) { c.TLS.CertFile = "" }, "tls.cert_file: is empty"},
		"a server name with a blank":     {func(c *acl.Cluster) { c.TLS.ServerName = "a b" }, "tls.server_name: "},
		"too long a server name":         {func(c *acl.Cluster) { c.TLS.ServerName = strings.Repeat("a", 254) }, "tls.server_name: "},
		"settings of TLS that is off":    {func(c *acl.Cluster) { c.TLS.Enabled = false }, "tls.enabled: is false"},
	} {
		c := eu()
		row.edit(&c)
		_, err := admin.AddCluster(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := eu()
	c.Addrs = []string{"redis://user:hunter2@a:1"}
	if _, err := admin.AddCluster(t.Context(), c); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a password in an address: %v", err)
	}
	for name, do := range map[string]func() error{
		"an edit of a configured one":     func() error { _, err := admin.EditCluster(t.Context(), "default", func(*acl.Cluster) {}); return err },
		"the removal of a configured one": func() error { _, err := admin.RemoveCluster(t.Context(), "default"); return err },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "configuration file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := admin.CreateApp(t.Context(), acl.App{ID: "shop", Namespace: "shop", Cluster: "mars"})
	var fault *acl.Fault
	if !errors.As(err, &fault) || fault.Field != "cluster" {
		t.Errorf("an app on a cluster nobody knows: %v", err)
	}
	_, err = admin.CreateApp(t.Context(), acl.App{ID: "shop", Namespace: "shop", Cluster: "default"})
	check(t, err)
}

func (s Suite) clustersFollow(t *testing.T) {
	storage := s.New(t)
	admin := Admin(t, storage)
	d := acl.NewDirectory(storage, Secret(t), acl.Defaults{}, slog.New(slog.DiscardHandler), func() time.Time { return Start })
	var mu sync.Mutex
	var known map[string]*acl.Cluster
	d.OnClusters(func(m map[string]*acl.Cluster) {
		mu.Lock()
		defer mu.Unlock()
		known = m
	})
	knows := func(addr string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return known != nil && (known["eu"] != nil && known["eu"].Addrs[0] == addr || known["eu"] == nil && addr == "")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.Run(ctx) })
	Eventually(t, "a first set", knows(""))
	_, err := admin.AddCluster(t.Context(), eu())
	check(t, err)
	Eventually(t, "the new cluster", knows("10.0.0.1:6379"))
	_, err = admin.EditCluster(t.Context(), "eu", func(c *acl.Cluster) { c.Addrs[0] = "10.0.0.2:6379" })
	check(t, err)
	Eventually(t, "its new address", knows("10.0.0.2:6379"))
	_, err = admin.RemoveCluster(t.Context(), "eu")
	check(t, err)
	Eventually(t, "its removal", knows(""))
	cancel()
	wg.Wait()
}

func (s Suite) audit(t *testing.T) {
	admin := Admin(t, s.New(t))
	admin.By = "alice@ops"
	token, key := create(t, admin)
	_, err := admin.EditApp(t.Context(), "shop", func(a *acl.App) { a.Name = "Renamed" })
	check(t, err)
	_, next, _, err := admin.RotateKey(t.Context(), key.ID, acl.RotateOptions{Overlap: time.Hour})
	check(t, err)
	admin.By = "bob"
	us := eu()
	us.Name = "us"
	_, err = admin.AddCluster(t.Context(), us)
	check(t, err)
	_, err = admin.RemoveCluster(t.Context(), "us")
	check(t, err)
	_, err = admin.CreateApp(t.Context(), acl.App{ID: "shop", Namespace: "other"})
	wantError(t, acl.ErrExists, err) // a refused change leaves no line
	_, err = admin.DeleteApp(t.Context(), "shop")
	check(t, err)

	entries, err := admin.Audit(t.Context(), 100)
	check(t, err)
	want := []struct {
		by            string
		op            acl.Op
		target        string
		before, after string // a member and its value
	}{
		{"alice@ops", acl.OpCreateApp, "app:shop", "", `namespace="shop-ns"`},
		{"alice@ops", acl.OpCreateKey, "key:" + key.ID, "", `app="shop"`},
		{"alice@ops", acl.OpUpdateApp, "app:shop", `name="The Shop"`, `name="Renamed"`},
		{"alice@ops", acl.OpRotateKey, "key:" + next.ID, "", `app="shop"`},
		{"alice@ops", acl.OpRotateKey, "key:" + key.ID, "", `replaced_by="` + next.ID + `"`},
		{"bob", acl.OpCreateCluster, "cluster:us", "", `username="gw"`},
		{"bob", acl.OpDeleteCluster, "cluster:us", `username="gw"`, ""},
		{"bob", acl.OpDeleteApp, "app:shop", `state="active"`, `state="deleted"`},
	}
	if len(entries) != len(want) {
		t.Fatalf("%d entries, want %d: %+v", len(entries), len(want), entries)
	}
	has := func(members map[string][]byte, pair string) bool {
		name, value, _ := strings.Cut(pair, "=")
		return pair == "" && len(members) == 0 || pair != "" && string(members[name]) == value
	}
	for i, w := range want {
		e := entries[i]
		before, after := map[string][]byte{}, map[string][]byte{}
		for name, value := range e.Before {
			before[name] = value
		}
		for name, value := range e.After {
			after[name] = value
		}
		if e.By != w.by || e.Op != w.op || e.Target != w.target || !e.At.Equal(Start) || !has(before, w.before) || !has(after, w.after) {
			t.Errorf("entry %d is %+v, want %+v", i, e, w)
		}
		for _, secret := range []string{"hash", "revision"} {
			if after[secret] != nil || before[secret] != nil {
				t.Errorf("entry %d tells the %s", i, secret)
			}
		}
		if strings.Contains(string(after["id"]), token[16:59]) {
			t.Errorf("entry %d tells the token", i)
		}
	}
	if n := len(entries[2].Before); n != 1 {
		t.Errorf("an edit of one member is told with %d", n)
	}
	if n := entries[7].RevokedKeys; n != 2 && s.KeepsRevisions { // a file leaves the keys as they are: with their app they open nothing
		t.Errorf("%d keys are told to be revoked with their app, want 2", n)
	}
	last, err := admin.Audit(t.Context(), 2)
	check(t, err)
	if len(last) != 2 || last[1].Op != acl.OpDeleteApp || last[0].Op != acl.OpDeleteCluster {
		t.Errorf("the last two are %+v", last)
	}
}
