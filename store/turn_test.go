package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
	"github.com/slotgate/slotgate/store/metric"
)

// sluggish is a store one of whose nodes does a command in 2 ms, one after the other, and is known to.
type sluggish struct {
	*store.Store
	cluster *localcluster.Cluster
	id      *acl.Identity
	proxy   *faultproxy.Proxy // of the node
	keys    []string          // there
	seen    *observer
}

func (s *sluggish) watched(ctx context.Context) context.Context {
	return context.WithValue(ctx, store.ObserverKey(), s.seen)
}

const slowCommand = 2 * time.Millisecond

func slacken(t *testing.T, change ...func(*store.Config)) *sluggish {
	t.Helper()
	cluster := clustertest.Shared(t)
	network := clustertest.Proxied(t, cluster)
	s := &sluggish{cluster: cluster, id: newApp(t), seen: &observer{}}
	s.Store = newStore(t, cluster, append(change, func(c *store.Config) {
		c.Clusters["default"] = store.ClusterConfig{Addrs: cluster.Addrs(), Dialer: network.Dial}
		c.Redis.ReadTimeout = time.Minute
	})...)
	ctx := testContext(t)
	node := must[[]*localcluster.Node](t)(cluster.Primaries(ctx))[0]
	for i := 0; len(s.keys) < 300; i++ {
		key := fmt.Sprint("key", i)
		if must[*localcluster.Node](t)(cluster.PrimaryOf(ctx, slotOf(s.id, key))) == node {
			s.keys = append(s.keys, key)
		}
	}
	s.proxy = network.Proxy(node.Addr)
	s.proxy.Busy(slowCommand)
	t.Cleanup(s.proxy.Pass)
	return s
}

// largest is how many commands the largest chunk of an mget of all keys has.
func (s *sluggish) largest(t *testing.T) (n int) {
	t.Helper()
	s.seen.take()
	for i, it := range must[[]store.GetItem](t)(s.MGet(s.watched(testContext(t)), s.id, s.keys[:150], store.Reading{})) {
		if it.Err != nil {
			t.Fatalf("item %d: %v", i, it.Err)
		}
	}
	for _, c := range s.seen.take() {
		n = max(n, c.Commands)
	}
	return n
}

// learn lets the store see that the node is slow.
func (s *sluggish) learn(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		if n := s.largest(t); n > 10 {
			return fmt.Sprintf("there is a chunk of %d commands", n)
		}
		return ""
	})
}

func TestABatchGoesToASlowNodeInSmallPieces(t *testing.T) {
	s := slacken(t)
	s.learn(t)
	s.proxy.Pass()
	eventually(t, func() string {
		if n := s.largest(t); n != 100 {
			return fmt.Sprintf("the node is fast again, and the largest chunk has %d commands", n)
		}
		return ""
	})
}

func TestWithoutTheLimitABatchGoesInWholeChunks(t *testing.T) {
	s := slacken(t, func(c *store.Config) { c.Overload.Off = true })
	for range 3 {
		if n := s.largest(t); n != 100 {
			t.Errorf("the largest chunk has %d commands", n)
		}
	}
}

// Two large batches fill the node; small requests come between their pieces, and both batches are done in full.
func TestSmallRequestsComeBetweenThePiecesOfBatches(t *testing.T) {
	s := slacken(t)
	s.learn(t)
	ctx := testContext(t)
	must[store.SetResult](t)(s.Set(ctx, s.id, s.keys[0], []byte("0"), store.SetOptions{}))
	before := s.proxy.Done()
	var batches sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		batches.Go(func() {
			for i, it := range must[[]store.GetItem](t)(s.MGet(ctx, s.id, s.keys, store.Reading{})) {
				if it.Err != nil {
					t.Errorf("item %d of a batch: %v", i, it.Err)
					return
				}
			}
		})
	}
	go func() { batches.Wait(); close(done) }()
	small, between := 0, 0
	for busy := true; busy; small++ {
		if _, err := s.Get(ctx, s.id, s.keys[0], store.GetOptions{}); err != nil {
			t.Errorf("a small request: %v", err)
		}
		select {
		case <-done:
			busy = false
		default:
			between++
		}
	}
	if between < 10 {
		t.Errorf("%d small requests came between two batches of %d commands", between, len(s.keys))
	}
	if n := s.proxy.Done() - before; n != 2*len(s.keys)+small {
		t.Errorf("the node did %d commands, of %d", n, 2*len(s.keys)+small)
	}
}

// What is refused was not sent, what is said to be written is there, and the rest of a batch is given up when there is no time for it.
func TestTheRestOfABatchThatCannotBeDoneInTimeIsRefused(t *testing.T) {
	s := slacken(t)
	s.learn(t)
	items := make([]store.SetItem, len(s.keys))
	for i, key := range s.keys {
		items[i] = store.SetItem{Key: key, Data: []byte("new")}
	}
	before := s.proxy.Done()
	err := within(t, 200*time.Millisecond, func(ctx context.Context) error {
		_, err := s.MSet(ctx, s.id, items)
		return err
	})
	asked := s.proxy.Done() - before
	e := wantCode(t, err, store.CodeBatchIncomplete)
	counts := map[store.Outcome]int{}
	raw := foreign(t, s.cluster)
	for i, it := range e.Items {
		counts[it.Outcome]++
		if n := raw.Exists(t.Context(), s.id.Prefix+s.keys[i]).Val(); it.Outcome != store.Unknown && (n == 1) != (it.Outcome == store.Applied) {
			t.Errorf("item %d is %s: %d", i, it.Outcome, n)
		}
	}
	if counts[store.Applied] == 0 || counts[store.NotApplied] == 0 {
		t.Errorf("the outcomes are %v", counts)
	}
	if asked < counts[store.Applied] || asked > counts[store.Applied]+counts[store.Unknown] {
		t.Errorf("the node was asked for %d commands, and the outcomes are %v", asked, counts)
	}
}

func TestAnAbandonedCommandHoldsItsPlaceUntilTheNodeAnswers(t *testing.T) {
	if *coalesceOff {
		t.Skip("alone, a command ends with its connection")
	}
	c := crowd(t)
	critical := *c.id
	app := *c.id.App
	app.Priority = acl.Critical
	critical.App = &app
	_ = within(t, 50*time.Millisecond, func(ctx context.Context) error { // it goes with those who hold the places, and they stay
		items := must[[]store.GetItem](t)(c.MGet(ctx, &critical, []string{c.full}, store.Reading{}))
		wantCode(t, items[0].Err, store.CodeBackendTimeout)
		return nil
	})
	if taken := c.metric(t, metric.RedisPlacesTaken.Name, nil); taken != 6 {
		t.Errorf("%v places are taken, of 5 who wait and one who left", taken)
	}
	c.pass()
	eventually(t, func() string {
		if taken := c.metric(t, metric.RedisPlacesTaken.Name, nil); taken != 0 {
			return fmt.Sprintf("%v places are taken", taken)
		}
		return ""
	})
}
