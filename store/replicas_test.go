package store_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
	"github.com/slotgate/slotgate/store/slot"
)

// fromReplicas reads a key until a replica answers.
func fromReplicas(t testing.TB, s *store.Store, id *acl.Identity, key string) {
	t.Helper()
	eventually(t, func() string {
		var served store.Served
		_, err := s.Get(testContext(t), id, key, store.GetOptions{Reading: store.Reading{Replicas: true, Served: &served}})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(served.String(), "replica;node=") {
			return fmt.Sprintf("%s is answered by %q", key, served.String())
		}
		return ""
	})
}

func TestReplicasAnswerWhatTheyHold(t *testing.T) {
	s, id := newStore(t, clustertest.Shared(t)), newApp(t)
	ctx := testContext(t)
	long := strings.Repeat("0123456789", 100)
	values := map[string]string{"short": "value", "packed": long, "number": "42", "empty": ""}
	keys := []string{"none", "list"}
	for key, v := range values {
		must[store.SetResult](t)(s.Set(ctx, id, key, []byte(v), store.SetOptions{Expiry: store.Expiry{Mode: store.ExpireIn, Millis: 600_000}}))
		keys = append(keys, key)
	}
	if err := foreign(t, clustertest.Shared(t)).RPush(ctx, id.Prefix+"list", "x").Err(); err != nil {
		t.Fatal(err)
	}
	for key := range values {
		fromReplicas(t, s, id, key)
	}
	// reading asks until a replica has answered, which it does but for a few reads that look whether the primary is better.
	reading := func(t *testing.T, read func(store.Reading) error) {
		t.Helper()
		eventually(t, func() string {
			var served store.Served
			if err := read(store.Reading{Replicas: true, Served: &served}); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(served.String(), "replica;") {
				return fmt.Sprintf("answered by %q", served.String())
			}
			return ""
		})
	}
	for key, want := range values {
		t.Run(key, func(t *testing.T) {
			reading(t, func(rd store.Reading) error {
				v, err := s.Get(ctx, id, key, store.GetOptions{Reading: rd, WithTTL: true})
				if string(v.Data) != want || v.TTLMS <= 0 || v.TTLMS > 600_000 {
					t.Errorf("%.20q with %d ms", v.Data, v.TTLMS)
				}
				return err
			})
			reading(t, func(rd store.Reading) error {
				n, err := s.Length(ctx, id, key, rd)
				if n != int64(len(want)) {
					t.Errorf("length %d", n)
				}
				return err
			})
			reading(t, func(rd store.Reading) error {
				part, err := s.GetRange(ctx, id, key, 1, 3, rd)
				if string(part.Data) != want[min(1, len(want)):min(4, len(want))] || part.Length != int64(len(want)) {
					t.Errorf("%q of %d", part.Data, part.Length)
				}
				return err
			})
			reading(t, func(rd store.Reading) error {
				info, err := s.KeyInfo(ctx, id, key, true, rd)
				if info.Type != "string" || info.TTLMS <= 0 || info.MemoryBytes == 0 {
					t.Errorf("%+v", info)
				}
				return err
			})
		})
	}
	t.Run("a counter", func(t *testing.T) {
		reading(t, func(rd store.Reading) error {
			n, err := s.CounterGet(ctx, id, "number", rd)
			if n.String() != "42" {
				t.Errorf("%s", n)
			}
			return err
		})
	})
	t.Run("a batch", func(t *testing.T) {
		reading(t, func(rd store.Reading) error {
			items, err := s.MGet(ctx, id, keys, rd)
			for i, it := range items {
				switch want, is := values[keys[i]]; {
				case keys[i] == "list":
					if it.Err == nil || it.Err.Code != store.CodeWrongType {
						t.Errorf("the list is %+v", it)
					}
				case it.Err != nil || it.Found != is || string(it.Data) != want:
					t.Errorf("%s: %+v", keys[i], it)
				}
			}
			return err
		})
		reading(t, func(rd store.Reading) error {
			items, err := s.MExists(ctx, id, keys, rd)
			for i, it := range items {
				if it.Err != nil || it.Flag != (keys[i] != "none") {
					t.Errorf("%s: %+v", keys[i], it)
				}
			}
			return err
		})
	})
	t.Run("a value of another type", func(t *testing.T) {
		_, err := s.Get(ctx, id, "list", store.GetOptions{Reading: store.Reading{Replicas: true}})
		wantCode(t, err, store.CodeWrongType)
	})
	t.Run("what is too large", func(t *testing.T) {
		small := newApp(t, func(a *acl.App) { a.Namespace, a.Sizes.ResponseMaxBytes = id.App.Namespace, 100 })
		small.Sizes = small.App.Sizes
		_, err := s.Get(ctx, small, "packed", store.GetOptions{Reading: store.Reading{Replicas: true}})
		wantCode(t, err, store.CodeResponseTooLarge)
		items := must[[]store.GetItem](t)(s.MGet(ctx, small, []string{"packed", "short"}, store.Reading{Replicas: true}))
		if items[0].Err == nil || items[0].Err.Code != store.CodeResponseTooLarge || string(items[1].Data) != "value" {
			t.Errorf("%+v", items)
		}
	})
	t.Run("who may not read", func(t *testing.T) {
		writer := newApp(t, func(a *acl.App) { a.Permissions = []string{"strings:write"} })
		_, err := s.Get(ctx, writer, "short", store.GetOptions{Reading: store.Reading{Replicas: true}})
		wantCode(t, err, store.CodeForbidden)
		_, err = s.GetRange(ctx, writer, "short", 0, 1, store.Reading{Replicas: true})
		wantCode(t, err, store.CodeForbidden)
	})
}

// A large batch goes in chunks to all shards.
func TestLargeBatchesFromReplicas(t *testing.T) {
	s, id := newStore(t, clustertest.Shared(t)), newApp(t)
	ctx := testContext(t)
	var keys []string
	var items []store.SetItem
	for i := range 1500 {
		keys = append(keys, fmt.Sprint("k", i))
		if i%3 > 0 {
			items = append(items, store.SetItem{Key: keys[i], Data: []byte(strings.Repeat(keys[i], i%200))})
		}
	}
	if _, err := s.MSet(ctx, id, items); err != nil {
		t.Fatal(err)
	}
	fromReplicas(t, s, id, keys[1])
	for range 5 {
		var served store.Served
		for i, it := range must[[]store.GetItem](t)(s.MGet(ctx, id, keys, store.Reading{Replicas: true, Served: &served})) {
			want := ""
			if i%3 > 0 {
				want = strings.Repeat(keys[i], i%200)
			}
			if it.Err != nil || it.Found != (i%3 > 0) || string(it.Data) != want {
				t.Fatalf("%s: %v, %d bytes, %v", keys[i], it.Found, len(it.Data), it.Err)
			}
		}
		replicas, primaries := 0, 0
		_, _ = fmt.Sscanf(served.String(), "replica;items=%d, primary;items=%d", &replicas, &primaries)
		if replicas+primaries != len(keys) || primaries < 500 {
			t.Errorf("served by %s; want 1500, those that are absent by primaries", served.String())
		}
	}
}

func TestWithoutReplicaReadsPrimariesAnswer(t *testing.T) {
	c := clustertest.Shared(t)
	s, id := newStore(t, c, func(cfg *store.Config) { cfg.Replicas.Off = true }), newApp(t)
	ctx := testContext(t)
	must[store.SetResult](t)(s.Set(ctx, id, "k", []byte("v"), store.SetOptions{}))
	for range 20 {
		var served store.Served
		rd := store.Reading{Replicas: true, Served: &served}
		must[store.Value](t)(s.Get(ctx, id, "k", store.GetOptions{Reading: rd}))
		if served.String() != "primary" {
			t.Fatalf("served by %q", served.String())
		}
		must[[]store.GetItem](t)(s.MGet(ctx, id, []string{"k", "none"}, rd))
		if served.String() != "primary;items=3" { // the one of before too
			t.Fatalf("served by %q", served.String())
		}
	}
}

// While a slot moves, the replicas of its old primary lose its keys, and do not know where they are.
func TestReplicasDoNotSayThatAMovingKeyIsAbsent(t *testing.T) {
	c := clustertest.Shared(t)
	s, id := newPolled(t, c), newApp(t)
	ctx := testContext(t)
	asked := func(result string) float64 { return s.figures(t, "slotgate_replica_reads_total")["default,"+result] }
	key, number := "k", slot.Of(id.Prefix+"k")
	must[store.SetResult](t)(s.Set(ctx, id, key, []byte("v"), store.SetOptions{}))
	fromReplicas(t, s.Store, id, key)
	from := must[*localcluster.Node](t)(c.PrimaryOf(ctx, number))
	to := must[*localcluster.Node](t)(c.PrimaryOf(ctx, (number+8192)%slot.Count))
	if from == to {
		to = must[*localcluster.Node](t)(c.PrimaryOf(ctx, (number+4096)%slot.Count))
	}
	single := func(when string) {
		t.Helper()
		for range 10 {
			rd := store.Reading{Replicas: true}
			if v, err := s.Get(ctx, id, key, store.GetOptions{Reading: rd, WithTTL: true}); err != nil || string(v.Data) != "v" {
				t.Fatalf("%s: %q, %v", when, v.Data, err)
			}
			if _, err := s.KeyInfo(ctx, id, key, false, rd); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			if n, err := s.Length(ctx, id, key, rd); n != 1 || err != nil {
				t.Fatalf("%s: %d, %v", when, n, err)
			}
		}
	}
	batch := func(when string) {
		t.Helper()
		for range 10 {
			rd := store.Reading{Replicas: true}
			if it := must[[]store.GetItem](t)(s.MGet(ctx, id, []string{key}, rd))[0]; !it.Found || it.Err != nil {
				t.Fatalf("%s: %+v", when, it)
			}
			if it := must[[]store.FlagItem](t)(s.MExists(ctx, id, []string{key}, rd))[0]; !it.Flag || it.Err != nil {
				t.Fatalf("%s: %+v", when, it)
			}
		}
	}
	// read goes on until a replica was asked, in vain if it has not the key.
	read := func(when, result string) {
		t.Helper()
		for _, way := range []func(string){single, batch} {
			before := asked(result)
			eventually(t, func() string {
				if way(when); asked(result) == before {
					return when + ": no read is answered with " + result
				}
				return ""
			})
		}
	}
	if err := c.BeginMigration(ctx, number, from, to); err != nil {
		t.Fatal(err)
	}
	read("before the key has moved", "replica")
	if moved, err := c.MoveKeys(ctx, number, from, to, 100); err != nil || moved == 0 { // other tests have keys there too
		t.Fatal(moved, err)
	}
	read("while the slot moves", "absent")
	if err := c.EndMigration(ctx, number, to); err != nil {
		t.Fatal(err)
	}
	read("afterwards", "replica")
	if err := c.MigrateSlot(ctx, number, to, from); err != nil {
		t.Fatal(err)
	}
}

// Replicas whose replication stands still are left alone before they hold less than the bound allows.
func TestReplicasThatFallBehindAreNotAsked(t *testing.T) {
	c := clustertest.Shared(t)
	s, id := newStore(t, c), newApp(t)
	ctx := testContext(t)
	n := 0
	set := func() time.Time { // when it is certainly done
		n++
		must[store.SetResult](t)(s.Set(ctx, id, "k", []byte(strconv.Itoa(n)), store.SetOptions{}))
		return time.Now()
	}
	set()
	fromReplicas(t, s, id, "k")
	if err := c.StallReplication(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.ResumeReplication(context.Background()); err != nil {
			t.Error(err)
		}
	})
	const within = 2 * time.Second
	var done []time.Time // of the writes from first on
	first, old := n+1, false
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		done = append(done, set())
		began := time.Now()
		var served store.Served
		v := must[store.Value](t)(s.Get(ctx, id, "k", store.GetOptions{Reading: store.Reading{Replicas: true, Within: within, Served: &served}}))
		got := must[int](t)(strconv.Atoi(string(v.Data)))
		if next := got + 1 - first; next >= 0 && next < len(done) && began.Sub(done[next]) > within {
			t.Fatalf("%s answers with write %d, though the next one was done %v before", served.String(), got, began.Sub(done[next]))
		}
		old = strings.HasPrefix(served.String(), "replica")
	}
	if old {
		t.Error("the replica is asked though it is four seconds behind")
	}
	if err := c.ResumeReplication(ctx); err != nil {
		t.Fatal(err)
	}
	fromReplicas(t, s, id, "k")
}

// A replica that dies costs no read, nor does its coming back; and with no replica left the primary answers.
func TestReadsOutliveTheirReplica(t *testing.T) {
	c := clustertest.Shared(t)
	s, id := newStore(t, c), newApp(t)
	ctx := testContext(t)
	must[store.SetResult](t)(s.Set(ctx, id, "k", []byte("v"), store.SetOptions{}))
	fromReplicas(t, s, id, "k")
	primary := must[*localcluster.Node](t)(c.PrimaryOfKey(ctx, id.Prefix+"k"))
	replica := must[*localcluster.Node](t)(c.ReplicaOf(ctx, primary))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				v, err := s.Get(ctx, id, "k", store.GetOptions{Reading: store.Reading{Replicas: true}})
				cancel()
				if err != nil || string(v.Data) != "v" {
					var e *store.Error
					_ = errors.As(err, &e)
					t.Errorf("%q, %v (%v)", v.Data, err, errors.Unwrap(err))
					return
				}
			}
		})
	}
	replica.Kill()
	eventually(t, func() string {
		var served store.Served
		must[store.Value](t)(s.Get(ctx, id, "k", store.GetOptions{Reading: store.Reading{Replicas: true, Served: &served}}))
		if !strings.HasPrefix(served.String(), "primary") {
			return "the replica still answers"
		}
		return ""
	})
	if err := replica.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	fromReplicas(t, s, id, "k")
	close(stop)
	readers.Wait()
	if err := c.WaitOK(ctx); err != nil {
		t.Fatal(err)
	}
}

// A replica that takes connections and says nothing, or takes none, or breaks them, costs no read either: another node has time enough.
func TestReadsOutliveAReplicaThatDoesNotAnswer(t *testing.T) {
	for name, harm := range map[string]func(p *faultproxy.Proxy){
		"silent": (*faultproxy.Proxy).BlackHole, "refusing": (*faultproxy.Proxy).Refuse, "cutting replies": func(p *faultproxy.Proxy) { p.CutReplies(2) },
	} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.Shared(t)
			net := clustertest.Proxied(t, c)
			s, id := newStore(t, c, func(cfg *store.Config) {
				cfg.Clusters = map[string]store.ClusterConfig{"default": {Addrs: c.Addrs(), Dialer: net.Dial}}
			}), newApp(t)
			ctx := testContext(t)
			var keys []string
			for i := range 50 {
				keys = append(keys, fmt.Sprint("{k}", i))
				must[store.SetResult](t)(s.Set(ctx, id, keys[i], []byte(keys[i]), store.SetOptions{}))
			}
			fromReplicas(t, s, id, keys[0])
			replica := must[*localcluster.Node](t)(c.ReplicaOf(ctx, must[*localcluster.Node](t)(c.PrimaryOfKey(ctx, id.Prefix+"{k}"))))
			harm(net.Proxy(replica.Addr))
			var readers sync.WaitGroup
			for w := range 8 {
				readers.Go(func() {
					for i := range 100 {
						ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
						key := keys[(w+i)%len(keys)]
						v, err := s.Get(ctx, id, key, store.GetOptions{Reading: store.Reading{Replicas: true}})
						if err != nil || string(v.Data) != key {
							t.Errorf("%q, %v (%v)", v.Data, err, errors.Unwrap(err))
						}
						for n, it := range must[[]store.GetItem](t)(s.MGet(ctx, id, keys[:10], store.Reading{Replicas: true})) {
							if it.Err != nil || string(it.Data) != keys[n] {
								t.Errorf("%s: %q, %v", keys[n], it.Data, it.Err)
							}
						}
						cancel()
					}
				})
			}
			readers.Wait()
			net.Proxy(replica.Addr).Pass()
			fromReplicas(t, s, id, keys[0])
		})
	}
}

// A shard of which nobody answers takes no time from the items of the others, be they absent there or not.
func TestAHungShardFailsItsOwnItemsOfABatchFromReplicas(t *testing.T) {
	c := clustertest.Shared(t)
	net := clustertest.Proxied(t, c)
	s, id := newStore(t, c, func(cfg *store.Config) {
		cfg.Clusters = map[string]store.ClusterConfig{"default": {Addrs: c.Addrs(), Dialer: net.Dial}}
		cfg.Circuit.OpenAfter, cfg.Batch.Chunk = -1, 5
	}), newApp(t)
	ctx := testContext(t)
	var keys []string
	var items []store.SetItem
	for i := range 300 {
		keys = append(keys, fmt.Sprint("k", i))
		if i%2 > 0 {
			items = append(items, store.SetItem{Key: keys[i], Data: []byte(keys[i])})
		}
	}
	must[int](t)(s.MSet(ctx, id, items))
	primary := must[*localcluster.Node](t)(c.PrimaryOfKey(ctx, id.Prefix+"k1"))
	fromReplicas(t, s, id, keys[1])
	fromReplicas(t, s, id, keys[3])
	net.Proxy(must[*localcluster.Node](t)(c.ReplicaOf(ctx, primary)).Addr).BlackHole()
	net.Proxy(primary.Addr).BlackHole()
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for i, it := range must[[]store.GetItem](t)(s.MGet(short, id, keys, store.Reading{Replicas: true})) {
		if it.Err == nil && it.Found == (i%2 > 0) {
			continue
		}
		if must[*localcluster.Node](t)(c.PrimaryOfKey(ctx, id.Prefix+keys[i])) != primary {
			t.Fatalf("%s of another shard: %v, %v", keys[i], it.Found, it.Err)
		}
	}
}

// A planned failover makes the replica the primary, and the other way round.
func TestReplicaReadsAcrossAFailover(t *testing.T) {
	c := clustertest.Shared(t)
	s, id := newStore(t, c), newApp(t)
	ctx := testContext(t)
	must[store.SetResult](t)(s.Set(ctx, id, "k", []byte("0"), store.SetOptions{}))
	fromReplicas(t, s, id, "k")
	primary := must[*localcluster.Node](t)(c.PrimaryOfKey(ctx, id.Prefix+"k"))
	if _, err := c.Failover(ctx, primary); err != nil {
		t.Fatal(err)
	}
	must[store.SetResult](t)(s.Set(ctx, id, "k", []byte("1"), store.SetOptions{}))
	fromReplicas(t, s, id, "k")
	var served store.Served
	rd := store.Reading{Replicas: true, Served: &served}
	eventually(t, func() string {
		if v := must[store.Value](t)(s.Get(ctx, id, "k", store.GetOptions{Reading: rd})); string(v.Data) != "1" || !strings.Contains(served.String(), primary.ID[:8]) {
			return fmt.Sprintf("%q by %s", v.Data, served.String())
		}
		return ""
	})
}
