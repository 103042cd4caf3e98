package pooltest

import (
	"math"
	"strings"

	"github.com/slotgate/slotgate/store/pool"
)

// adaptive is a story of a pool whose usual latency is 100 ms, and whose ejections last exactly as long as they are set.
func adaptive(members string, story func(*Play)) func(*Play) {
	return func(p *Play) {
		p.Define(pool.Definition{Policy: pool.AdaptivePolicy, Adaptive: pool.Adaptive{BaselineMS: 100}})
		p.With(members, Weight)
		p.Draw(0.5)
		story(p)
	}
}

func (p *Play) success(m string, latency float64) pool.Health {
	p.t.Helper()
	return p.Report(pool.Report{Member: m, Outcome: pool.Success, LatencyMS: latency})[0]
}

func (p *Play) failure(m string) pool.Health {
	p.t.Helper()
	return p.Report(pool.Report{Member: m, Outcome: pool.Failure})[0]
}

// letter is H, D or U.
func letter(h pool.Health) string { return strings.ToUpper(string(h.Condition)[:1]) }

// Drawn is who is chosen when u is drawn; not by weight, the mode too.
func (p *Play) Drawn(u float64, exclude ...string) string {
	p.t.Helper()
	p.Draw(u)
	defer p.Draw(0.5)
	res, _ := p.Allocate(pool.Request{Exclude: exclude}, "")
	if res.Reason != "" {
		return string(res.Reason)
	}
	return res.Allocated[0].Member + string(res.Allocated[0].Mode)
}

func (p *Play) factor(what string, h pool.Health, want float64) {
	p.t.Helper()
	if math.Abs(h.Factor-want) > 1e-9 {
		p.t.Errorf("%s: the factor is %v, want %v", what, h.Factor, want)
	}
}

// health are the vectors of algorithms 1d.
var health = []Vector{
	{"D0 what the weight is made of", adaptive("", weights)},
	{"D1 equal members have equal shares", adaptive("A B C D E", func(p *Play) {
		got := ""
		for _, u := range []float64{0, .19, .2, .39, .4, .6, .8, .999} {
			got += p.Drawn(u)
		}
		p.Want("members", got, "AABBCDEE")
	})},
	{"D2 to D6 ejection, trials and recovery", adaptive("A B C D E", ejection)},
	{"D7 failures now and then keep a member degraded", adaptive("A B C D E", func(p *Play) {
		p.failure("A")
		p.at(1)
		p.failure("A")
		got := ""
		for i := range 60 {
			p.at(2 + float64(i))
			if i%2 == 0 {
				got += letter(p.success("A", 50))
			} else {
				got += letter(p.failure("A"))
			}
		}
		p.Want("states", got, strings.Repeat("D", 60))
	})},
	{"D8 a slow member loses its share", adaptive("A B C D E", slow)},
	{"D8 also if its usual latency is that of the others", adaptive("A B C D E", func(p *Play) {
		p.Define(pool.Definition{Policy: pool.AdaptivePolicy})
		slow(p)
	})},
	{"D9 when all are unhealthy all are used", adaptive("A B C D E", func(p *Play) {
		eject := func(m string) {
			for i := range 5 {
				p.wait(Second / 10)
				if h := p.failure(m); i == 4 && h.Condition != pool.Unhealthy {
					p.t.Errorf("%s: %+v", m, h)
				}
			}
		}
		eject("A")
		eject("B")
		p.Want("two of five", p.Drawn(0)+p.Drawn(.99), "CE")
		eject("C")
		p.Want("three of five", p.Drawn(0)+" "+p.Drawn(.99), "Apanic Epanic")
		eject("D")
		eject("E")
		p.Want("all", p.Drawn(0)+" "+p.Drawn(.5)+" "+p.Drawn(.99), "Apanic Cpanic Epanic")
		p.Want("D10 all excluded", p.Drawn(0, "A", "B", "C", "D", "E"), "excluded")
	})},
	{"D10 nobody is there", adaptive("", func(p *Play) {
		p.Want("picks", p.Picks(1), "empty")
	})},
	{"D11 one failure of two is not much", adaptive("A B", func(p *Play) {
		p.success("A", 100)
		p.at(1)
		p.failure("A")
		p.at(2)
		if h := p.success("A", 100); h.Condition != pool.Healthy || math.Abs(h.Factor-.59) > .005 {
			p.t.Errorf("got %+v", h)
		}
	})},
}

// weights is the design's table of weights: by latency, in ms, and rate of errors. Five samples of 100 ms and twenty successes are supposed,
// and the reports are such that with them the means are exactly those of the table.
func weights(p *Play) {
	for _, row := range []struct {
		member    string // its mean latency and its rate of errors
		successes int
		latency   float64
		failures  int
		want      float64
	}{
		{"100, 0", 5, 100, 0, 1},
		{"60, 0", 5, 20, 0, 1},
		{"5, 0", 95, 0, 0, 1},
		{"150, 0", 5, 200, 0, .5},
		{"190, 0", 5, 280, 0, .1},
		{"200, 0", 5, 300, 0, .1},
		{"1000, 0", 5, 1900, 0, .1},
		{"100, 0.01", 79, 100, 1, .9},
		{"100, 0.05", 18, 100, 2, .5},
		{"120, 0.03", 77, (120*82 - 500) / 77., 3, .5},
		{"100, 0.09", 71, 100, 9, .1},
		{"100, 0.1", 70, 100, 10, .1},
	} {
		p.Put(pool.Member{Member: row.member})
		var list []pool.Report
		for range row.successes {
			list = append(list, pool.Report{Member: row.member, Outcome: pool.Success, LatencyMS: row.latency})
		}
		for i := range row.failures { // at the end, and no two in a row, which would say more than the rate
			at := len(list) - 2*i
			list = append(list[:at], append([]pool.Report{{Member: row.member, Outcome: pool.Failure}}, list[at:]...)...)
		}
		all := p.Report(list...)
		p.factor(row.member, all[len(all)-1], row.want)
	}
}

func ejection(p *Play) {
	got := ""
	for i := range 5 {
		p.at(1 + 0.1*float64(i))
		h := p.failure("A")
		if got += letter(h); h.Changed != (i == 1 || i == 4) {
			p.t.Errorf("after failure %d: %+v", i, h)
		}
	}
	p.Want("D2 five failures", got, "HDDDU")

	p.at(2)
	got = letter(p.success("A", 50))
	for _, s := range []float64{2.1, 2.2} {
		p.at(s)
		got += letter(p.failure("A"))
	}
	p.Want("D3 late reports", got, "UUU")

	p.at(3)
	got = ""
	for i := range 20 {
		got += p.Drawn(float64(i) / 20)
	}
	p.Want("D4 while it is ejected", got, "BBBBBCCCCCDDDDDEEEEE")
	p.at(6.5)
	got = p.Drawn(.9)
	p.at(6.6)
	p.Want("D4 then one trial a second", got+" "+p.Drawn(0), "Atrial B")

	got = ""
	for i := range 3 {
		p.at(6.5 + float64(i))
		got += letter(p.success("A", 90))
	}
	p.Want("D5 three trials", got, "UUD")

	states := ""
	for i := 1; i <= 32; i++ {
		p.at(8.5 + float64(i))
		h := p.success("A", 90)
		states += letter(h)
		if want, ok := map[int]float64{1: .13, 10: .40, 20: .70, 29: .97, 30: 1, 31: 1}[i]; ok {
			p.factor("D6", h, want)
		}
	}
	p.Want("D6 clean reports", states, strings.Repeat("D", 29)+"HHH")
}

func slow(p *Play) {
	states, last := "", pool.Health{}
	for s := range 40 {
		p.at(float64(s))
		var list []pool.Report
		for m := range strings.FieldsSeq("A B C D E") {
			r := pool.Report{Member: m, Outcome: pool.Success, LatencyMS: 100}
			if m == "C" {
				r.LatencyMS = 1000
			}
			list = append(list, r)
		}
		last = p.Report(list...)[2]
		states += letter(last)
	}
	p.Want("states after 20 s", states[20:], strings.Repeat("D", 20))
	p.factor("C", last, .1)
	share := 0 // of 2.4 %, 0.1 of 4.1
	for i := range 100 {
		if p.Drawn((float64(i)+.5)/100) == "C" {
			share++
		}
	}
	if share < 2 || share > 3 {
		p.t.Errorf("C has %d of 100", share)
	}
}
