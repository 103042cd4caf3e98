package store

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/balance"
	"github.com/slotgate/slotgate/store/pipe"
)

func TestWhatTheEndOfAReadSaysAboutItsNode(t *testing.T) {
	left, leave := context.WithCancel(t.Context())
	leave()
	op := func(name string, err error) error { return &net.OpError{Op: name, Net: "tcp", Err: err} }
	for _, c := range []struct {
		name   string
		err    error
		took   time.Duration
		caller context.Context
		want   balance.Outcome
	}{
		{"an answer is one", nil, 0, t.Context(), balance.Answered},
		{"that there is no such key is an answer", redis.Nil, 0, t.Context(), balance.Answered},
		{"that the command does not suit the value is an answer", replyError("WRONGTYPE Operation against a key"), 0, t.Context(), balance.Answered},
		{"that the slot is elsewhere says nothing", replyError("MOVED 1 127.0.0.1:1"), 0, t.Context(), balance.Unknown},
		{"nor that it is moving", replyError("ASK 1 127.0.0.1:1"), 0, t.Context(), balance.Unknown},
		{"nor that the gateway did not send it", errShardFull, 0, t.Context(), balance.Unknown},
		{"nor that the caller has left", os.ErrDeadlineExceeded, time.Second, left, balance.Unknown},
		{"a node that loads its data refuses", replyError("LOADING Redis is loading the dataset in memory"), 0, t.Context(), balance.Refused},
		{"one whose primary is down refuses", replyError("MASTERDOWN Link with MASTER is down"), 0, t.Context(), balance.Refused},
		{"one that does not see its cluster refuses", replyError("CLUSTERDOWN The cluster is down"), 0, t.Context(), balance.Refused},
		{"one that takes no connection refuses", &dialError{syscall.ECONNREFUSED}, 0, t.Context(), balance.Refused},
		{"one that is cut off refuses", errCircuitOpen, 0, t.Context(), balance.Refused},
		{"one that resets a connection refuses", op("read", syscall.ECONNRESET), 0, t.Context(), balance.Refused},
		{"one that ends it refuses", io.EOF, 0, t.Context(), balance.Refused},
		{"an answer that does not come is late", os.ErrDeadlineExceeded, lostAfter, t.Context(), balance.Late},
		{"one that nobody waits for any more is late", pipe.ErrAbandoned, lostAfter, t.Context(), balance.Late},
		{"so is what waits for its turn for long", pipe.ErrWithdrawn, lostAfter, t.Context(), balance.Late},
		{"or for a connection", redis.ErrPoolTimeout, lostAfter, t.Context(), balance.Late},
		{"who has little time is no measure", os.ErrDeadlineExceeded, lostAfter - 1, t.Context(), balance.Unknown},
		{"nor is a full queue", pipe.ErrSaturated, 0, t.Context(), balance.Unknown},
		{"a node that does not let the gateway read fails", replyError("NOPERM this user has no permissions"), 0, t.Context(), balance.Failed},
		{"one that is busy with a script fails", replyError("BUSY Redis is busy running a script."), 0, t.Context(), balance.Failed},
		{"one that answers with something else fails", errMismatch, 0, t.Context(), balance.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			if is := outcomeFor(asked{err: c.err}, c.took, c.caller); is != c.want {
				t.Errorf("outcome %d, want %d", is, c.want)
			}
		})
	}
}

func TestWhatANodeSaysOfItsReplication(t *testing.T) {
	asked := time.Now()
	nothing := balance.Look{Asked: asked}
	for _, c := range []struct {
		name, answer string
		err          error
		want         balance.Look
	}{
		{"a primary", "# Replication\r\nrole:master\r\nconnected_slaves:1\r\nmaster_replid:abc\r\nmaster_repl_offset:42\r\n", nil,
			balance.Look{Asked: asked, Primary: true, History: "abc", Offset: 42}},
		{"a replica", "role:slave\r\nmaster_link_status:up\r\nslave_repl_offset:41\r\nmaster_replid:abc\r\nmaster_repl_offset:43\r\n", nil,
			balance.Look{Asked: asked, History: "abc", Offset: 41, Linked: true}},
		{"a replica without its primary", "role:slave\r\nmaster_link_status:down\r\nslave_repl_offset:41\r\nmaster_replid:abc\r\n", nil,
			balance.Look{Asked: asked, History: "abc", Offset: 41}},
		{"no answer", "role:master\r\nmaster_replid:abc\r\nmaster_repl_offset:42\r\n", io.EOF, nothing},
		{"an empty one", "", nil, nothing},
		{"an offset that is none", "role:master\r\nmaster_replid:abc\r\nmaster_repl_offset:x\r\n", nil, nothing},
		{"an offset below zero", "role:slave\r\nmaster_link_status:up\r\nslave_repl_offset:-1\r\nmaster_replid:abc\r\n", nil, nothing},
		{"an offset beyond what fits", "role:master\r\nmaster_replid:abc\r\nmaster_repl_offset:99999999999999999999\r\n", nil, nothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			if is := lookOf(asked, c.answer, c.err); is != c.want {
				t.Errorf("%+v, want %+v", is, c.want)
			}
		})
	}
}

func TestServed(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 3)[:40]
	for _, c := range []struct {
		name string
		tell func(s *Served)
		want string
	}{
		{"nobody", func(*Served) {}, ""},
		{"a replica", func(s *Served) { s.one(true, id) }, `replica;node="01234567"`},
		{"the primary", func(s *Served) { s.one(false, id) }, `primary;node="01234567"`},
		{"a primary that is not known", func(s *Served) { s.one(false, "") }, `primary`},
		{"a node that is known by its address only", func(s *Served) { s.one(true, "10.0.0.1:6379") }, `replica`},
		{"the second of two who were asked", func(s *Served) { s.one(true, id); s.one(false, "") }, `primary`},
		{"those of a batch", func(s *Served) { s.some(true, 2); s.some(false, 1); s.some(true, 3); s.some(false, 0) }, `replica;items=5, primary;items=1`},
		{"primaries alone", func(s *Served) { s.some(false, 1) }, `primary;items=1`},
	} {
		var s Served
		c.tell(&s)
		if is := s.String(); is != c.want {
			t.Errorf("%s: %s, want %s", c.name, is, c.want)
		}
	}
	var nobody *Served
	nobody.one(true, id) // who does not want to know
	nobody.some(true, 1)
}

// node is one of CLUSTER SLOTS.
func node(n int) redis.ClusterNode {
	return redis.ClusterNode{ID: fmt.Sprintf("%040d", n), Addr: fmt.Sprintf("127.0.0.1:%d", n)}
}

func TestTheTopologyHasReplicas(t *testing.T) {
	read := func(slots ...redis.ClusterSlot) topology { return makeTopology(slots) }
	a := read(redis.ClusterSlot{Start: 0, End: 9, Nodes: []redis.ClusterNode{node(1), node(3), node(2)}},
		redis.ClusterSlot{Start: 20, End: 29, Nodes: []redis.ClusterNode{node(1), node(2), node(3)}})
	if len(a.shards) != 1 || fmt.Sprint(a.shards[0].replicas) != fmt.Sprint([]member{{node(2).ID, node(2).Addr}, {node(3).ID, node(3).Addr}}) {
		t.Fatalf("%+v", a.shards)
	}
	one := func(nodes ...redis.ClusterNode) topology {
		return read(redis.ClusterSlot{Start: 0, End: 9, Nodes: nodes})
	}
	if !one(node(1), node(2), node(3)).same(one(node(1), node(3), node(2))) {
		t.Error("another order is another topology")
	}
	moved := node(2)
	moved.Addr = "127.0.0.1:99"
	for name, other := range map[string]topology{
		"a replica less": one(node(1)), "another replica": one(node(1), node(3)), "another primary": one(node(2), node(1)), "another address": one(node(1), moved),
		"other slots": read(redis.ClusterSlot{Start: 0, End: 8, Nodes: []redis.ClusterNode{node(1), node(2)}}),
	} {
		if one(node(1), node(2)).same(other) {
			t.Errorf("%s is no change", name)
		}
	}
}

// offline is a cluster whose nodes nobody asks, as go-redis would know them.
func offline(t *testing.T, nodes int) (*cluster, *replicas) {
	s := &Store{}
	c := newCluster("default", ClusterConfig{Addrs: []string{"127.0.0.1:1"}}, new(Config), newMetrics(prometheus.NewRegistry(), s))
	for n := range nodes {
		client := redis.NewClient(&redis.Options{Addr: node(n).Addr})
		t.Cleanup(func() { _ = client.Close() })
		c.nodes.add(client)
	}
	t.Cleanup(func() { _ = c.close() })
	return c, c.replicaReads()
}

func slotsOf2(first, second []redis.ClusterNode) topology {
	return makeTopology([]redis.ClusterSlot{{Start: 0, End: 99, Nodes: first}, {Start: 100, End: 199, Nodes: second}})
}

// What was learnt of a shard stays with its nodes, whoever is the primary.
func TestAShardOutlivesItsPrimary(t *testing.T) {
	_, rs := offline(t, 6)
	rs.update(slotsOf2([]redis.ClusterNode{node(0), node(1)}, []redis.ClusterNode{node(2), node(3)}))
	a, b := rs.shard(0), rs.shard(100)
	if a == nil || b == nil || a.set == b.set || rs.shard(200) != nil {
		t.Fatal(a, b)
	}
	rs.update(slotsOf2([]redis.ClusterNode{node(1), node(0)}, []redis.ClusterNode{node(2), node(3)}))
	if rs.shard(0).set != a.set || rs.shard(100).set != b.set {
		t.Error("a failover makes a new shard")
	}
	if p := rs.shard(0).nodes[0]; p.id != node(1).ID {
		t.Errorf("%s is the primary", p.id)
	}
	rs.update(slotsOf2([]redis.ClusterNode{node(4), node(5)}, []redis.ClusterNode{node(2), node(0)}))
	if rs.shard(0).set == a.set || rs.shard(100).set != b.set {
		t.Error("the shard of other nodes is taken for the one before, or the other one is not")
	}
	part := rs.nodes[node(0).Addr].plays.Load()
	if part == nil || part.set != b.set {
		t.Error("a replica that has changed its shard speaks to the old one")
	}
}

func TestANodeThatGoRedisDoesNotKnowIsLookedForAgain(t *testing.T) {
	c, rs := offline(t, 1)
	both := slotsOf2([]redis.ClusterNode{node(0), node(1)}, []redis.ClusterNode{node(0), node(1)})
	rs.update(both)
	if n := len(rs.shard(0).nodes); n != 1 {
		t.Fatalf("%d nodes", n)
	}
	client := redis.NewClient(&redis.Options{Addr: node(1).Addr})
	defer func() { _ = client.Close() }()
	c.nodes.add(client)
	rs.update(both)
	if n := len(rs.shard(0).nodes); n != 2 {
		t.Errorf("%d nodes, want both", n)
	}
}

func TestNodesThatHaveLeftAreClosedAfterAWhile(t *testing.T) {
	c, rs := offline(t, 2)
	rs.update(slotsOf2([]redis.ClusterNode{node(0), node(1)}, nil))
	gone := rs.nodes[node(1).Addr]
	rs.update(slotsOf2([]redis.ClusterNode{node(0)}, nil))
	if _, there := c.ways.Load(gone.way.node); !there || gone.plays.Load() != nil {
		t.Error("reads under way are cut off, or it still tells what it holds")
	}
	rs.mu.Lock()
	rs.closeGone(time.Now().Add(time.Second))
	rs.mu.Unlock()
	if _, there := c.ways.Load(gone.way.node); there || rs.nodes[node(1).Addr] != nil {
		t.Error("it is kept")
	}
	rs.close()
	rs.update(slotsOf2([]redis.ClusterNode{node(0), node(1)}, nil))
	if len(rs.nodes) > 0 || rs.shard(0) != nil {
		t.Error("there are nodes after the end")
	}
}

// Nodes that nobody reads from are not looked at, so nothing is told of them and no connection to them is kept.
func TestReplicasRestWhenNobodyReads(t *testing.T) {
	c, rs := offline(t, 2)
	both := slotsOf2([]redis.ClusterNode{node(0), node(1)}, nil)
	rs.update(both)
	way := rs.nodes[node(1).Addr].way
	now := time.Now()
	rs.lastRead.Store(now.Add(-lookFor - 2*time.Second).Unix())
	new(Store).lookIfDue(t.Context(), c, now)
	if rs.shard(0) != nil {
		t.Error("what was known of them is told for ever")
	}
	new(Store).lookIfDue(t.Context(), c, now.Add(retireAfter+2*lookEvery))
	if _, there := c.ways.Load(way.node); there || len(rs.nodes) > 0 {
		t.Error("connections are kept for nobody")
	}
	if rs.update(both); rs.shard(0) == nil {
		t.Error("whoever reads again finds nobody")
	}
}

func TestAClockThatIsSetBackKeepsNobodyFromLooking(t *testing.T) {
	_, rs := offline(t, 1)
	now := time.Now()
	rs.nextLook.Store(now.Add(lookEvery).UnixNano())
	if rs.lookDue(now) {
		t.Error("it is looked before it is time")
	}
	if !rs.lookDue(now.Add(lookEvery)) || !rs.lookDue(now.Add(-time.Hour)) {
		t.Error("nobody looks")
	}
}

// Who leaves while a connection is made takes no replica from others, which the next look would have to bring back.
func TestAConnectionThatIsNotMadeSaysNothing(t *testing.T) {
	_, rs := offline(t, 2)
	rs.update(slotsOf2([]redis.ClusterNode{node(0), node(1)}, nil))
	set, now := rs.shard(0).set, time.Now()
	set.Look(node(0).ID, balance.Look{Asked: now, Primary: true, History: "h"})
	set.Look(node(1).ID, balance.Look{Asked: now, History: "h", Linked: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := rs.nodes[node(1).Addr]
	conn := n.way.node.Conn()
	defer func() { _ = conn.Close() }()
	if err := n.greet(ctx, conn); err == nil {
		t.Fatal("it was greeted")
	}
	if f := set.Figures(now)[1]; f.Held != 0 {
		t.Errorf("%+v, want a replica that holds everything", f)
	}
}

func TestLoans(t *testing.T) {
	b := newBudget(t.Context(), 100)
	loan := b.lend()
	if loan.take(60) != granted || b.take(60) != overCap || b.take(40) != granted {
		t.Error("a loan does not draw from its budget")
	}
	loan.give(10)
	loan.keep(20) // of 50
	if loan.take(1) != overCap {
		t.Error("a loan that has ended gives more")
	}
	loan.give(20)
	loan.keep(0)
	if b.used != 60 {
		t.Errorf("%d bytes are used, want the 40 and the 20", b.used)
	}
	var none *budget
	none.lend().keep(0) // of commands with small replies
}
