package store

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

func TestNodesThatHaveLeftAreForgotten(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3})
	s, err := New(Config{Clusters: map[string]ClusterConfig{"default": {Addrs: c.Addrs()}}, CursorKey: make([]byte, 32)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	cl, problem := s.clusters.get("default")
	if problem != nil {
		t.Fatal(problem)
	}
	node, err := cl.primary(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = gone.Close() }()
	kept := cl.way(node)
	cl.way(gone)
	s.clusters.forgetNodes(t.Context())
	if _, ok := cl.ways.Load(gone); ok {
		t.Error("a node that is no primary is still known")
	}
	if w, ok := cl.ways.Load(node); !ok || w != kept {
		t.Error("a primary was forgotten")
	}
}
