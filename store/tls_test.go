package store_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/certtest"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// tlsCluster starts nodes that speak TLS alone, and makes what a client needs.
func tlsCluster(t *testing.T, o localcluster.Options) (c *localcluster.Cluster, change func(*store.Config)) {
	t.Helper()
	ca := certtest.New(t)
	pair := ca.Issue(t, certtest.Options{})
	o.TLS = &localcluster.TLS{CAFile: ca.File, CertFile: pair.CertFile, KeyFile: pair.KeyFile}
	c = clustertest.Run(t, o)
	own, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{own}}}
	return c, func(cfg *store.Config) {
		cc := cfg.Clusters["default"]
		cc.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, addr)
		}
		cfg.Clusters["default"] = cc
	}
}

// listsAll writes keys and lists them page by page.
func listsAll(t *testing.T, s *store.Store) {
	t.Helper()
	id := newApp(t)
	want := map[string]bool{}
	for i := range 100 {
		key := fmt.Sprint("k", i)
		want[key] = true
		if _, err := s.Set(t.Context(), id, key, []byte("v"), store.SetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for o := (store.ListOptions{Limit: 30}); ; {
		page, err := s.List(t.Context(), id, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range page.Keys {
			delete(want, key)
		}
		if o.Cursor = page.NextCursor; o.Cursor == "" {
			break
		}
	}
	if len(want) > 0 {
		t.Errorf("%d of 100 keys were not listed: %v", len(want), want)
	}
}

func TestClusterThatSpeaksTLSAlone(t *testing.T) {
	t.Parallel()
	c, change := tlsCluster(t, localcluster.Options{Replicas: 1})
	s := newStore(t, c, change)
	listsAll(t, s)

	id := newApp(t)
	from, err := c.PrimaryOfKey(t.Context(), id.Prefix+"moved")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Set(t.Context(), id, "moved", []byte("v"), store.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Failover(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Get(t.Context(), id, "moved", store.GetOptions{}); err != nil || string(v.Data) != "v" {
		t.Errorf("after a failover: %q, %v", v.Data, err)
	}
}

// Without tls-cluster a node with a TLS port only calls itself host:0.
func TestClusterWhoseNodesNamePortZero(t *testing.T) {
	t.Parallel()
	c, change := tlsCluster(t, localcluster.Options{Primaries: 1, Config: map[string]string{
		"tls-cluster": "no", "cluster-announce-ip": "127.0.0.1",
	}})
	slots, err := c.Nodes()[0].Client().ClusterSlots(t.Context()).Result()
	if err != nil || len(slots) != 1 || slots[0].Nodes[0].Addr != "127.0.0.1:0" {
		t.Fatalf("the node does not name port 0: %+v, %v", slots, err)
	}
	listsAll(t, newStore(t, c, change))
}
