package control_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
)

func TestAChangeThatCannotBeAuditedIsNotMade(t *testing.T) {
	cluster := emptied(t)
	client := newClient(t, cluster.Addrs()...)
	admin, _, key := created(t, open(newClient(t, cluster.Addrs()...), never))
	before := client.Get(t.Context(), "slotgate:{acl}:version").Val()
	client.Del(t.Context(), "slotgate:{acl}:audit")
	client.Set(t.Context(), "slotgate:{acl}:audit", "no list", 0) // whatever the reason, Redis refuses the line
	_, err := admin.RevokeKey(t.Context(), key.ID)
	if err == nil || errors.Is(err, acl.ErrUnknown) || !strings.Contains(err.Error(), "the audit cannot be written, so nothing is changed") {
		t.Errorf("error %v", err)
	}
	set, err := admin.List(t.Context())
	if err != nil || set.Keys[key.ID].RevokedAt != nil {
		t.Errorf("the key was revoked: %v, %v", set.Keys[key.ID], err)
	}
	if after := client.Get(t.Context(), "slotgate:{acl}:version").Val(); after != before {
		t.Errorf("version %s became %s", before, after)
	}
	client.Del(t.Context(), "slotgate:{acl}:audit")
	if _, err := admin.RevokeKey(t.Context(), key.ID); err != nil {
		t.Error(err)
	}
}

func TestTheAuditIsCapped(t *testing.T) {
	m := miniredis.RunT(t)
	admin, _, key := created(t, open(newClient(t, m.Addr()), never))
	for i := range acl.MaxAudit + 50 {
		if _, err := m.Lpush("slotgate:{acl}:audit", `{"by":"`+strconv.Itoa(i)+`"}`); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.RevokeKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	entries, err := admin.Audit(t.Context(), 2*acl.MaxAudit)
	if err != nil || len(entries) != acl.MaxAudit {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	if last := entries[len(entries)-1]; last.Target != "key:"+key.ID {
		t.Errorf("the newest entry is %+v", last)
	}
	_, _ = m.Lpush("slotgate:{acl}:audit", "damaged")
	if entries, err = admin.Audit(t.Context(), 2); err != nil || len(entries) != 1 {
		t.Errorf("beside a damaged entry: %+v, %v", entries, err)
	}
}

// An app and its cluster must not miss each other: either the app is refused or the removal is.
func TestAClusterIsNotRemovedUnderANewApp(t *testing.T) {
	addr := miniredis.RunT(t).Addr()
	other := acltest.Admin(t, open(newClient(t, addr), never))
	other.Clusters = []string{"default"}
	add := func() {
		t.Helper()
		if _, err := other.AddCluster(t.Context(), acl.Cluster{Name: "eu", Addrs: []string{"a:1"}}); err != nil {
			t.Fatal(err)
		}
	}
	onEU := func(ctx context.Context, a *acl.Admin, id string) error {
		_, err := a.CreateApp(ctx, acl.App{ID: id, Namespace: id, Cluster: "eu"})
		return err
	}
	add()
	c := &interposed{UniversalClient: newClient(t, addr)}
	admin := acltest.Admin(t, open(c, never))
	admin.Clusters = []string{"default"}

	c.between = func() {
		if err := onEU(t.Context(), other, "one"); err != nil {
			t.Error(err)
		}
	}
	if _, err := admin.RemoveCluster(t.Context(), "eu"); !errors.Is(err, acl.ErrInUse) || c.between != nil {
		t.Errorf("an app came while its cluster was removed: %v", err)
	}
	if _, err := other.DeleteApp(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	calls := 0
	c.between = func() { // the first call of a creation reads, the second writes
		calls++
		if _, err := other.RemoveCluster(t.Context(), "eu"); err != nil {
			t.Error(err)
		}
	}
	var fault *acl.Fault
	if err := onEU(t.Context(), admin, "two"); !errors.As(err, &fault) || fault.Field != "cluster" || calls != 1 {
		t.Errorf("the cluster went while an app came: %v", err)
	}
}
