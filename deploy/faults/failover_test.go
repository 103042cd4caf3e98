package faults

import (
	"fmt"
	"testing"
	"time"
)

// TestF05PlannedFailover hands the slots of one primary after the other to its replica while clients write to all.
func TestF05PlannedFailover(t *testing.T) {
	scenario(t)
	c := startCluster(t)
	in := install(t, c)
	g := in.serve(t)
	storeEcho(t, in.redis(t))
	before := warm(t, in, g)

	n := times(5, 50)
	// Each replica has its turn again after six failovers. Redis holds an election of the same one only four node timeouts after its last
	// ("Failover attempt expired", cluster.c), 8 s here, and until then lets the writes of the shard wait, for longer than a request may.
	steady := time.Duration(times(300, 1500)) * time.Millisecond
	l := in.load(g, 16).start(t)
	for i := range n {
		l.enter("steady")
		pause(t, steady)
		primaries, err := c.Primaries(within(t))
		if err != nil {
			t.Fatal(err)
		}
		l.enter("failover")
		if _, err := c.Failover(within(t), primaries[i%len(primaries)]); err != nil {
			t.Fatal(err)
		}
	}
	l.stop()

	v := l.compare(t, in.redis(t))
	all, blip := l.sum("*", "*", "*"), l.sum("failover", "*", "*")
	v.mustBeExact(t)
	if all.failures() > 0 {
		t.Errorf("clients saw errors: %v", all.failed)
	}
	results.add(row{
		id: "F-05", done: fmt.Sprintf("planned CLUSTER FAILOVER × %d under load, %d requests", n, all.times.n),
		counted: fmt.Sprintf("%d errors; %s; p99 while it lasts %v, longest %v", all.failures(), v.counted(), ms(blip.times.quantile(.99)), ms(blip.times.max)),
		target:  "0 errors, counters exact; p99 ≤ 250 ms, longest ≤ 1 s",
		verdict: met(all.failures() == 0 && v.exact()),
	})
	results.add(row{id: "F-05", done: "the gateway afterwards", counted: g.flat(t, before), target: "as before", verdict: met(!t.Failed())})
}
