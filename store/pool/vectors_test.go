package pool_test

import (
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store/pool"
)

// play is a vector on its way.
type play struct{ *bench }

// vectors are those of the design (algorithms 1a and 1c), with what was measured there.
var vectors = []struct {
	name string
	pool pool.Definition
	play func(p play)
}{
	{"A0 an empty pool has nobody", pool.Definition{Policy: pool.LeastUsed}, func(p play) {
		p.want("picks", p.picks(2), "empty empty")
	}},
	{"A1 three new ones take turns", pool.Definition{Policy: pool.LeastUsed}, func(p play) {
		p.with("c0 a0 b0", count)
		p.want("picks", p.picks(7), "a b c a b c a")
	}},
	{"A2 who has fewer is first", pool.Definition{Policy: pool.LeastUsed}, func(p play) {
		p.with("a5 b0 c2", count)
		p.want("picks", p.picks(10), "b b b c b c b c a b")
	}},
	{"A3 ties are in the order of bytes", pool.Definition{Policy: pool.LeastUsed}, func(p play) {
		for _, m := range strings.Fields("a B é Z 10 9") {
			p.put(pool.Member{Member: m, InitialCount: ptr(int64(0))})
		}
		p.want("picks", p.picks(6), "10 9 B Z a é")
	}},
	{"A4 the only one is taken again and again", pool.Definition{Policy: pool.LeastUsed}, func(p play) {
		p.with("x", nil)
		p.want("picks", p.picks(3), "x x x")
	}},
	{"A6 who is excluded is passed over", pool.Definition{Policy: pool.LeastUsed}, func(p play) {
		p.with("a2 b2 c3", count)
		p.want("without a", p.picks(1, "a"), "b")
		p.want("without all", p.picks(1, "a", "b", "c"), "excluded")
	}},
	{"C1 round robin passes over who is not available", pool.Definition{Policy: pool.RoundRobin}, func(p play) {
		p.with("A B C D E", nil).available("D", false)
		p.want("D off", p.picks(10), "A B C E A B C E A B")
		p.available("C", false)
		p.want("C off", p.picks(4), "E A B E")
		p.available("D", true)
		p.want("D on", p.picks(5), "A B D E A")
		p.available("A B C D E", false)
		p.want("all off", p.picks(1), "empty")
		p.available("B", true)
		p.want("only B", p.picks(3), "B B B")
	}},
	{"C1e the place in the ring is kept while nobody is there", pool.Definition{Policy: pool.RoundRobin}, func(p play) {
		p.with("A B C", nil)
		p.want("first", p.picks(1), "A")
		p.available("A B C", false)
		p.want("all off", p.picks(1), "empty")
		p.available("C B A", true)
		p.want("all on", p.picks(4), "B C A B")
	}},
	{"C2 classic", pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, func(p play) {
		p.with("A2 B3 C4 D1 E1", weight).available("D", false)
		p.want("twice", p.picks(20), "C B C A B C A B C E C B C A B C A B C E")
	}},
	{"C2b classic begins anew when the members change", pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, func(p play) {
		p.with("A2 B3 C4 D1 E1", weight).available("D", false)
		p.want("first", p.picks(5), "C B C A B")
		p.available("C", false)
		p.want("C off", p.picks(8), "B A B A B E B A")
		p.available("C", true)
		p.want("C on", p.picks(12), "C B C A B C A B C E C B")
	}},
	{"C3 smooth", pool.Definition{Policy: pool.WeightedRoundRobin}, func(p play) {
		p.with("A2 B3 C4 D1 E1", weight).available("D", false)
		p.want("twice", p.picks(20), "C B A C B E C A B C C B A C B E C A B C")
	}},
	{"C3b smooth goes on when the members change", pool.Definition{Policy: pool.WeightedRoundRobin}, func(p play) {
		p.with("A2 B3 C4 D1 E1", weight).available("D", false)
		p.want("first", p.picks(5), "C B A C B")
		p.available("C", false)
		p.want("C off", p.picks(6), "E A B E A B")
		p.available("C", true)
		p.want("C on", p.picks(10), "B C A C B E C A B C")
	}},
	{"C4 smooth sends no burst", pool.Definition{Policy: pool.WeightedRoundRobin}, func(p play) {
		p.with("a5 b1 c1", weight)
		p.want("twice", p.picks(14), "a a b a c a a a a b a c a a")
	}},
	{"C5 classic sends bursts", pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, func(p play) {
		p.with("a5 b1 c1", weight)
		p.want("5 1 1", p.picks(7), "a a a a a b c")
	}},
	{"C5 classic, weights with a divisor", pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, func(p play) {
		p.with("A2 B4 C6", weight)
		p.want("2 4 6", p.picks(6), "C B C A B C")
	}},
	{"C5 classic, two", pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, func(p play) {
		p.with("A10 B20", weight)
		p.want("10 20", p.picks(4), "B A B B")
	}},
	{"C5 classic, three", pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, func(p play) {
		p.with("a4 b3 c2", weight)
		p.want("4 3 2", p.picks(9), "a a b a b c a b c")
	}},
	{"C7 classic goes on below who is excluded", pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}, func(p play) {
		p.with("A2 B3 C4", weight)
		p.want("first", p.picks(1), "C")
		p.want("without C", p.picks(3, "C"), "A B A")
	}},
	{"C6 smooth, three", pool.Definition{Policy: pool.WeightedRoundRobin}, func(p play) {
		p.with("a4 b3 c2", weight)
		p.want("4 3 2", p.picks(9), "a b c a b a c b a")
	}},
	{"C6 who has no weight is never chosen", pool.Definition{Policy: pool.WeightedRoundRobin}, func(p play) {
		p.with("a0 b0", weight)
		p.want("smooth", p.picks(1), "no_weight")
		p.define(pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic})
		p.want("classic", p.picks(1), "no_weight")
		p.define(pool.Definition{Policy: pool.WeightedRandom})
		p.want("random", p.picks(1), "no_weight")
		p.put(pool.Member{Member: "b", Weight: ptr(int64(2))})
		p.want("with a weight", p.picks(3), "b b b")
	}},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) { v.play(play{newBench(t, v.pool)}) })
	}
}
