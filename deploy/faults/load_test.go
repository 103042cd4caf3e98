package faults

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/localcluster"
)

// The operations of a load.
const (
	opAdd    = "add"
	opAppend = "append"
	opPut    = "put"
	opGet    = "get"
	opMget   = "mget"
	opMset   = "mset"
	opRead   = "read" // load.read
)

// mixed is a bit of everything, writes above all.
var mixed = []string{opAdd, opAdd, opAdd, opAppend, opAppend, opAppend, opPut, opGet, opGet, opMget, opMset}

const (
	echoKeys   = 300 // f(key) stands at each before a load
	sharedKeys = 48  // counters and lists that all clients share
	ownKeys    = 12  // of each client, for put and mset
	batchSize  = 12
	// listLength is after how many elements of a client another list is begun: at 1 MiB a value is full.
	listLength = 2000
	// errorPause is how long a client waits after an error: without it a refusing gateway is asked nothing else.
	errorPause = 5 * time.Millisecond
	// clientTimeout is far above the gateway's deadline: an answer is late, not lost.
	clientTimeout = 10 * time.Second
	// onTime is the gateway's deadline of a second and the 50 ms that an answer may come after it.
	onTime = 1050 * time.Millisecond
)

// echo is f: the value that stands at a key.
func echo(key string) string { return "the value of " + key + ", and of no other" }

// storeEcho writes the echo keys.
func storeEcho(t *testing.T, c *redis.ClusterClient) {
	t.Helper()
	for i := range echoKeys {
		key := "e" + strconv.Itoa(i)
		if err := c.Set(within(t), namespace+":"+key, echo(key), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// load is clients that call gateways until they are stopped. Each waits for its answer before it sends the next request.
type load struct {
	ledger  *ledger
	token   string
	target  func() string // host:port for the next request; several gateways behind a balancer have several
	clients int
	rate    float64               // requests per second of all clients; 0: each sends as soon as it has its answer
	ops     []string              // drawn with equal chances; nil is mixed
	query   string                // of single-key writes: "?durability=replica"
	only    func(key string) bool // single keys are drawn until this says yes; nil: always
	gone    func(target string)   // told of a target that takes no connections; the request is then sent again, as a balancer does
	first   int                   // number of the first client; loads that share a ledger need different ones
	prefix  string                // of all keys that are written; loads with ledgers of their own need different ones

	read func(key string) (failed string) // opRead, of an echo key

	running sync.WaitGroup
	cancel  context.CancelFunc
	phase   atomic.Pointer[string]
	group   atomic.Pointer[func(key string) string]
	mu      sync.Mutex
	seen    map[seriesName]*series
}

// seriesName says what is measured together: batches have the group "batch".
type seriesName struct{ phase, group, op string }

// series is what became of the requests of one kind.
type series struct {
	times  histogram // from the moment at which the request should have been sent
	late   int       // later than onTime
	ok     int
	failed map[string]int // by code, or by what the client saw
}

// failures is the number of all that failed.
func (s *series) failures() int {
	n := 0
	for _, f := range s.failed {
		n += f
	}
	return n
}

// start starts the clients, again if they were stopped. The test ends them if stop does not.
func (l *load) start(t *testing.T) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	if l.seen == nil {
		l.seen = map[seriesName]*series{}
	}
	l.enter("start")
	if l.ops == nil {
		l.ops = mixed
	}
	l.regroup(func(string) string { return "" })
	begun := time.Now()
	for i := range l.clients {
		c := &client{load: l, number: l.first + i, random: rand.New(rand.NewPCG(uint64(l.first+i), 7))}
		l.running.Go(func() { c.run(ctx, begun, i) })
	}
	t.Cleanup(l.stop)
	return l
}

// stop ends the clients, each after the answer it waits for, and returns when they have ended.
func (l *load) stop() {
	l.cancel()
	l.running.Wait()
}

// enter begins a phase: what is sent from now on is measured under its name.
func (l *load) enter(phase string) { l.phase.Store(&phase) }

// regroup puts keys into other groups from now on; until then all are in "".
func (l *load) regroup(f func(key string) string) { l.group.Store(&f) }

// sum adds up the series of which every part of the name that is not "*" is equal.
func (l *load) sum(phase, group, op string) *series {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := &series{failed: map[string]int{}}
	for name, s := range l.seen {
		if phase != "*" && phase != name.phase || group != "*" && group != name.group || op != "*" && op != name.op {
			continue
		}
		all.times.merge(&s.times)
		all.ok += s.ok
		all.late += s.late
		for code, n := range s.failed {
			all.failed[code] += n
		}
	}
	return all
}

// note counts one request; failed is "" for one that succeeded.
func (l *load) note(name seriesName, took time.Duration, failed string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[name]
	if s == nil {
		s = &series{failed: map[string]int{}}
		l.seen[name] = s
	}
	s.times.add(took)
	if took > onTime {
		s.late++
	}
	if failed == "" {
		s.ok++
	} else {
		s.failed[failed]++
	}
}

// bySlot groups keys: those that a node serves now are "hit", the others "healthy".
func bySlot(t *testing.T, hit *localcluster.Node) func(key string) string {
	t.Helper()
	ranges, err := hit.Client().ClusterSlots(within(t)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return func(key string) string {
		s := slotOf(key)
		for _, r := range ranges {
			if r.Start <= s && s <= r.End && r.Nodes[0].Addr == hit.Addr {
				return "hit"
			}
		}
		return "healthy"
	}
}
