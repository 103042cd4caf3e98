package faults

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// manyReads draws reads of many keys above all, so that many replies are compared in little time; the writes are for doubles.
var manyReads = []string{opMget, opMget, opMget, opMget, opGet, opGet, opAdd, opAppend, opPut, opMset}

// replies is how many values were compared with their keys.
func (l *load) replies() int { return l.sum("*", "*", opGet).ok + batchSize*l.sum("*", "*", opMget).ok }

// untilReplies runs a load under faults until it has compared so many values, then ends the faults and sees whether any connection still
// gives the wrong answer, or none. It returns what was counted, and how many requests failed when the faults were over.
func untilReplies(t *testing.T, g *assembled, c *localcluster.Cluster, n int, end func()) (counted string, exact bool, poisoned *series) {
	t.Helper()
	l := g.load(16)
	l.ops = manyReads
	l.start(t)
	for deadline := time.Now().Add(30 * time.Minute); l.replies() < n; pause(t, 10*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d replies in 30 minutes", l.replies(), n)
		}
	}
	l.stop()
	end()

	sound := g.load(16)
	sound.first, sound.ledger = 1000, l.ledger
	eventually(t, "the gateway answers", func() bool {
		return g.caller(t).call(t.Context(), "GET", "/v1/strings/e1", "").status == 200
	})
	sound.ops = manyReads
	sound.start(t)
	pause(t, 2*time.Second)
	sound.stop()
	after := sound.sum("*", "*", "*")
	v := l.compare(t, redisOf(t, c))
	v.mustBeExact(t)
	all := l.sum("*", "*", "*")
	return fmt.Sprintf("%d values compared, %d of %d requests failed; %s, %d crossed; afterwards %d of %d failed", l.replies(), all.failures(), all.times.n,
		v.counted(), v.crossed, after.failures(), after.times.n), v.exact(), after
}

// TestF09CutReplies cuts connections inside replies, at random bytes, by closing and by resetting them.
func TestF09CutReplies(t *testing.T) {
	scenario(t)
	c := startCluster(t)
	network := clustertest.Proxied(t, c)
	g := assemble(t, assembly{addrs: c.Addrs(), dial: network.Dial})
	storeEcho(t, redisOf(t, c))
	cuts := func() (n int) {
		for _, addr := range c.Addrs() {
			n += network.Proxy(addr).Cuts()
		}
		return n
	}
	for _, addr := range c.Addrs() {
		network.Proxy(addr).CutReplies(300)
	}
	counted, exact, poisoned := untilReplies(t, g, c, times(100_000, 1_000_000), network.Pass)
	if poisoned.failures() > 0 {
		t.Errorf("when the faults were over clients still saw errors: %v", poisoned.failed)
	}
	if cuts() < 100 {
		t.Errorf("only %d replies were cut", cuts())
	}
	results.add(row{
		id: "F-09", done: fmt.Sprintf("%d connections to Redis cut at a random byte of a reply, half of them reset", cuts()),
		counted: counted, target: "crossed 0, double 0, poisoned connections 0", verdict: met(exact && poisoned.failures() == 0),
	})
}

// TestF10Jitter delays replies by times around that at which the gateway gives up, also those with which connections are set up.
func TestF10Jitter(t *testing.T) {
	scenario(t)
	const readTimeout = 100 * time.Millisecond
	c := startCluster(t)
	network := clustertest.Proxied(t, c)
	g := assemble(t, assembly{addrs: c.Addrs(), dial: network.Dial, deadline: 4 * readTimeout, redis: store.RedisConfig{
		ReadTimeout: readTimeout, WriteTimeout: readTimeout, DialTimeout: readTimeout,
	}})
	storeEcho(t, redisOf(t, c))
	for _, addr := range c.Addrs() {
		network.Proxy(addr).Jitter(1000, readTimeout/2, readTimeout*3/2)
	}
	// What sets connections up must be late too, and so they must be set up.
	stop := make(chan struct{})
	var resets sync.WaitGroup
	broken := 0
	resets.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				broken += network.ResetAll()
			}
		}
	})
	// Failures afterwards are not held against it: a busy machine is slower than this short time-out by itself.
	counted, exact, _ := untilReplies(t, g, c, times(100_000, 1_000_000), func() {
		close(stop)
		resets.Wait()
		network.Pass()
	})
	results.add(row{
		id: "F-10", done: fmt.Sprintf("one reply in 1,000 late by 0.5 to 1.5 times redis.read_timeout_ms (%d), %d connections reset meanwhile", readTimeout.Milliseconds(), broken),
		counted: counted, target: "crossed 0, double 0", verdict: met(exact),
	})
}

// TestF08BlackHole loses everything that goes to one node.
func TestF08BlackHole(t *testing.T) {
	scenario(t)
	const deadline = time.Second // the default
	c := startCluster(t, func(o *localcluster.Options) { o.Replicas = 0 })
	network := clustertest.Proxied(t, c)
	g := assemble(t, assembly{addrs: c.Addrs(), dial: network.Dial})
	primaries, err := c.Primaries(within(t))
	if err != nil {
		t.Fatal(err)
	}
	hit, group := primaries[0], bySlot(t, primaries[0])
	storeEcho(t, redisOf(t, c))
	l := g.load(32)
	l.ops = []string{opAdd, opGet, opGet, opPut, opAppend}
	l.start(t)
	l.regroup(group)
	pause(t, time.Second)
	proxy := network.Proxy(hit.Addr)
	l.enter("hole")
	began, dials := time.Now(), proxy.Accepted()
	proxy.BlackHole()
	opened := time.Duration(0)
	for time.Since(began) < time.Duration(times(6, 30))*time.Second {
		pause(t, 10*time.Millisecond)
		if opened == 0 && g.metric(t, "slotgate_redis_circuit_open", "cluster=default") > 0 {
			opened = time.Since(began)
		}
	}
	rate := float64(proxy.Accepted()-dials) / time.Since(began).Seconds()
	l.enter("after")
	proxy.Pass()
	back := time.Now()
	key := keyOn(t, hit, "back")
	g.caller(t).eventually(t, 200, "PUT", "/v1/strings/"+key, `{"value":"v"}`)
	recovery := time.Since(back)
	l.stop()

	v := l.compare(t, redisOf(t, c))
	v.mustBeExact(t)
	dead, healthy := l.sum("hole", "hit", "*"), l.sum("hole", "healthy", "*")
	if healthy.failures() > 0 {
		t.Errorf("keys of other nodes failed: %v", healthy.failed)
	}
	if most := deadline + 500*time.Millisecond; dead.times.max > most {
		t.Errorf("an answer took %v with a deadline of %v; %v is allowed for a busy machine", dead.times.max, deadline, most)
	}
	if opened == 0 {
		t.Error("the circuit of the node never opened")
	}
	results.add(row{
		id: "F-08", done: "everything to one primary lost, 32 clients on all keys",
		counted: fmt.Sprintf("longest answer %v, p99 %v; others' keys: %d errors, p99 %v; %.1f dials/s; circuit open after %v; back %v after the network; %s",
			ms(dead.times.max), ms(dead.times.quantile(.99)), healthy.failures(), ms(healthy.times.quantile(.99)), rate, ms(opened), ms(recovery), v.counted()),
		target:  "deadline (1 s) + 50 ms; ≤ 5 dials/s; circuit open ≤ 1 s",
		verdict: met(dead.times.max <= deadline+50*time.Millisecond && rate <= 5 && opened > 0 && opened <= time.Second && v.exact()),
	})
}
