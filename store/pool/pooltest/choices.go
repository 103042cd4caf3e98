package pooltest

import (
	"strings"

	"github.com/slotgate/slotgate/store/pool"
)

var (
	leastUsed  = pool.Definition{Policy: pool.LeastUsed}
	roundRobin = pool.Definition{Policy: pool.RoundRobin}
	smooth     = pool.Definition{Policy: pool.WeightedRoundRobin}
	classic    = pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Classic}
)

// chosen defines a pool with members before the story.
func chosen(d pool.Definition, list string, set func(*pool.Member, *int64), story func(*Play)) func(*Play) {
	return func(p *Play) {
		p.Define(d)
		p.With(list, set)
		story(p)
	}
}

// choices are those of the design (algorithms 1a and 1c), with what was measured there.
var choices = []Vector{
	{"A0 an empty pool has nobody", chosen(leastUsed, "", nil, func(p *Play) {
		p.Want("picks", p.Picks(2), "empty empty")
	})},
	{"A1 three new ones take turns", chosen(leastUsed, "c0 a0 b0", Count, func(p *Play) {
		p.Want("picks", p.Picks(7), "a b c a b c a")
		p.Want("counts", p.Counts(), "c2 a3 b2")
	})},
	{"A2 who has fewer is first", chosen(leastUsed, "a5 b0 c2", Count, func(p *Play) {
		p.Want("picks", p.Picks(10), "b b b c b c b c a b")
		p.Want("counts", p.Counts(), "a6 b6 c5")
	})},
	{"A3 ties are in the order of bytes", chosen(leastUsed, "", nil, func(p *Play) {
		for _, m := range strings.Fields("a B é Z 10 9") {
			p.Put(pool.Member{Member: m, InitialCount: ptr(int64(0))})
		}
		p.Want("picks", p.Picks(6), "10 9 B Z a é")
	})},
	{"A4 the only one is taken again and again", chosen(leastUsed, "x", nil, func(p *Play) {
		p.Want("picks", p.Picks(3), "x x x")
	})},
	{"A5 who comes back with its own count gets everything", comesBack(pool.Keep, "a a a a a a a a a a a a", "a22 b30")},
	{"A5 and so does who comes back with none", comesBack(pool.Zero, "a a a a a a a a a a a a", "a12 b30")},
	{"A5 who comes back with the lowest takes turns", comesBack(pool.Min, "a b a b a b a b a b a b", "a36 b36")},
	{"A5 and so does who has caught up", comesBack(pool.CatchUp, "a b a b a b a b a b a b", "a36 b36")},
	{"A6 who is excluded is passed over", chosen(leastUsed, "a2 b2 c3", Count, func(p *Play) {
		p.Want("without a", p.Picks(1, "a"), "b")
		p.Want("without all", p.Picks(1, "a", "b", "c"), "excluded")
		p.Want("counts", p.Counts(), "a2 b3 c3")
	})},
	{"C1 round robin passes over who is not available", chosen(roundRobin, "A B C D E", nil, func(p *Play) {
		p.Available("D", false)
		p.Want("D off", p.Picks(10), "A B C E A B C E A B")
		p.Available("C", false)
		p.Want("C off", p.Picks(4), "E A B E")
		p.Available("D", true)
		p.Want("D on", p.Picks(5), "A B D E A")
		p.Available("A B C D E", false)
		p.Want("all off", p.Picks(1), "empty")
		p.Available("B", true)
		p.Want("only B", p.Picks(3), "B B B")
	})},
	{"C1e the place in the ring is kept while nobody is there", chosen(roundRobin, "A B C", nil, func(p *Play) {
		p.Want("first", p.Picks(1), "A")
		p.Available("A B C", false)
		p.Want("all off", p.Picks(1), "empty")
		p.Available("C B A", true)
		p.Want("all on", p.Picks(4), "B C A B")
	})},
	{"C2 classic", chosen(classic, "A2 B3 C4 D1 E1", Weight, func(p *Play) {
		p.Available("D", false)
		p.Want("twice", p.Picks(20), "C B C A B C A B C E C B C A B C A B C E")
	})},
	{"C2b classic begins anew when the members change", chosen(classic, "A2 B3 C4 D1 E1", Weight, func(p *Play) {
		p.Available("D", false)
		p.Want("first", p.Picks(5), "C B C A B")
		p.Available("C", false)
		p.Want("C off", p.Picks(8), "B A B A B E B A")
		p.Available("C", true)
		p.Want("C on", p.Picks(12), "C B C A B C A B C E C B")
	})},
	{"C3 smooth", chosen(smooth, "A2 B3 C4 D1 E1", Weight, func(p *Play) {
		p.Available("D", false)
		p.Want("twice", p.Picks(20), "C B A C B E C A B C C B A C B E C A B C")
	})},
	{"C3b smooth goes on when the members change", chosen(smooth, "A2 B3 C4 D1 E1", Weight, func(p *Play) {
		p.Available("D", false)
		p.Want("first", p.Picks(5), "C B A C B")
		p.Available("C", false)
		p.Want("C off", p.Picks(6), "E A B E A B")
		p.Available("C", true)
		p.Want("C on", p.Picks(10), "B C A C B E C A B C")
	})},
	{"C4 smooth sends no burst", chosen(smooth, "a5 b1 c1", Weight, func(p *Play) {
		p.Want("twice", p.Picks(14), "a a b a c a a a a b a c a a")
	})},
	{"C5 classic sends bursts", chosen(classic, "a5 b1 c1", Weight, func(p *Play) {
		p.Want("5 1 1", p.Picks(7), "a a a a a b c")
	})},
	{"C5 classic, weights with a divisor", chosen(classic, "A2 B4 C6", Weight, func(p *Play) {
		p.Want("2 4 6", p.Picks(6), "C B C A B C")
	})},
	{"C5 classic, two", chosen(classic, "A10 B20", Weight, func(p *Play) {
		p.Want("10 20", p.Picks(4), "B A B B")
	})},
	{"C5 classic, three", chosen(classic, "a4 b3 c2", Weight, func(p *Play) {
		p.Want("4 3 2", p.Picks(9), "a a b a b c a b c")
	})},
	{"C6 smooth, three", chosen(smooth, "a4 b3 c2", Weight, func(p *Play) {
		p.Want("4 3 2", p.Picks(9), "a b c a b a c b a")
	})},
	{"C6 who has no weight is never chosen", chosen(smooth, "a0 b0", Weight, func(p *Play) {
		p.Want("smooth", p.Picks(1), "no_weight")
		p.Define(classic)
		p.Want("classic", p.Picks(1), "no_weight")
		p.Define(pool.Definition{Policy: pool.WeightedRandom})
		p.Want("random", p.Picks(1), "no_weight")
		p.Patch(pool.Member{Member: "b", Weight: ptr(int64(2))})
		p.Want("with a weight", p.Picks(3), "b b b")
	})},
	{"C7 classic goes on below who is excluded", chosen(classic, "A2 B3 C4", Weight, func(p *Play) {
		p.Want("first", p.Picks(1), "C")
		p.Want("without C", p.Picks(3, "C"), "A B A")
	})},
}

func comesBack(how pool.Restore, want, counts string) func(*Play) {
	return chosen(pool.Definition{Policy: pool.LeastUsed, Restore: how}, "a10 b10", Count, func(p *Play) {
		p.Available("a", false)
		p.Want("a off", p.Picks(20), strings.TrimSpace(strings.Repeat("b ", 20)))
		p.Available("a", true)
		p.Want("a on", p.Picks(12), want)
		p.Want("counts", p.Counts(), counts)
	})
}
