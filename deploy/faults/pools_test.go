package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// poolPerShard are the names of pools, one on each primary, in the order of the primaries.
func poolPerShard(t *testing.T, c *localcluster.Cluster) (names []string) {
	t.Helper()
	primaries, err := c.Primaries(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range primaries {
		names = append(names, poolOn(t, p))
	}
	return names
}

// TestP01PoolsInAPlannedFailover hands the slots of one primary after the other to its replica while workers allocate.
func TestP01PoolsInAPlannedFailover(t *testing.T) {
	scenario(t)
	c := startCluster(t)
	in := install(t, c)
	g := in.serve(t)
	l := startPools(t, in, g, 12, poolPerShard(t, c)...)
	n := times(5, 50)
	steady := time.Duration(times(300, 1500)) * time.Millisecond // see TestF05PlannedFailover
	for i := range n {
		pause(t, steady)
		primaries, err := c.Primaries(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Failover(within(t), primaries[i%len(primaries)]); err != nil {
			t.Fatal(err)
		}
	}
	pause(t, steady)
	l.stop()
	v := l.compare(t, in.redis(t))
	v.mustBeExact(t)
	results.add(row{
		id: "P-01", done: fmt.Sprintf("planned CLUSTER FAILOVER × %d under %d allocations from three pools", n, l.total),
		counted: fmt.Sprintf("%s; failed: %s; longest %v", v.counted(), l.failures(), ms(l.longest)),
		target:  "acked ≤ counted ≤ acked + unknown; counts differ by ≤ 1; fences grow", verdict: met(!t.Failed()),
	})
}

// TestP02PoolsWhenPrimariesAreKilled is F-01 for pools: what is lost is counted and told.
func TestP02PoolsWhenPrimariesAreKilled(t *testing.T) {
	scenario(t)
	c := startCluster(t, partial)
	in := install(t, c)
	g := in.serve(t)
	names := poolPerShard(t, c)
	l := startPools(t, in, g, 12, names...)
	n := times(2, 20)
	for i := range n {
		pause(t, 500*time.Millisecond)
		p, err := c.PrimaryOf(within(t), poolSlot(names[i%len(names)]))
		if err != nil {
			t.Fatal(err)
		}
		// See killEach: otherwise a kill loses next to nothing, and leaves nearly nothing done and unanswered.
		if i%2 == 0 {
			alone(t, p)
			pause(t, 300*time.Millisecond)
		} else {
			hangUp(t, p)
		}
		p.Kill()
		if err := c.WaitOK(within(t)); err != nil {
			t.Fatal(err)
		}
		pause(t, 500*time.Millisecond)
		if err := p.Restart(within(t)); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitOK(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	l.stop()
	v := l.compare(t, in.redis(t))
	v.mustBeHonest(t)
	if v.again == 0 {
		t.Error("no allocation was lost: then the test does not show that fences grow all the same")
	}
	if v.unknown == 0 {
		t.Error("nothing was of unknown outcome: then nothing could be there twice")
	}
	results.add(row{
		id: "P-02", done: fmt.Sprintf("kill -9 of a primary × %d, after 0.3 s without its replica or of hanging up on clients in turn, under %d allocations from three pools", n, l.total),
		counted: fmt.Sprintf("%s; failed: %s", v.counted(), l.failures()),
		target:  "lost reported; counted ≤ acked + unknown; counts differ by ≤ 1; fences grow", verdict: met(!t.Failed()),
	})
}

// TestP03PoolsMove moves the slots of pools there and back, key by key, while workers allocate.
func TestP03PoolsMove(t *testing.T) {
	scenario(t)
	c := startCluster(t)
	in := install(t, c)
	// A script that names keys which are not there waits until its slot has moved: Redis answers TRYAGAIN.
	g := in.serve(t, append([]string{"pools.timeout_ms=5000"}, generous...)...)
	names := poolPerShard(t, c)
	l := startPools(t, in, g, 12, names...)
	n, longest := times(30, 300), time.Duration(0)
	home := map[string]*localcluster.Node{}
	for i := range n {
		name := names[i/2%len(names)]
		from, err := c.PrimaryOf(within(t), poolSlot(name))
		if err != nil {
			t.Fatal(err)
		}
		to := home[name]
		if delete(home, name); to == nil {
			to = otherPrimary(t, c, from)
			home[name] = from
		}
		start := time.Now()
		keyByKey(t, c, poolSlot(name), from, to)
		longest = max(longest, time.Since(start))
	}
	l.stop()
	v := l.compare(t, in.redis(t))
	v.mustBeExact(t)
	if len(l.failed) > 0 {
		t.Errorf("workers saw errors: %s", l.failures())
	}
	results.add(row{
		id: "P-03", done: fmt.Sprintf("slots of three pools moved there and back key by key × %d (longest %v) under %d allocations", n, ms(longest), l.total),
		counted: fmt.Sprintf("%s; failed: %s; Redis said TRYAGAIN %d times; longest %v", v.counted(), l.failures(), tryAgains(t, c), ms(l.longest)),
		target:  "no error, counts exact, TRYAGAIN not visible", verdict: met(!t.Failed()),
	})
}
