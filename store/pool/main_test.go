package pool_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/pool/pooltest"
	"github.com/slotgate/slotgate/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newStore makes a store on the shared cluster.
func newStore(t testing.TB) *store.Store {
	t.Helper()
	// A machine that compiles meanwhile looks like a node with too much to do, and workers wait long for a connection; what is refused then is
	// not what is tested here.
	return storetest.New(t, func(c *store.Config) { c.Overload.Off, c.Redis.PoolTimeout = true, 20*time.Second })
}

func newApp(t testing.TB) *acl.Identity {
	t.Helper()
	return storetest.App(t, "pools:*")
}

// T0 is when tests begin, in us; second is one.
const (
	T0     = pooltest.T0
	second = pooltest.Second
)

// bench is a pool on the shared cluster, whose time stands still until a test moves it.
type bench struct {
	*pool.Pools
	t    testing.TB
	id   *acl.Identity
	pool pool.Pool
	now  int64
	draw float64
}

func newBench(t testing.TB, d pool.Definition) *bench {
	t.Helper()
	b := &bench{t: t, id: newApp(t), now: T0}
	b.Pools = pool.New(pool.Config{Redis: newStore(t), Clock: func() int64 { return b.now }, Draw: func() float64 { return b.draw }})
	b.pool.Name = "p"
	b.define(d)
	return b
}

// way is how the vectors reach it.
func (b *bench) way() pooltest.Way {
	return pooltest.Way{
		Define: b.define,
		Put:    func(m pool.Member) { b.put(m) },
		Patch: func(m pool.Member) {
			b.t.Helper()
			if _, err := b.Patch(testContext(b.t), b.id, b.pool, m); err != nil {
				b.t.Fatal(err)
			}
		},
		Remove: func(member string) {
			b.t.Helper()
			if _, err := b.TakeAway(testContext(b.t), b.id, b.pool, member, false); err != nil {
				b.t.Fatal(err)
			}
		},
		Allocate: func(r pool.Request, key string) (pool.Result, bool) { return b.allocate(r, some(key)...) },
		Report:   b.report,
		Renew: func(c pool.Claim, ms int64) (pool.Kept, error) {
			return b.Renew(testContext(b.t), b.id, b.pool, c, ms)
		},
		Complete: func(c pool.Claim, key string) (pool.Kept, bool, error) { return b.complete(c, some(key)...) },
		Show:     b.show,
		Clock:    func(us int64) { b.now = us },
		Draw:     func(u float64) { b.draw = u },
	}
}

// some are the keys that are not empty.
func some(key string) []string {
	if key == "" {
		return nil
	}
	return []string{key}
}

func (b *bench) define(d pool.Definition) {
	b.t.Helper()
	if err := d.Validate(); err != nil {
		b.t.Fatal(err)
	}
	b.pool.Definition = &d
	b.run("return {redis.call('SETNX', KEYS[1], ARGV[1])}", pool.Blank)
}

// remove takes the pool away, as package pools does with its definition.
func (b *bench) remove() {
	b.t.Helper()
	b.run("return {redis.call('UNLINK', unpack(KEYS))}")
}

// run runs a script on the keys of the pool.
func (b *bench) run(script string, argv ...any) {
	b.t.Helper()
	_, err := b.Redis.RunScript(testContext(b.t), b.id, pool.CommandDefine, store.NewScript(script), pool.Keys(b.id, b.pool.Name), argv...)
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) put(list ...pool.Member) []pool.Outcome {
	b.t.Helper()
	out, err := b.Put(testContext(b.t), b.id, b.pool, list)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func ptr[T any](v T) *T { return &v }

func (b *bench) play() *pooltest.Play { return pooltest.Go(b.t, b.way()) }

// with adds members "a5 b c": each with a number, which set gives to it.
func (b *bench) with(list string, set func(*pool.Member, *int64)) *bench {
	b.t.Helper()
	b.play().With(list, set)
	return b
}

var count, weight = pooltest.Count, pooltest.Weight

func (b *bench) available(members string, yes bool) {
	b.t.Helper()
	b.play().Available(members, yes)
}

func (b *bench) allocate(r pool.Request, key ...string) (pool.Result, bool) {
	b.t.Helper()
	res, replayed, err := b.Allocate(testContext(b.t), b.id, b.pool, &r, keyed(key...))
	if err != nil {
		b.t.Fatal(err)
	}
	return res, replayed
}

func keyed(key ...string) (i store.Idempotency) {
	if len(key) > 0 {
		i.Key = key[0]
		copy(i.Fingerprint[:], strings.Join(key, "/"))
	}
	return i
}

// picks is who n allocations give, one by one; of nobody the reason.
func (b *bench) picks(n int, exclude ...string) string {
	b.t.Helper()
	return b.play().Picks(n, exclude...)
}

func (b *bench) want(what, got, want string) {
	b.t.Helper()
	b.play().Want(what, got, want)
}
