package pool

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/slotgate/slotgate/store/packed"
)

// served are all turns of a schedule.
func (t *turns) served() []int {
	all := make([]int, max(t.length, 0))
	for i := range all {
		all[i] = int(binary.LittleEndian.Uint16([]byte(t.sch[2*i:])))
	}
	return all
}

// randomWeights are of three kinds in turn: periods that are short, that fit into a schedule, and that do not.
func randomWeights(r *rand.Rand, n int) []int64 {
	most := []int64{2, 12, 1001}[n%3]
	weights := make([]int64, 65+r.IntN(100))
	for i := range weights {
		weights[i] = r.Int64N(most)
	}
	weights[r.IntN(len(weights))] = most - 1
	return weights
}

// A period has each member as often as its weight says, and then follows itself.
func TestAPeriodHasEachMemberByItsWeight(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not a secret
	for n := range 9 {
		weights := randomWeights(r, n)
		var sum, divisor int64
		for _, w := range weights {
			sum, divisor = sum+w, gcd(divisor, w)
		}
		for _, v := range []Variant{Smooth, Classic} {
			s := turns{large: true, weights: slices.Clone(weights), credits: make([]int64, len(weights))}
			served := map[int]int64{}
			turn := int64(0)
			for turn < sum/divisor {
				s.schedule(v, nil, 0)
				if s.length < leastTurns && s.plan%2 == 1 || s.length > mostTurns || s.length*int64(len(weights)) > mostLooks && s.length > leastTurns && v == Smooth {
					t.Fatalf("a schedule of %d turns for %d members", s.length, len(weights))
				}
				for _, m := range s.served() {
					if turn++; turn <= sum/divisor {
						served[m]++
					}
				}
				s.turn = s.length
			}
			for i, w := range weights {
				if served[i] != w/divisor {
					t.Errorf("%s: member %d of weight %d (divisor %d) is served %d times", v, i, w, divisor, served[i])
				}
			}
			s.schedule(v, nil, 0)
			s.turn = s.length
			s.schedule(v, nil, 0)
			if again := s.plan == map[Variant]int64{Smooth: 2, Classic: 4}[v]; again && s.length != sum/divisor {
				t.Errorf("%s: a period of %d turns has %d", v, sum/divisor, s.length)
			} else if !again && sum/divisor <= mostLooks/int64(len(weights)) && sum/divisor <= mostTurns {
				t.Errorf("%s: %d turns never become a period of %d", v, s.length, sum/divisor)
			}
		}
	}
}

// Schedules of any length, one after the other, are what the rule gives step by step, whatever changes in between.
func TestSchedulesGoOnWhereTheyEnd(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // not a secret
	for n := range 40 {
		weights := randomWeights(r, n)
		credits := make([]int64, len(weights))
		for i := range credits {
			credits[i] = r.Int64N(2000) - 1000
		}
		s := turns{large: true, weights: slices.Clone(weights), credits: slices.Clone(credits)}
		for range 12 {
			s.schedule(Smooth, nil, 0)
			s.turn = r.Int64N(min(s.length, 700) + 1)
			for _, got := range s.served()[:s.turn] {
				if want := stepOfSmooth(weights, credits); got != want {
					t.Fatalf("%d: got %d, want %d", n, got, want)
				}
			}
			if r.IntN(2) == 0 { // a member leaves, another gets another weight, one comes: see members.lua
				gone, heavier := r.IntN(len(weights)), r.IntN(len(weights)-1)
				weights, credits = slices.Delete(weights, gone, gone+1), slices.Delete(credits, gone, gone+1)
				s.weights, s.credits = slices.Delete(s.weights, gone, gone+1), slices.Delete(s.credits, gone, gone+1)
				w := 1 + r.Int64N(50)
				weights[heavier], s.weights[heavier] = w, w
				weights, credits = append(weights, 5), append(credits, 0)
				s.weights, s.credits = append(s.weights, 5), append(s.credits, 0)
				s.length = 0
			}
		}
		s.settle()
		if !slices.Equal(s.credits, credits) {
			t.Fatalf("%d: credits are %v, want %v", n, s.credits, credits)
		}
	}
}

// stepOfSmooth is the rule itself.
func stepOfSmooth(weights, credits []int64) int {
	best, sum := -1, int64(0)
	for i, w := range weights {
		if w == 0 {
			continue
		}
		sum += w
		if credits[i] += w; best < 0 || credits[i] > credits[best] {
			best = i
		}
	}
	credits[best] -= sum
	return best
}

func TestClassicGoesOnWhereItEnds(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // not a secret
	for n := range 30 {
		weights := randomWeights(r, n)
		s := turns{large: true, weights: weights, credits: make([]int64, len(weights))}
		c := classic{weights: weights}
		for range 10 {
			s.schedule(Classic, nil, 0)
			s.turn = r.Int64N(s.length + 1)
			for i, got := range s.served()[:s.turn] {
				if want := c.next(nil); got != want {
					t.Fatalf("turn %d: got %d, want %d", i, got, want)
				}
			}
		}
	}
}

// Whoever may not be excluded leads, and what follows knows that it had a turn.
func TestALeadingTurnCounts(t *testing.T) {
	weights := make([]int64, 65)
	for i := range weights {
		weights[i] = 1000
	}
	weights[64] = 1
	skip := map[int]bool{}
	for i := range 64 {
		skip[i] = true
	}
	for _, v := range []Variant{Smooth, Classic} {
		s := turns{large: true, weights: weights, credits: make([]int64, 65)}
		s.schedule(v, skip, 2)
		if got := s.served()[:4]; !slices.Equal(got, []int{64, 64, 0, 1}) {
			t.Errorf("%s: %v", v, got)
		}
		s.turn = 3
		s.settle()
		if want := 3*int64(1) - 2*64_001; v == Smooth && s.credits[64] != want {
			t.Errorf("its credit is %d, want %d", s.credits[64], want)
		}
	}
}

func TestNobodyHasAWeight(t *testing.T) {
	for _, v := range []Variant{Smooth, Classic} {
		s := turns{large: true, weights: make([]int64, 70), credits: make([]int64, 70)}
		s.credits[7] = 5
		s.schedule(v, nil, 0)
		if s.length != -1 {
			t.Errorf("%s: %d turns", v, s.length)
		}
		if s.settle(); s.credits[7] != 5 || s.credits[8] != 0 {
			t.Errorf("%s: credits are %v", v, s.credits)
		}
	}
}

// Whatever is in Redis, reading it ends, and with a state that can be written.
func FuzzTurns(f *testing.F) {
	s := turns{large: true, weights: []int64{1, 2, 3}, credits: []int64{0, 0, 0}}
	s.schedule(Smooth, nil, 0)
	state := packed.Append(make([]byte, 72), 1, 7, 2, s.length, s.plan)
	f.Add(string(state), string(s.packed()), s.sch)
	f.Add(string(state), string(s.packed()), "")
	f.Add(string(state[:80]), "", "x")
	f.Fuzz(func(t *testing.T, state, w, sch string) {
		s, err := readTurns(state, w, sch)
		if err != nil || len(s.weights) > 100 || s.turn > 1000 {
			return
		}
		for _, v := range []Variant{Smooth, Classic} {
			one := s
			one.weights, one.credits = slices.Clone(s.weights), slices.Clone(s.credits)
			one.schedule(v, nil, 0)
		}
	})
}

func BenchmarkSchedule(b *testing.B) {
	for _, n := range []int{65, 1000, 2000} {
		weights := make([]int64, n)
		for i := range weights {
			weights[i] = int64(i%997 + 1)
		}
		for _, v := range []Variant{Smooth, Classic} {
			b.Run(fmt.Sprint(v, n), func(b *testing.B) {
				for b.Loop() {
					s := turns{large: true, weights: weights, credits: make([]int64, n), length: mostTurns, turn: mostTurns}
					s.schedule(v, nil, 0)
				}
			})
		}
	}
}
