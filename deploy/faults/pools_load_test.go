package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/pool/pooltest"
	"github.com/slotgate/slotgate/store/slot"
)

// poolKinds are the kinds of pools in turn. By each of these policies members have the same, within one; more than 64 are allocated by a schedule.
var poolKinds = []struct {
	policy  string
	members int
}{{"least_used", 7}, {"weighted_round_robin", 80}, {"round_robin", 7}}

// poolLoad is workers that allocate from pools until they are stopped, and a ledger of what they were told. Every other one leases what it is
// given, and completes that at once; one in four allocates with an Idempotency-Key, and asks a second time.
type poolLoad struct {
	caller  *caller
	pools   []string
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	ledgers map[string]*allocations
	failed  map[string]int // by code, or by what the worker saw
	wrong   []string       // answers that cannot be right
	longest time.Duration
	total   int
}

// allocations are what workers were told of those of one pool.
type allocations struct {
	members              int
	told                 [outcomes]int
	given                map[choice]int // how often each was, repetitions not counted
	leases               []pooltest.Lease
	completed, forgotten int // of leases; forgotten is one that was neither completed before nor had it expired
	changed              int // repetitions that had another answer than the first time
}

// choice is a member and how many allocations it had then: no two are alike, unless Redis has lost some in between.
type choice struct {
	member string
	number int64
}

// poolOn is a name for a pool that a node stores.
func poolOn(t *testing.T, n *localcluster.Node) string {
	t.Helper()
	ranges, err := n.Client().ClusterSlots(within(t)).Result()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		name := "p" + strconv.Itoa(i)
		s := poolSlot(name)
		for _, r := range ranges {
			if r.Start <= s && s <= r.End && r.Nodes[0].Addr == n.Addr {
				return name
			}
		}
	}
}

func poolSlot(name string) int { return slot.Of(poolKey(name)) }

// poolKey is where the pool's allocations are counted.
func poolKey(name string) string { return "slotgate:p:{" + namespace + "/" + name + "}:cnt" }

// startPools defines a pool for each name and lets workers loose on them, each on one.
func startPools(t *testing.T, in *installation, g *gateway, workers int, names ...string) *poolLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &poolLoad{caller: newCaller(t, "http://"+g.api, in.token), pools: names, cancel: cancel, ledgers: map[string]*allocations{}, failed: map[string]int{}}
	for n, name := range names {
		kind := poolKinds[n%len(poolKinds)]
		l.ledgers[name] = &allocations{members: kind.members, given: map[choice]int{}}
		l.caller.must(t, 200, "PUT", "/v1/pools/"+name, fmt.Sprintf(`{"policy":%q}`, kind.policy))
		var list []string
		for i := range kind.members {
			list = append(list, fmt.Sprintf(`{"member":"m%d"}`, i))
		}
		l.caller.must(t, 200, "PUT", "/v1/pools/"+name+"/members", `{"members":[`+strings.Join(list, ",")+`]}`)
	}
	begin := time.Now()
	for w := range workers {
		l.running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				// Each request has its end: the ledger must have it.
				if !l.work(context.WithoutCancel(ctx), begin, names[w%len(names)], w, i) && !sleep(ctx, errorPause) {
					return
				}
				if w%4 == 0 && !sleep(ctx, 20*time.Millisecond) { // the quota of new Idempotency-Keys
					return
				}
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

// stop ends the workers and returns when they have ended.
func (l *poolLoad) stop() {
	l.cancel()
	l.running.Wait()
}

// given is the answer to an allocation, as far as it matters here.
type given struct {
	Member      *string
	Allocations int64
	Lease       *struct {
		ID    string
		Fence int64
	}
}

func (l *poolLoad) work(ctx context.Context, begin time.Time, name string, w, i int) bool {
	path, body, headers := "/v1/pools/"+name, `{}`, []string(nil)
	if w%2 == 0 {
		body = `{"lease_ms":600000}`
	}
	if w%4 == 0 {
		headers = append(headers, fmt.Sprintf("Idempotency-Key: %d-%d", w, i))
	}
	asked := time.Since(begin)
	a := l.caller.call(ctx, "POST", path+"/allocations", body, headers...)
	told, had := a.told(), time.Since(begin)
	if len(headers) > 0 {
		again := l.caller.call(ctx, "POST", path+"/allocations", body, headers...)
		switch {
		case told == acked && again.status == 200 && string(a.body) != string(again.body):
			l.note(func() { l.ledgers[name].changed++ })
		case told != acked && again.status == 200: // then that is what there is
			a, told, had = again, acked, time.Since(begin)
		case told != acked && again.told() == unknown:
			told = unknown
		}
	}
	var got given
	if told == acked && (json.Unmarshal(a.body, &got) != nil || got.Member == nil || (got.Lease != nil) != (w%2 == 0)) {
		l.note(func() { l.wrong = append(l.wrong, string(a.body)) })
		return false
	}
	l.note(func() {
		of := l.ledgers[name]
		of.told[told]++
		l.total++
		l.longest = max(l.longest, a.took)
		if told != acked {
			l.failed[cause(a)]++
			return
		}
		of.given[choice{*got.Member, got.Allocations}]++
		if got.Lease != nil {
			of.leases = append(of.leases, pooltest.Lease{Asked: asked, Had: had, Fence: got.Lease.Fence})
		}
	})
	if got.Lease != nil {
		l.complete(ctx, name, path+"/leases/"+got.Lease.ID+"/complete", fmt.Sprintf(`{"fence":%d}`, got.Lease.Fence))
	}
	return told == acked
}

// complete ends a lease, and tries until it is told what has become of it.
func (l *poolLoad) complete(ctx context.Context, name, path, body string) {
	for unsure := false; ; {
		a := l.caller.call(ctx, "POST", path, body)
		switch {
		case a.status == 200, a.status == 404 && unsure:
			l.note(func() { l.ledgers[name].completed++ })
			return
		case a.status == 404:
			l.note(func() { l.ledgers[name].forgotten++ })
			return
		case a.err == nil && a.status < 500:
			l.note(func() { l.wrong = append(l.wrong, fmt.Sprintf("completion: %d %s", a.status, a.body)) })
			return
		}
		l.note(func() { l.failed[cause(a)]++ })
		unsure = unsure || a.told() != notApplied
		time.Sleep(errorPause)
	}
}

func (l *poolLoad) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// cause names what went wrong.
func cause(a reply) string {
	if a.err != nil {
		return "no answer"
	}
	return fmt.Sprint(a.status, " ", a.code)
}

// poolVerdict is what the ledgers of all pools come to.
type poolVerdict struct {
	acked, notApplied, unknown int
	stored                     int64
	lost, double               int64
	again                      int // numbers of a member that were given twice: Redis had lost the first
	spread                     int64
	completed, forgotten       int
	changed                    int
	leases, unordered          int // unordered are those with no greater fence than an earlier one
	wrong                      int
}

// compare reads what Redis has. Call it when no worker works any more.
func (l *poolLoad) compare(t *testing.T, c *redis.ClusterClient) (v poolVerdict) {
	t.Helper()
	for _, name := range l.pools {
		of := l.ledgers[name]
		v.acked += of.told[acked]
		v.notApplied += of.told[notApplied]
		v.unknown += of.told[unknown]
		counts, err := c.ZRangeWithScores(within(t), poolKey(name), 0, -1).Result()
		if err != nil || len(counts) != of.members {
			t.Fatalf("pool %s: %v, %v", name, counts, err)
		}
		sum := int64(0)
		for _, m := range counts {
			sum += int64(m.Score)
		}
		v.stored += sum
		v.spread = max(v.spread, int64(counts[len(counts)-1].Score-counts[0].Score))
		v.lost += max(0, int64(of.told[acked])-sum)
		v.double += max(0, sum-int64(of.told[acked]+of.told[unknown]))
		for _, n := range of.given {
			v.again += n - 1
		}
		v.completed += of.completed
		v.forgotten += of.forgotten
		v.changed += of.changed
		v.leases += len(of.leases)
		v.unordered += pooltest.Disorder(of.leases)
	}
	v.wrong = len(l.wrong)
	for _, text := range l.wrong[:min(len(l.wrong), maxExamples)] {
		t.Log(text)
	}
	return v
}

func (v poolVerdict) counted() string {
	return fmt.Sprintf("%d acked, %d not applied, %d unknown, %d counted in Redis: **%d lost, %d double**, %d numbers given twice; members' counts differ by at most %d; "+
		"%d leases, %d completed, %d forgotten, %d fences not greater than before; %d repetitions with another answer", v.acked, v.notApplied, v.unknown, v.stored, v.lost, v.double, v.again, v.spread,
		v.leases, v.completed, v.forgotten, v.unordered, v.changed)
}

// mustBeHonest is what holds whatever the fault: nothing is there more often than asked for, the pool is as if all that it counts had
// happened one after the other, fences grow, and no answer contradicts another.
func (v poolVerdict) mustBeHonest(t *testing.T) {
	t.Helper()
	if v.double > 0 || v.spread > 1 || v.unordered > 0 || v.wrong > 0 {
		t.Errorf("%s; %d answers that cannot be right", v.counted(), v.wrong)
	}
	if v.acked < 100 || v.leases < 10 || v.completed == 0 {
		t.Errorf("next to nothing was tested: %s", v.counted())
	}
}

// mustBeExact is what holds where Redis loses nothing.
func (v poolVerdict) mustBeExact(t *testing.T) {
	t.Helper()
	v.mustBeHonest(t)
	if v.lost > 0 || v.again > 0 || v.forgotten > 0 || v.changed > 0 {
		t.Errorf("something is lost: %s", v.counted())
	}
}

// failures are the causes of what failed, "none" if nothing has.
func (l *poolLoad) failures() string {
	if len(l.failed) == 0 {
		return "none"
	}
	var list []string
	for _, cause := range slices.Sorted(maps.Keys(l.failed)) {
		list = append(list, fmt.Sprint(cause, ": ", l.failed[cause]))
	}
	return strings.Join(list, ", ")
}
