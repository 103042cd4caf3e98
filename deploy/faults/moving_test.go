package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// generous are settings with which an answer that comes late on a busy machine is late, and not an error; longest answers are reported.
var generous = []string{"limits.deadline_ms=10000", "http.write_timeout_ms=60000", "redis.read_timeout_ms=5000", "redis.write_timeout_ms=5000", "redis.pool_timeout_ms=1000"}

// TestF06MovingSlots moves slots there and back, key by key, while clients use their keys.
func TestF06MovingSlots(t *testing.T) {
	scenario(t)
	c := startCluster(t)
	in := install(t, c)
	g := in.serve(t, generous...)
	direct := in.redis(t)
	storeEcho(t, direct)
	l := in.load(g, 12).start(t)
	tagged := startTagged(t, in, g)

	slots := busySlots()
	n, longest := times(100, 1000), time.Duration(0)
	home := map[int]*localcluster.Node{}
	for i := range n {
		s := slots[(i/2)%len(slots)] // there, then back
		if i/2%10 == 0 {
			s = slotOf(taggedCounter)
		}
		from, err := c.PrimaryOf(within(t), s)
		if err != nil {
			t.Fatal(err)
		}
		to := home[s]
		if delete(home, s); to == nil {
			to = otherPrimary(t, c, from)
			home[s] = from
		}
		start := time.Now()
		keyByKey(t, c, s, from, to)
		longest = max(longest, time.Since(start))
	}
	l.stop()
	applied := tagged.stop()

	v := l.compare(t, direct)
	v.mustBeExact(t)
	all := l.sum("*", "*", "*")
	if all.failures() > 0 {
		t.Errorf("clients saw errors: %v", all.failed)
	}
	wrong := tagged.check(t, direct.Get(within(t), namespace+":"+taggedCounter).Val())
	results.add(row{
		id: "F-06", done: fmt.Sprintf("%d slots moved there and back key by key (longest %v) under %d requests, batches and %d writes with two keys among them", n, ms(longest), all.times.n, applied),
		counted: fmt.Sprintf("%d errors, %d of the writes with two keys; Redis said TRYAGAIN %d times; %s; p99 %v, longest %v", all.failures(), wrong, tryAgains(t, c), v.counted(),
			ms(all.times.quantile(.99)), ms(all.times.max)),
		target: "0 errors, counters exact, TRYAGAIN not visible", verdict: met(all.failures() == 0 && wrong == 0 && v.exact()),
	})
}

// tryAgains is how often the nodes have answered so.
func tryAgains(t *testing.T, c *localcluster.Cluster) (total int) {
	t.Helper()
	for _, n := range c.Nodes() {
		for line := range strings.Lines(n.Client().Info(within(t), "errorstats").Val()) {
			var count int
			if _, err := fmt.Sscanf(line, "errorstat_TRYAGAIN:count=%d", &count); err == nil {
				total += count
			}
		}
	}
	return total
}

// busySlots are those of keys that a load uses: counters, lists and echoes.
func busySlots() []int {
	var slots []int
	seen := map[int]bool{}
	add := func(key string) {
		if s := slotOf(key); !seen[s] {
			seen[s] = true
			slots = append(slots, s)
		}
	}
	for i := range echoKeys {
		for _, name := range []string{"c", "e", "l"} {
			if name == "e" || i < sharedKeys {
				add(name + strconv.Itoa(i) + map[string]string{"l": "-0"}[name])
			}
		}
	}
	return slots
}

func otherPrimary(t *testing.T, c *localcluster.Cluster, than *localcluster.Node) *localcluster.Node {
	t.Helper()
	primaries, err := c.Primaries(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range primaries {
		if p != than {
			return p
		}
	}
	t.Fatal("there is one primary only")
	return nil
}

// keyByKey moves a slot with as many steps as it has keys.
func keyByKey(t *testing.T, c *localcluster.Cluster, s int, from, to *localcluster.Node) {
	t.Helper()
	if err := c.BeginMigration(within(t), s, from, to); err != nil {
		t.Fatal(err)
	}
	for {
		moved, err := c.MoveKeys(within(t), s, from, to, 1)
		if err != nil {
			t.Fatal(err)
		}
		if moved == 0 {
			break
		}
	}
	if err := c.EndMigration(within(t), s, to); err != nil {
		t.Fatal(err)
	}
}

// taggedCounter is in a slot with many keys, so that its moving takes many steps.
const taggedCounter = "{moving}counter"

// taggedLoad adds to one counter with an Idempotency-Key, which makes it a script of two keys, and those Redis answers with TRYAGAIN while
// one of them has moved and the other has not. Each write is sent twice.
type taggedLoad struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	done    atomic.Int64
	failed  atomic.Int64
	last    atomic.Pointer[string]
}

func startTagged(t *testing.T, in *installation, g *gateway) *taggedLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &taggedLoad{cancel: cancel}
	caller := newCaller(t, "http://"+g.api, in.token)
	for i := range 50 {
		caller.must(t, 200, "PUT", fmt.Sprintf("/v1/strings/{moving}%d", i), `{"value":"one of many keys of a slot"}`)
	}
	for w := range 2 {
		l.running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				write := func() reply {
					return caller.call(context.WithoutCancel(ctx), "POST", "/v1/counters/"+taggedCounter+"/add", `{"delta":1}`,
						fmt.Sprintf("Idempotency-Key: %d-%d", w, i))
				}
				first, again := write(), write()
				l.done.Add(1)
				if first.status != 200 || again.status != 200 || string(first.body) != string(again.body) {
					text := fmt.Sprintf("%d %s %v, then %d %s %v", first.status, first.body, first.err, again.status, again.body, again.err)
					l.last.Store(&text)
					l.failed.Add(1)
				}
				pause(t, 20*time.Millisecond) // the quota of new Idempotency-Keys
			}
		})
	}
	t.Cleanup(func() { l.stop() })
	return l
}

// stop ends it and returns the number of writes.
func (l *taggedLoad) stop() int64 {
	l.cancel()
	l.running.Wait()
	return l.done.Load()
}

// check compares the counter and returns how many writes went wrong.
func (l *taggedLoad) check(t *testing.T, stored string) int64 {
	t.Helper()
	if text := l.last.Load(); text != nil {
		t.Errorf("%d of %d writes with two keys went wrong, the last one: %s", l.failed.Load(), l.done.Load(), *text)
	} else if stored != fmt.Sprint(l.done.Load()) {
		t.Errorf("the counter is %s after %d writes", stored, l.done.Load())
		return 1
	}
	return l.failed.Load()
}
