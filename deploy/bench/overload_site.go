//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
	"github.com/slotgate/slotgate/store/slot"
)

// The shards of the overload suite: a proxy in front of each lets it do one command after the other.
const (
	shards  = 3
	service = 1500 * time.Microsecond // of one command
	peak    = 2000.0                  // commands a second of all shards together, which follows from these two
)

// patience is how long a client waits for a connection of its own before it gives up, and when an answer is of no use any more: as long as the
// gateway lets a request live.
const patience = time.Second

// ceiling is what the gateway's memory has to stay under, in bytes; it is told by GOMEMLIMIT.
const ceiling = 256 << 20

// site is the stage of the overload suite: the cluster behind its proxies, the apps, and the gateway under test.
type site struct {
	*stage
	o       overloadOptions
	stderr  io.Writer
	apart   bool // gateway and generator have different cores
	cores   unix.CPUSet
	proxies []*faultproxy.Proxy // of the shards
	addrs   []string            // of the proxies
	owner   [16384]int          // the shard of each slot
	direct  *redis.ClusterClient
	tenancy *tenancy
	load    *loader
	gateway *gateway
	set     []string // of the running gateway
	phases  int      // so far
}

// The apps of the suite, by their numbers.
const (
	critical = iota
	shop
	blog
	bulk
	limited
	batch
	apps
)

// quota is what the app "limited" may ask a second.
const quota = 50

// overloadApps are one of each class, two normal ones that share, one with a quota, one that sends batches.
var overloadApps = [apps]struct {
	id    string
	class acl.Priority
	quota int64
}{
	critical: {"critical", acl.Critical, 0}, shop: {"shop", acl.Normal, 0}, blog: {"blog", acl.Normal, 0}, bulk: {"bulk", acl.Bulk, 0},
	limited: {"limited", acl.Normal, quota}, batch: {"batch", acl.Normal, 0},
}

func overloadApp(i int) acl.App {
	a := overloadApps[i]
	app := acl.App{ID: a.id, Namespace: a.id, Permissions: []string{"strings:*", "keys:*"}, Priority: a.class}
	if a.quota > 0 {
		app.Limits = []acl.Limit{{ID: "quota", Per: "app", Of: "requests", Limit: a.quota, PeriodMS: 1000, Burst: a.quota}}
	}
	return app.WithDefaults()
}

func openSite(ctx context.Context, s *stage, o overloadOptions, stderr io.Writer) (*site, error) {
	t := &site{stage: s, o: o, stderr: stderr}
	var others unix.CPUSet
	var err error
	if t.cores, others, t.apart, err = halves(); err != nil {
		return nil, err
	}
	if !t.apart {
		t.say("one core for everything: gateway and load generator disturb each other, times mean little")
	}
	if err := pinSelf(others); err != nil {
		return nil, err
	}
	if err := s.startCluster(ctx, shards, 0); err != nil {
		return nil, err
	}
	if err := t.startProxies(ctx); err != nil {
		return nil, err
	}
	t.tenancy, err = s.newTenancy(ctx, apps, overloadApp)
	if err != nil {
		return nil, err
	}
	t.load, err = startLoader(s)
	return t, err
}

func (t *site) startProxies(ctx context.Context) error {
	network, err := faultproxy.NewNetwork(t.cluster.Addrs())
	if err != nil {
		return err
	}
	t.closers = append(t.closers, func() { _ = network.Close() })
	if err := network.Announce(); err != nil {
		return err
	}
	t.addrs = network.Addrs()
	for i, n := range t.cluster.Nodes() {
		t.proxies = append(t.proxies, network.Proxy(n.Addr))
		ranges, err := n.Client().ClusterSlots(ctx).Result()
		if err != nil {
			return err
		}
		for _, r := range ranges {
			for s := r.Start; s <= r.End && r.Nodes[0].Addr == n.Addr; s++ {
				t.owner[s] = i
			}
		}
	}
	t.direct = redis.NewClusterClient(&redis.ClusterOptions{Addrs: t.cluster.Addrs()})
	t.closers = append(t.closers, func() { _ = t.direct.Close() })
	return nil
}

// useGateway starts a gateway with these settings, in place of one with others.
func (t *site) useGateway(ctx context.Context, set []string) error {
	if t.gateway != nil && slices.Equal(t.set, set) {
		return nil
	}
	if t.gateway != nil {
		t.gateway.stop()
	}
	first := t.gateway == nil
	t.set = set
	v := variant{Name: "gateway", Binary: t.o.Gateway, Env: append([]string{fmt.Sprintf("GOMEMLIMIT=%d", ceiling)}, t.o.Env...)}
	v.Set = append(append([]string{"limits.bytes_in_flight=" + strconv.Itoa(ceiling/4)}, t.o.Set...), set...)
	err := pinnedTo(t.cores, func() (err error) {
		t.gateway, err = t.startGatewayOn(ctx, options{}, v, "gateway", t.tenancy, t.addrs)
		return err
	})
	if err != nil || !first {
		return err
	}
	return t.seed(ctx)
}

// keysPerShard is how many keys of an app each shard has, for reading.
const keysPerShard = 400

// keys are those of an app on some shards, as many on each.
func (t *site) keys(app int, on []int) []string {
	var all []string
	left := map[int]int{}
	for _, s := range on {
		left[s] = keysPerShard
	}
	for i := 0; len(all) < keysPerShard*len(on); i++ {
		key := "k" + strconv.Itoa(i)
		if s := t.owner[slot.Of(t.stored(app, key))]; left[s] > 0 {
			left[s]--
			all = append(all, key)
		}
	}
	return all
}

// stored is a key as it stands in Redis.
func (t *site) stored(app int, key string) string { return overloadApps[app].id + ":" + key }

var everywhere = []int{0, 1, 2}

// overloadValue is what all keys hold: 100 bytes.
var overloadValue = strings.Repeat("0123456789", 10)

// seed writes the keys of all apps through the gateway, while the shards take no time.
func (t *site) seed(ctx context.Context) error {
	c := session{addr: t.gateway.addr}
	defer c.close()
	d := t.door()
	for app := range apps {
		for keys := range slices.Chunk(t.keys(app, everywhere), 40) {
			if app == limited { // whose quota is not for this
				for _, key := range keys {
					if err := t.direct.Set(ctx, t.stored(app, key), overloadValue, 0).Err(); err != nil {
						return err
					}
				}
				continue
			}
			if _, err := c.exchange(ctx, d.mset(app, keys, slices.Repeat([]string{overloadValue}, len(keys)))); err != nil {
				return fmt.Errorf("writing keys: %w", err)
			}
		}
	}
	return nil
}

func (t *site) door() *door {
	return gatewayDoors(variant{Name: "gateway"}, []*gateway{t.gateway}, "overload", false)[0]
}

// stream is requests of one kind by one app.
type stream struct {
	app    int
	op     string
	on     []int   // shards; nil: all
	rate   float64 // a second
	ledger bool    // of writes: every one has a key of its own, and what became of it is compared with what is stored
}

func (s stream) name() string {
	return fmt.Sprintf("%s %s %v", overloadApps[s.app].id, s.op, s.on)
}

// batchKeys is how many keys a large batch has.
const batchKeys = 1000

// requests are what a stream sends for so long.
func (t *site) requests(s stream, d time.Duration) [][]byte {
	door := t.door()
	if s.ledger {
		all := make([][]byte, ledgerKeys(s.rate, d))
		for i := range all {
			all[i] = door.put(s.app, t.ledgerKey(i), overloadValue)
		}
		return all
	}
	on := s.on
	if on == nil {
		on = everywhere
	}
	keys := t.keys(s.app, on)
	shuffle(keys, t.o.Seed)
	var all [][]byte
	for i, key := range keys {
		switch s.op {
		case opGet:
			all = append(all, door.get(s.app, key))
		case opPut:
			all = append(all, door.put(s.app, key, overloadValue))
		case opMGet, opMSet:
			if i%100 == 0 { // some batches of different keys
				some := slices.Concat(keys[i:], keys[:i])[:batchKeys]
				if s.op == opMGet {
					all = append(all, door.mget(s.app, some))
				} else {
					all = append(all, door.mset(s.app, some, slices.Repeat([]string{overloadValue}, batchKeys)))
				}
			}
		}
	}
	return all
}

// ledgerKeys is more than a stream's arrivals by chance.
func ledgerKeys(rate float64, d time.Duration) int { return int(rate*d.Seconds()*1.3) + 100 }

func (t *site) ledgerKey(i int) string { return fmt.Sprintf("w%d-%d", t.phases, i) }

// open connects a stream: as many connections as it needs when every request takes as long as the gateway lets it live, but no more than 64, the
// pool of a client. Ten requests of a stream are under way at a time, and who has to wait for a connection waits since it was due. Connections
// themselves are not what is measured: each costs a collection of garbage some 4 us, during which nothing else happens on one core.
func (t *site) open(ctx context.Context, s stream, d time.Duration) error {
	o := order{Do: "open", Row: s.name(), Addrs: []string{t.gateway.addr}, Conns: int(min(max(s.rate*1.2, 48), 64)), Requests: t.requests(s, d)}
	if isBatch(s.op) {
		o.Keep, o.Conns = keptBody, 16
	} else {
		o.Keep = 1 << 10
	}
	_, err := t.load.do(ctx, o)
	return err
}

// watchMemory samples the memory of the gateway until it is stopped, and then returns the most.
func (t *site) watchMemory() (stop func() int64) {
	ended := make(chan struct{})
	var most int64
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			if now, err := residentBytes(t.gateway.pids()); err == nil {
				most = max(most, now)
			}
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	})
	return func() int64 {
		close(ended)
		watching.Wait()
		return most
	}
}

// phase runs streams side by side. What is due in the lead-in is measured apart: the limits find their size in it. slow is how many times
// longer the last shard takes for a command.
func (t *site) phase(ctx context.Context, name string, lead, d time.Duration, slow int, streams []stream) (*phase, error) {
	t.phases++
	asked := 0
	for i, p := range t.proxies {
		asked -= p.Done()
		p.Busy(service)
		if i == shards-1 {
			p.Busy(service * time.Duration(slow))
		}
	}
	o := order{Do: "flows", Row: name, Duration: lead + d, Lead: lead, Patience: patience}
	for i, s := range streams {
		if err := t.open(ctx, s, lead+d); err != nil {
			return nil, err
		}
		o.Flows = append(o.Flows, flow{Row: s.name(), Rate: s.rate, Seed: t.o.Seed*100 + uint64(i), Ledger: s.ledger})
	}
	stop := t.watchMemory()
	before, err1 := t.usage()
	shed, err4 := shedOf(ctx, t.gateway)
	r, err2 := t.load.do(ctx, o)
	after, err3 := t.usage()
	shedNow, err5 := shedOf(ctx, t.gateway)
	ph := &phase{name: name, streams: streams, tallies: r.Flows, seconds: d.Seconds(), memory: stop(), shed: shedNow}
	for by, n := range shed {
		ph.shed[by] -= n
	}
	for i := range ph.cores {
		ph.cores[i] = (after[i] - before[i]).Seconds() / r.Elapsed.Seconds()
	}
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	for _, p := range t.proxies {
		asked += p.Done()
		p.Pass()
	}
	ph.asked = asked
	for i, s := range streams {
		if _, err := t.load.do(ctx, order{Do: "close", Row: s.name()}); err != nil {
			return nil, err
		}
		if err := t.compare(ctx, ph, s, r.Flows[i]); err != nil {
			return nil, err
		}
	}
	t.say("%s", ph)
	return ph, nil
}

// usage is the CPU time so far of the gateway, and of everything else that the suite runs.
func (t *site) usage() (used [2]time.Duration, err error) {
	if used[0], err = cpuTime(t.gateway.pids()); err != nil {
		return used, err
	}
	used[1], err = cpuTime(slices.Concat(t.load.pids(), t.clusterPIDs(), []int{os.Getpid()}))
	return used, err
}

// compare looks for what a ledger's writes should have left in Redis.
func (t *site) compare(ctx context.Context, ph *phase, s stream, f *tally) error {
	there := func(numbers []int) (n int, err error) {
		for part := range slices.Chunk(numbers, 500) {
			found, err := t.direct.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, i := range part {
					p.Exists(ctx, t.stored(s.app, t.ledgerKey(i)))
				}
				return nil
			})
			if err != nil {
				return 0, err
			}
			for _, cmd := range found {
				n += int(cmd.(*redis.IntCmd).Val())
			}
		}
		return n, nil
	}
	acked, err1 := there(f.Acked)
	refused, err2 := there(f.NotApplied)
	ph.acked += len(f.Acked)
	ph.lost += len(f.Acked) - acked
	ph.wrong += refused
	return errors.Join(err1, err2)
}
