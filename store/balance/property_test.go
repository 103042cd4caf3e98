package balance_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slotgate/slotgate/store/balance"
)

// replication is a model of a shard: what its nodes really hold, beside what the set is told of it.
type replication struct {
	*rapid.T
	set     *balance.Set
	now     time.Duration
	primary int // -1 = none is known
	nodes   []replica
	past    []written // what the primary had, by time
	failed  int       // failovers
	under   []reading
}

type replica struct {
	history, has int // a history by its number, and how many writes of it
	trying       bool
	how          balance.Outcome // its reads end so
}

type written struct {
	at  time.Duration
	has int
}

type reading struct {
	balance.Choice
	node int
}

func (r *replication) moment() time.Time { return moment(0).Add(r.now) }

func (r *replication) pass(most time.Duration) {
	r.now += time.Duration(rapid.Int64Range(1, int64(most)).Draw(r.T, "time"))
}

func (r *replication) node() int { return rapid.IntRange(0, len(r.nodes)-1).Draw(r.T, "node") }

func (r *replication) update() {
	var all []balance.Node
	for i := range r.nodes {
		all = append(all, balance.Node{ID: strconv.Itoa(i), Primary: i == r.primary, Via: i})
	}
	r.set.Update(r.moment(), all)
}

func (r *replication) write() {
	if r.primary >= 0 {
		r.nodes[r.primary].has += rapid.IntRange(1, 5).Draw(r.T, "writes")
		r.past = append(r.past, written{r.now, r.nodes[r.primary].has})
	}
}

// replicate gives a replica what it has not got, or some of it.
func (r *replication) replicate() {
	i := r.node()
	if r.primary < 0 || i == r.primary {
		return
	}
	n, p := &r.nodes[i], r.nodes[r.primary]
	if n.history != p.history {
		n.history, n.has = p.history, p.has
		return
	}
	n.has = rapid.IntRange(n.has, p.has).Draw(r.T, "has")
}

func (r *replication) look() { r.lookAt(r.node()) }

// lookAt asks a node, which answers a little later.
func (r *replication) lookAt(i int) {
	asked := r.moment()
	r.pass(200 * time.Millisecond)
	r.set.Look(strconv.Itoa(i), balance.Look{
		Asked: asked, Primary: i == r.primary, History: strconv.Itoa(r.nodes[i].history), Offset: int64(r.nodes[i].has),
		Linked: i != r.primary && rapid.IntRange(0, 9).Draw(r.T, "linked") > 0,
	})
}

// round looks at all of them, as it should be done.
func (r *replication) round() {
	if r.primary >= 0 {
		r.lookAt(r.primary)
	}
	for i := range r.nodes {
		if i != r.primary {
			r.lookAt(i)
		}
	}
}

// failover makes a replica the primary. What it has not got is lost, and nobody's any more.
func (r *replication) failover() {
	r.primary = r.node()
	p := &r.nodes[r.primary]
	if p.history != r.failed {
		p.history = r.failed // it followed in time
	}
	for i := range r.past {
		r.past[i].has = min(r.past[i].has, p.has)
	}
	r.failed++
	p.history = r.failed
	r.update()
}

func (r *replication) lose() {
	r.primary = -1
	r.update()
}

// had is how many writes the primary had at a time.
func (r *replication) had(at time.Duration) int {
	has := 0
	for _, w := range r.past {
		if w.at <= at {
			has = w.has
		}
	}
	return has
}

func (r *replication) pick() {
	read := balance.Read{
		Within: time.Duration(rapid.Int64Range(1, int64(5*time.Second)).Draw(r.T, "within")),
		Class:  balance.Class(rapid.IntRange(0, 4).Draw(r.T, "class")),
	}
	if rapid.IntRange(0, 3).Draw(r.T, "again") == 0 {
		read.Not = strconv.Itoa(r.node())
	}
	well := 0 // nodes that should be chosen
	before := r.set.Figures(r.moment())
	for _, f := range before {
		if f.State != balance.Ejected && f.ID != read.Not && (f.Primary || f.Held >= 0 && f.Held <= read.Within) {
			well++
		}
	}
	c, ok := r.set.Pick(r.moment(), read)
	if !ok {
		if well > 0 || r.primary >= 0 && read.Not == "" {
			r.Fatalf("nobody was chosen of %+v for %+v", before, read)
		}
		return
	}
	i := c.Node().Via.(int)
	if from := r.now - read.Within; i != r.primary && r.nodes[i].has < r.had(from) {
		r.Fatalf("node %d has %d, but the primary had %d at %v", i, r.nodes[i].has, r.had(from), from)
	}
	if c.Node().ID == read.Not {
		r.Fatalf("node %d was chosen again", i)
	}
	switch out := before[i].State == balance.Ejected; c.Reason {
	case balance.Best, balance.Idle:
		if out {
			r.Fatalf("node %d was chosen for reason %d, but is ejected", i, c.Reason)
		}
	case balance.Trial:
		if !out || r.nodes[i].trying {
			r.Fatalf("node %d is tried, but %+v, trying %v", i, before[i], r.nodes[i].trying)
		}
		r.nodes[i].trying = true
	case balance.Panicked:
		if well > 0 {
			r.Fatalf("panic, but there are nodes to choose: %+v", before)
		}
	}
	r.under = append(r.under, reading{c, i})
}

func (r *replication) done() {
	if len(r.under) == 0 {
		return
	}
	k := rapid.IntRange(0, len(r.under)-1).Draw(r.T, "read")
	u := r.under[k]
	r.under = append(r.under[:k], r.under[k+1:]...)
	if u.Reason == balance.Trial {
		r.nodes[u.node].trying = false
	}
	u.Done(r.moment(), r.nodes[u.node].how)
}

// change makes the reads of a node end otherwise.
func (r *replication) change() {
	r.nodes[r.node()].how = rapid.SampledFrom([]balance.Outcome{
		balance.Answered, balance.Answered, balance.Late, balance.Failed, balance.Refused, balance.Unknown,
	}).Draw(r.T, "outcome")
}

// check holds the figures to what is under way.
func (r *replication) check() {
	counts := make([]int64, len(r.nodes))
	for _, u := range r.under {
		counts[u.node]++
	}
	for i, f := range r.set.Figures(r.moment()) {
		if f.InFlight != counts[i] {
			r.Fatalf("%d under way to node %d, but the set says %d", counts[i], i, f.InFlight)
		}
		if (f.State == balance.Ejected) != (f.Weight == 0) || f.Weight > 1 || f.Weight < 0 || f.Weight > 0 && f.Weight < .1 || f.Errors < 0 || f.Errors >= 1 {
			r.Fatalf("figures that cannot be: %+v", f)
		}
	}
}

// Whatever happens: nobody reads what is older than his bound, who is ejected is only tried or is all that is left, somebody is always there as
// long as there is a primary, and nothing is lost count of.
func replicated(t *rapid.T) {
	r := &replication{T: t, set: balance.New(moment(0), rand.New(rand.NewPCG(1, 2)).Uint64)}
	r.nodes = make([]replica, rapid.IntRange(1, 6).Draw(t, "nodes"))
	r.update()
	often := []func(){
		r.pick, r.pick, r.pick, r.pick, r.pick, r.done, r.done, r.done, r.done, r.write, r.replicate, r.replicate, r.look, r.round,
		func() { r.pass(1500 * time.Millisecond) },
	}
	seldom := []func(){r.failover, r.lose, r.change, r.change, r.change, r.change}
	for _, step := range rapid.SliceOfN(rapid.Uint16(), 300, 600).Draw(t, "steps") {
		step *= 40503 // rapid likes small numbers, and the model needs all of its steps
		if step >= 1<<16-1<<12 {
			seldom[int(step)%len(seldom)]()
		} else {
			often[int(step)%len(often)]()
		}
		r.check()
	}
}

func TestWhatIsReadIsNoOlderThanItsBound(t *testing.T) { rapid.Check(t, replicated) }

func FuzzReplicated(f *testing.F) { f.Fuzz(rapid.MakeFuzz(replicated)) }
