package pool_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slotgate/slotgate/store/pool"
)

// twins are two pools of the same 64 members. The second has more that have no weight and are never chosen: it is too large for the scripts
// that look at all.
type twins struct {
	small, large *bench
	*rand.Rand
}

func newTwins(t *testing.T, d pool.Definition) *twins {
	t.Helper()
	d.Restore = pool.Keep                                                        // the others have few allocations
	w := &twins{newBench(t, d), newBench(t, d), rand.New(rand.NewPCG(*seed, 0))} //nolint:gosec // not a secret
	t.Logf("go test ./store/pool -run '^%s$' -args -seed=%d", t.Name(), *seed)
	list := numbered("m", 64)
	for i := range list {
		list[i].Weight = ptr(w.Int64N(20))
	}
	list[3].Weight = ptr(int64(7))
	w.both(func(b *bench) { b.put(list...) })
	w.others(true)
	return w
}

// others are those without a weight.
func (w *twins) others(available bool) {
	w.small.t.Helper()
	list := numbered("none", 64)
	for i := range list {
		list[i].Weight, list[i].Available = ptr(int64(0)), &available
	}
	w.large.put(list...)
}

func (w *twins) both(f func(*bench)) {
	f(w.small)
	f(w.large)
}

// same allocates from both.
func (w *twins) same(r pool.Request) {
	w.small.t.Helper()
	want, _ := w.small.allocate(r)
	got, _ := w.large.allocate(r)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.small.t.Fatalf("%+v: the large pool gives %+v, the small one %+v", r, got, want)
	}
}

// A schedule gives what the scripts give that look at all members, whatever happens to the pool: the same golden sequences.
func TestSchedulesGiveWhatTheScriptsDo(t *testing.T) {
	for _, v := range []pool.Variant{pool.Smooth, pool.Classic} {
		t.Run(string(v), func(t *testing.T) {
			w := newTwins(t, pool.Definition{Policy: pool.WeightedRoundRobin, Variant: v})
			for range 60 {
				for range w.IntN(30) {
					w.same(pool.Request{Count: w.IntN(pool.MaxCount + 1)})
				}
				m := pool.Member{Member: fmt.Sprintf("m%04d", w.IntN(64))}
				switch w.IntN(5) {
				case 0:
					m.Weight = ptr(w.Int64N(20))
				case 1:
					m.Available = ptr(w.IntN(2) == 0)
				case 2:
					m.CooldownMS = ptr(int64(5000))
				case 3:
					w.both(func(b *bench) { b.now += 6 * second })
				default: // it becomes small, and large again
					if v == pool.Smooth {
						w.others(w.IntN(2) == 0)
					}
					if w.IntN(2) == 0 { // and another policy comes between, which has seen no fewer changes
						other := 1 + w.Int64N(20)
						w.both(func(b *bench) {
							b.put(pool.Member{Member: "m0003", Weight: ptr(21 + other)})
							b.put(pool.Member{Member: "m0003", Weight: &other})
							d := *b.pool.Definition
							b.define(pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic})
							b.picks(3)
							b.define(d)
						})
					}
				}
				w.both(func(b *bench) { b.put(m) })
				if w.IntN(8) == 0 {
					w.both(func(b *bench) {
						if _, err := b.TakeAway(testContext(t), b.id, b.pool, m.Member, false); err != nil {
							t.Fatal(err)
						}
					})
				}
			}
		})
	}
}

// An allocation of several that goes over the end of a period has moved the turn as far as any other.
func TestAPeriodThatBeginsAnewWithinAnAllocation(t *testing.T) {
	w := newTwins(t, pool.Definition{Policy: pool.WeightedRoundRobin})
	list := numbered("m", 64)
	for i := range list {
		list[i].Weight = ptr(int64(1))
	}
	list[3].Weight = ptr(int64(3)) // 66 turns
	w.both(func(b *bench) { b.put(list...) })
	for range 66 - 1 {
		w.same(pool.Request{})
	}
	w.same(pool.Request{Count: 5})
	w.both(func(b *bench) { b.put(pool.Member{Member: "m0005", Weight: ptr(int64(2))}) })
	for range 30 {
		w.same(pool.Request{})
	}
}

// What the gateway draws is what the scripts draw, and health is the same in both.
func TestAGatewayDrawsWhatTheScriptsDo(t *testing.T) {
	for _, d := range []pool.Definition{{Policy: pool.WeightedRandom}, {Policy: pool.AdaptivePolicy}} {
		t.Run(string(d.Policy), func(t *testing.T) {
			w := newTwins(t, d)
			for range 60 {
				w.both(func(b *bench) { b.now += second / 4 })
				draw := w.Float64()
				w.both(func(b *bench) { b.draw = draw })
				for range 3 {
					r := pool.Request{Count: w.IntN(4)}
					for w.IntN(4) == 0 {
						r.Exclude = append(r.Exclude, fmt.Sprintf("m%04d", w.IntN(64)))
					}
					w.same(r)
				}
				m := pool.Member{Member: fmt.Sprintf("m%04d", w.IntN(64))}
				switch w.IntN(4) {
				case 0:
					m.Weight = ptr(w.Int64N(20))
				case 1:
					m.Available = ptr(w.IntN(2) == 0)
				}
				w.both(func(b *bench) { b.put(m) })
				if d.Policy != pool.AdaptivePolicy {
					continue
				}
				var list []pool.Report
				ill := fmt.Sprintf("m%04d", w.IntN(64))
				for range 20 {
					r := pool.Report{Member: fmt.Sprintf("m%04d", w.IntN(64)), Outcome: pool.Success, LatencyMS: float64(50 + w.IntN(400))}
					list = append(list, r, pool.Report{Member: ill, Outcome: pool.Failure})
				}
				want, got := w.small.report(list...), w.large.report(list...)
				w.compare("reports", got, want)
				want, err := w.small.Health(testContext(t), w.small.id, w.small.pool)
				if err != nil {
					t.Fatal(err)
				}
				got, err = w.large.Health(testContext(t), w.large.id, w.large.pool)
				if err != nil {
					t.Fatal(err)
				}
				w.compare("health", got[:len(want)], want)
			}
		})
	}
}

func (w *twins) compare(what string, got, want []pool.Health) {
	w.small.t.Helper()
	for i := range want {
		g := got[i]
		if math.Abs(g.Factor-want[i].Factor) > 1e-9 || math.Abs(g.LatencyMS-want[i].LatencyMS) > 1e-6 {
			w.small.t.Fatalf("%s: %+v, want %+v", what, g, want[i])
		}
		if g.Factor, g.LatencyMS = want[i].Factor, want[i].LatencyMS; g != want[i] {
			w.small.t.Fatalf("%s: %+v, want %+v", what, g, want[i])
		}
	}
}

// large is a pool of n members of equal weight.
func large(t *testing.T, d pool.Definition, n int) *bench {
	t.Helper()
	b := newBench(t, d)
	b.put(numbered("m", n)...)
	return b
}

func TestWhoIsPassedOverInAScheduleStaysNext(t *testing.T) {
	b := large(t, pool.Definition{Policy: pool.WeightedRoundRobin}, 65)
	b.want("first", b.picks(2), "m0000 m0001")
	b.want("without the next two", b.picks(2, "m0002", "m0003"), "m0004 m0005")
	b.want("then", b.picks(4), "m0002 m0003 m0006 m0007")
	b.picks(56)
	b.want("without the last", b.picks(2, "m0064"), "m0000 m0001")
	b.want("it is the last still", b.picks(3), "m0064 m0002 m0003")
	all := make([]string, 0, 65)
	for _, m := range numbered("m", 65) {
		all = append(all, m.Member)
	}
	b.want("without most", b.picks(2, all[:60]...), "m0060 m0061")
	if res, _ := b.allocate(pool.Request{Count: 16, Exclude: all[:64]}); len(res.Allocated) != 16 || res.Allocated[15].Member != "m0064" {
		t.Errorf("one that is left, 16 times: %+v", res)
	}
	b.put(pool.Member{Member: "m0064", Weight: ptr(int64(0))})
	b.want("who is left has no weight", b.picks(1, all[:64]...), "no_weight")
}

// Counts stay exact over a period, whoever is excluded on the way.
func TestExclusionsTakeNobodysTurns(t *testing.T) {
	b := newBench(t, pool.Definition{Policy: pool.WeightedRoundRobin})
	r := rand.New(rand.NewPCG(*seed, 0)) //nolint:gosec // not a secret
	list := numbered("m", 70)
	period := int64(0)
	for i := range list {
		list[i].Weight = ptr(1 + r.Int64N(4))
		period += *list[i].Weight
	}
	b.put(list...)
	for n := int64(0); n < 2*period; n++ {
		var exclude []string
		if n%period < period-60 {
			for r.IntN(2) == 0 {
				exclude = append(exclude, list[r.IntN(70)].Member)
			}
		}
		b.picks(1, exclude...)
	}
	for i, m := range b.show().Members {
		if m.Allocations != 2**list[i].Weight {
			t.Errorf("%s of weight %d has %d allocations in two periods", m.Member, m.Weight, m.Allocations)
		}
	}
}

func TestWhoIsLeftIsFarAwayInTheSchedule(t *testing.T) {
	for _, v := range []pool.Variant{pool.Smooth, pool.Classic} {
		b := newBench(t, pool.Definition{Policy: pool.WeightedRoundRobin, Variant: v})
		list := numbered("m", 64)
		exclude := make([]string, 64)
		for i := range list {
			list[i].Weight = ptr(int64(pool.MaxWeight))
			exclude[i] = list[i].Member
		}
		b.put(append(list, pool.Member{Member: "x"}, pool.Member{Member: "z", Weight: ptr(int64(0))})...)
		b.want("without the heavy", b.picks(2, exclude...), "x x")
		b.want("then", b.picks(2), "m0000 m0001")
		b.want("without all but one", b.picks(1, append(exclude[1:], "x")...), "m0000")
	}
}

func TestASchedulesPoolWithoutWeights(t *testing.T) {
	for _, v := range []pool.Variant{pool.Smooth, pool.Classic} {
		b := newBench(t, pool.Definition{Policy: pool.WeightedRoundRobin, Variant: v})
		list := numbered("m", 66)
		for i := range list {
			list[i].Weight = ptr(int64(0))
		}
		b.put(list...)
		b.want("nobody has one", b.picks(2), "no_weight no_weight")
		b.put(pool.Member{Member: "m0065", Weight: ptr(int64(2))})
		b.want("one has", b.picks(3), "m0065 m0065 m0065")
		b.want("excluded", b.picks(1, "m0065"), "no_weight")
	}
}

// Gateways share a schedule: who is next is one step in Redis.
func TestWorkersOfTwoGatewaysShareASchedule(t *testing.T) {
	const members, each = 100, 40
	for _, v := range []pool.Variant{pool.Smooth, pool.Classic} {
		b := newBench(t, pool.Definition{Policy: pool.WeightedRoundRobin, Variant: v})
		list := numbered("m", members)
		period := 0
		for i := range list {
			list[i].Weight = ptr(int64(1 + i%7))
			period += 1 + i%7
		}
		b.put(list...)
		other := b.gateway()
		var wg sync.WaitGroup
		workers := period / each
		for i := range workers {
			g := []*bench{b, other}[i%2]
			wg.Go(func() {
				for range each {
					if _, _, err := g.Allocate(testContext(t), g.id, g.pool, &pool.Request{}, keyed()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.allocateAll(period - workers*each)
		for i, m := range b.show().Members {
			if m.Allocations != *list[i].Weight {
				t.Errorf("%s: %s of weight %d has %d allocations in a period", v, m.Member, m.Weight, m.Allocations)
			}
		}
	}
}

func (b *bench) allocateAll(n int) {
	b.t.Helper()
	for ; n > 0; n -= pool.MaxCount {
		b.allocate(pool.Request{Count: min(n, pool.MaxCount)})
	}
}

// gateway is another one for the same pool, with the same clock.
func (b *bench) gateway() *bench {
	b.t.Helper()
	other := *b
	other.Pools = pool.New(pool.Config{Redis: newStore(b.t), Clock: func() int64 { return b.now }, Draw: func() float64 { return other.draw }})
	return &other
}

// Whatever another gateway has done to a member since this one has read the pool, the member is not chosen.
func TestWhoIsNotToBeDrawnAnyMore(t *testing.T) {
	const all = 80
	for name, undo := range map[string]func(b *bench, m string){
		"off":       func(b *bench, m string) { b.available(m, false) },
		"removed":   func(b *bench, m string) { b.takeAway(m) },
		"cooling":   func(b *bench, m string) { b.put(pool.Member{Member: m, CooldownMS: ptr(int64(1000))}) },
		"no weight": func(b *bench, m string) { b.put(pool.Member{Member: m, Weight: ptr(int64(0))}) },
		"ejected": func(b *bench, m string) {
			for range 5 {
				b.failure(m)
			}
		},
		"full": func(b *bench, m string) {
			b.draw = 0.5 / all
			for range pool.DefaultPerMember {
				if got := b.allocated(pool.Request{LeaseMS: 1000}); got != m {
					b.t.Errorf("%s is leased", got)
				}
			}
		},
	} {
		for _, policy := range []pool.Policy{pool.WeightedRandom, pool.AdaptivePolicy} {
			if policy == pool.WeightedRandom && (name == "ejected" || name == "full") {
				continue
			}
			t.Run(name+" "+string(policy), func(t *testing.T) {
				b := large(t, pool.Definition{Policy: policy}, all)
				other := b.gateway()
				b.draw = 0.5 / all
				r := pool.Request{LeaseMS: 5000}
				b.want("before", b.allocated(pool.Request{}), "m0000")
				undo(other, "m0000")
				b.want("then", b.allocated(r), "m0001")
				b.want("the sticky one too", b.allocated(pool.Request{Sticky: "k", LeaseMS: 1000}), "m0001")
			})
		}
	}
}

func (b *bench) takeAway(m string) {
	b.t.Helper()
	if _, err := b.TakeAway(testContext(b.t), b.id, b.pool, m, false); err != nil {
		b.t.Fatal(err)
	}
}

func TestTwoGatewaysTryAnEjectedMemberOnce(t *testing.T) {
	b := large(t, pool.Definition{Policy: pool.AdaptivePolicy, Adaptive: pool.Adaptive{BaselineMS: 100}}, 70)
	other := b.gateway()
	b.draw, other.draw = 0.5, 0.5
	for range 5 {
		b.failure("m0000")
	}
	b.now += 5*second - second/10
	b.want("before it is due, by both", b.drawn(0.001)+" "+other.drawn(0.001), "m0001 m0001")
	b.now += second / 10
	if got := b.drawn(0.001) + " " + other.drawn(0.001) + " " + b.drawn(0.001); got != "m0000trial m0001 m0001" {
		t.Errorf("got %s", got)
	}
	b.now += second
	other.want("a second later", other.drawn(0.001)+" "+b.drawn(0.001), "m0000trial m0001")
	for range 3 {
		b.success("m0000", 100)
	}
	b.want("here it is seen at once", b.drawn(0), "m0000")
	b.now += second / 5
	other.want("elsewhere after 200 ms", other.drawn(0), "m0000")
}

// Whoever asks for several gets them as long as they are there, also of a gateway that has not read yet who is full by now.
func TestAllThatIsLeftOfALargePool(t *testing.T) {
	b := large(t, pool.Definition{Policy: pool.AdaptivePolicy, Lease: pool.Lease{MaxPerMember: 1}}, 100)
	other := b.gateway()
	lease := func(g *bench, draw float64, count int) int {
		g.draw = draw
		res, _ := g.allocate(pool.Request{LeaseMS: 30_000, Count: count})
		return len(res.Allocated)
	}
	if n := lease(other, 0.999, 1); n != 1 {
		t.Fatalf("the other gateway gets %d", n)
	}
	if n := lease(b, 0, 16); n != 16 { // and those after the first
		t.Fatalf("got %d", n)
	}
	if n := lease(other, 0.1, 16); n != 16 {
		t.Errorf("got %d of 16, though 83 are free", n)
	}
	for range 4 {
		lease(b, 0.5, 16)
	}
	if n := lease(other, 0.2, 16); n != 3 {
		t.Errorf("got %d of the last 3", n)
	}
}

func TestALargePoolIsFull(t *testing.T) {
	d := pool.Definition{Policy: pool.AdaptivePolicy, Lease: pool.Lease{MaxPerMember: 1, DefaultMS: 30_000}}
	b := large(t, d, 70)
	r := pool.Request{LeaseMS: 30_000}
	var claims []pool.Claim
	for i := range 70 {
		b.draw = float64(i*13%70) / 70
		res, _ := b.allocate(r)
		if res.Reason != "" {
			t.Fatalf("allocation %d: %+v", i, res)
		}
		a := res.Allocated[0]
		claims = append(claims, pool.Claim{ID: a.Lease.ID, Fence: a.Lease.Fence})
	}
	for _, m := range b.show().Members {
		if m.Inflight != 1 {
			t.Errorf("%+v", m)
		}
	}
	if res, _ := b.allocate(r); res.Reason != pool.Saturated || res.RetryAfterMS != 30_000 {
		t.Errorf("when all are out: %+v", res)
	}
	b.want("without a lease", b.allocated(pool.Request{})[:1], "m")
	if _, _, err := b.complete(claims[5]); err != nil {
		t.Fatal(err)
	}
	if res, _ := b.allocate(r); res.Reason != "" {
		t.Errorf("when one is back: %+v", res)
	}
	b.now += 31 * second
	if res, _ := b.allocate(pool.Request{LeaseMS: 1000, Count: 16}); len(res.Allocated) != 16 {
		t.Errorf("when all are abandoned: %+v", res)
	}
}

func TestALargePoolBecomesSmallAndIsRemoved(t *testing.T) {
	for _, d := range []pool.Definition{{Policy: pool.WeightedRoundRobin}, {Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, {Policy: pool.WeightedRandom}, {Policy: pool.AdaptivePolicy}} {
		b := large(t, d, 66)
		other := b.gateway()
		for range 3 {
			b.want("large", b.picks(1)[:1]+other.picks(1)[:1], "mm")
			for i := range 10 {
				b.available(fmt.Sprintf("m%04d", i), false)
			}
			b.want("small", b.picks(1)[:1]+other.picks(1)[:1], "mm")
			for i := range 10 {
				b.available(fmt.Sprintf("m%04d", i), true)
			}
		}
		if res, replayed := b.allocate(pool.Request{Count: 3}, "k"); replayed || len(res.Allocated) != 3 {
			t.Errorf("with a key: %+v, %v", res, replayed)
		} else if again, replayed := other.allocate(pool.Request{Count: 3}, "k"); !replayed || fmt.Sprint(again) != fmt.Sprint(res) {
			t.Errorf("again: %+v, then %+v", res, again)
		}
		b.remove()
		b.define(d)
		b.want("made anew", b.picks(1)+" "+other.picks(1), "empty empty")
		if keys := keysIn(t, b.id.App.Namespace); len(keys) > 2 {
			t.Errorf("keys: %v", keys)
		}
	}
}

func TestManyMembersWithEqualWeightsTakeTurns(t *testing.T) {
	for _, v := range []pool.Variant{pool.Smooth, pool.Classic} {
		b := large(t, pool.Definition{Policy: pool.WeightedRoundRobin, Variant: v}, 1000)
		var got []string
		for len(got) < 2000 {
			got = append(got, strings.Fields(b.allocated(pool.Request{Count: 16}))...)
		}
		want := make([]string, 0, 2000)
		for _, m := range slices.Repeat(numbered("m", 1000), 2) {
			want = append(want, m.Member)
		}
		if !slices.Equal(got[:2000], want) {
			t.Errorf("%s: %v", v, got)
		}
	}
}

// While workers of two gateways allocate, members come and go: nobody is lost or counted twice, and who is off is not chosen.
func TestALargePoolThatChangesAllTheTime(t *testing.T) {
	const workers, each = 6, 150
	for _, d := range []pool.Definition{{Policy: pool.WeightedRoundRobin}, {Policy: pool.WeightedRandom}, {Policy: pool.AdaptivePolicy}} {
		d.Restore = pool.Keep
		b := large(t, d, 100)
		b.Pools = pool.New(pool.Config{Redis: newStore(t)})
		other := &bench{Pools: pool.New(pool.Config{Redis: newStore(t)}), t: t, id: b.id, pool: b.pool}
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() {
				g := []*bench{b, other}[i%2]
				for n := range each {
					r := pool.Request{Count: 1 + n%3, Sticky: []string{"", "k"}[n%2], Exclude: []string{"m0050"}[:n%2]}
					if res, _, err := g.Allocate(testContext(t), g.id, g.pool, &r, keyed()); err != nil || len(res.Allocated) != r.Count {
						t.Errorf("%s: %+v, %v", d.Policy, res, err)
						return
					}
				}
			})
		}
		for i := range 60 {
			m := fmt.Sprintf("m%04d", i)
			b.available(m, false)
			for _, g := range []*bench{b, other} {
				if got := g.allocated(pool.Request{Count: 16}); strings.Contains(got, m) {
					t.Errorf("%s: %s is off and in %s", d.Policy, m, got)
				}
			}
			b.available(m, true)
		}
		wg.Wait()
		want := int64(workers*each*2 + 60*2*16)
		for _, m := range b.show().Members {
			want -= m.Allocations
		}
		if want != 0 {
			t.Errorf("%s: %d allocations are not counted", d.Policy, want)
		}
	}
}

// A schedule that Redis has lost (it may evict any key) costs the order of the turns, and no more.
func TestALostScheduleIsMadeAnew(t *testing.T) {
	for _, v := range []pool.Variant{pool.Smooth, pool.Classic} {
		b := large(t, pool.Definition{Policy: pool.WeightedRoundRobin, Variant: v}, 66)
		b.want("before", b.picks(2), "m0000 m0001")
		b.run("return {redis.call('DEL', KEYS[#KEYS])}")
		b.want("then", b.picks(1)[:1], "m")
		b.run("return {redis.call('DEL', KEYS[#KEYS])}")
		b.available("m0000 m0001", false)
		b.want("and small", b.picks(1)[:1], "m")
	}
}

func TestHealthOfAPoolThatIsLargeNoMore(t *testing.T) {
	b := large(t, pool.Definition{Policy: pool.AdaptivePolicy}, 65)
	health := func() int {
		t.Helper()
		all, err := b.Health(testContext(t), b.id, b.pool)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := health(); n != 65 {
		t.Errorf("%d members", n)
	}
	b.success("m0001", 100)
	b.gateway().available("m0000", false)
	if n := health(); n != 64 {
		t.Errorf("%d members when one is off", n)
	}
	b.success("m0001", 100)
}
