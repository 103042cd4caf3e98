package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// A repetition that asks for copies waits for those of the first request's write.
func TestAReplayedDurableWriteIsOnTheReplicas(t *testing.T) {
	c := clustertest.Shared(t)
	s, ctx := newStore(t, c), testContext(t)
	for name, w := range idempotentWrites(t) {
		t.Run(name, func(t *testing.T) {
			id := newApp(t)
			w.prepare(ctx, t, s, id)
			for i := range 2 {
				d := named("one", "")
				d.Durability = store.Replica
				must[string](t)(w.do(ctx, s, id, d))
				if d.Receipt.Reached != store.Replica || d.Receipt.Copies < 1 || d.Receipt.Replayed != (i == 1) {
					t.Errorf("request %d: %+v", i, *d.Receipt)
				}
			}
		})
	}
	t.Run("without replicas that listen", func(t *testing.T) {
		id := newApp(t)
		if err := c.StallReplication(ctx); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.ResumeReplication(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}()
		for range 2 { // the write, and its replay at another gateway, whose connection has written nothing yet
			s := newStore(t, c)
			d := named("one", "")
			d.Durability = store.Replica
			_, err := s.CounterAdd(ctx, id, "k", store.AddOptions{Delta: store.Int(1), Delivery: d})
			if e := wantCode(t, err, store.CodeAppliedNotReplicated); e.Outcome != store.Applied {
				t.Errorf("%+v", e)
			}
		}
		if n := must[store.Number](t)(s.CounterGet(ctx, id, "k", store.Reading{})); n.String() != "1" {
			t.Errorf("applied %s times", n)
		}
	})
}

// Clients repeat every write until it is answered, while slots move and a primary fails over: each is done once.
func TestRepeatedWritesWhileTheClusterChanges(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3, Replicas: 1})
	s, ctx, id := newStore(t, c), testContext(t), newApp(t)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var written, replays atomic.Int64
	for w := range 8 {
		writers.Go(func() {
			key := fmt.Sprint("n", w)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				d := named(fmt.Sprint(w, "-", i), "")
				once := func(ctx context.Context) error {
					_, err := s.CounterAdd(ctx, id, key, store.AddOptions{Delta: store.Int(1), Delivery: d})
					return err
				}
				for again := range 2 { // the second is a client that has lost the answer
					for within(t, 2*time.Second, once) != nil {
						if ctx.Err() != nil {
							t.Error("no end")
							return
						}
					}
					if again == 1 && d.Receipt.Replayed {
						replays.Add(1)
					}
				}
				written.Add(1)
			}
		})
	}
	for w := range 8 {
		number := slotOf(id, fmt.Sprint("n", w))
		from := must[*localcluster.Node](t)(c.PrimaryOf(ctx, number))
		for _, to := range must[[]*localcluster.Node](t)(c.Primaries(ctx)) {
			if to != from {
				if err := c.MigrateSlot(ctx, number, from, to); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
	}
	node := must[*localcluster.Node](t)(c.PrimaryOf(ctx, slotOf(id, "n0")))
	if _, err := c.Failover(ctx, node); err != nil {
		t.Fatal(err)
	}
	close(stop)
	writers.Wait()
	var total int64
	for w := range 8 {
		var n int64
		_, _ = fmt.Sscan(must[store.Number](t)(s.CounterGet(ctx, id, fmt.Sprint("n", w), store.Reading{})).String(), &n)
		total += n
	}
	t.Logf("%d writes, %d repetitions answered from their records; the counters say %d", written.Load(), replays.Load(), total)
	if total != written.Load() || replays.Load() != written.Load() {
		t.Error("a write was lost, or done twice")
	}
}
