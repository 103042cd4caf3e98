package store_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// numbered makes n keys and their items.
func numbered(n int, value func(i int) string) (keys []string, items []store.SetItem) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("key:%d", i))
		items = append(items, store.SetItem{Key: keys[i], Data: []byte(value(i))})
	}
	return keys, items
}

func number5(i int) string { return fmt.Sprintf("value %05d", i) }

func TestBatchesKeepTheOrder(t *testing.T) {
	s, ctx := newStore(t, clustertest.Shared(t)), testContext(t)
	for _, layout := range []acl.Layout{acl.Spread, acl.Together} {
		for _, n := range []int{1, 100, 5000} {
			t.Run(fmt.Sprintf("%s/%d keys", layout, n), func(t *testing.T) {
				id := newApp(t, func(a *acl.App) { a.Layout = layout })
				keys, items := numbered(n, func(i int) string { return strings.Repeat(number5(i), 1+i%70) })
				if written := must[int](t)(s.MSet(ctx, id, items)); written != n {
					t.Fatalf("%d written", written)
				}
				asked := append(append([]string{"absent"}, keys...), keys[0], "absent")
				got := must[[]store.GetItem](t)(s.MGet(ctx, id, asked, store.Reading{}))
				exist := must[[]store.FlagItem](t)(s.MExists(ctx, id, asked, store.Reading{}))
				for i := range asked {
					want, found := "", i > 0 && i <= n+1
					if found {
						want = string(items[(i-1)%n].Data)
					}
					if got[i].Err != nil || got[i].Found != found || string(got[i].Data) != want || exist[i].Flag != found {
						t.Fatalf("item %d: %+v, exists %+v, want %q", i, got[i], exist[i], want)
					}
				}
				deleted := must[[]store.FlagItem](t)(s.MDelete(ctx, id, asked))
				for i := range asked {
					if want := i > 0 && i <= n; deleted[i].Err != nil || deleted[i].Flag != want {
						t.Fatalf("item %d: %+v, want deleted %v", i, deleted[i], want)
					}
				}
			})
		}
	}
}

func TestBatchItems(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw, ctx := newStore(t, c), foreign(t, c), testContext(t)
	id := newApp(t)
	t.Run("of a key named twice the last value wins", func(t *testing.T) {
		must[int](t)(s.MSet(ctx, id, []store.SetItem{{Key: "x", Data: nil}, {Key: "k", Data: []byte("1")}, {Key: "k", Data: []byte("2")}}))
		if v := must[store.Value](t)(s.Get(ctx, id, "k", store.GetOptions{})); string(v.Data) != "2" {
			t.Errorf("%q", v.Data)
		}
		if v := must[store.Value](t)(s.Get(ctx, id, "x", store.GetOptions{})); len(v.Data) != 0 {
			t.Errorf("%q", v.Data)
		}
	})
	t.Run("a key named twice is deleted once", func(t *testing.T) {
		must[int](t)(s.MSet(ctx, id, []store.SetItem{{Key: "gone"}, {Key: "goes"}}))
		flags := []bool{}
		for _, it := range must[[]store.FlagItem](t)(s.MDelete(ctx, id, []string{"gone", "goes", "goes", "gone", "goes"})) {
			flags = append(flags, it.Flag)
		}
		if !slices.Equal(flags, []bool{true, true, false, false, false}) {
			t.Errorf("deleted: %v", flags)
		}
	})
	t.Run("each item has its own lifetime", func(t *testing.T) {
		must[int](t)(s.MSet(ctx, id, []store.SetItem{{Key: "a", Expiry: in(50_000)}, {Key: "b"}}))
		if a, b := raw.PTTL(ctx, id.Prefix+"a").Val(), raw.PTTL(ctx, id.Prefix+"b").Val(); a <= 0 || a > 50*time.Second || b != -1 {
			t.Error(a, b)
		}
	})
	t.Run("a list is the problem of its item", func(t *testing.T) {
		raw.RPush(ctx, id.Prefix+"list", "x")
		got := must[[]store.GetItem](t)(s.MGet(ctx, id, []string{"k", "list", "k"}, store.Reading{}))
		if got[0].Err != nil || got[2].Err != nil || string(got[2].Data) != "2" {
			t.Errorf("%+v", got)
		}
		wantCode(t, got[1].Err, store.CodeWrongType)
	})
	t.Run("a damaged value is the problem of its item", func(t *testing.T) {
		must[store.SetResult](t)(s.Set(ctx, id, "long", []byte(strings.Repeat("long ", 500)), store.SetOptions{}))
		raw.SetRange(ctx, id.Prefix+"long", 30, "?")
		got := must[[]store.GetItem](t)(s.MGet(ctx, id, []string{"k", "long"}, store.Reading{}))
		if got[0].Err != nil {
			t.Error(got[0].Err)
		}
		wantCode(t, got[1].Err, store.CodeCorruptValue)
	})
	t.Run("what would pass the response limit is the problem of its item", func(t *testing.T) {
		small := newApp(t, func(a *acl.App) { a.Sizes.ResponseMaxBytes = 250; a.CompressMinBytes = 50 })
		keys, items := numbered(5, func(int) string { return strings.Repeat("x", 100) })
		must[int](t)(s.MSet(ctx, small, items))
		large, loaded := 0, 0
		for _, it := range must[[]store.GetItem](t)(s.MGet(ctx, small, keys, store.Reading{})) {
			if it.Err != nil {
				wantCode(t, it.Err, store.CodeResponseTooLarge)
				large++
				continue
			}
			loaded += len(it.Data)
		}
		if large != 3 || loaded != 200 {
			t.Errorf("%d are too large, %d bytes loaded", large, loaded)
		}
	})
	t.Run("one bad item among 100 is named and nothing is written", func(t *testing.T) {
		fresh := newApp(t)
		keys, items := numbered(100, number5)
		items[57].Key = ""
		_, err := s.MSet(ctx, fresh, items)
		if e := wantCode(t, err, store.CodeInvalidKey); e.Fields[0].Pointer != "/items/57/key" {
			t.Errorf("%+v", e.Fields)
		}
		for i, it := range must[[]store.FlagItem](t)(s.MExists(ctx, fresh, keys, store.Reading{})) {
			if it.Flag {
				t.Errorf("item %d was written", i)
			}
		}
	})
	t.Run("permission is asked for once and for all", func(t *testing.T) {
		reader := newApp(t, func(a *acl.App) { a.Permissions = []string{"strings:read"} })
		_, err := s.MSet(ctx, reader, []store.SetItem{{Key: "k"}})
		wantCode(t, err, store.CodeForbidden)
		_, err = s.MDelete(ctx, reader, []string{"k"})
		wantCode(t, err, store.CodeForbidden)
		_, err = s.MExists(ctx, reader, []string{"k"}, store.Reading{})
		wantCode(t, err, store.CodeForbidden)
		must[[]store.GetItem](t)(s.MGet(ctx, reader, []string{"k"}, store.Reading{}))
	})
}

// byNode sorts the positions of keys by the node that holds them.
func byNode(t testing.TB, c *localcluster.Cluster, id *acl.Identity, keys []string) map[*localcluster.Node][]int {
	t.Helper()
	ctx := testContext(t)
	slots := map[*localcluster.Node][]int{}
	owner := map[int]*localcluster.Node{}
	for i, key := range keys {
		n := slotOf(id, key)
		if owner[n] == nil {
			owner[n] = must[*localcluster.Node](t)(c.PrimaryOf(ctx, n))
		}
		slots[owner[n]] = append(slots[owner[n]], i)
	}
	return slots
}

func TestAStoppedShardFailsOnlyItsItems(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3, Config: map[string]string{"cluster-require-full-coverage": "no"}})
	s, id := newStore(t, c), newApp(t)
	keys, items := numbered(600, number5)
	must[int](t)(s.MSet(testContext(t), id, items))
	groups := byNode(t, c, id, keys)
	var down *localcluster.Node
	for n := range groups {
		down = n
	}
	for _, state := range []struct {
		name    string
		change  func() error
		outcome store.Outcome
	}{
		{"hung", down.Pause, store.Unknown},
		{"dead", func() error { err := down.Resume(); down.Kill(); return err }, store.NotApplied},
	} {
		if err := state.change(); err != nil {
			t.Fatal(err)
		}
		isDown := map[int]bool{}
		for _, i := range groups[down] {
			isDown[i] = true
		}
		t.Run("mget with a shard that is "+state.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for i, it := range must[[]store.GetItem](t)(s.MGet(ctx, id, keys, store.Reading{})) {
				if (it.Err != nil) != isDown[i] || !isDown[i] && !strings.HasSuffix(string(it.Data), number5(i)) {
					t.Fatalf("item %d at %v: %+v", i, isDown[i], it)
				}
			}
		})
		t.Run("mset with a shard that is "+state.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, changed := numbered(600, func(i int) string { return state.name + number5(i) })
			_, err := s.MSet(ctx, id, changed)
			e := wantCode(t, err, store.CodeBatchIncomplete)
			if len(e.Items) != 600 || e.Outcome != store.Unknown {
				t.Fatalf("%d items, %s", len(e.Items), e.Outcome)
			}
			unknown := 0
			for i, it := range e.Items {
				if it.Key != keys[i] || !isDown[i] && it.Outcome != store.Applied || isDown[i] && it.Outcome == store.Applied {
					t.Fatalf("item %d of a shard that is down (%v): %+v", i, isDown[i], it)
				}
				if it.Outcome == store.Unknown {
					unknown++
				}
			}
			if state.outcome == store.NotApplied && unknown > 0 {
				t.Errorf("%d items of a dead shard are unknown", unknown)
			}
			want := 503
			if unknown > 0 {
				want = 504
			}
			if e.Status() != want {
				t.Errorf("status %d with %d unknown", e.Status(), unknown)
			}
		})
	}
}

func TestMigrationUnderBatchesLosesNothing(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3})
	s, ctx, id := newStore(t, c), testContext(t), newApp(t)
	const migrated = 40
	keys, items := numbered(300, func(int) string { return "0" })
	for i := range items {
		items[i].Key = fmt.Sprintf("{%d}%d", i%migrated, i)
		keys[i] = items[i].Key
	}
	must[int](t)(s.MSet(ctx, id, items))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(stop)
		primaries := must[[]*localcluster.Node](t)(c.Primaries(ctx))
		for tag := range migrated {
			n := slotOf(id, fmt.Sprintf("{%d}", tag))
			from := must[*localcluster.Node](t)(c.PrimaryOf(ctx, n))
			to := primaries[0]
			if to == from {
				to = primaries[1]
			}
			if err := migrateSlowly(ctx, c, n, from, to); err != nil {
				t.Error(err)
			}
		}
	})
	rounds := 0
	for done := false; !done; rounds++ {
		select {
		case <-stop:
			done = true
		default:
		}
		_, next := numbered(300, func(int) string { return fmt.Sprint(rounds) })
		for i := range next {
			next[i].Key = keys[i]
		}
		must[int](t)(s.MSet(ctx, id, next))
		for i, it := range must[[]store.GetItem](t)(s.MGet(ctx, id, keys, store.Reading{})) {
			if it.Err != nil || !it.Found || string(it.Data) != fmt.Sprint(rounds) {
				t.Fatalf("round %d, item %d: %+v", rounds, i, it)
			}
		}
		if _, err := s.CounterAdd(ctx, id, fmt.Sprintf("{%d}n", rounds%migrated), store.AddOptions{Delta: store.Int(1)}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	sum := 0
	for tag := range migrated {
		var n int
		if v, err := s.CounterGet(ctx, id, fmt.Sprintf("{%d}n", tag), store.Reading{}); err == nil {
			_, _ = fmt.Sscan(v.String(), &n)
		}
		sum += n
	}
	if sum != rounds {
		t.Errorf("%d steps were acknowledged, %d are counted", rounds, sum)
	}
	t.Logf("%d rounds while %d slots moved", rounds, migrated)
}

// migrateSlowly moves a slot key by key, so that batches meet it half moved.
func migrateSlowly(ctx context.Context, c *localcluster.Cluster, n int, from, to *localcluster.Node) error {
	if err := c.BeginMigration(ctx, n, from, to); err != nil {
		return err
	}
	for {
		moved, err := c.MoveKeys(ctx, n, from, to, 1)
		if err != nil {
			return err
		}
		if moved == 0 {
			return c.EndMigration(ctx, n, to)
		}
	}
}

func TestLargeBatchesStayWithinTheirConnections(t *testing.T) {
	c := clustertest.Shared(t)
	const pool, pipelines = 8, 4
	s := newStore(t, c, func(cfg *store.Config) {
		cfg.Redis.PoolSize, cfg.Redis.PipelinePoolSize = pool, pipelines
		cfg.Batch.PerNode = pipelines
	})
	ctx, id := testContext(t), newApp(t)
	_, items := numbered(5000, number5)
	must[int](t)(s.MSet(ctx, id, items)) // warm: the connections of before and after are the same
	before := map[string]int64{}
	for _, n := range c.Nodes() {
		before[n.Addr] = clients(t, n)
	}
	goroutines, memory := runtime.NumGoroutine(), heap()
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		var high int64
		for {
			select {
			case <-stop:
				most <- high
				return
			default:
				for _, n := range c.Nodes() {
					high = max(high, clients(t, n)-before[n.Addr])
				}
			}
		}
	}()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := s.MSet(ctx, id, items); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(stop)
	if high := <-most; high > pool+pipelines {
		t.Errorf("a node saw %d more connections, the pools have %d", high, pool+pipelines)
	}
	eventually(t, func() string {
		if n := runtime.NumGoroutine(); n > goroutines+2 {
			return fmt.Sprintf("%d goroutines, %d before", n, goroutines)
		}
		if m := heap(); m > memory+16<<20 {
			return fmt.Sprintf("%d MiB of heap, %d before", m>>20, memory>>20)
		}
		return ""
	})
}

// clients is how many clients a node has.
func clients(t testing.TB, n *localcluster.Node) int64 {
	t.Helper()
	info, err := n.Client().Info(t.Context(), "clients").Result()
	if err != nil {
		t.Error(err)
		return 0
	}
	_, rest, _ := strings.Cut(info, "connected_clients:")
	var count int64
	_, _ = fmt.Sscan(rest, &count)
	return count
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestABadKeyIsNamedByItsPlaceInTheRequest(t *testing.T) {
	s, ctx, id := newStore(t, clustertest.Shared(t)), testContext(t), newApp(t)
	keys := []string{"a", "a", ""}
	_, fromDelete := s.MDelete(ctx, id, keys)
	_, fromExists := s.MExists(ctx, id, keys, store.Reading{})
	for _, err := range []error{fromDelete, fromExists} {
		if e := wantCode(t, err, store.CodeInvalidKey); e.Fields[0].Pointer != "/keys/2" {
			t.Errorf("%+v", e.Fields)
		}
	}
}
