package store

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/slot"
)

// threePrimaries starts a cluster, and a store that is connected to it.
func threePrimaries(t *testing.T, cfg Config) (*Store, *cluster) {
	t.Helper()
	c := clustertest.Run(t, localcluster.Options{Primaries: 3})
	cfg.Clusters, cfg.CursorKey = map[string]ClusterConfig{"default": {Addrs: c.Addrs()}}, make([]byte, 32)
	s, err := New(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	cl, problem := s.clusters.get("default")
	if problem != nil {
		t.Fatal(problem)
	}
	return s, cl
}

func TestNodesThatHaveLeftAreForgotten(t *testing.T) {
	s, cl := threePrimaries(t, Config{})
	node, err := cl.primary(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = gone.Close() }()
	kept := cl.way(node)
	cl.slots[1].Store(cl.way(gone))
	s.clusters.forgetNodes(t.Context())
	if _, ok := cl.ways.Load(gone); ok {
		t.Error("a node that is no primary is still known")
	}
	if w, ok := cl.ways.Load(node); !ok || w != kept {
		t.Error("a primary was forgotten")
	}
	if w, err := cl.wayTo(t.Context(), 1); err != nil || w.node == gone {
		t.Error("a slot still leads to the node that has left", err)
	}
}

func TestASlotIsAskedForAgainAfterAFault(t *testing.T) {
	s, cl := threePrimaries(t, Config{})
	right, err := cl.wayTo(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := cl.wayTo(t.Context(), 16383)
	if err != nil || wrong == right {
		t.Fatal("slots 0 and 16383 are of one node", err)
	}
	id := &acl.Identity{App: &acl.App{ID: "a", Cluster: "default"}, Prefix: "", Sizes: acl.Sizes{KeyMaxBytes: 100, ValueMaxBytes: 100, ResponseMaxBytes: 1000}}
	for name, send := range map[string]func() error{
		"a single command": func() error {
			answer, err := newCall(id, rowGet, slot.Sample(0))
			if err != nil {
				return err
			}
			answer.out.reset(newBudget(t.Context(), 1000), nil)
			_, e := cl.once(t.Context(), id, answer)
			return e
		},
		"a batch": func() error {
			b := &batch{store: s, id: id, cluster: cl, row: rowGet, budget: newBudget(t.Context(), 1000)}
			var failed error
			b.run(t.Context(), &job{[]uint16{0}, func(_ int, it *item) { it.key = slot.Sample(0) }, func(_ int, from *item) {
				if from.err != nil {
					failed = from.err
				}
			}})
			return failed
		},
	} {
		cl.slots[0].Store(wrong)
		if err := send(); err != nil && !errors.Is(err, redis.Nil) {
			t.Errorf("%s: a redirected command gives %v", name, err)
		}
		if w, err := cl.wayTo(t.Context(), 0); err != nil || w != right {
			t.Errorf("%s: the slot still leads to the wrong node (%v)", name, err)
		}
	}
}

// TestAMoveIsSeenOnceForAllSlots: a node that has died or hangs says nothing for each of its slots; what one command has found out
// must be enough for the others.
func TestAMoveIsSeenOnceForAllSlots(t *testing.T) {
	cfg := Config{Redis: RedisConfig{TopologyReload: time.Hour}}
	_, cl := threePrimaries(t, cfg)
	right, err := cl.wayTo(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = gone.Close() }()
	wrong := cl.way(gone)
	for name, learn := range map[string]func(){
		"a fault":  func() { cl.failed(t.Context(), classify(io.EOF)) },
		"the time": func() { cl.lastDoubt.Store(0); cl.sweep(time.Now()) },
		"a fault after the clock was set back": func() {
			cl.lastReload.Store(time.Now().Add(time.Hour).UnixNano())
			cl.failed(t.Context(), classify(io.EOF))
		},
		"the time after the clock was set back": func() {
			cl.lastDoubt.Store(time.Now().Add(time.Hour).UnixNano())
			cl.sweep(time.Now())
		},
	} {
		cl.lastReload.Store(0)
		cl.slots[1].Store(wrong)
		learn()
		if w, err := cl.wayTo(t.Context(), 1); err != nil || w != right {
			t.Errorf("%s: another slot still leads to the node that has gone (%v)", name, err)
		}
	}
}
