package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// TestF03FreezePrimary stops a primary for shorter than the cluster waits, then for longer, so that its replica takes over meanwhile; then
// wakes it up, which still believes to be the primary and finds in its buffers what was sent to it.
func TestF03FreezePrimary(t *testing.T) {
	scenario(t)
	freezes := []time.Duration{time.Second, 5 * time.Second}
	if longForm() {
		freezes = append(freezes, 30*time.Second)
	}
	c := startCluster(t, partial)
	in := install(t, c)
	g := in.serve(t)
	storeEcho(t, in.redis(t))
	before := warm(t, in, g)
	for i, d := range freezes {
		primaries, err := c.Primaries(within(t))
		if err != nil {
			t.Fatal(err)
		}
		p := primaries[i%len(primaries)]
		l := in.load(g, 16)
		l.prefix = fmt.Sprint("before", i, "-")
		l.start(t)
		l.regroup(bySlot(t, p))
		pause(t, 300*time.Millisecond)
		l.enter("frozen")
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		pause(t, d)
		// What is acked from here on must not be from the old primary, which will throw it away.
		l.stop()
		later := in.load(g, 16)
		later.prefix = fmt.Sprint("after", i, "-")
		later.start(t)
		if err := p.Resume(); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitOK(within(t)); err != nil {
			t.Fatal(err)
		}
		pause(t, 500*time.Millisecond)
		later.stop()

		v, w := l.compare(t, in.redis(t)), later.compare(t, in.redis(t))
		v.mustBeHonest(t)
		w.mustBeExact(t)
		all := l.sum("*", "*", "*")
		results.add(row{
			id: "F-03", done: fmt.Sprintf("SIGSTOP of a primary for %v, SIGCONT", d),
			counted: fmt.Sprintf("%s; after SIGCONT %s; longest answer %v, %d of %d later than 1.05 s", v.counted(), w.counted(), ms(all.times.max), all.late, all.times.n),
			target:  "0 double, 0 wrong labels, after SIGCONT 0 lost; every answer by 1.05 s", verdict: met(v.honest() && w.exact() && all.late == 0),
		})
	}
	results.add(row{id: "F-03", done: "the gateway afterwards", counted: g.flat(t, before), target: "as before", verdict: met(!t.Failed())})
}

// TestF04FreezeOneOfThree stops one primary and looks at the keys of the others, at a rate that leaves the machine idle half of the time.
// The cluster waits a minute: nothing fails over.
func TestF04FreezeOneOfThree(t *testing.T) {
	scenario(t)
	c := startCluster(t, partial, func(o *localcluster.Options) { o.NodeTimeout = time.Minute })
	in := install(t, c)
	g := in.serve(t)
	storeEcho(t, in.redis(t))
	before := warm(t, in, g)
	of := bySlot(t, c.Nodes()[0])
	single := []string{opAdd, opAppend, opPut, opGet}
	healthy, hit := in.load(g, 16), in.load(g, 48)
	healthy.rate, healthy.ops, healthy.only = 800, single, func(key string) bool { return of(key) == "healthy" }
	hit.rate, hit.ops, hit.only, hit.first = 400, single, func(key string) bool { return of(key) == "hit" }, 100
	hit.ledger = healthy.ledger
	healthy.start(t)
	hit.start(t)
	pause(t, time.Second)
	phase := func(name string) {
		healthy.enter(name)
		hit.enter(name)
	}
	// In turn, so that what else the machine does falls on both.
	rounds, length := times(4, 20), 2*time.Second
	most := 0
	watch := func() { // in both, as a scrape is work for the gateway and for those who measure
		for begun := time.Now(); time.Since(begun) < length; pause(t, 250*time.Millisecond) {
			most = max(most, int(g.metric(t, "go_goroutines")))
		}
	}
	for range rounds {
		phase("whole")
		watch()
		phase("frozen")
		if err := c.Nodes()[0].Pause(); err != nil {
			t.Fatal(err)
		}
		watch()
		phase("after")
		if err := c.Nodes()[0].Resume(); err != nil {
			t.Fatal(err)
		}
		pause(t, time.Second)
	}
	healthy.stop()
	hit.stop()

	v := healthy.compare(t, in.redis(t))
	v.mustBeExact(t)
	whole, frozen, stuck := healthy.sum("whole", "*", "*"), healthy.sum("frozen", "*", "*"), hit.sum("frozen", "*", "*")
	if frozen.failures() > 0 {
		t.Errorf("keys of healthy shards: %v", frozen.failed)
	}
	if opens := int(g.metric(t, "slotgate_redis_circuit_opens_total")); opens != rounds {
		t.Errorf("the frozen node was cut off %d times in %d freezes", opens, rounds)
	}
	// Each request may have one goroutine, and its connection another two.
	if bound := before.goroutines + 3*(healthy.clients+hit.clients) + slack; most > bound {
		t.Errorf("%d goroutines", most)
	}
	p99, p99Before := frozen.times.quantile(.99), whole.times.quantile(.99)
	results.add(row{
		id: "F-04", done: fmt.Sprintf("SIGSTOP of one of three primaries for %v × %d, 800 requests/s to the other two, 400 to it", length, rounds),
		counted: fmt.Sprintf("others: %d requests, %d errors, p99 %v, before %v (**%.2fx**); its own: %d answers, %s, p99 %v; at most %d goroutines; %s",
			frozen.times.n, frozen.failures(), ms(p99), ms(p99Before), float64(p99)/float64(p99Before), stuck.times.n, words(stuck.failed), ms(stuck.times.quantile(.99)), most, v.counted()),
		target: "others: 0 errors, p99 ≤ 1.2x; goroutines bounded", verdict: met(!t.Failed() && float64(p99) <= 1.2*float64(p99Before)),
	})
	results.add(row{id: "F-04", done: "the gateway afterwards", counted: g.flat(t, before), target: "as before", verdict: met(!t.Failed())})
}

// words tells failures by code, for the table.
func words(failed map[string]int) string { return strings.TrimPrefix(fmt.Sprint(failed), "map") }
