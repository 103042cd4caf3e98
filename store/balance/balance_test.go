package balance_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/balance"
)

// hand is a set that is led by hand: its time is in seconds.
type hand struct {
	*testing.T
	*balance.Set
	now float64
}

// begin makes a set of these nodes. One whose ID begins with p is a primary; all have been looked at and hold everything.
func begin(t *testing.T, ids ...string) *hand {
	h := &hand{T: t, Set: balance.New(moment(0), rand.New(rand.NewPCG(1, 2)).Uint64)}
	h.update("p0") // who is gone if the test has no primary, but tells what replicas may hold
	h.look(0, "p0")
	h.update(ids...)
	h.look(0, ids...)
	return h
}

func (h *hand) update(ids ...string) {
	var all []balance.Node
	for _, id := range ids {
		all = append(all, balance.Node{ID: id, Primary: id[0] == 'p', Via: id})
	}
	h.Update(moment(h.now), all)
}

// look looks at nodes that have got so far.
func (h *hand) look(offset int64, ids ...string) {
	for _, id := range ids {
		h.Look(id, balance.Look{Asked: moment(h.now), Primary: id[0] == 'p', History: "h", Offset: offset, Linked: id[0] != 'p'})
	}
}

// read is one that takes a millisecond; it returns who was asked, "" = nobody.
func (h *hand) read(r balance.Read, o balance.Outcome) (string, balance.Reason) {
	c, ok := h.Pick(moment(h.now), r)
	if !ok {
		return "", 0
	}
	h.now += .001
	c.Done(moment(h.now), o)
	return c.Node().ID, c.Reason
}

var hour = balance.Read{Within: time.Hour}

// shares reads so many times and counts who was asked.
func (h *hand) shares(n int, r balance.Read) map[string]int {
	counts := map[string]int{}
	for range n {
		id, _ := h.read(r, balance.Answered)
		counts[id]++
	}
	return counts
}

// fail makes a node fail until it is ejected: five reads of it that are under way at once.
func (h *hand) fail(id string, o balance.Outcome) {
	h.Helper()
	h.now++ // if anyone is to be tried, now
	var its, others []balance.Choice
	for len(its) < 5 {
		c, ok := h.Pick(moment(h.now), hour)
		if !ok || len(others) > 1000 {
			h.Fatalf("%s is not chosen", id)
		}
		if c.Node().ID == id {
			its = append(its, c)
		} else {
			others = append(others, c)
		}
	}
	h.now += .001
	for _, c := range its {
		c.Done(moment(h.now), o)
	}
	for _, c := range others {
		c.Done(moment(h.now), balance.Unknown)
	}
	h.now += .001
	h.look(0, id) // a refusal makes what it holds unknown, which is not what this is about
	if f := h.figures(id); f.State != balance.Ejected || f.Weight != 0 {
		h.Fatalf("%+v, want it to be ejected", f)
	}
}

func (h *hand) figures(id string) balance.Figures {
	for _, f := range h.Figures(moment(h.now)) {
		if f.ID == id {
			return f
		}
	}
	h.Fatalf("no figures of %s", id)
	return balance.Figures{}
}

func TestWhoMayBeAsked(t *testing.T) {
	second := balance.Read{Within: 2 * time.Second}
	for _, c := range []struct {
		name  string
		begin []string
		tell  func(h *hand)
		read  balance.Read
		want  string // who alone is asked; "" = nobody
	}{
		{"of no nodes nobody is", nil, func(*hand) {}, second, ""},
		{"the only primary is", []string{"p"}, func(*hand) {}, second, "p"},
		{"a replica that was never looked at is not", []string{"p"}, func(h *hand) { h.update("p", "r") }, second, "p"},
		{"without a primary, a replica that was never looked at is not either", nil, func(h *hand) { h.update("r") }, hour, ""},
		{"a replica that was looked at too long ago is not", []string{"p", "r"}, func(h *hand) { h.now = 2.001 }, second, "p"},
		{"a bound of nothing is two seconds", []string{"p", "r"}, func(h *hand) { h.now = 2.001 }, balance.Read{}, "p"},
		{"a negative bound is the primary's", []string{"p", "r"}, func(*hand) {}, balance.Read{Within: -1}, "p"},
		{"a replica that lags behind is not", []string{"p", "r"}, func(h *hand) {
			h.now = 1
			h.look(100, "p")
			h.look(99, "r") // it holds what the primary had at 0
			h.now = 2.5
		}, second, "p"},
		{"a replica whose link is down is not", []string{"p", "r"}, func(h *hand) {
			h.Look("r", balance.Look{Asked: moment(.1), History: "h"})
		}, hour, "p"},
		{"a replica that did not answer is not", []string{"p", "r"}, func(h *hand) { h.Look("r", balance.Look{Asked: moment(.1)}) }, hour, "p"},
		{"a replica with another history is not", []string{"p", "r"}, func(h *hand) {
			h.Look("r", balance.Look{Asked: moment(.1), History: "other", Offset: 1e9, Linked: true})
		}, hour, "p"},
		{"a replica that says it is a primary is not", []string{"p", "r"}, func(h *hand) {
			h.Look("r", balance.Look{Asked: moment(.1), Primary: true, History: "h", Offset: 1e9, Linked: true})
		}, hour, "p"},
		{"after a failover, replicas are not until they follow the new primary", []string{"p", "r"}, func(h *hand) {
			h.Look("p", balance.Look{Asked: moment(.1), Primary: true, History: "new"})
		}, hour, "p"},
		{"a primary that says it is none tells nothing", []string{"p", "r"}, func(h *hand) {
			h.now = 2
			h.Look("p", balance.Look{Asked: moment(2), History: "h", Linked: true})
			h.look(0, "r") // holds what the primary had at 0
			h.now = 2.1
		}, second, "p"},
		{"a replica that broke a connection is not until it is looked at again", []string{"p", "r"}, func(h *hand) {
			c, _ := h.Pick(moment(0), balance.Read{Within: time.Hour, Not: "p"})
			c.Done(moment(.2), balance.Refused)
			h.now = .1
			h.look(0, "r") // asked before that
		}, hour, "p"},
		{"a replica that broke a connection is not, whatever it held", []string{"p", "r"}, func(h *hand) {
			c, _ := h.Pick(moment(0), balance.Read{Within: time.Hour, Not: "p"})
			c.Done(moment(.2), balance.Refused)
		}, hour, "p"},
		{"a replica that has lost its primary is not, whatever it said before and is heard of late", []string{"p", "r"}, func(h *hand) {
			h.Look("r", balance.Look{Asked: moment(.2), History: "h"})
			h.now = .1
			h.look(0, "r")
		}, hour, "p"},
		{"a replica that was a primary for a while is not until it is looked at again", []string{"r"}, func(h *hand) {
			h.Update(moment(0), []balance.Node{{ID: "r", Primary: true}})
			h.update("r")
		}, hour, ""},
		{"a primary that became a replica is not until it is looked at again", []string{"p", "r"}, func(h *hand) {
			h.Update(moment(0), []balance.Node{{ID: "p"}})
		}, hour, ""},
		{"who has just failed is not", []string{"p", "r"}, func(*hand) {}, balance.Read{Within: time.Hour, Not: "r"}, "p"},
		{"who has just failed is not, even if it is the only one", []string{"p"}, func(*hand) {}, balance.Read{Not: "p"}, ""},
		{"what unknown nodes say does not matter", []string{"p"}, func(h *hand) { h.look(0, "r") }, hour, "p"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := begin(t, c.begin...)
			c.tell(h)
			for range 20 {
				choice, ok := h.Pick(moment(h.now), c.read)
				is := ""
				if ok {
					is = choice.Node().ID
					choice.Done(moment(h.now), balance.Answered)
				}
				if is != c.want {
					t.Fatalf("asked %q, want %q", is, c.want)
				}
			}
		})
	}
}

func TestAReplicaIsAskedAgain(t *testing.T) {
	for name, tell := range map[string]func(h *hand){
		"that broke a connection": func(h *hand) {
			c, _ := h.Pick(moment(0), balance.Read{Within: time.Hour, Not: "p"})
			c.Done(moment(.2), balance.Refused)
			h.now = .3
			h.look(0, "r")
		},
		"that follows the new primary": func(h *hand) {
			h.now = .3
			h.Look("p", balance.Look{Asked: moment(.3), Primary: true, History: "new", Offset: 7})
			h.Look("r", balance.Look{Asked: moment(.3), History: "new", Offset: 7, Linked: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := begin(t, "p", "r")
			tell(h)
			if n := h.shares(100, balance.Read{Within: 2 * time.Second}); n["r"] == 0 {
				t.Errorf("asked %v", n)
			}
		})
	}
}

func TestThePrimaryHasHalfTheWeight(t *testing.T) {
	h := begin(t, "p", "r1", "r2", "r3", "r4")
	under := map[string]int{}
	for range 900 { // nobody answers, so the numbers under way become as the weights are
		c, _ := h.Pick(moment(0), hour)
		under[c.Node().ID]++
	}
	if n := under["p"]; n < 90 || n > 110 {
		t.Errorf("%v under way, want 100 to the primary and 200 to each replica", under)
	}
}

func TestAllThatFailIsLeftAloneButNobodyIsNot(t *testing.T) {
	h := begin(t, "r1", "r2", "p")
	h.fail("r1", balance.Refused)
	if n := h.shares(200, hour); n["r1"] > 0 {
		t.Errorf("asked %v within the second after r1 was ejected", n)
	}
	h.fail("r2", balance.Refused)
	h.fail("p", balance.Refused)
	if id, why := h.read(balance.Read{Within: time.Hour, Not: "p"}, balance.Refused); id != "" {
		t.Errorf("a read that p refused was sent to %q for %v", id, why)
	}
	if id, why := h.read(hour, balance.Refused); id != "p" || why != balance.Panicked {
		t.Errorf("when all refuse, %q is asked for reason %d, want the primary", id, why)
	}
}

func TestWhenNobodyIsWellWhoIsOnlySlowIsAsked(t *testing.T) {
	h := begin(t, "p", "r1")
	h.read(balance.Read{Within: time.Hour, Not: "p"}, balance.Refused)
	h.now++
	h.look(0, "r1")
	h.fail("r1", balance.Late)
	h.fail("p", balance.Refused)
	if id, why := h.read(hour, balance.Answered); id != "r1" || why != balance.Panicked {
		t.Errorf("%q is asked for reason %d, want r1", id, why)
	}
	h = begin(t, "r1")
	h.fail("r1", balance.Refused)
	if id, why := h.read(hour, balance.Answered); id != "r1" || why != balance.Panicked {
		t.Errorf("without a primary %q is asked for reason %d, want r1", id, why)
	}
}

// A slow network or a bad command looks as if all nodes were bad, and fewer nodes would make it worse.
func TestAtMostHalfAreEjectedBecauseTheyAreSlow(t *testing.T) {
	for o, most := range map[balance.Outcome]int{balance.Late: 2, balance.Failed: 2, balance.Refused: 5} {
		h := begin(t, "r1", "r2", "r3", "r4", "r5")
		for range 200 {
			id, _ := h.read(hour, o)
			h.now += .001
			h.look(0, id)
		}
		out := 0
		for _, f := range h.Figures(moment(h.now)) {
			if f.State == balance.Ejected {
				out++
			}
		}
		if out != most {
			t.Errorf("outcome %d ejects %d of five, want %d", o, out, most)
		}
	}
}

func TestClassesAreNotCompared(t *testing.T) {
	h := begin(t, "r1", "r2", "r3", "r4", "r5")
	took := map[balance.Class]float64{balance.Point: .0005, balance.Script: .2}
	for i := range 8000 {
		c := []balance.Class{balance.Point, balance.Script, balance.Script, balance.Script}[i%4]
		if i == 100 {
			took[balance.Script] = .02
		}
		choice, _ := h.Pick(moment(h.now), balance.Read{Within: time.Hour, Class: c})
		h.now += took[c]
		choice.Done(moment(h.now), balance.Answered)
	}
	for _, f := range h.Figures(moment(h.now)) {
		if f.State != balance.Healthy || f.Weight != 1 || f.Latency < 400*time.Microsecond || f.Latency > 700*time.Microsecond {
			t.Errorf("%+v, want all healthy with half a millisecond", f)
		}
	}
}

// What was learnt stays with the node when the others change, and goes with it.
func TestUpdateKeepsWhatIsKnown(t *testing.T) {
	h := begin(t, "p", "r1", "r2")
	h.fail("r1", balance.Refused)
	h.update("r1", "r3", "p", "p")
	if got := h.Figures(moment(h.now)); len(got) != 3 || got[0].State != balance.Ejected || got[1].Picks != 0 || got[2].Picks == 0 || got[2].Held != 0 {
		t.Errorf("%+v", got)
	}
	h.update("p")
	h.update("p", "r1")
	if f := h.figures("r1"); f.State != balance.Healthy || f.Held >= 0 {
		t.Errorf("%+v of a node that left and came, want nothing known", f)
	}
	many := make([]balance.Node, balance.Most+5)
	for i := range many {
		many[i].ID = string(rune('A' + i))
	}
	h.Update(moment(h.now), many)
	if n := len(h.Figures(moment(h.now))); n != balance.Most {
		t.Errorf("%d nodes, want %d", n, balance.Most)
	}
}

func TestNoChoiceNeedsNoEnd(t *testing.T) {
	balance.Choice{}.Done(moment(0), balance.Answered)
}

// A node that is not chosen is tried now and then: of a thousand reads one, but after five seconds in any case.
func TestIdleNodesAreTried(t *testing.T) {
	h := begin(t, "r1", "r2", "r3")
	slow := func(n int, pause float64) (tried, asked int) {
		for range n {
			c, _ := h.Pick(moment(h.now), hour)
			took := .0005
			if c.Node().ID == "r1" {
				took = .02
				asked++
			}
			if c.Reason == balance.Idle {
				tried++
			}
			c.Done(moment(h.now+took), balance.Answered)
			h.now += pause
		}
		return tried, asked
	}
	slow(2000, .001)
	if tried, asked := slow(20_000, .001); tried < 10 || asked > 20 {
		t.Errorf("of 20,000 reads in 20 s, %d tried idle nodes and %d went to the slow one; want one of a thousand", tried, asked)
	}
	if tried, _ := slow(600, .1); tried < 10 || tried > 30 {
		t.Errorf("of 600 reads in a minute, %d tried idle nodes; want one in five seconds for each", tried)
	}
}

// stuck is a read of a node that does not come to an end.
func (h *hand) stuck(id string) balance.Choice {
	for {
		c, _ := h.Pick(moment(h.now), hour)
		if c.Node().ID == id {
			return c
		}
		c.Done(moment(h.now), balance.Unknown)
	}
}

func TestANodeThatIsBusyIsNotIdle(t *testing.T) {
	h := begin(t, "r1", "r2", "r3")
	h.shares(100, hour)
	c := h.stuck("r1")
	for range 200 { // ten seconds
		if id, why := h.read(hour, balance.Answered); id == "r1" && why == balance.Idle {
			t.Fatal("r1 was tried though a read of it is under way")
		}
		h.now += .05
	}
	c.Done(moment(h.now), balance.Answered)
}

// Whom to try is settled some milliseconds before.
func TestWhoIsEjectedMeanwhileIsNotTried(t *testing.T) {
	h := begin(t, "r1", "r2")
	h.now = 6
	var all []balance.Choice
	for range 5 {
		c, _ := h.Pick(moment(h.now), balance.Read{Within: time.Hour, Not: "r2"})
		all = append(all, c)
	}
	for _, c := range all {
		c.Done(moment(h.now), balance.Failed)
	}
	if f := h.figures("r1"); f.State != balance.Ejected {
		t.Fatalf("%+v", f)
	}
	if id, why := h.read(hour, balance.Answered); id != "r2" {
		t.Errorf("%s was asked for reason %d", id, why)
	}
}

// A trial that fails is not repeated at once, even if so many are ejected already that nobody else would be.
func TestATrialThatFailsMakesTheEjectionLonger(t *testing.T) {
	h := begin(t, "p", "r1")
	h.fail("r1", balance.Late)
	trials := 0
	for end := h.now + 10; h.now < end; h.now += .01 {
		if _, why := h.read(hour, balance.Late); why == balance.Trial {
			trials++
		} else if why == balance.Panicked {
			t.Fatal("panic, though the last that is left is not ejected")
		}
	}
	if trials < 2 || trials > 4 {
		t.Errorf("%d trials in ten seconds, want them after 1, 2 and 4", trials)
	}
}

func TestANodeThatHoldsTooLittleDoesNotKeepOthersFromTheirTrial(t *testing.T) {
	h := begin(t, "r1", "r2", "r3", "p")
	h.fail("r1", balance.Late)
	h.fail("r2", balance.Late)
	h.Look("r1", balance.Look{Asked: moment(h.now)})
	h.now += 2
	for range 10 {
		if id, why := h.read(hour, balance.Answered); id == "r2" && why == balance.Trial {
			return
		}
		h.now += .1
	}
	t.Error("r2 is not tried")
}

// trialIn is how long it takes until a node is tried, when it is looked at every second, and is not there in the second that is said.
func (h *hand) trialIn(id string, silent int) float64 {
	began := h.now
	for second := 0; ; second++ {
		if second == silent {
			h.Look(id, balance.Look{Asked: moment(h.now)})
			h.now += .001
		}
		h.look(0, id)
		for range 10 {
			h.now += .1
			c, _ := h.Pick(moment(h.now), hour)
			if c.Reason == balance.Trial && c.Node().ID == id {
				c.Done(moment(h.now), balance.Late)
				return h.now - began
			}
			c.Done(moment(h.now), balance.Answered)
		}
	}
}

func TestLooksBringATrialForward(t *testing.T) {
	h := begin(t, "r1", "r2", "p")
	h.fail("r1", balance.Late)
	for range 5 { // until it is ejected for 16 s and more
		h.trialIn("r1", -1)
	}
	if in := h.trialIn("r1", -1); in < 5.9 || in > 7.2 {
		t.Errorf("tried after %.1f s of looking well, want 6", in)
	}
	if in := h.trialIn("r1", 5); in < 10.9 || in > 12.2 {
		t.Errorf("tried after %.1f s, want 6 after the fifth", in)
	}
}

// timed reads so often that each node is read, each of which takes its time.
func (h *hand) timed(n int, took func(id string, i int) float64) {
	for i := range n {
		c, _ := h.Pick(moment(h.now), balance.Read{Within: time.Hour, Not: []string{"r1", "r2"}[i%2]})
		c.Done(moment(h.now+took(c.Node().ID, i)), balance.Answered)
		h.now += .001
	}
	h.Update(moment(h.now), h.nodes()) // what is done every 50 ms
}

func (h *hand) nodes() (all []balance.Node) {
	for _, f := range h.Figures(moment(h.now)) {
		all = append(all, balance.Node{ID: f.ID, Primary: f.Primary, Via: f.ID})
	}
	return all
}

func TestOfTwoTheQuickerOneIsTheMeasure(t *testing.T) {
	h := begin(t, "r1", "r2")
	h.timed(1000, func(id string, _ int) float64 { return map[string]float64{"r1": .001, "r2": .005}[id] })
	if a, b := h.figures("r1"), h.figures("r2"); a.Weight != 1 || b.Weight != .1 || b.State != balance.Degraded {
		t.Errorf("%+v, %+v", a, b)
	}
}

func TestTimesThatVaryAreNoSlowness(t *testing.T) {
	h := begin(t, "r1", "r2")
	h.timed(2000, func(_ string, i int) float64 {
		if i/2%5 == 0 {
			return .01
		}
		return .001
	})
	for _, id := range []string{"r1", "r2"} {
		if f := h.figures(id); f.Weight != 1 || f.State != balance.Healthy {
			t.Errorf("%+v, want weight 1: both take 2.8 times the median on average", f)
		}
	}
}

func TestWhoIsEjectedIsNoMeasure(t *testing.T) {
	h := begin(t, "r1", "r2", "r3", "r4", "r5")
	h.timed(1000, func(string, int) float64 { return .0003 })
	for _, id := range []string{"r3", "r4", "r5"} {
		h.fail(id, balance.Refused)
		h.Look(id, balance.Look{Asked: moment(h.now)}) // so that it stays ejected
	}
	for range 400 { // at first both are degraded, until it is known that all are slower now
		h.timed(100, func(string, int) float64 { return .003 })
	}
	for _, id := range []string{"r1", "r2"} {
		if f := h.figures(id); f.Weight != 1 {
			t.Errorf("%+v, want weight 1", f)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	now := time.Now()
	s := shard(5, now, nil)
	if n := testing.AllocsPerRun(10_000, func() {
		c, _ := s.Pick(now, hour)
		now = now.Add(time.Millisecond)
		c.Done(now, balance.Answered)
	}); n != 0 {
		t.Errorf("%v allocations for a read", n)
	}
}

func TestManyAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	s := balance.New(moment(0), nil)
	all := []balance.Node{{ID: "p", Primary: true}, {ID: "r1"}, {ID: "r2"}, {ID: "r3"}}
	s.Update(moment(0), all)
	for worker := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(worker)))
			for i := range 5000 {
				at := float64(i) / 1000
				switch {
				case worker == 0 && i%50 == 0:
					s.Update(moment(at), all[:2+r.IntN(3)])
				case worker == 1 && i%20 == 0:
					s.Look("p", balance.Look{Asked: moment(at), Primary: true, History: "h", Offset: int64(i)})
					s.Look("r1", balance.Look{Asked: moment(at), History: "h", Offset: int64(i), Linked: true})
					s.Figures(moment(at))
				default:
					c, ok := s.Pick(moment(at), hour)
					if !ok {
						t.Error("nobody, though there is a primary")
						return
					}
					c.Done(moment(at+.001), balance.Outcome(r.IntN(5)))
				}
			}
		})
	}
	wg.Wait()
	for _, f := range s.Figures(moment(6)) {
		if f.InFlight != 0 {
			t.Errorf("%d under way to %s after the end", f.InFlight, f.ID)
		}
	}
}

// Whoever has answered with less than was known of him is found out, if each of his connections is looked at before it is read from.
func TestHolds(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(h *hand)
		want bool
	}{
		{"nothing happens", func(*hand) {}, true},
		{"it has all that it had", func(h *hand) { h.look(5, "r") }, true},
		{"it has more", func(h *hand) { h.now++; h.look(9, "p", "r") }, true},
		{"it has less, as after a restart", func(h *hand) { h.look(4, "r") }, false},
		{"it had less, and has caught up", func(h *hand) { h.look(4, "r"); h.look(5, "r") }, false},
		{"it has lost its primary", func(h *hand) { h.Look("r", balance.Look{Asked: moment(h.now), History: "h", Offset: 5}) }, false},
		{"it breaks another connection, and is looked at", func(h *hand) {
			c, _ := h.Pick(moment(h.now), balance.Read{Within: time.Hour, Not: "p"})
			c.Done(moment(h.now), balance.Refused)
			h.now++
			h.look(5, "r")
		}, false},
		{"it leaves, so that nobody hears what it says", func(h *hand) { h.update("p") }, false},
		{"there is a new primary", func(h *hand) {
			h.Look("p", balance.Look{Asked: moment(h.now), Primary: true, History: "new", Offset: 5})
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := begin(t, "p", "r")
			h.now++
			h.look(4, "p")
			h.now++
			h.look(5, "p", "r")
			replica, _ := h.Pick(moment(h.now), balance.Read{Within: time.Hour, Not: "p"})
			primary, _ := h.Pick(moment(h.now), balance.Read{Within: time.Hour, Not: "r"})
			c.then(h)
			if is := replica.Holds(); is != c.want {
				t.Errorf("holds: %v", is)
			}
			if !primary.Holds() {
				t.Error("the primary does not hold what it has")
			}
		})
	}
}
