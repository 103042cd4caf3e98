package balance_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/balance"
)

// The design's simulation: five nodes that answer one command after the other, two gateways, 3,000 reads a second, no retries.
const (
	nodes   = 5
	service = .5e-3 // s, on average
	trip    = .3e-3 // s, there and back
	timeout = 50e-3 // s
	rate    = 3000.
)

// condition is how a node is at a moment.
type condition struct {
	slower float64 // factor of the service time
	trip   float64 // s
	errors float64 // rate
	mode   mode
}

type mode uint8

const (
	up mode = iota
	refusing
	silent
)

var fine = condition{slower: 1, trip: trip}

type scenario struct {
	name    string
	from    float64 // s; what is before is not counted
	seconds float64
	of      func(node int, t float64) condition
}

// first is a scenario of the first node alone.
func first(name string, from, seconds float64, of func(t float64) condition) scenario {
	return scenario{name, from, seconds, func(n int, t float64) condition {
		if n == 0 {
			return of(t)
		}
		return fine
	}}
}

// during is another condition in some time.
func during(from, to float64, c condition) func(t float64) condition {
	return func(t float64) condition {
		if t > from && t < to {
			return c
		}
		return fine
	}
}

// flapping is another condition in two of five seconds.
func flapping(c condition) func(t float64) condition {
	return func(t float64) condition {
		if t > 5 && math.Mod(t-5, 5) < 2 {
			return c
		}
		return fine
	}
}

const length = 40

var (
	refused = condition{slower: 1, trip: trip, mode: refusing}
	s0      = first("S0 equal", 5, length, during(0, 0, fine))
	s1      = first("S1 one is ten times slower", 5, length, during(5, length, condition{slower: 10, trip: trip}))
	s2      = first("S2 one is ten times farther", 5, length, during(5, length, condition{slower: 1, trip: 10 * trip}))
	s3      = first("S3 one refuses now and then", 5, length, flapping(refused))
	s4      = first("S4 one is 20 times slower now and then", 5, length, flapping(condition{slower: 20, trip: trip}))
	s5      = scenario{"S5 all are slower and wrong", 5, length, func(_ int, t float64) condition {
		return during(5, length, condition{slower: 2, trip: trip, errors: .08})(t)
	}}
	s6 = first("S6 a black hole, then cold", 10, length, func(t float64) condition {
		if t > 20 {
			return during(20, 23, condition{slower: 5, trip: trip})(t)
		}
		return during(10, 20, condition{slower: 1, trip: trip, mode: silent})(t)
	})
	s7 = scenario{"S7 three of five refuse", 10, length, func(n int, t float64) condition {
		if n < 3 {
			return during(10, 20, refused)(t)
		}
		return fine
	}}
)

// chooser is one gateway.
type chooser interface {
	pick(t float64) (node int, done func(t float64, o balance.Outcome))
	look(t float64, mode func(node int) mode)
}

type robin struct{ last int }

func (r *robin) pick(float64) (int, func(float64, balance.Outcome)) {
	r.last = (r.last + 1) % nodes
	return r.last, func(float64, balance.Outcome) {}
}

func (r *robin) look(float64, func(int) mode) {}

type chosen struct {
	set *balance.Set
	// blind says that looks show nothing: the node looks well whatever happens to reads, and again as soon as one has failed.
	blind bool
	// shard says that there is a primary, and a bound of three seconds.
	shard bool
}

func moment(t float64) time.Time { return time.Unix(1e9, int64(t*1e9)) }

// replicas are five of a primary that nobody reads from, and of which nothing is known any more but that it was: what they hold is no bound.
func replicas(r *rand.Rand, blind bool) *chosen {
	s := balance.New(moment(0), r.Uint64)
	s.Update(moment(0), []balance.Node{{ID: "primary", Primary: true}})
	s.Look("primary", balance.Look{Asked: moment(0), Primary: true, History: "h"})
	var all []balance.Node
	for i := range nodes {
		all = append(all, balance.Node{ID: strconv.Itoa(i), Via: i})
	}
	s.Update(moment(0), all)
	return &chosen{set: s, blind: blind}
}

func (c *chosen) pick(t float64) (int, func(float64, balance.Outcome)) {
	within := time.Hour
	if c.shard {
		within = 3 * time.Second
	}
	choice, ok := c.set.Pick(moment(t), balance.Read{Within: within})
	if !ok {
		return -1, nil
	}
	return choice.Node().Via.(int), func(t float64, o balance.Outcome) {
		choice.Done(moment(t), o)
		if c.blind && o == balance.Refused {
			c.set.Look(choice.Node().ID, balance.Look{Asked: moment(t + 1e-6), History: "h", Linked: true})
		}
	}
}

// shardOf is a primary, which is the last node, and four replicas. They have just got what was written a hundredth of a second ago.
func shardOf(r *rand.Rand) *chosen {
	s := balance.New(moment(0), r.Uint64)
	var all []balance.Node
	for i := range nodes {
		all = append(all, balance.Node{ID: strconv.Itoa(i), Primary: i == nodes-1, Via: i})
	}
	s.Update(moment(0), all)
	return &chosen{set: s, shard: true}
}

func (c *chosen) look(t float64, mode func(int) mode) {
	for i := nodes - 1; i >= 0; i-- { // the primary first
		l := balance.Look{Asked: moment(t)}
		if c.blind || mode(i) == up {
			l.History, l.Linked = "h", true
		}
		if c.shard {
			l.Primary = i == nodes-1
			l.Offset = int64(t * 1000)
			if !l.Primary {
				l.Offset -= 10
			}
		}
		c.set.Look(strconv.Itoa(i), l)
	}
}

// outcome is what became of the reads after scenario.from.
type outcome struct {
	reads, errors, nobody int
	took                  []float64 // ms, sorted
	share                 []float64 // of the first node, in each tenth of a second from 0
	changes               uint64    // of the first node's state, in the first gateway
}

func (o outcome) p99() float64       { return o.took[int(.99*float64(len(o.took)-1))] }
func (o outcome) errorRate() float64 { return float64(o.errors) / float64(o.reads) }

// shareIn is the share of the first node in some time.
func (o outcome) shareIn(from, to float64) float64 {
	part := o.share[int(from*10):int(to*10)]
	sum := 0.
	for _, x := range part {
		sum += x
	}
	return sum / float64(len(part))
}

type answer struct {
	at   float64
	done func(float64, balance.Outcome)
	how  balance.Outcome
}

type answers []answer

func (h answers) Len() int           { return len(h) }
func (h answers) Less(i, j int) bool { return h[i].at < h[j].at }
func (h answers) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *answers) Push(x any)        { *h = append(*h, x.(answer)) }
func (h *answers) Pop() any          { o := *h; x := o[len(o)-1]; *h = o[:len(o)-1]; return x }

// simulate runs a scenario, without a clock.
func simulate(sc scenario, gateways []chooser, r *rand.Rand) outcome {
	var o outcome
	var free [nodes]float64
	var under answers
	var asked, toFirst = make([]float64, int(sc.seconds*10)+1), make([]float64, int(sc.seconds*10)+1)
	looks := make([]float64, len(gateways))
	for t := 0.; t < sc.seconds; {
		t += r.ExpFloat64() / rate
		for len(under) > 0 && under[0].at <= t {
			a := heap.Pop(&under).(answer)
			a.done(a.at, a.how)
		}
		for g := range gateways {
			if t >= looks[g] {
				gateways[g].look(t, func(n int) mode { return sc.of(n, t).mode })
				looks[g] = t + .9 + .2*r.Float64()
			}
		}
		n, done := gateways[r.IntN(len(gateways))].pick(t)
		counted := t > sc.from
		if counted {
			o.reads++
		}
		if n < 0 {
			o.nobody++
			continue
		}
		took, how := serve(sc.of(n, t), &free[n], t, r)
		heap.Push(&under, answer{t + took, done, how})
		if counted {
			o.took = append(o.took, took*1e3)
			if how != balance.Answered {
				o.errors++
			}
		}
		tenth := min(int(t*10), len(asked)-1)
		asked[tenth]++
		if n == 0 {
			toFirst[tenth]++
		}
	}
	slices.Sort(o.took)
	for i := range asked {
		o.share = append(o.share, toFirst[i]/max(asked[i], 1))
	}
	if c, ok := gateways[0].(*chosen); ok {
		o.changes = c.set.Figures(moment(sc.seconds))[0].Changes
	}
	return o
}

// serve is one read of a node that is free at a time.
func serve(c condition, free *float64, t float64, r *rand.Rand) (took float64, how balance.Outcome) {
	switch c.mode {
	case refusing:
		return c.trip * .7, balance.Refused
	case silent:
		return timeout, balance.Late
	}
	*free = max(*free, t+c.trip/2+.02e-3*r.ExpFloat64()) + service*c.slower*(.3+.7*r.ExpFloat64())
	took = *free + c.trip/2 - t
	wrong := c.errors > 0 && r.Float64() < c.errors
	switch {
	case took > timeout:
		return timeout, balance.Late
	case wrong:
		return took, balance.Failed
	}
	return took, balance.Answered
}

// how gateways choose.
type how string

const (
	round  how = "round"
	seeing how = "seeing" // nodes are looked at every second
	blind  how = "blind"  // see chosen
	whole  how = "whole"  // see shardOf; nodes are looked at every second
)

// run simulates two gateways.
func run(t *testing.T, sc scenario, by how) outcome {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	gateways := []chooser{&robin{0}, &robin{2}}
	switch by {
	case whole:
		gateways = []chooser{shardOf(r), shardOf(r)}
	case seeing, blind:
		gateways = []chooser{replicas(r, by == blind), replicas(r, by == blind)}
	}
	o := simulate(sc, gateways, r)
	t.Logf("%-40s %-6s p99 %6.2f ms, errors %6.3f %%, first node %5.2f %%, state changes %d, nobody %d",
		sc.name, by, o.p99(), 100*o.errorRate(), 100*o.shareIn(sc.from, sc.seconds), o.changes, o.nobody)
	if o.nobody > 0 {
		t.Errorf("%s: nobody was chosen for %d reads", sc.name, o.nobody)
	}
	return o
}

func expect(t *testing.T, what string, is, most float64) {
	t.Helper()
	if !(is <= most) {
		t.Errorf("%s: %.4f, want at most %.4f", what, is, most)
	}
}

func TestSimulationOfReplicas(t *testing.T) {
	going := map[string]outcome{}
	for _, sc := range []scenario{s0, s2, s3, s5, s7} {
		going[sc.name] = run(t, sc, round)
	}
	peace := run(t, s0, seeing)
	expect(t, "S0 p99 beside going round", peace.p99(), 1.05*going[s0.name].p99())

	for _, sc := range []scenario{s1, s4} {
		o := run(t, sc, seeing)
		expect(t, sc.name+": p99 beside peace", o.p99(), 1.3*peace.p99())
		expect(t, sc.name+": errors", o.errorRate(), .0005)
		expect(t, sc.name+": share of the slow node after 0.2 s", o.shareIn(sc.from+.2, sc.from+.3), .05)
	}

	o := run(t, s2, seeing)
	expect(t, "S2 p99 beside going round", o.p99(), .7*going[s2.name].p99())
	expect(t, "S2 share of the far node after 0.2 s", o.shareIn(5.2, 5.3), .05)

	o = run(t, s5, seeing)
	expect(t, "S5 errors beside going round", math.Abs(o.errorRate()/going[s5.name].errorRate()-1), .02)
	expect(t, "S5 p99 beside going round", o.p99(), 1.02*going[s5.name].p99())

	for _, by := range []how{seeing, blind} { // looks make a difference only to nodes that do not answer
		o = run(t, s3, by)
		expect(t, "S3 errors", o.errorRate(), min(.003, going[s3.name].errorRate()/20))
		expect(t, "S3 state changes in 35 s", float64(o.changes), 6)
		expect(t, "S6 errors", run(t, s6, by).errorRate(), .0005)
		expect(t, "S7 errors", run(t, s7, by).errorRate(), min(.003, going[s7.name].errorRate()/20))
	}
}

// The same of a primary and four replicas that lag behind a little. The primary's half weight costs a little of the worst times.
func TestSimulationOfAShard(t *testing.T) {
	peace := run(t, s0, whole)
	expect(t, "S0 p99 beside going round", peace.p99(), 1.15*run(t, s0, round).p99())
	expect(t, "S0 share of a replica", peace.shareIn(5, length), .25)
	expect(t, "S0 share that a replica does not have", 1-peace.shareIn(5, length), 1-1./nodes)
	o := run(t, s1, whole)
	expect(t, "S1 p99 beside peace", o.p99(), 1.3*peace.p99())
	expect(t, "S1 errors", o.errorRate(), .0005)
	expect(t, "S3 errors", run(t, s3, whole).errorRate(), .001)
	expect(t, "S7 errors", run(t, s7, whole).errorRate(), .003)
}

// A node that is well again has 90 % of its share 40 s later at the latest, after ten seconds as after a minute.
func TestARecoveredNodeGetsItsShareBack(t *testing.T) {
	silence := condition{slower: 1, trip: trip, mode: silent}
	for _, c := range []struct {
		name    string
		of      condition
		seconds float64
		by      how
	}{
		{"it refused, and was seen to", refused, 10, seeing},
		{"it refused reads alone", refused, 10, blind},
		{"it refused reads alone for a minute", refused, 60, blind},
		{"it did not answer", silence, 10, blind},
		{"it was ten times slower", condition{slower: 10, trip: trip}, 10, seeing},
	} {
		t.Run(c.name, func(t *testing.T) {
			well := 5 + c.seconds
			o := run(t, first(c.name, 5, well+45, during(5, well, c.of)), c.by)
			if share := o.shareIn(well+40, well+45); share < .9/nodes {
				t.Errorf("%.1f %% of the reads, want 18 %%", 100*share)
			}
		})
	}
}
