// Package pooltest has the vectors of the design for pools, to be played on whatever leads to one: package pool itself, or HTTP. It promises
// that both are asked the same and have to answer the same.
package pooltest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store/pool"
)

// T0 is when vectors begin, in us; Second is one.
const (
	T0     = 1_800_000_000_000_000
	Second = 1_000_000
)

// Way leads to one pool, which has no members yet. Its functions fail the test if the pool does not do as it is told; the errors that they
// return are pool.ErrNoLease, pool.ErrOtherFence and pool.ErrLost.
type Way struct {
	Define func(pool.Definition)
	Put    func(pool.Member)
	// Patch changes a member that is there.
	Patch func(pool.Member)
	// Remove keeps the member's history.
	Remove func(member string)
	// Allocate has an Idempotency-Key unless key is "".
	Allocate func(r pool.Request, key string) (res pool.Result, replayed bool)
	Report   func(...pool.Report) []pool.Health
	Renew    func(c pool.Claim, ms int64) (pool.Kept, error)
	// Complete likewise has a key.
	Complete func(c pool.Claim, key string) (kept pool.Kept, replayed bool, err error)
	Show     func() pool.Overview
	// Clock sets the time of the scripts, in us; it then stands still.
	Clock func(us int64)
	// Draw sets what weighted_random and adaptive draw, until it is set again.
	Draw func(u float64)
}

// Vector is a story of one pool.
type Vector struct {
	Name string
	play func(*Play)
}

// Run plays all vectors, each on a pool of its own.
func Run(t *testing.T, way func(*testing.T) Way) {
	for _, list := range [][]Vector{choices, health, leases} {
		for _, v := range list {
			t.Run(v.Name, func(t *testing.T) {
				p := Go(t, way(t))
				p.at(0)
				v.play(p)
			})
		}
	}
}

// Play is a pool on its way through a story.
type Play struct {
	Way
	t   testing.TB
	now int64
}

// Go begins one on a pool as it is, whose clock it leaves alone.
func Go(t testing.TB, w Way) *Play { return &Play{Way: w, t: t} }

// at sets the time, in seconds after T0.
func (p *Play) at(seconds float64) { p.set(T0 + int64(math.Round(seconds*Second))) }

// wait moves it on.
func (p *Play) wait(us int64) { p.set(p.now + us) }

func (p *Play) set(now int64) {
	p.now = now
	p.Clock(now)
}

// Want fails the test if got is not what it should be, and says of what.
func (p *Play) Want(what, got, want string) {
	p.t.Helper()
	if got != want {
		p.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func ptr[T any](v T) *T { return &v }

// Count gives a member its initial count.
func Count(m *pool.Member, n *int64) { m.InitialCount = n }

// Weight gives a member its weight.
func Weight(m *pool.Member, n *int64) { m.Weight = n }

// With adds members "a5 b c": each with a number, which set gives to it.
func (p *Play) With(list string, set func(*pool.Member, *int64)) {
	p.t.Helper()
	for word := range strings.FieldsSeq(list) {
		m := pool.Member{Member: word[:1]}
		if len(word) > 1 {
			var n int64
			if _, err := fmt.Sscan(word[1:], &n); err != nil {
				p.t.Fatal(err)
			}
			set(&m, &n)
		}
		p.Put(m)
	}
}

// Available takes members "a b" away, or back.
func (p *Play) Available(members string, yes bool) {
	p.t.Helper()
	for m := range strings.FieldsSeq(members) {
		p.Patch(pool.Member{Member: m, Available: &yes})
	}
}

// Picks is who n allocations give, one by one; of nobody the reason.
func (p *Play) Picks(n int, exclude ...string) string {
	p.t.Helper()
	list := make([]string, n)
	for i := range list {
		res, _ := p.Allocate(pool.Request{Exclude: exclude}, "")
		if list[i] = string(res.Reason); res.Reason == "" {
			list[i] = res.Allocated[0].Member
		}
	}
	return strings.Join(list, " ")
}

// Counts is "a5 b0": each member with its allocations.
func (p *Play) Counts() string {
	p.t.Helper()
	return p.each(func(s pool.State) int64 { return s.Allocations })
}

// Held is the same with leases.
func (p *Play) Held() string {
	p.t.Helper()
	return p.each(func(s pool.State) int64 { return s.Inflight })
}

func (p *Play) each(number func(pool.State) int64) string {
	p.t.Helper()
	var list []string
	for _, m := range p.Show().Members {
		list = append(list, fmt.Sprint(m.Member, number(m)))
	}
	return strings.Join(list, " ")
}
