package pool_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/pool"
)

var (
	sequences = flag.Int("sequences", 150, "random sequences that the scripts and the model are driven through")
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random sequences")
)

// Scripts and model go through the same, with all policies in turn on the same members, and always say the same.
func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Logf("go test ./store/pool -run '^%s$' -args -seed=%d -sequences=%d", t.Name(), *seed, *sequences)
	random := rand.New(rand.NewPCG(*seed, 0)) //nolint:gosec // not a secret
	s := newStore(t)
	for n := range *sequences {
		b := &bench{t: t, id: newApp(t), now: T0}
		b.pool.Name = "p"
		b.Pools = pool.New(pool.Config{Redis: s, Clock: func() int64 { return b.now }, Draw: func() float64 { return b.draw }})
		w := walk{b, random, newModel(), nil, n%4 == 3}
		w.redefine()
		if w.many {
			for _, m := range numbered("m", 70) {
				w.m.put(m, b.now, false)
			}
			b.put(numbered("m", 70)...)
		}
		for range 40 {
			w.step()
			if t.Failed() {
				t.Fatalf("sequence %d: %s", n, strings.Join(w.said, "\n"))
			}
		}
	}
}

// walk is a random sequence.
type walk struct {
	*bench
	*rand.Rand
	m    *model
	said []string
	many bool // members, so that the gateway computes what the scripts would take too long for
}

func (w *walk) name() string {
	if w.many {
		return fmt.Sprintf("m%04d", w.IntN(72))
	}
	return []string{"a", "b", "c", "d", "\x00e"}[w.IntN(5)]
}

func (w *walk) redefine() {
	d := pool.Definition{
		Policy:  []pool.Policy{pool.LeastUsed, pool.RoundRobin, pool.WeightedRoundRobin, pool.WeightedRandom, pool.LeastInflight}[w.IntN(5)],
		Restore: []pool.Restore{pool.CatchUp, pool.Keep, pool.Zero, pool.Min}[w.IntN(4)],
	}
	switch {
	case d.Policy == pool.WeightedRoundRobin && w.IntN(2) == 0:
		d.Variant = pool.Classic
	case d.Policy == pool.LeastInflight:
		d.Lease.MaxPerMember = w.Int64N(4)
	}
	w.define(d)
	w.m.d = *w.pool.Definition
	w.said = append(w.said, fmt.Sprintf("define %+v", w.m.d))
}

// agree compares what both say.
func (w *walk) agree(what string, got, want any) {
	w.t.Helper()
	w.said = append(w.said, fmt.Sprintf("%s: %+v", what, got))
	if !reflect.DeepEqual(got, want) {
		w.t.Errorf("%s: got %+v, the model says %+v", what, got, want)
	}
}

func (w *walk) step() {
	w.t.Helper()
	switch w.IntN(12) {
	case 0:
		w.redefine()
	case 1:
		w.now += w.Int64N(20 * second)
	case 2, 3, 4:
		w.change()
	case 5:
		name, drop := w.name(), w.IntN(2) == 0
		got, err := w.TakeAway(testContext(w.t), w.id, w.pool, name, drop)
		if err != nil {
			w.t.Fatal(err)
		}
		w.agree(fmt.Sprintf("remove %q, %v", name, drop), got, w.m.remove(name, drop))
	case 6:
		w.settle()
	default:
		w.choose()
	}
	w.agree("overview", w.show(), w.m.overview())
}

func (w *walk) change() {
	m, patch := pool.Member{Member: w.name()}, w.IntN(2) == 0
	if w.IntN(2) == 0 {
		m.Weight = ptr(w.Int64N(6))
	}
	if w.IntN(4) == 0 {
		m.InitialCount = ptr(w.Int64N(9))
	}
	if w.IntN(3) == 0 {
		m.Available = ptr(w.IntN(3) > 0)
	}
	if w.IntN(6) == 0 {
		m.CooldownMS = ptr(w.Int64N(3) * 7000)
	}
	var got pool.Outcome
	if patch {
		var err error
		if got, err = w.Patch(testContext(w.t), w.id, w.pool, m); err != nil {
			w.t.Fatal(err)
		}
	} else {
		got = w.put(m)[0]
	}
	w.agree(fmt.Sprintf("change %q, patch %v", m.Member, patch), got, w.m.put(m, w.now, patch))
}

func (w *walk) choose() {
	r := pool.Request{Count: w.IntN(4)}
	for (!w.many || w.m.d.Policy != pool.WeightedRoundRobin) && w.IntN(3) == 0 { // a schedule has its own way there
		r.Exclude = append(r.Exclude, w.name())
	}
	if w.IntN(3) == 0 {
		r.LeaseMS = 1000 + w.Int64N(30_000)
	}
	if w.IntN(3) == 0 {
		r.Sticky = w.name()
	}
	w.draw = w.Float64()
	got, _ := w.allocate(r)
	ids := make([]string, pool.MaxCount)
	for i, a := range got.Allocated {
		if a.Lease != nil {
			ids[i] = a.Lease.ID
		}
	}
	want := w.m.allocate(r, w.now, slices.Repeat([]float64{w.draw}, pool.MaxCount), ids)
	want.Policy = w.m.d.Policy
	w.agree(fmt.Sprintf("allocate %+v", r), got, want)
}

// settle renews or completes one of the leases.
func (w *walk) settle() {
	all := w.m.sortedLeases()
	if len(all) == 0 {
		return
	}
	l := all[w.IntN(len(all))]
	c := pool.Claim{ID: l.id, Fence: l.fence}
	late := l.ends <= w.now
	if w.IntN(2) == 0 {
		ms := 1 + w.Int64N(30_000)
		got, err := w.Renew(testContext(w.t), w.id, w.pool, c, ms)
		if late {
			w.agree("renew what has expired", err, pool.ErrLost)
			return
		}
		l.ends = min(w.now+ms*1000, l.start+w.m.d.Lease.MaxMS*1000)
		w.agree("renew", got, pool.Kept{Member: l.member, HeldMS: (w.now - l.start) / 1000, ExpiresAtMS: l.ends / 1000})
		return
	}
	got, _, err := w.complete(c)
	if err != nil {
		w.t.Error(err)
	}
	w.m.end(l)
	w.agree("complete", got, pool.Kept{Member: l.member, HeldMS: (w.now - l.start) / 1000, ExpiresAtMS: l.ends / 1000, Late: late})
}
