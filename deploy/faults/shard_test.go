package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
)

const (
	// service is what each command takes at each node. It is far above what Redis takes, so that what a node takes is told from what else the
	// machine does.
	service = 2 * time.Millisecond
	// readRate is of reads in a second: four tenths of what one node can do, so that the primary can do it alone. A fifth of it keeps a node that is
	// ten times slower busy for four fifths of its time.
	readRate = 200
	// readers is how many wait for an answer at most. Few of them would all be waiting for a slow node soon, and none be left to ask the others.
	readers = 128
	// requestDeadline is the gateway's default.
	requestDeadline = time.Second
)

// shard is one primary with four replicas, a proxy in front of each, and what reads from them: a gateway and a client of Redis, neither of which
// knows of any other way to them than by the proxies.
type shard struct {
	cluster *localcluster.Cluster
	network *faultproxy.Network
	in      *installation
	gateway *gateway
	app     *caller

	mu sync.Mutex
	by map[string]map[string]int // answers through the gateway by phase, and by the address of who gave them
}

// startShard starts one. Nodes are as quick as they are until they are made busy.
func startShard(t *testing.T, settings ...string) *shard {
	t.Helper()
	c := startCluster(t, func(o *localcluster.Options) {
		o.Primaries, o.Replicas = 1, 4
		o.Config = map[string]string{"repl-diskless-sync-delay": "0"} // a replica that is back need not wait for others
	})
	network := clustertest.Proxied(t, c)
	if err := network.Announce(); err != nil {
		t.Fatal(err)
	}
	s := inFront(t, c, install(t, c, network.Addrs()...), settings...)
	s.network = network
	return s
}

// inFront starts a gateway in front of a cluster, which may have several shards and no proxies.
func inFront(t *testing.T, c *localcluster.Cluster, in *installation, settings ...string) *shard {
	t.Helper()
	s := &shard{cluster: c, in: in, gateway: in.serve(t, settings...), by: map[string]map[string]int{}}
	s.app = newCaller(t, "http://"+s.gateway.api, in.token)
	storeEcho(t, in.redis(t))
	return s
}

func (s *shard) proxy(n *localcluster.Node) *faultproxy.Proxy { return s.network.Proxy(n.Addr) }

// primary is the node with the writes, of the first slot.
func (s *shard) primary(t *testing.T) *localcluster.Node {
	t.Helper()
	return must(s.cluster.PrimaryOf(within(t), 0))(t)
}

// replicas are the nodes without slots.
func (s *shard) replicas(t *testing.T) []*localcluster.Node {
	t.Helper()
	primaries := must(s.cluster.Primaries(within(t)))(t)
	return slices.DeleteFunc(s.cluster.Nodes(), func(n *localcluster.Node) bool { return slices.Contains(primaries, n) })
}

// repair ends what was done to the shard.
func (s *shard) repair(t *testing.T) {
	t.Helper()
	s.network.Pass()
	if err := s.cluster.Repair(within(t)); err != nil {
		t.Fatal(err)
	}
}

// busy makes every command of every node take so long.
func (s *shard) busy(each time.Duration) {
	for _, n := range s.cluster.Nodes() {
		s.proxy(n).Busy(each)
	}
}

// servedBy is the address of the node that an answer names, and its role. Of the primary the address may be missing, and then the role stands for
// it; an answer that names nobody has neither.
func (s *shard) servedBy(a reply) (addr, role string) {
	role, rest, named := strings.Cut(a.header.Get("Gateway-Served-By"), ";node=")
	if !named {
		return role, role
	}
	id := strings.Trim(rest, `"`)
	for _, n := range s.cluster.Nodes() {
		if id != "" && strings.HasPrefix(n.ID, id) {
			return n.Addr, role
		}
	}
	return "", role
}

// fromReplicas is the query of a read that replicas may answer.
const fromReplicas = "?read=replica"

// byPrimary is the role of a node that has the writes, byReplica that of another.
const (
	byPrimary = "primary"
	byReplica = "replica"
)

// reading returns readers through the gateway; ask is the query of each. They are to be started.
func (s *shard) reading(ask string) *load {
	l := s.in.load(s.gateway, readers)
	l.rate, l.ops = readRate, []string{opRead}
	l.read = func(key string) string {
		a := s.app.call(context.Background(), "GET", "/v1/strings/"+key+ask, "")
		addr, _ := s.servedBy(a)
		s.answered(*l.phase.Load(), addr)
		var got struct{ Value string }
		switch {
		case a.err != nil:
			return "no answer"
		case a.status != 200:
			return fmt.Sprint(a.status, " ", a.code)
		case json.Unmarshal(a.body, &got) != nil || got.Value != echo(key):
			return wrongValue
		case addr == "" && ask != "":
			return nobody
		}
		return ""
	}
	return l
}

// readMany reads keys at once and returns what went wrong with any of them. Who answered is counted by role.
func (s *shard) readMany(phase, ask string, keys []string) (failed string) {
	body, _ := json.Marshal(map[string]any{"keys": keys})
	a := s.app.call(context.Background(), "POST", "/v1/mget"+ask, string(body))
	var got struct {
		Items []struct {
			Found   bool
			Value   *string
			Problem *problem
		}
	}
	switch {
	case a.err != nil:
		return "no answer"
	case a.status != 200:
		return fmt.Sprint(a.status, " ", a.code)
	case json.Unmarshal(a.body, &got) != nil || len(got.Items) != len(keys):
		return wrongValue
	}
	for part := range strings.SplitSeq(a.header.Get("Gateway-Served-By"), ", ") {
		role, count, _ := strings.Cut(part, ";items=")
		if n, _ := strconv.Atoi(count); n > 0 {
			s.answeredMany(phase, "items by "+role, n)
		}
	}
	for i, item := range got.Items {
		switch {
		case item.Problem != nil:
			return fmt.Sprint(item.Problem.Status, " ", item.Problem.Code)
		case !item.Found || item.Value == nil:
			return missing
		case *item.Value != echo(keys[i]):
			return wrongValue
		}
	}
	return ""
}

// What must never be said of a key that is there.
const (
	wrongValue = "another value"
	missing    = "404 key_not_found"
	nobody     = "answered by nobody"
)

func (s *shard) answered(phase, addr string) { s.answeredMany(phase, addr, 1) }

func (s *shard) answeredMany(phase, by string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[phase] == nil {
		s.by[phase] = map[string]int{}
	}
	s.by[phase][by] += n
}

// answers is how many of a phase, "*" = of all, are by a node, by its address or role as servedBy has it.
func (s *shard) answers(phase, by string) (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, answers := range s.by {
		if phase == "*" || phase == name {
			count += answers[by]
		}
	}
	return count
}

// randomly returns the same readers of go-redis, which asks any node of a shard, as its RouteRandomly does, and has the same deadline.
func (s *shard) randomly(t *testing.T) *load {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.network.Addrs(), RouteRandomly: true, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	l := &load{ledger: newLedger(), clients: readers, rate: readRate, ops: []string{opRead}}
	l.read = func(key string) string {
		ctx, cancel := context.WithTimeout(context.Background(), requestDeadline)
		defer cancel()
		switch value, err := client.Get(ctx, namespace+":"+key).Result(); {
		case errors.Is(err, redis.Nil):
			return missing
		case err != nil:
			return "error"
		case value != echo(key):
			return wrongValue
		}
		return ""
	}
	return l
}

// snapshot is how often the gateway has chosen each node, by the node's address.
type snapshot map[string]float64

// picks are those of the gateway's metrics.
func (s *shard) picks(t *testing.T) snapshot {
	t.Helper()
	now := snapshot{}
	for _, n := range s.cluster.Nodes() {
		now[n.Addr] = s.gateway.metric(t, "slotgate_read_node_picks_total", `node="`+s.proxy(n).Addr()+`"`)
	}
	return now
}

// shareSince is a node's part of all choices since. Of a node that the cluster has given up meanwhile it is 0.
func (s *shard) shareSince(t *testing.T, before snapshot, n *localcluster.Node) float64 {
	t.Helper()
	now, all := s.picks(t), 0.0
	for addr := range now {
		all += max(now[addr]-before[addr], 0)
	}
	return max(now[n.Addr]-before[n.Addr], 0) / max(all, 1)
}
