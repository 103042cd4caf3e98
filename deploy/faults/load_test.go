package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
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
)

// mixed is a bit of everything, writes above all.
var mixed = []string{opAdd, opAdd, opAdd, opAppend, opAppend, opAppend, opPut, opGet, opGet, opMget, opMset}

// writes are the operations that have an outcome each; batches have one per item.
var writes = []string{opAdd, opAppend, opPut}

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

// start starts the clients. The test ends them if stop does not.
func (l *load) start(t *testing.T) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	l.seen = map[seriesName]*series{}
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

// client is one caller of a load, with connections of its own.
type client struct {
	load   *load
	number int
	random *rand.Rand
	http   *http.Client
	sent   int // elements and values so far, which makes them unique
}

func (c *client) run(ctx context.Context, begun time.Time, i int) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1, DisableCompression: true}
	defer transport.CloseIdleConnections()
	c.http = &http.Client{Transport: transport, Timeout: clientTimeout}
	interval := time.Duration(0)
	due := begun
	if l := c.load; l.rate > 0 {
		interval = time.Duration(float64(l.clients) / l.rate * float64(time.Second))
		due = begun.Add(interval * time.Duration(i) / time.Duration(l.clients))
	}
	for {
		if interval == 0 {
			due = time.Now()
		} else {
			due = due.Add(interval)
		}
		if !sleep(ctx, time.Until(due)) {
			return
		}
		if !c.once(due) && !sleep(ctx, errorPause) {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once sends a request and waits for its answer, also when the load is being stopped: the ledger must have it.
func (c *client) once(due time.Time) (ok bool) {
	l := c.load
	name := seriesName{phase: *l.phase.Load(), group: "batch", op: l.ops[c.random.IntN(len(l.ops))]}
	var failed string
	switch name.op {
	case opMget:
		failed = c.mget()
	case opMset:
		failed = c.mset()
	default:
		var key string
		key, failed = c.single(name.op)
		name.group = (*l.group.Load())(key)
	}
	l.note(name, time.Since(due), failed)
	return failed == ""
}

// key draws one for an operation.
func (c *client) key(op string) (key string) {
	for {
		switch op {
		case opAdd:
			key = c.load.prefix + "c" + strconv.Itoa(c.random.IntN(sharedKeys))
		case opAppend:
			key = c.load.prefix + "l" + strconv.Itoa(c.random.IntN(sharedKeys)) + "-" + strconv.Itoa(c.sent/listLength)
		case opPut:
			key = c.load.prefix + fmt.Sprintf("p%d-%d", c.number, c.random.IntN(ownKeys))
		default:
			key = "e" + strconv.Itoa(c.random.IntN(echoKeys))
		}
		if c.load.only == nil || c.load.only(key) {
			return key
		}
	}
}

func (c *client) single(op string) (key, failed string) {
	c.sent++
	key = c.key(op)
	switch q := c.load.query; op {
	case opAdd:
		a := c.send("POST", "/v1/counters/"+key+"/add"+q, `{"delta":1}`)
		c.load.ledger.added(key, c.outcome(a))
		return key, a.failed()
	case opAppend:
		e := entry{client: c.number, number: c.sent}
		a := c.send("POST", "/v1/strings/"+key+"/append"+q, `{"value":"`+e.text()+`"}`)
		c.load.ledger.appended(key, e.client, e.number, c.outcome(a))
		return key, a.failed()
	case opPut:
		value := entry{client: c.number, number: c.sent}
		a := c.send("PUT", "/v1/strings/"+key+q, `{"value":"`+value.text()+`"}`)
		c.load.ledger.set(key, value.text(), c.outcome(a))
		return key, a.failed()
	default:
		a := c.send("GET", "/v1/strings/"+key, "")
		var got struct{ Value *string }
		if a.status == 200 && (json.Unmarshal(a.body, &got) != nil || got.Value == nil || *got.Value != echo(key)) {
			c.load.ledger.cross(fmt.Sprintf("GET %s: %.200q", key, a.body))
		}
		return key, a.failed()
	}
}

func (c *client) mget() (failed string) {
	keys := make([]string, batchSize)
	for i := range keys {
		keys[i] = "e" + strconv.Itoa(c.random.IntN(echoKeys))
	}
	body, _ := json.Marshal(map[string]any{"keys": keys})
	a := c.send("POST", "/v1/mget", string(body))
	if a.status != 200 {
		return a.failed()
	}
	var got struct {
		Items []struct {
			Key     string
			Found   bool
			Value   *string
			Problem *problem
		}
	}
	if err := json.Unmarshal(a.body, &got); err != nil || len(got.Items) != len(keys) {
		c.load.ledger.cross(fmt.Sprintf("mget of %d keys: %.200q", len(keys), a.body))
		return ""
	}
	for i, item := range got.Items {
		switch {
		case item.Problem != nil:
			failed = item.Problem.Code
		case item.Key != keys[i] || item.Value == nil || *item.Value != echo(keys[i]):
			c.load.ledger.cross(fmt.Sprintf("mget, item %d of %s: %+v", i, keys[i], item))
		}
	}
	return failed
}

func (c *client) mset() (failed string) {
	type item struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	items := make([]item, batchSize)
	for i := range items {
		c.sent++
		items[i] = item{c.load.prefix + fmt.Sprintf("m%d-%d", c.number, i), entry{client: c.number, number: c.sent}.text()}
	}
	body, _ := json.Marshal(map[string]any{"items": items})
	a := c.send("POST", "/v1/mset", string(body))
	whole := c.outcome(a)
	said := map[string]outcome{}
	for _, i := range parseProblem(a.body).Items {
		said[i.Key] = outcomeOf(i.Outcome, whole)
	}
	for _, i := range items {
		o, ok := said[i.Key]
		if !ok {
			o = whole
		}
		if o == applied {
			o = acked // an item says applied where a single write answers 200
		}
		c.load.ledger.set(i.Key, i.Value, o)
	}
	return a.failed()
}

// answer is what came back: a status, or an error of the connection.
type answer struct {
	method string
	path   string
	target string
	status int
	body   []byte
	err    error
	unsent bool // no connection was made
}

func (c *client) send(method, path, body string) answer {
	a := c.sendOnce(method, path, body)
	for tries := 1; a.unsent && c.load.gone != nil && tries < 3; tries++ {
		c.load.gone(a.target)
		a = c.sendOnce(method, path, body)
	}
	return a
}

func (c *client) sendOnce(method, path, body string) answer {
	a := answer{method: method, path: path, target: c.load.target()}
	req, err := http.NewRequest(method, "http://"+a.target+path, bytes.NewReader([]byte(body)))
	if err != nil {
		a.err = err
		return a
	}
	req.Header.Set("Authorization", "Bearer "+c.load.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		var dial *net.OpError
		a.err, a.unsent = err, errors.As(err, &dial) && dial.Op == "dial"
		return a
	}
	defer resp.Body.Close()
	a.status = resp.StatusCode
	if a.body, a.err = io.ReadAll(resp.Body); a.err != nil {
		a.status = 0
	}
	return a
}

// failed names what went wrong; "" is nothing.
func (a answer) failed() string {
	switch {
	case a.unsent:
		return "no connection"
	case a.err != nil:
		return "no answer"
	case a.status/100 == 2:
		return ""
	}
	return strconv.Itoa(a.status) + " " + parseProblem(a.body).Code
}

// outcome is what the client may believe of a write. A 5xx that says nothing is noted.
func (c *client) outcome(a answer) outcome {
	switch {
	case a.unsent:
		return notApplied
	case a.err != nil:
		return unknown
	case a.status/100 == 2:
		return acked
	case a.status < 500:
		return notApplied
	}
	p := parseProblem(a.body)
	if p.Outcome == "" && len(p.Items) == 0 {
		c.load.ledger.silence(fmt.Sprintf("%s %s: %d %.200q", a.method, a.path, a.status, a.body))
	}
	return outcomeOf(p.Outcome, unknown)
}

func outcomeOf(word string, otherwise outcome) outcome {
	switch word {
	case "applied":
		return applied
	case "not_applied":
		return notApplied
	case "unknown":
		return unknown
	}
	return otherwise
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
