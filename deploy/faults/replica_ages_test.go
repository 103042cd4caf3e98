package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

const (
	stampKeys  = 4
	stampEvery = 10 * time.Millisecond // of each key
	ageRate    = 200                   // reads in a second, of each bound
	ageReaders = 64
)

func stampKey(k int) string { return "stamp" + strconv.Itoa(k) }

// stamps are keys that are written all the time, with numbers that grow by one, and when each number was acked.
type stamps struct {
	mu    sync.Mutex
	acked [stampKeys][]time.Time // by number; zero: it was not
}

// stamp starts the writers, which end with the test or by stop, and returns when there is a number at each key.
func (s *shard) stamp(t *testing.T) (all *stamps, stop func()) {
	t.Helper()
	all = &stamps{}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for k := range stampKeys {
		put := func(n int) bool {
			a := s.app.call(context.WithoutCancel(ctx), "PUT", "/v1/strings/"+stampKey(k), fmt.Sprintf(`{"value":"%d"}`, n))
			at := time.Time{}
			if a.err == nil && a.status == 200 {
				at = time.Now()
			}
			all.mu.Lock()
			defer all.mu.Unlock()
			all.acked[k] = append(all.acked[k], at)
			return !at.IsZero()
		}
		if !put(0) {
			t.Fatal("the first number was not acked")
		}
		writing.Go(func() {
			for n := 1; sleep(ctx, stampEvery); n++ {
				put(n)
			}
		})
	}
	stop = func() { cancel(); writing.Wait() }
	t.Cleanup(stop)
	return all, stop
}

// age is for how long a read that began at a time could have known better than the number it got: since a later one was acked. What was acked
// was done before, so it is never called older than it was.
func (s *stamps) age(k, number int, began time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := number + 1; n < len(s.acked[k]); n++ {
		if at := s.acked[k][n]; !at.IsZero() {
			return max(began.Sub(at), 0)
		}
	}
	return 0
}

// aging is readers with a bound.
type aging struct {
	*load
	shard  *shard
	stamps *stamps
	bound  time.Duration

	turn   atomic.Int64
	mu     sync.Mutex
	oldest map[string]time.Duration // by role
	roles  map[string]int           // answers
	tooOld int
	told   []string // of some that were
	by     map[string]map[string]int
}

// aging returns readers that want nothing older than a bound. They are to be started.
func (s *shard) aging(all *stamps, bound time.Duration) *aging {
	a := &aging{load: s.in.load(s.gateway, ageReaders), shard: s, stamps: all, bound: bound, oldest: map[string]time.Duration{}, roles: map[string]int{}, by: map[string]map[string]int{}}
	a.rate, a.ops = ageRate, []string{opRead}
	query := fmt.Sprintf("%s&max_staleness_ms=%d", fromReplicas, bound.Milliseconds())
	a.read = func(string) string {
		k := int(a.turn.Add(1)) % stampKeys
		began := time.Now()
		got := s.app.call(context.Background(), "GET", "/v1/strings/"+stampKey(k)+query, "")
		return a.judge(k, began, got)
	}
	return a
}

func (a *aging) judge(k int, began time.Time, got reply) (failed string) {
	var of struct{ Value string }
	switch {
	case got.err != nil:
		return "no answer"
	case got.status != 200:
		return fmt.Sprint(got.status, " ", got.code)
	case json.Unmarshal(got.body, &of) != nil:
		return wrongValue
	}
	number, err := strconv.Atoi(of.Value)
	if err != nil {
		return wrongValue
	}
	addr, role := a.shard.servedBy(got)
	if addr == "" {
		return nobody
	}
	age, phase := a.stamps.age(k, number, began), *a.phase.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[phase] == nil {
		a.by[phase] = map[string]int{}
	}
	a.by[phase][addr]++
	a.roles[role]++
	a.oldest[role] = max(a.oldest[role], age)
	if age > a.bound {
		if a.tooOld++; a.tooOld <= 5 {
			a.told = append(a.told, fmt.Sprintf("%s, %s %s: number %d at %s is %v old, the bound is %v", phase, role, addr, number, stampKey(k), age, a.bound))
		}
	}
	return ""
}

// answers is how many of a phase are by a node, by its address or role as servedBy has it.
func (a *aging) answers(phase, by string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by[phase][by]
}

// verdict stops the readers and asserts that no answer was too old, none was of another key, and no key was missing.
func (a *aging) verdict(t *testing.T) string {
	t.Helper()
	a.stop()
	all := a.sum("*", "*", "*")
	for _, text := range a.told {
		t.Log(text)
	}
	if a.tooOld > 0 {
		t.Errorf("%d of %d answers are older than %v", a.tooOld, all.times.n, a.bound)
	}
	for _, why := range []string{wrongValue, missing, nobody} {
		if n := all.failed[why]; n > 0 {
			t.Errorf("%d reads: %s", n, why)
		}
	}
	if most := max(1, all.times.n/100); all.failures() > most {
		t.Errorf("%d of %d reads failed, %d may: %v", all.failures(), all.times.n, most, all.failed)
	}
	return fmt.Sprintf("bound %v: %d reads, %d by replicas (oldest answer %v), %d by the primary (oldest %v), **%d older than the bound**, %d failed %v", a.bound, all.times.n,
		a.roles[byReplica], ms(a.oldest[byReplica]), a.roles[byPrimary], ms(a.oldest[byPrimary]), a.tooOld, all.failures(), all.failed)
}

// The bounds of the readers. A replica that lags more than the one and less than the other must answer these readers and not those.
const (
	closeBound = 2 * time.Second
	wideBound  = 15 * time.Second
)

// TestF12StaleReplicas has replicas fall behind in every way there is, and looks how old what is read from them is.
func TestF12StaleReplicas(t *testing.T) {
	scenario(t)
	s := startShard(t)
	all, stop := s.stamp(t)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *shard, near, wide *aging)
	}{
		{"one replica takes over nothing more, one is cut off from its primary, one is stopped (SIGSTOP)", fallBehind},
		{"a replica that nobody reads from is killed, and is back at once with an old file", comeBackOld},
		{"planned failover, after which the old primary takes over nothing", failOver},
		{"all replicas take over nothing more, and writes with durability=replica", allFallBehind},
	} {
		t.Run(c.name, func(t *testing.T) {
			near, wide := s.aging(all, closeBound), s.aging(all, wideBound)
			near.start(t)
			wide.start(t)
			s.allRead(t, near)
			c.run(t, s, near, wide)
			counted := near.verdict(t) + "; " + wide.verdict(t)
			results.add(row{id: "F-12", done: c.name, counted: counted, target: "no answer older than its bound; the others go on", verdict: met(!t.Failed())})
			s.repair(t)
		})
	}
	stop()
}

// enter begins a phase of both.
func enter(phase string, all ...*aging) {
	for _, a := range all {
		a.enter(phase)
	}
}

// allRead waits until every replica is read from.
func (s *shard) allRead(t *testing.T, a *aging) {
	t.Helper()
	phase := "all are read from"
	a.enter(phase)
	replicas := s.replicas(t)
	eventually(t, phase, func() bool {
		for _, n := range replicas {
			if a.answers(phase, n.Addr) == 0 {
				return false
			}
		}
		return true
	})
}

// behind is how long after a trouble began a replica with it has left the readers with the close bound for sure: the bound, and what the gateway
// may take to look at it.
const behind = closeBound + time.Second

func fallBehind(t *testing.T, s *shard, near, wide *aging) {
	r := s.replicas(t)
	stalled, cut, stopped, well := r[0], r[1], r[2], r[3]
	enter("begin", near, wide)
	noError(t, stalled.StallReplication(within(t)))
	noError(t, cut.CutReplication(within(t)))
	noError(t, stopped.Pause())
	pause(t, behind)
	enter("behind", near, wide)
	pause(t, time.Duration(times(2, 10))*time.Second)
	s.knowsOld(t, near.stamps, stalled)
	enter("end", near, wide) // who wakes up has been sent reads, and what was written meanwhile, and may do the one or the other first
	noError(t, stopped.Resume())
	pause(t, time.Second)
	noError(t, stalled.ResumeReplication(within(t)))
	noError(t, cut.MendReplication(within(t)))
	noError(t, s.cluster.WaitOK(within(t)))
	s.allRead(t, near)
	for _, n := range []*localcluster.Node{stalled, cut, stopped} {
		if got := near.answers("behind", n.Addr); got > 0 {
			t.Errorf("%s is behind, and %d reads with a bound of %v are answered by it", n.Addr, got, near.bound)
		}
	}
	if near.answers("behind", well.Addr) == 0 {
		t.Error("the replica that is well is not read from")
	}
	if wide.answers("behind", stalled.Addr) == 0 {
		t.Errorf("nobody with a bound of %v reads from a replica that is behind less", wide.bound)
	}
}

// knowsOld fails unless a node, asked itself, has what is older than the close bound: otherwise nothing is tested.
func (s *shard) knowsOld(t *testing.T, all *stamps, n *localcluster.Node) {
	t.Helper()
	conn := n.Client().Conn()
	defer conn.Close()
	noError(t, conn.ReadOnly(within(t)).Err())
	began, number := time.Now(), 0
	eventually(t, "the replica answers", func() (ok bool) { // a node that has just begun does not know yet that the cluster is well
		began = time.Now()
		var err error
		number, err = conn.Get(within(t), namespace+":"+stampKey(0)).Int()
		return err == nil
	})
	if age := all.age(0, number, began); age <= closeBound {
		t.Errorf("the replica has what is only %v old: nothing was tested", age)
	}
}

// comeBackOld has a replica restart with an old file, and not find its primary. Readers are still while it happens, so that none is told of it by
// a connection that breaks under him.
func comeBackOld(t *testing.T, s *shard, near, wide *aging) {
	n := s.replicas(t)[0]
	noError(t, n.Client().Save(within(t)).Err())
	pause(t, behind)
	for range times(3, 20) {
		noError(t, n.Client().ConfigSet(within(t), "masterauth", "not the password").Err())
		noError(t, n.Client().ConfigRewrite(within(t)).Err())
		near.stop()
		wide.stop()
		n.Kill()
		noError(t, n.Restart(within(t)))
		s.knowsOld(t, near.stamps, n)
		near.start(t)
		wide.start(t)
		enter("old", near, wide)
		pause(t, 300*time.Millisecond)
		noError(t, n.MendReplication(within(t)))
		noError(t, n.Client().ConfigRewrite(within(t)).Err())
		noError(t, s.cluster.WaitOK(within(t)))
		s.allRead(t, near)
	}
}

func failOver(t *testing.T, s *shard, near, wide *aging) {
	for range times(1, 8) {
		failOverOnce(t, s, near, wide)
	}
}

func failOverOnce(t *testing.T, s *shard, near, wide *aging) {
	old := s.primary(t)
	chosen := must(s.cluster.ReplicaOf(within(t), old))(t)
	enter("failover", near, wide)
	noError(t, chosen.Client().ClusterFailover(within(t)).Err())
	eventually(t, "the failover", func() bool {
		role, err := old.Role(within(t))
		return err == nil && role == localcluster.Replica
	})
	noError(t, old.StallReplication(within(t)))
	pause(t, behind)
	enter("behind", near, wide)
	pause(t, time.Duration(times(1, 3))*time.Second)
	s.knowsOld(t, near.stamps, old)
	if got := near.answers("behind", old.Addr); got > 0 {
		t.Errorf("the old primary is behind, and %d reads with a bound of %v are answered by it", got, near.bound)
	}
	enter("end", near, wide)
	noError(t, old.ResumeReplication(within(t)))
	noError(t, s.cluster.WaitOK(within(t)))
	s.allRead(t, near)
}

func allFallBehind(t *testing.T, s *shard, near, wide *aging) {
	replicas := s.replicas(t)
	enter("begin", near, wide)
	for _, n := range replicas {
		noError(t, n.StallReplication(within(t)))
	}
	pause(t, behind)
	enter("behind", near, wide)
	for i := range times(5, 50) {
		a := s.app.call(t.Context(), "PUT", "/v1/strings/durable"+strconv.Itoa(i)+"?durability=replica", `{"value":"v"}`)
		if a.status != 504 || a.code != "applied_not_replicated" || a.outcome != "applied" {
			t.Errorf("a write that no replica takes over: %d %s %s", a.status, a.code, a.outcome)
		}
	}
	pause(t, time.Second)
	for _, n := range replicas {
		if got := near.answers("behind", n.Addr); got > 0 {
			t.Errorf("%s is behind, and %d reads with a bound of %v are answered by it", n.Addr, got, near.bound)
		}
		s.knowsOld(t, near.stamps, n)
	}
	if near.answers("behind", s.primary(t).Addr)+near.answers("behind", byPrimary) == 0 {
		t.Error("the primary is not read from")
	}
	enter("end", near, wide)
	noError(t, s.cluster.ResumeReplication(within(t)))
	noError(t, s.cluster.WaitOK(within(t)))
	s.allRead(t, near)
}
