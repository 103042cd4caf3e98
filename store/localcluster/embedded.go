package localcluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/slotgate/slotgate/store/slot"
)

// Embedded is an imitation of a cluster inside this program, for trying things out where no redis-server is installed: some
// miniredis nodes on loopback that share the slots and redirect like a cluster, so that cluster clients, of other programs too,
// work with them. It has no replicas, keeps nothing, moves no slots, and knows only the commands of miniredis. The cluster tests
// do not use it.
type Embedded struct {
	nodes   []*embeddedNode
	closing sync.Once

	publishing sync.WaitGroup
	mu         sync.Mutex
	queue      []message // without a bound: a script that publishes must not wait, as its node does nothing else meanwhile
	wake       chan struct{}
}

// message is a publication on its way to the other nodes: subscribers of a cluster may be connected to any node.
type message struct {
	from             *embeddedNode
	channel, payload string
}

type embeddedNode struct {
	cluster     *Embedded
	server      *miniredis.Miniredis
	id          string
	port        int
	first, last int // slots

	mu       sync.Mutex
	sessions map[*server.Peer]*session
}

// StartEmbedded starts a cluster of so many nodes. It runs until Close, whatever becomes of ctx.
func StartEmbedded(ctx context.Context, nodes int) (*Embedded, error) {
	if nodes < 1 || nodes > slot.Count {
		return nil, fmt.Errorf("an embedded cluster of %d nodes", nodes)
	}
	e := &Embedded{wake: make(chan struct{}, 1)}
	for i := range nodes {
		if err := ctx.Err(); err != nil {
			return nil, errors.Join(err, e.Close())
		}
		n := &embeddedNode{cluster: e, server: miniredis.NewMiniRedis(), sessions: map[*server.Peer]*session{}}
		n.id = fmt.Sprintf("%040x", i+1)
		n.first, n.last = slot.Count*i/nodes, slot.Count*(i+1)/nodes-1
		if err := n.server.Start(); err != nil {
			return nil, errors.Join(fmt.Errorf("starting an embedded node: %w", err), e.Close())
		}
		n.server.ClockTTL(true) // otherwise time stands still
		n.port, _ = strconv.Atoi(n.server.Port())
		e.nodes = append(e.nodes, n)
	}
	for _, n := range e.nodes { // when all are known: the hook of one looks at the others
		n.server.Server().SetPreHook(n.hook)
	}
	e.publishing.Go(e.broadcast)
	return e, nil
}

// Addrs returns the addresses of the nodes.
func (e *Embedded) Addrs() []string {
	addrs := make([]string, len(e.nodes))
	for i, n := range e.nodes {
		addrs[i] = n.addr()
	}
	return addrs
}

// Close stops the nodes and returns when none of their goroutines is left.
func (e *Embedded) Close() error {
	e.closing.Do(func() {
		for _, n := range e.nodes {
			n.server.Close()
		}
		close(e.wake) // nobody publishes any more
		e.publishing.Wait()
	})
	return nil
}

func (e *Embedded) owner(s int) *embeddedNode {
	for _, n := range e.nodes {
		if n.first <= s && s <= n.last {
			return n
		}
	}
	return nil // there is no such slot
}

// publish hands a message on to the other nodes, later.
func (e *Embedded) publish(m message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = append(e.queue, m)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// broadcast is a goroutine of its own because a script that publishes holds its node: two such nodes must not wait for each other.
func (e *Embedded) broadcast() {
	for range e.wake {
		e.mu.Lock()
		queue := e.queue
		e.queue = nil
		e.mu.Unlock()
		for _, m := range queue {
			for _, n := range e.nodes {
				if n != m.from {
					n.server.Publish(m.channel, m.payload)
				}
			}
		}
	}
}

func (n *embeddedNode) addr() string { return loopback + ":" + strconv.Itoa(n.port) }
