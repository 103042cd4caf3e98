package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// trouble is what a replica goes through, or all of them.
type trouble struct {
	name   string
	begin  func(t *testing.T, s *shard, n *localcluster.Node) (end func())
	errors float64 // the part of the reads that may fail
	p99    float64 // what is aimed at, in that of the undisturbed run; 0: it is only reported
	gone   bool    // it answers nothing: that it is left alone does not depend on how quick the machine is
	alone  bool    // nobody else reads beside the gateway: what is left could not do both
	target string
}

const (
	slower      = 10 // times
	refusedFor  = 2 * time.Second
	acceptedFor = 3 * time.Second
)

// troubles are the design's (algorithms.md 3), as far as they can be made here.
var troubles = []trouble{
	{name: fmt.Sprintf("one replica %d times slower", slower), begin: beginSlow, errors: .001, p99: 1.3, target: "p99 ≤ 1.3x, errors ≤ 0.1 %"},
	{name: "one replica killed (kill -9)", begin: beginKilled, gone: true, errors: .001, target: "errors ≤ 0.1 %"},
	{name: fmt.Sprintf("one replica refuses for %v of %v", refusedFor, refusedFor+acceptedFor), begin: beginFlapping, errors: .001, target: "errors ≤ 0.1 %"},
	{name: "one replica stopped (SIGSTOP)", begin: beginStopped, gone: true, errors: .001, target: "errors ≤ 0.1 %"},
	{name: "all replicas killed", begin: beginAllKilled, gone: true, alone: true, errors: .001, target: "errors ≤ 0.1 %, all by the primary"},
}

func beginSlow(_ *testing.T, s *shard, n *localcluster.Node) func() {
	s.proxy(n).Busy(slower * service)
	return func() { s.proxy(n).Busy(service) }
}

func beginKilled(t *testing.T, s *shard, n *localcluster.Node) func() {
	n.Kill()
	return func() { s.restart(t, n) }
}

func beginStopped(t *testing.T, _ *shard, n *localcluster.Node) func() {
	noError(t, n.Pause())
	return func() { noError(t, n.Resume()) }
}

func beginAllKilled(t *testing.T, s *shard, _ *localcluster.Node) func() {
	replicas := s.replicas(t)
	for _, r := range replicas {
		r.Kill()
	}
	return func() { s.restart(t, replicas...) }
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *shard) restart(t *testing.T, nodes ...*localcluster.Node) {
	t.Helper()
	for _, n := range nodes {
		noError(t, n.Restart(within(t)))
	}
	noError(t, s.cluster.WaitOK(within(t)))
}

func beginFlapping(t *testing.T, s *shard, n *localcluster.Node) func() {
	stop := make(chan struct{})
	var flapping sync.WaitGroup
	wait := func(d time.Duration) (on bool) {
		select {
		case <-time.After(d):
			return true
		case <-stop:
			return false
		}
	}
	flapping.Go(func() {
		for on := true; on; {
			s.proxy(n).Refuse()
			on = wait(refusedFor)
			s.proxy(n).Pass()
			s.proxy(n).Busy(service)
			on = on && wait(acceptedFor)
		}
	})
	end := sync.OnceFunc(func() { close(stop); flapping.Wait() })
	t.Cleanup(end)
	return end
}

// suffering is what became of reads.
type suffering struct {
	before, during *series
	fair, share    float64       // of the node in trouble: before, and in the second half of the trouble
	back           time.Duration // until it had its share again; never = it had not
	failures       map[string]int
	reads          int
}

// times is how many times as long the worst of a hundred reads took as before.
func (f suffering) times() float64 {
	return float64(f.during.times.quantile(.99)) / float64(max(f.before.times.quantile(.99), 1))
}

func (f suffering) failed() (n int) {
	for _, of := range f.failures {
		n += of
	}
	return n
}

func (f suffering) errors() float64 { return float64(f.failed()) / float64(max(f.reads, 1)) }

func (f suffering) String() string {
	return fmt.Sprintf("p99 %v, undisturbed %v (**%.2fx**), %.3f %% of %d failed", ms(f.during.times.quantile(.99)), ms(f.before.times.quantile(.99)),
		f.times(), 100*f.errors(), f.reads)
}

// shares says what the node in trouble was chosen for.
func (f suffering) shares() string {
	text := fmt.Sprintf("its share %.2f %%, before %.0f %%", 100*f.share, 100*f.fair)
	switch {
	case f.back == never:
		text += fmt.Sprintf(", not back within %v", patienceForShare)
	case f.back > 0:
		text += fmt.Sprintf(", back after %v", f.back.Round(100*time.Millisecond))
	}
	return text
}

const (
	// patienceForShare is how long a node that is well is waited for, and shareFor in what time it must have had its share: nine tenths, as in the
	// simulation, of what it had before, and not of more than each of five nodes has.
	patienceForShare = 45 * time.Second
	shareFor         = 3 * time.Second
	shareEnough      = .9
)

// endure has readers through the gateway go through a trouble, and others beside them, so that what else the machine does falls on all. Without
// patience the node's share is not waited for. What became of the others comes in their order.
func (s *shard) endure(t *testing.T, l *load, tr trouble, n *localcluster.Node, patient bool, others ...*load) (ours suffering, theirs []suffering) {
	t.Helper()
	peace, war := 500*time.Millisecond, refusedFor+500*time.Millisecond // so that a replica that refuses now and then is back once
	if longForm() {
		peace, war = 8*time.Second, 15*time.Second
	}
	all := append([]*load{l}, others...)
	enter := func(phase string) {
		for _, l := range all {
			l.enter(phase)
		}
	}
	for _, l := range all {
		l.start(t)
	}
	enter("settling") // connections are made, and who was in trouble is read from again
	settling := s.picks(t)
	pause(t, peace/5)
	eventually(t, "the replica is read from", func() bool { return s.shareSince(t, settling, n) > 0 })
	enter("before")
	before := s.picks(t)
	pause(t, peace)
	ours.fair = s.shareSince(t, before, n)
	enter("during")
	end := tr.begin(t, s, n)
	pause(t, war/2)
	before = s.picks(t)
	pause(t, war/2)
	ours.share = s.shareSince(t, before, n)
	ended := time.Now()
	end()
	enter("after")
	for _, l := range others {
		l.stop()
		theirs = append(theirs, suffered(l))
	}
	if patient {
		ours.back = s.untilShare(t, n, shareEnough*min(ours.fair, 1./5), ended)
	} else {
		pause(t, peace)
	}
	l.stop()
	f := suffered(l)
	f.fair, f.share, f.back = ours.fair, ours.share, ours.back
	return f, theirs
}

// suffered is what became of the reads of a load that has been stopped.
func suffered(l *load) (f suffering) {
	f.before, f.during = l.sum("before", "*", "*"), l.sum("during", "*", "*")
	after := l.sum("after", "*", "*")
	f.reads, f.failures = f.during.times.n+after.times.n, after.failed
	for why, of := range f.during.failed {
		f.failures[why] += of
	}
	return f
}

// untilShare waits until a node has a share for some time, and says how long after its trouble ended that time began.
func (s *shard) untilShare(t *testing.T, n *localcluster.Node, share float64, ended time.Time) time.Duration {
	t.Helper()
	for time.Since(ended) < patienceForShare {
		begins, before := time.Since(ended), s.picks(t)
		pause(t, shareFor)
		if s.shareSince(t, before, n) >= share {
			return max(begins, 1)
		}
	}
	return never
}

// TestR01ReplicaReads has replicas in trouble while they are read from through the gateway, and by go-redis, which chooses among them by chance.
func TestR01ReplicaReads(t *testing.T) {
	scenario(t)
	settings := []string{"overload.enabled=false"} // go-redis sheds nothing either
	if !longForm() {                               // what a busy machine is late with is no error then
		settings = slices.Concat(generous, settings)
	}
	s := startShard(t, settings...)
	before := warm(t, s.in, s.gateway)
	s.busy(service)
	replicas := s.replicas(t)
	s.undisturbed(t)
	for i, tr := range troubles {
		t.Run(tr.name, func(t *testing.T) {
			n := replicas[i%len(replicas)]
			var others []*load
			if longForm() && !tr.alone {
				others = append(others, s.randomly(t))
			}
			ours, theirs := s.endure(t, s.reading(fromReplicas), tr, n, longForm(), others...)
			tr.judge(t, ours)
			counted := "gateway: " + ours.String() + ", " + ours.shares()
			for _, of := range theirs {
				counted += "; go-redis RouteRandomly: " + of.String()
			}
			results.add(row{id: "R-01", done: tr.name, counted: counted, target: tr.target + ", its share back ≤ 40 s", verdict: met(!t.Failed() && tr.reached(ours))})
		})
	}
	s.allAnswer(t, replicas)
	s.app.http.CloseIdleConnections()
	results.add(row{id: "R-01", done: "the gateway afterwards", counted: s.gateway.flat(t, before), target: "as before", verdict: met(!t.Failed())})
}

// judge asserts what is counted.
func (tr trouble) judge(t *testing.T, f suffering) {
	t.Helper()
	if most := max(1, int(tr.errors*float64(f.reads))); f.failed() > most {
		t.Errorf("%d of %d reads failed, %d may: %v", f.failed(), f.reads, most, f.failures)
	}
	for _, why := range []string{wrongValue, missing} {
		if f.failures[why] > 0 {
			t.Errorf("%d reads: %s", f.failures[why], why)
		}
	}
	if tr.gone && f.share > leftAlone {
		t.Errorf("the replica has %.1f %% of the reads while it answers none", 100*f.share)
	}
}

// leftAlone is at most the share of a replica that answers nothing, in the second half of its trouble: it is tried now and then.
const leftAlone = .05

// reached says whether the times are as they should be, which nobody asserts.
func (tr trouble) reached(f suffering) bool {
	return (tr.p99 == 0 || f.times() <= tr.p99) && (f.back == 0 || f.back <= 40*time.Second)
}

// undisturbed reads from a shard that is well, and compares what answers say with whom the proxies saw asked.
func (s *shard) undisturbed(t *testing.T) {
	d := time.Duration(times(1, 10)) * time.Second
	counted := ""
	for _, ask := range []string{fromReplicas, fromReplicas + "&max_staleness_ms=2000"} {
		before, l := map[string]int{}, s.reading(ask)
		for _, n := range s.cluster.Nodes() {
			before[n.Addr] = s.proxy(n).Done()
		}
		s.by = map[string]map[string]int{}
		l.start(t)
		pause(t, d+time.Second*readers/readRate) // until each has sent its first
		l.stop()
		all := l.sum("*", "*", "*")
		if all.failures() > 0 {
			t.Errorf("%s: %v", ask, all.failed)
		}
		primary, byReplicas := s.primary(t), 0
		for _, n := range s.cluster.Nodes() {
			asked, answered := s.proxy(n).Done()-before[n.Addr], s.answers("*", n.Addr)
			if n == primary {
				answered += s.answers("*", byPrimary)
			} else {
				byReplicas += answered
			}
			if asked != answered {
				t.Errorf("%s was asked %d times, and %d answers name it", n.Addr, asked, answered)
			}
		}
		if byReplicas < all.times.n/2 {
			t.Errorf("%s: replicas gave %d of %d answers", ask, byReplicas, all.times.n)
		}
		counted += fmt.Sprintf("; %s: p50 %v, p99 %v, %d reads, %d by replicas, %d failed", ask, ms(all.times.quantile(.5)), ms(all.times.quantile(.99)), all.times.n, byReplicas, all.failures())
	}
	results.add(row{id: "R-01", done: fmt.Sprintf("undisturbed: a primary and four replicas that take %v for each command, %d reads a second", service, readRate),
		counted: counted[2:], target: "0 errors, who answered is who is named", verdict: met(!t.Failed())})
}

// allAnswer waits until all replicas that were in trouble are read from again.
func (s *shard) allAnswer(t *testing.T, replicas []*localcluster.Node) {
	t.Helper()
	l := s.reading(fromReplicas).start(t)
	defer l.stop()
	l.enter("again")
	eventually(t, "all replicas are read from again", func() bool {
		for _, n := range replicas {
			if s.answers("again", n.Addr) == 0 {
				return false
			}
		}
		return true
	})
}

// TestR02MovingSlots moves slots while their keys are read from replicas, which do not know that a slot is being moved: what has gone is not there
// for them, and they redirect nobody.
func TestR02MovingSlots(t *testing.T) {
	scenario(t)
	c := startCluster(t)
	s := inFront(t, c, install(t, c), generous...)
	l := s.reading(fromReplicas)
	l.clients, l.rate = 12, 0
	anywhere, moving := l.read, atomic.Pointer[string]{}
	l.read = func(key string) string { // half of the reads are of what is being moved
		if hot := moving.Load(); hot != nil && rand.IntN(2) == 0 {
			key = *hot
		}
		if rand.IntN(4) > 0 {
			return anywhere(key)
		}
		keys := []string{key}
		for range batchSize - 1 {
			keys = append(keys, "e"+strconv.Itoa(rand.IntN(echoKeys)))
		}
		return s.readMany(*l.phase.Load(), fromReplicas, keys)
	}
	l.start(t)
	home, n := map[int]*localcluster.Node{}, times(40, 1000)
	for i := range n {
		key := "e" + strconv.Itoa(i/2%echoKeys) // there, then back
		slot := slotOf(key)
		from := must(c.PrimaryOf(within(t), slot))(t)
		to := home[slot]
		if delete(home, slot); to == nil {
			to = otherPrimary(t, c, from)
			home[slot] = from
		}
		moving.Store(&key)
		noError(t, c.BeginMigration(within(t), slot, from, to))
		must(c.MoveKeys(within(t), slot, from, to, echoKeys))(t)
		pause(t, 20*time.Millisecond) // as if there were more
		noError(t, c.EndMigration(within(t), slot, to))
	}
	l.stop()
	all, byReplicas := l.sum("*", "*", "*"), 0
	if all.failures() > 0 {
		t.Errorf("of %d reads failed %v", all.times.n, all.failed)
	}
	for _, n := range s.replicas(t) {
		byReplicas += s.answers("*", n.Addr)
	}
	items := s.answers("*", "items by replica")
	if byReplicas < all.times.n/10 || items < all.times.n/10 {
		t.Errorf("%d of %d reads, and %d items of batches, were answered by replicas: nothing was tested", byReplicas, all.times.n, items)
	}
	results.add(row{id: "R-02", done: fmt.Sprintf("%d slots moved there and back under %d reads, a quarter of them mget; replicas answered %d, and %d items", n, all.times.n, byReplicas, items),
		counted: fmt.Sprintf("%d keys not found, %d errors", all.failed[missing], all.failures()-all.failed[missing]),
		target:  "no key is missing, 0 errors", verdict: met(all.failures() == 0)})
}
