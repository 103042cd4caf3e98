package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// TestDurableWritesFollowASlotToANewNode: a cluster is made larger by a primary without slots, which is on no slot map until the first slot
// is wholly there.
func TestDurableWritesFollowASlotToANewNode(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{
		Primaries: 4, Replicas: 1,
		Config: map[string]string{"cluster-allow-replica-migration": "no"}, // its replica stays when it loses its slots
	})
	ctx, id := testContext(t), newApp(t)
	to := giveAllAway(t, c)
	n := slotOf(id, "k")
	s := newStore(t, c, func(cfg *store.Config) {
		old := must[*localcluster.Node](t)(c.PrimaryOf(ctx, n))
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: []string{old.Addr}}
	})
	from := must[*localcluster.Node](t)(c.PrimaryOf(ctx, n))
	must[store.SetResult](t)(s.Set(ctx, id, "k", []byte("0"), store.SetOptions{}))
	if err := c.BeginMigration(ctx, n, from, to); err != nil {
		t.Fatal(err)
	}
	must[int](t)(c.MoveKeys(ctx, n, from, to, 100))
	d, receipt := durable(store.Replica)
	for i := 1; i <= 3; i++ {
		got, err := s.CounterAdd(ctx, id, "k", store.AddOptions{Delta: store.Int(1), Delivery: d})
		if err != nil || got.String() != fmt.Sprint(i) || receipt.Copies != 1 {
			t.Fatalf("%v, %v, %+v", got, err, *receipt)
		}
	}
}

// giveAllAway takes all slots of one primary and returns it.
func giveAllAway(t *testing.T, c *localcluster.Cluster) *localcluster.Node {
	t.Helper()
	ctx := testContext(t)
	primaries := must[[]*localcluster.Node](t)(c.Primaries(ctx))
	from, heir := primaries[0], must[string](t)(primaries[1].Client().Do(ctx, "CLUSTER", "MYID").Text())
	var slots []any
	for _, r := range must[[]redis.ClusterSlot](t)(from.Client().ClusterSlots(ctx).Result()) {
		if r.Nodes[0].Addr == from.Addr {
			for n := r.Start; n <= r.End; n++ {
				slots = append(slots, n)
			}
		}
	}
	for _, p := range []*localcluster.Node{primaries[1], from, primaries[2], primaries[3]} {
		if _, err := p.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, n := range slots {
				pipe.Do(ctx, "CLUSTER", "SETSLOT", n, "NODE", heir)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	must[string](t)(primaries[1].Client().Do(ctx, "CLUSTER", "BUMPEPOCH").Text())
	for mapped := true; mapped; { // until no node's map has it
		if err := ctx.Err(); err != nil {
			t.Fatal(err)
		}
		mapped = false
		for _, p := range c.Nodes() {
			mapped = mapped || onMap(ctx, p, from.Addr)
		}
	}
	return from
}

// onMap says whether a node's slot map has the address.
func onMap(ctx context.Context, asked *localcluster.Node, addr string) bool {
	slots, err := asked.Client().ClusterSlots(ctx).Result()
	if err != nil {
		return true
	}
	for _, r := range slots {
		for _, n := range r.Nodes {
			if n.Addr == addr {
				return true
			}
		}
	}
	return false
}
