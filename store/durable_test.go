package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// durable is a delivery of a level, and the receipt that it fills.
func durable(level store.Durability) (store.Delivery, *store.Receipt) {
	r := new(store.Receipt)
	return store.Delivery{Durability: level, Receipt: r}, r
}

// put writes with a durability.
func put(ctx context.Context, s *store.Store, id *acl.Identity, level store.Durability, key, value string) (*store.Receipt, error) {
	d, receipt := durable(level)
	_, err := s.Set(ctx, id, key, []byte(value), store.SetOptions{Delivery: d})
	return receipt, err
}

// onReplica reads what the replica of a key's primary holds, without going to the primary.
func onReplica(t testing.TB, c *localcluster.Cluster, stored string) (value string, found bool) {
	t.Helper()
	ctx := testContext(t)
	primary := must[*localcluster.Node](t)(c.PrimaryOfKey(ctx, stored))
	replica := must[*localcluster.Node](t)(c.ReplicaOf(ctx, primary))
	conn := replica.Client().Conn()
	defer conn.Close()
	if err := conn.ReadOnly(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	value, err := conn.Get(ctx, stored).Result()
	if errors.Is(err, redis.Nil) {
		return "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	return value, true
}

// durableWrites are all writes of a single key. Each finds the key "k" with the value "1" and leaves another.
var durableWrites = map[string]func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error{
	"set": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		_, err := s.Set(ctx, id, "k", []byte("2"), store.SetOptions{Delivery: d})
		return err
	},
	"set of an existing key": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		_, err := s.Set(ctx, id, "k", []byte("2"), store.SetOptions{Cond: store.Condition{IfMatch: []string{"*"}}, Delivery: d})
		return err
	},
	"set of a known value": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		_, err := s.Set(ctx, id, "k", []byte("2"), store.SetOptions{Cond: store.Condition{IfMatch: []string{store.ETag([]byte("1"))}}, Delivery: d})
		return err
	},
	"large set": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		_, err := s.Set(ctx, id, "k", []byte(strings.Repeat("x", 200_000)), store.SetOptions{Delivery: d})
		return err
	},
	"append": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		_, err := s.Append(ctx, id, "k", []byte("2"), store.AppendOptions{Delivery: d})
		return err
	},
	"set range": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		_, err := s.SetRange(ctx, id, "k", 9, []byte("2"), d)
		return err
	},
	"add": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		_, err := s.CounterAdd(ctx, id, "k", store.AddOptions{Delta: store.Int(1), Delivery: d})
		return err
	},
	"add within bounds": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		low := store.Int(0)
		_, err := s.CounterAdd(ctx, id, "k", store.AddOptions{Delta: store.Int(1), Min: &low, Delivery: d})
		return err
	},
	"set of a counter": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		_, _, err := s.CounterSet(ctx, id, "k", store.Int(2), store.SetOptions{Delivery: d})
		return err
	},
	"delete": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		_, err := s.Delete(ctx, id, "k", store.DeleteOptions{Delivery: d})
		return err
	},
	"delete that returns the value": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		_, err := s.Delete(ctx, id, "k", store.DeleteOptions{ReturnValue: true, Delivery: d})
		return err
	},
	"expire at once": func(ctx context.Context, s *store.Store, id *acl.Identity, d store.Delivery) error {
		past := store.Expiry{Mode: store.ExpireAt, Millis: time.Now().Add(time.Minute).UnixMilli()}
		if _, _, err := s.Expire(ctx, id, "k", past, "", d); err != nil {
			return err
		}
		return s.Persist(ctx, id, "k", d)
	},
}

func TestADurableWriteIsOnTheReplicaWhenItIsAnswered(t *testing.T) {
	c := clustertest.Shared(t)
	s := newStore(t, c)
	for name, write := range durableWrites {
		t.Run(name, func(t *testing.T) {
			id, ctx := newApp(t), testContext(t)
			must[store.SetResult](t)(s.Set(ctx, id, "k", []byte("1"), store.SetOptions{}))
			d, receipt := durable(store.Replica)
			if err := write(ctx, s, id, d); err != nil {
				t.Fatal(err)
			}
			if receipt.Reached != store.Replica || receipt.Copies != 1 {
				t.Errorf("the receipt says %+v", *receipt)
			}
			here, err := foreign(t, c).Get(ctx, id.Prefix+"k").Result()
			there, found := onReplica(t, c, id.Prefix+"k")
			if here != there || found != (err == nil) {
				t.Errorf("the primary has %.20q (%v), the replica %.20q (%v)", here, err, there, found)
			}
		})
	}
}

func TestWithAReplicaThatHangs(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 2, Replicas: 1, NodeTimeout: time.Minute})
	s, id, ctx := newStore(t, c), newApp(t), testContext(t)
	nodes := c.Nodes()
	key, elsewhere := keyAt(t, c, id, nodes[0]), keyAt(t, c, id, nodes[1])
	must[store.SetResult](t)(s.Set(ctx, id, "list", []byte("x"), store.SetOptions{}))
	if _, err := put(ctx, s, id, store.Replica, key, "before"); err != nil {
		t.Fatal(err)
	}
	if err := foreign(t, c).LPush(ctx, id.Prefix+"wrong{"+id.Prefix+key+"}", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if err := nodes[2].Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nodes[2].Resume() })

	t.Run("a durable write is applied_not_replicated, and stands", func(t *testing.T) {
		err := within(t, time.Second, func(ctx context.Context) error {
			receipt, err := put(ctx, s, id, store.Replica, key, "after")
			if receipt.Reached != store.Async {
				t.Errorf("the receipt says %+v", *receipt)
			}
			return err
		})
		if e := wantCode(t, err, store.CodeAppliedNotReplicated); e.Outcome != store.Applied || e.Status() != 504 || e.Retryable(false) {
			t.Errorf("%+v", e)
		}
		if v := must[store.Value](t)(s.Get(ctx, id, key, store.GetOptions{})); string(v.Data) != "after" {
			t.Errorf("the value is %q", v.Data)
		}
	})
	t.Run("so is one with little time, or it is unknown, but never fine", func(t *testing.T) {
		for _, d := range []time.Duration{300 * time.Millisecond, 150 * time.Millisecond, 20 * time.Millisecond} {
			err := within(t, d, func(ctx context.Context) error {
				_, err := put(ctx, s, id, store.Replica, key, d.String())
				return err
			})
			var e *store.Error
			if !errors.As(err, &e) || e.Status() != 504 {
				t.Errorf("in %v: %v", d, err)
			}
			if d > 200*time.Millisecond && e.Code != store.CodeAppliedNotReplicated {
				t.Errorf("in %v: %v", d, err)
			}
		}
	})
	t.Run("a step of a counter is applied once", func(t *testing.T) {
		n := strings.Replace("n{K}", "K", id.Prefix+key, 1)
		_, err := s.CounterAdd(ctx, id, n, store.AddOptions{Delta: store.Int(1), Delivery: store.Delivery{Durability: store.Replica}})
		wantCode(t, err, store.CodeAppliedNotReplicated)
		if v := must[store.Number](t)(s.CounterGet(ctx, id, n, store.Reading{})); v.String() != "1" {
			t.Errorf("the counter is %s", v)
		}
	})
	t.Run("what is refused waits for nobody", func(t *testing.T) {
		replica := store.Delivery{Durability: store.Replica}
		_, err := s.Set(ctx, id, key, []byte("x"), store.SetOptions{Cond: store.Condition{IfNoneMatch: true}, Delivery: replica})
		wantCode(t, err, store.CodePreconditionFailed)
		_, err = s.Set(ctx, id, key, []byte("x"), store.SetOptions{Cond: store.Condition{IfMatch: []string{`"0"`}}, Delivery: replica})
		wantCode(t, err, store.CodePreconditionFailed)
		_, err = s.CounterAdd(ctx, id, "wrong{"+id.Prefix+key+"}", store.AddOptions{Delta: store.Int(1), Delivery: replica})
		wantCode(t, err, store.CodeWrongType)
		_, err = s.Delete(ctx, id, "none{"+id.Prefix+key+"}", store.DeleteOptions{Delivery: replica})
		wantCode(t, err, store.CodeKeyNotFound)
		wantCode(t, s.Persist(ctx, id, "none{"+id.Prefix+key+"}", replica), store.CodeKeyNotFound)
		if err := s.Persist(ctx, id, key, replica); err != nil {
			t.Errorf("an expiry that is not there needs no copy: %v", err)
		}
	})
	t.Run("it delays nobody else", func(t *testing.T) {
		var durables, others sync.WaitGroup
		var unmet, good, bad atomic.Int64
		stop := make(chan struct{})
		for w := range 64 {
			durables.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					err := within(t, 2*time.Second, func(ctx context.Context) error {
						_, err := put(ctx, s, id, store.Replica, key, fmt.Sprint(w))
						return err
					})
					var e *store.Error
					if !errors.As(err, &e) || e.Code != store.CodeAppliedNotReplicated {
						t.Errorf("a durable write: %v", err)
					}
					unmet.Add(1)
				}
			})
		}
		for range 8 {
			others.Go(func() {
				for range 300 {
					for _, k := range []string{key, elsewhere} {
						err := within(t, time.Second, func(ctx context.Context) error {
							_, err := s.Get(ctx, id, k, store.GetOptions{})
							if k == elsewhere {
								_, err = put(ctx, s, id, store.Replica, k, "v")
							} else if err == nil {
								_, err = put(ctx, s, id, store.Async, k, "v")
							}
							return err
						})
						if err != nil {
							t.Error(err)
							bad.Add(1)
						}
						good.Add(1)
					}
				}
			})
		}
		others.Wait()
		close(stop)
		durables.Wait()
		t.Logf("%d durable writes were applied and not replicated; of %d others %d failed", unmet.Load(), good.Load(), bad.Load())
		if unmet.Load() == 0 {
			t.Error("no durable write was under way: the test tests nothing")
		}
	})
	t.Run("they are fine again when it goes on", func(t *testing.T) {
		if err := nodes[2].Resume(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			if _, err := put(ctx, s, id, store.Replica, key, "again"); err != nil {
				return err.Error()
			}
			return ""
		})
	})
}

func TestALinkThatIsCutIsNoCopy(t *testing.T) {
	c := clustertest.Shared(t)
	s, id, ctx := newStore(t, c), newApp(t), testContext(t)
	if err := c.StallReplication(ctx); err != nil {
		t.Fatal(err)
	}
	for _, n := range must[[]*localcluster.Node](t)(c.Primaries(ctx)) {
		must[int64](t)(c.KillConnections(ctx, n, "replica"))
	}
	_, err := put(ctx, s, id, store.Replica, "k", "v")
	if e := wantCode(t, err, store.CodeAppliedNotReplicated); e.Outcome != store.Applied {
		t.Errorf("%+v", e)
	}
}

func TestWithoutEnoughReplicasNothingIsWritten(t *testing.T) {
	shared, alone := clustertest.Shared(t), clustertest.Run(t, localcluster.Options{Primaries: 1})
	for _, row := range []struct {
		name    string
		cluster *localcluster.Cluster
		asked   int
		code    store.Code
	}{
		{"a cluster without replicas can't do it", alone, 0, store.CodeUnsupportedByCluster},
		{"nor if it is asked for a number", alone, 1, store.CodeUnsupportedByCluster},
		{"a shard with fewer than asked for may get them", shared, 2, store.CodeClusterDown},
	} {
		t.Run(row.name, func(t *testing.T) {
			id, ctx := newApp(t), testContext(t)
			s := newStore(t, row.cluster, func(cfg *store.Config) { cfg.Durability.Replicas = row.asked })
			for _, level := range []store.Durability{store.Replica} {
				_, err := put(ctx, s, id, level, "k", "v")
				if e := wantCode(t, err, row.code); e.Outcome != store.NotApplied {
					t.Errorf("%+v", e)
				}
			}
			if _, err := s.Get(ctx, id, "k", store.GetOptions{}); err == nil {
				t.Error("it was written")
			}
		})
	}
}

func TestADeadReplicaIsStillWaitedFor(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3, Replicas: 2})
	s, id, ctx := newStore(t, c), newApp(t), testContext(t)
	primary := c.Nodes()[0]
	key := keyAt(t, c, id, primary)
	if receipt, err := put(ctx, s, id, store.Replica, key, "v"); err != nil || receipt.Copies != 2 {
		t.Fatalf("%+v, %v", receipt, err)
	}
	dead := must[*localcluster.Node](t)(c.ReplicaOf(ctx, primary))
	dead.Kill()
	eventually(t, func() string {
		if list := must[string](t)(primary.Client().ClusterNodes(ctx).Result()); !strings.Contains(list, "slave,fail ") {
			return "the cluster has not noticed: " + list
		}
		return ""
	})
	if slots := must[[]redis.ClusterSlot](t)(primary.Client().ClusterSlots(ctx).Result()); len(slots[0].Nodes)+len(slots[1].Nodes)+len(slots[2].Nodes) == 9 {
		t.Error("CLUSTER SLOTS still names all replicas: the test tests nothing")
	}
	fresh := newStore(t, c) // that has never seen it alive
	_, err := put(ctx, fresh, id, store.Replica, key, "v")
	wantCode(t, err, store.CodeAppliedNotReplicated)
	one := newStore(t, c, func(cfg *store.Config) { cfg.Durability.Replicas = 1 })
	if receipt, err := put(ctx, one, id, store.Replica, key, "v"); err != nil || receipt.Copies != 1 {
		t.Errorf("one replica is enough if that is what is asked for: %+v, %v", receipt, err)
	}
}

func TestDurableWritesFollowASlot(t *testing.T) {
	t.Run("that has moved", func(t *testing.T) {
		id := newApp(t)
		s, _, _, to, _ := staleStore(t, id, "{moved}")
		receipt, err := put(testContext(t), s, id, store.Replica, "{moved}", "v")
		if err != nil || receipt.Copies != 1 {
			t.Fatalf("%+v, %v", receipt, err)
		}
		if got, found := onReplica(t, clustertest.Shared(t), id.Prefix+"{moved}"); got != "v" || !found {
			t.Errorf("the replica of %s has %q", to.Addr, got)
		}
	})
	t.Run("that is moving", func(t *testing.T) {
		c, id, ctx := clustertest.Shared(t), newApp(t), testContext(t)
		s := newStore(t, c)
		must[store.SetResult](t)(s.Set(ctx, id, "k", []byte("0"), store.SetOptions{}))
		n := slotOf(id, "k")
		from := must[*localcluster.Node](t)(c.PrimaryOf(ctx, n))
		var to *localcluster.Node
		for _, p := range must[[]*localcluster.Node](t)(c.Primaries(ctx)) {
			if p != from {
				to = p
			}
		}
		if err := c.BeginMigration(ctx, n, from, to); err != nil {
			t.Fatal(err)
		}
		must[int](t)(c.MoveKeys(ctx, n, from, to, 100))
		d, receipt := durable(store.Replica)
		low := store.Int(0)
		for i := 1; i <= 3; i++ {
			o := store.AddOptions{Delta: store.Int(1), Delivery: d}
			if i > 1 {
				o.Min = &low // by a script, that the node has to be told
			}
			got, err := s.CounterAdd(ctx, id, "k", o)
			if err != nil || got.String() != fmt.Sprint(i) || receipt.Copies != 1 {
				t.Fatalf("%v, %v, %+v", got, err, *receipt)
			}
		}
		replica := must[*localcluster.Node](t)(c.ReplicaOf(ctx, to))
		keys := must[[]string](t)(replica.Client().ClusterGetKeysInSlot(ctx, n, 100).Result())
		if !slices.Contains(keys, id.Prefix+"k") { // beside it may be what the gateway itself or another test keeps
			t.Errorf("the replica of the new primary has the keys %q", keys)
		}
		if err := c.EndMigration(ctx, n, to); err != nil {
			t.Fatal(err)
		}
		if err := c.MigrateSlot(ctx, n, to, from); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAPrimaryThatIsLostWhileItsCopiesAreWaitedForIsUnknown(t *testing.T) {
	c := clustertest.Shared(t)
	network := clustertest.Proxied(t, c)
	s := newStore(t, c, func(cfg *store.Config) {
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: network.Dial}
	})
	id, ctx := newApp(t), testContext(t)
	add := func() error {
		_, err := s.CounterAdd(ctx, id, "n", store.AddOptions{Delta: store.Int(1), Delivery: store.Delivery{Durability: store.Replica}})
		return err
	}
	if err := add(); err != nil {
		t.Fatal(err)
	}
	node := must[*localcluster.Node](t)(c.PrimaryOf(ctx, slotOf(id, "n")))
	for i, command := range []string{"WAIT", "INCRBY"} {
		network.Proxy(node.Addr).ResetReplies(1, command)
		if e := wantCode(t, add(), store.CodeBackendTimeout); e.Outcome != store.Unknown {
			t.Errorf("%+v", e)
		}
		if n := must[store.Number](t)(s.CounterGet(ctx, id, "n", store.Reading{})); n.String() != fmt.Sprint(i+2) {
			t.Errorf("the counter is %s: it was not sent once", n)
		}
	}
}

func TestAScriptThatANodeHasLostIsDurable(t *testing.T) {
	c := clustertest.Shared(t)
	s, id, ctx := newStore(t, c), newApp(t), testContext(t)
	for _, n := range must[[]*localcluster.Node](t)(c.Primaries(ctx)) {
		if err := n.Client().ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}
	d, receipt := durable(store.Replica)
	if _, err := s.Append(ctx, id, "k", []byte("v"), store.AppendOptions{Delivery: d}); err != nil || receipt.Copies != 1 {
		t.Fatalf("%+v, %v", *receipt, err)
	}
	if got, _ := onReplica(t, c, id.Prefix+"k"); got != "v" {
		t.Errorf("the replica has %q", got)
	}
}

// hasWaitAOF says whether the servers of this machine know WAITAOF.
func hasWaitAOF(t testing.TB, c *localcluster.Cluster) bool {
	t.Helper()
	err := c.Nodes()[0].Client().Do(testContext(t), "WAITAOF", 0, 0, 1).Err()
	if err != nil && !strings.Contains(err.Error(), "unknown command") {
		t.Fatal(err)
	}
	return err == nil
}

func TestFsync(t *testing.T) {
	off := clustertest.Run(t, localcluster.Options{Primaries: 1, Replicas: 1})
	refused := func(t *testing.T, c *localcluster.Cluster, why string) {
		s, id, ctx := newStore(t, c), newApp(t), testContext(t)
		_, err := put(ctx, s, id, store.Fsync, "k", "v")
		if e := wantCode(t, err, store.CodeUnsupportedByCluster); e.Outcome != store.NotApplied || e.Status() != 501 || !strings.Contains(e.Detail, why) {
			t.Errorf("%+v", e)
		}
		if _, err := s.Get(ctx, id, "k", store.GetOptions{}); err == nil {
			t.Error("it was written")
		}
	}
	known := hasWaitAOF(t, off)
	t.Run("without WAITAOF nothing is written", func(t *testing.T) {
		if known {
			t.Skip("NOTHING IS TESTED HERE: this server knows WAITAOF; run the tests with Redis 7.0 too")
		}
		on := clustertest.Run(t, localcluster.Options{Primaries: 1, Replicas: 1, Config: map[string]string{"appendonly": "yes"}})
		refused(t, on, "7.2")
	})
	if !known {
		t.Skip("NOTHING MORE IS TESTED HERE: this server does not know WAITAOF; run the tests with Redis 7.2 or newer too")
	}
	t.Run("without an append-only file nothing is written", func(t *testing.T) { refused(t, off, "appendonly no") })
	for _, policy := range []string{"always", "everysec"} {
		t.Run("with appendfsync "+policy, func(t *testing.T) {
			c := clustertest.Run(t, localcluster.Options{Primaries: 1, Replicas: 1, Config: map[string]string{"appendonly": "yes", "appendfsync": policy}})
			s := newStore(t, c, func(cfg *store.Config) { cfg.Durability.FsyncWait = 5 * time.Second })
			for name, write := range durableWrites {
				id, ctx := newApp(t), testContext(t)
				must[store.SetResult](t)(s.Set(ctx, id, "k", []byte("1"), store.SetOptions{}))
				d, receipt := durable(store.Fsync)
				if err := write(ctx, s, id, d); err != nil || receipt.Reached != store.Fsync || receipt.Copies != 1 {
					t.Errorf("%s: %+v, %v", name, *receipt, err)
				}
			}
			id, ctx := newApp(t), testContext(t)
			if _, err := put(ctx, s, id, store.Fsync, "k", "v"); err != nil {
				t.Fatal(err)
			}
			for _, n := range c.Nodes() {
				n.Kill()
			}
			for _, n := range c.Nodes() {
				if err := n.Restart(ctx); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, func() string {
				v, err := s.Get(testContext(t), id, "k", store.GetOptions{})
				if err != nil || string(v.Data) != "v" {
					return fmt.Sprintf("after both were killed there is %q, %v", v.Data, err)
				}
				return ""
			})
		})
	}
	t.Run("a replica without an append-only file is no copy", func(t *testing.T) {
		c := clustertest.Run(t, localcluster.Options{Primaries: 1, Replicas: 1, Config: map[string]string{"appendonly": "yes"}})
		s, id, ctx := newStore(t, c), newApp(t), testContext(t)
		if err := c.Nodes()[1].Client().ConfigSet(ctx, "appendonly", "no").Err(); err != nil {
			t.Fatal(err)
		}
		_, err := put(ctx, s, id, store.Fsync, "k", "v")
		wantCode(t, err, store.CodeAppliedNotReplicated)
	})
	t.Run("an append-only file that is turned off is noticed", func(t *testing.T) {
		c := clustertest.Run(t, localcluster.Options{Primaries: 1, Replicas: 1, Config: map[string]string{"appendonly": "yes", "appendfsync": "always"}})
		s, id, ctx := newStore(t, c), newApp(t), testContext(t)
		if _, err := put(ctx, s, id, store.Fsync, "k", "v"); err != nil {
			t.Fatal(err)
		}
		if err := c.Nodes()[0].Client().ConfigSet(ctx, "appendonly", "no").Err(); err != nil {
			t.Fatal(err)
		}
		seen := map[store.Code]bool{} // first what is still believed, then what is known
		eventually(t, func() string {
			_, err := put(ctx, s, id, store.Fsync, "k", "v")
			var e *store.Error
			if !errors.As(err, &e) {
				t.Fatalf("answered as fine: %v", err)
			}
			seen[e.Code] = true
			if e.Code != store.CodeUnsupportedByCluster {
				return err.Error()
			}
			return ""
		})
		for code := range seen {
			if code != store.CodeUnsupportedByCluster && code != store.CodeAppliedNotReplicated {
				t.Errorf("an answer was %s", code)
			}
		}
	})
}

func TestKillingPrimariesLosesNoDurableWrite(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3, Replicas: 1})
	s, id, ctx := newStore(t, c), newApp(t), testContext(t)
	const workers, kills = 8, 3
	type state struct{ acked, maybe int } // the last number that was acknowledged, and the last that was sent
	states := make([]map[string]*state, workers)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var acked, failed atomic.Int64
	for w := range workers {
		states[w] = map[string]*state{}
		for i := range 6 {
			states[w][fmt.Sprint("w", w, "-", i)] = &state{acked: -1}
		}
		writers.Go(func() {
			for n := 0; ; n++ {
				for key, st := range states[w] {
					select {
					case <-stop:
						return
					default:
					}
					st.maybe = n
					err := within(t, time.Second, func(ctx context.Context) error {
						_, err := put(ctx, s, id, store.Replica, key, fmt.Sprint(n))
						return err
					})
					if err == nil {
						st.acked = n
						acked.Add(1)
						continue
					}
					failed.Add(1)
				}
			}
		})
	}
	for range kills {
		before := acked.Load()
		eventually(t, func() string {
			if acked.Load() < before+200 {
				return "no write is acknowledged"
			}
			return ""
		})
		victim := must[[]*localcluster.Node](t)(c.Primaries(ctx))[0]
		replica := must[*localcluster.Node](t)(c.ReplicaOf(ctx, victim))
		victim.Kill()
		eventually(t, func() string {
			if role, err := replica.Role(ctx); err != nil || role != localcluster.Primary {
				return fmt.Sprint("the replica does not take over: ", err)
			}
			return ""
		})
		if err := victim.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitOK(ctx); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	writers.Wait()
	lost, direct := 0, foreign(t, c)
	for _, keys := range states {
		for key, st := range keys {
			v, err := direct.Get(testContext(t), id.Prefix+key).Result() // of Redis: the gateway may not know yet that a node is back
			if err != nil && st.acked >= 0 {
				t.Errorf("%s: %v", key, err)
				continue
			}
			var n int
			_, _ = fmt.Sscan(v, &n)
			if n < st.acked || n > st.maybe {
				lost++
				t.Errorf("%s holds %d; acknowledged was %d, sent %d", key, n, st.acked, st.maybe)
			}
		}
	}
	t.Logf("%d kills: %d writes acknowledged, %d not, %d lost", kills, acked.Load(), failed.Load(), lost)
}

func TestARepetitionIsAsDurableAsTheWrite(t *testing.T) {
	c := clustertest.Shared(t)
	id, ctx := newApp(t), testContext(t)
	must[store.SetResult](t)(newStore(t, c).Set(ctx, id, "known", []byte("1"), store.SetOptions{}))
	conditions := map[string]store.Condition{
		"plain": {}, "new": {IfNoneMatch: true}, "known": {IfMatch: []string{store.ETag([]byte("1"))}},
	}
	// A store of its own each time: its connections have written nothing, so that there is nothing that Redis would wait for.
	try := func(key string) (*store.Receipt, error) {
		d, receipt := durable(store.Replica)
		d.Idempotency = store.Idempotency{Key: "once-" + key}
		_, err := newStore(t, c).Set(ctx, id, key, []byte("2"), store.SetOptions{Cond: conditions[key], Delivery: d})
		return receipt, err
	}
	if err := c.StallReplication(ctx); err != nil {
		t.Fatal(err)
	}
	for key := range conditions {
		for _, time := range []string{"first", "second"} {
			if receipt, err := try(key); err == nil {
				t.Errorf("%s, %s time: fine without a copy, %+v", key, time, *receipt)
			} else {
				wantCode(t, err, store.CodeAppliedNotReplicated)
			}
		}
	}
	if err := c.ResumeReplication(ctx); err != nil {
		t.Fatal(err)
	}
	for key := range conditions {
		eventually(t, func() string {
			receipt, err := try(key)
			if err != nil {
				return err.Error()
			}
			if !receipt.Replayed || receipt.Reached != store.Replica || receipt.Copies != 1 {
				t.Errorf("%s: %+v", key, *receipt)
			}
			return ""
		})
		if got, _ := onReplica(t, c, id.Prefix+key); got != "2" {
			t.Errorf("the replica has %q", got)
		}
	}
}
