package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/storetest"
)

// counting counts the scripts that run.
type counting struct {
	*store.Store
	mu  sync.Mutex
	ran map[*store.Script]int
}

func (c *counting) RunScript(ctx context.Context, id *acl.Identity, command string, sc *store.Script, keys []string, argv ...any) ([]any, error) {
	c.mu.Lock()
	c.ran[sc]++
	c.mu.Unlock()
	return c.Store.RunScript(ctx, id, command, sc, keys, argv...)
}

// However many ask, a gateway computes one schedule, and reads a pool once.
func TestAGatewayComputesOnceForAllWhoAsk(t *testing.T) {
	ctx := t.Context()
	redis := &counting{Store: storetest.New(t, func(c *store.Config) { c.Overload.Off = true }), ran: map[*store.Script]int{}}
	id := storetest.App(t, "pools:*")
	p := New(Config{Redis: redis, Clock: func() int64 { return 1_800_000_000_000_000 }})
	for policy, script := range map[Policy]*store.Script{WeightedRoundRobin: scriptPlanned, WeightedRandom: scriptView, AdaptivePolicy: scriptView} {
		pool := Pool{Name: string(policy), Definition: &Definition{Policy: policy}}
		if err := pool.Definition.Validate(); err != nil {
			t.Fatal(err)
		}
		define := store.NewScript("return {redis.call('SETNX', KEYS[1], ARGV[1])}")
		if _, err := redis.RunScript(ctx, id, CommandDefine, define, Keys(id, pool.Name), Blank); err != nil {
			t.Fatal(err)
		}
		list := make([]Member, 300)
		for i := range list {
			list[i].Member = fmt.Sprint("m", i)
		}
		for range 3 {
			weight := int64(1 + len(redis.ran))
			list[0].Weight = &weight
			if _, err := p.Put(ctx, id, pool, list); err != nil {
				t.Fatal(err)
			}
			redis.ran[script] = 0
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if _, _, err := p.Allocate(ctx, id, pool, &Request{}, store.Idempotency{}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := redis.ran[script]; n > 1 {
				t.Errorf("%s: done %d times", policy, n)
			}
		}
	}
}

// overtaken lets somebody else go first each time that a schedule is about to be stored.
type overtaken struct {
	*store.Store
	first func()
}

func (o *overtaken) RunScript(ctx context.Context, id *acl.Identity, command string, sc *store.Script, keys []string, argv ...any) ([]any, error) {
	if sc == scriptPlanned {
		o.first()
	}
	return o.Store.RunScript(ctx, id, command, sc, keys, argv...)
}

// Others who take turns all the time do not keep one from an answer for whom a schedule has to be made.
func TestWhoExcludesMembersIsServedWhileOthersTakeTurns(t *testing.T) {
	ctx := t.Context()
	redis := storetest.New(t, func(c *store.Config) { c.Overload.Off = true })
	id := storetest.App(t, "pools:*")
	for _, v := range []Variant{Smooth, Classic} {
		pool := Pool{Name: string(v), Definition: &Definition{Policy: WeightedRoundRobin, Variant: v}}
		if err := pool.Definition.Validate(); err != nil {
			t.Fatal(err)
		}
		define := store.NewScript("return {redis.call('SETNX', KEYS[1], ARGV[1])}")
		if _, err := redis.RunScript(ctx, id, CommandDefine, define, Keys(id, pool.Name), Blank); err != nil {
			t.Fatal(err)
		}
		others := New(Config{Redis: redis})
		take := func() {
			if _, _, err := others.Allocate(ctx, id, pool, &Request{}, store.Idempotency{}); err != nil {
				t.Error(err)
			}
		}
		p := New(Config{Redis: &overtaken{redis, take}})
		list, heavy, r := make([]Member, 100), int64(MaxWeight), Request{Count: 3}
		for i := range list {
			if list[i].Member = fmt.Sprint("m", i); i < MaxExclude {
				list[i].Weight = &heavy
				r.Exclude = append(r.Exclude, list[i].Member)
			}
		}
		if _, err := p.Put(ctx, id, pool, list); err != nil {
			t.Fatal(err)
		}
		take()
		res, _, err := p.Allocate(ctx, id, pool, &r, store.Idempotency{})
		if err != nil || len(res.Allocated) != r.Count {
			t.Fatalf("%s: %+v, %v", v, res, err)
		}
		for _, a := range res.Allocated {
			if slices.Contains(r.Exclude, a.Member) {
				t.Errorf("%s: %s is excluded", v, a.Member)
			}
		}
	}
}

func TestViewsAreKeptWithinBounds(t *testing.T) {
	s := newViews()
	for i := range 3 * mostLarge {
		s.setLarge(fmt.Sprint(i), true)
		if len(s.large) > mostLarge {
			t.Fatalf("%d pools are known to be large", len(s.large))
		}
	}
	for i := range 500 {
		s.keep(fmt.Sprint(i%200), &view{size: mostViewed / 100}, 0)
	}
	size := 0
	for _, v := range s.views {
		size += v.size
	}
	if size != s.size || size > mostViewed || len(s.views) < 99 {
		t.Errorf("%d views of %d bytes, counted %d", len(s.views), size, s.size)
	}
	s.setLarge("p", true)
	_, changes := s.find("p")
	s.changed("p")
	if s.keep("p", &view{}, changes); s.views["p"] != nil {
		t.Error("what was read before a change is kept")
	}
}

// What many wait for has the deadline of the first, and outlives it; who comes later is not refused because of it.
func TestWhoWaitsHasTheirOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group singleflight.Group
		quiet := slog.New(slog.DiscardHandler)
		work := func(ctx context.Context) (int, error) {
			deadline, _ := ctx.Deadline()
			if time.Until(deadline) > 100*time.Millisecond {
				return 1, nil
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}
		first, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		go func() { _, _ = together(first, quiet, &group, "p", work) }()
		synctest.Wait()
		cancel() // it has gone
		start := time.Now()
		later, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := together(later, quiet, &group, "p", work); err != nil || got != 1 || time.Since(start) != 50*time.Millisecond {
			t.Errorf("got %d, %v, after %v", got, err, time.Since(start))
		}
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := together(short, quiet, &group, "p", work); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("alone: %v", err)
		}
		if got, err := together(context.Background(), quiet, &group, "p", work); err != nil || got != 1 {
			t.Errorf("without a deadline: %d, %v", got, err)
		}
		slow := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		patient, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go func() { _, _ = together(patient, quiet, &group, "p", slow) }()
		synctest.Wait()
		start = time.Now()
		hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := together(hasty, quiet, &group, "p", slow); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 50*time.Millisecond {
			t.Errorf("behind one with more time: %v, after %v", err, time.Since(start))
		}
		cancel()
		<-patient.Done() // then what is done for who came first ends
	})
}
