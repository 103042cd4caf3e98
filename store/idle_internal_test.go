package store

import (
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

func TestConnectionsThatNobodyUsesAreClosedAndMadeAnew(t *testing.T) {
	c := clustertest.Shared(t)
	s, err := New(Config{
		Clusters:  map[string]ClusterConfig{"default": {Addrs: c.Addrs()}, "other": {Addrs: c.Addrs()}},
		CursorKey: make([]byte, 32), IdleClose: 2 * time.Second,
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	id := identity(t, "idle", acl.Spread, "strings:*")
	id.App.Cluster, id.Sizes.ResponseMaxBytes = "default", 1<<20
	open := func() int {
		n := 0
		s.clusters.each(func(*cluster) { n++ })
		return n
	}
	set := func() {
		t.Helper()
		if _, err := s.Set(t.Context(), id, "k", []byte("v"), SetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if open() != 0 {
		t.Error("a cluster was connected to before its first use")
	}
	set()
	if open() != 1 {
		t.Errorf("%d clusters are connected to, one is used", open())
	}
	for end := time.Now().Add(20 * time.Second); open() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("connections that nobody uses stay open")
		}
	}
	set()
}
