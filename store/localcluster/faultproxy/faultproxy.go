// Package faultproxy puts faults between a Redis client and a server, for tests: lost replies, silence, delay, broken
// connections. It is a plain TCP proxy that understands just enough of the protocol to tell requests and replies apart.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy stands in front of one server. A new one passes everything. Its methods are safe for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup
	swaps    atomic.Pointer[[]swap] // addresses in replies; nil: they stay as they are

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change of what follows
	refusing bool
	silent   bool
	delay    time.Duration
	jitter   jitter
	cutOneIn int // replies; 0: none is cut
	cuts     int // replies that were cut
	busy     busy
	drops    int      // replies still to be lost
	dropping []string // to requests of these commands; all if empty
	hard     bool     // with a reset
	pairs    map[*pair]struct{}
	accepted int
	closed   bool
}

// New starts a proxy for the server at an address. Close it.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a proxy: %w", err)
	}
	p := &Proxy{target: target, listener: l, changed: make(chan struct{}), pairs: map[*pair]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the proxy's own address.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close breaks all connections and waits for their end.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.change(func() { p.closed = true })
	p.ResetAll()
	p.running.Wait()
	return err
}

// Pass ends every fault.
func (p *Proxy) Pass() {
	p.change(func() { p.refusing, p.silent, p.delay, p.drops, p.jitter, p.cutOneIn = false, false, 0, 0, jitter{}, 0 })
	p.Busy(0)
}

// BlackHole lets nothing through in either direction, as if every packet were lost: connections are accepted and stay open.
// What was sent meanwhile arrives when Pass is called, even from a client that has given up and gone: so it is with TCP.
func (p *Proxy) BlackHole() { p.change(func() { p.silent = true }) }

// Delay holds every piece of a reply back for so long.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.delay = d }) }

// jitter is a delay of some replies.
type jitter struct {
	oneIn       int // 0: none
	least, most time.Duration
}

// Jitter holds one reply in so many, chosen by chance, back for a time between least and most, and with it those behind it on the
// same connection. The replies with which clients set connections up are among them.
func (p *Proxy) Jitter(oneIn int, least, most time.Duration) {
	p.change(func() { p.jitter = jitter{oneIn, least, max(most, least+1)} })
}

// CutReplies lets only a part of one reply in so many through, chosen by chance as the length of the part: none of its bytes up to
// all but the last. The connection is then closed or, every other time, reset. The replies with which clients set connections up are among them.
func (p *Proxy) CutReplies(oneIn int) { p.change(func() { p.cutOneIn = oneIn }) }

// Cuts returns the number of replies that CutReplies has cut.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// cut tells how many bytes of a reply go through, and whether the connection is then reset; all of them: it is not to be cut.
func (p *Proxy) cut(size int) (through int, hard bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cutOneIn == 0 || rand.IntN(p.cutOneIn) != 0 {
		return size, false
	}
	p.cuts++
	return rand.IntN(size), p.cuts%2 == 0
}

// Refuse breaks all connections and each new one at once, as a server that is down.
func (p *Proxy) Refuse() {
	p.change(func() { p.refusing = true })
	p.ResetAll()
}

// DropReplies loses the replies to the next n requests of the named commands (of any command, if none is named): the server
// receives and executes such a request; when it has replied, the client's connection is closed instead. The replies to requests
// that the client has sent in the same pipeline after that one are lost too, and those may or may not have been executed.
// Naming commands spares the requests with which clients set connections up.
func (p *Proxy) DropReplies(n int, commands ...string) { p.drop(n, commands, false) }

// ResetReplies is DropReplies with a connection that is reset instead of closed: earlier replies that the client has not read
// yet are lost as well.
func (p *Proxy) ResetReplies(n int, commands ...string) { p.drop(n, commands, true) }

func (p *Proxy) drop(n int, commands []string, hard bool) {
	upper := slices.Clone(commands)
	for i := range upper {
		upper[i] = strings.ToUpper(upper[i])
	}
	p.change(func() { p.drops, p.dropping, p.hard = n, upper, hard })
}

// Pending tells how many of the replies that DropReplies asked for are still to be lost.
func (p *Proxy) Pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drops
}

// Accepted returns the number of connections made so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Open returns the number of connections that are open now.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

// ResetAll breaks all connections, requests and replies in flight included, and returns their number.
func (p *Proxy) ResetAll() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.reset()
	}
	return len(p.pairs)
}

func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// loseReply tells whether the reply to a request of this command is one to be lost, and counts it.
func (p *Proxy) loseReply(command string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drops == 0 || len(p.dropping) > 0 && !slices.Contains(p.dropping, command) {
		return false
	}
	p.drops--
	return true
}

// awaitSound returns when the proxy is not silent, or false when done is closed first.
func (p *Proxy) awaitSound(done <-chan struct{}) bool {
	for {
		p.mu.Lock()
		silent, changed := p.silent, p.changed
		p.mu.Unlock()
		if !silent {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		}
	}
}

func (p *Proxy) resets() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hard
}

func (p *Proxy) replyDelay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.delay
	if j := p.jitter; j.oneIn > 0 && rand.IntN(j.oneIn) == 0 {
		d += j.least + rand.N(j.most-j.least)
	}
	return d
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		p.accepted++
		unwanted := p.refusing || p.closed
		p.mu.Unlock()
		if unwanted {
			abort(client)
			continue
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// Network is a proxy in front of each node of a cluster, for a client that learns the nodes' addresses from the cluster: its
// Dial takes the place of the client's own and leads each connection through the node's proxy.
type Network struct {
	proxies map[string]*Proxy // by the node's address
}

// NewNetwork starts a proxy for each address. Close it.
func NewNetwork(addrs []string) (*Network, error) {
	n := &Network{proxies: map[string]*Proxy{}}
	for _, addr := range addrs {
		p, err := New(addr)
		if err != nil {
			return nil, errors.Join(err, n.Close())
		}
		n.proxies[addr] = p
	}
	return n, nil
}

// Dial connects to the proxy of a node. It refuses other addresses: such a connection would escape the faults.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	p := n.proxies[addr]
	if p == nil {
		return nil, fmt.Errorf("no proxy for %s", addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, p.Addr())
}

// Proxy returns the proxy of a node by the node's address, or nil.
func (n *Network) Proxy(addr string) *Proxy { return n.proxies[addr] }

// Pass ends every fault of every proxy.
func (n *Network) Pass() {
	for _, p := range n.proxies {
		p.Pass()
	}
}

// ResetAll breaks all connections of all proxies and returns their number.
func (n *Network) ResetAll() int {
	total := 0
	for _, p := range n.proxies {
		total += p.ResetAll()
	}
	return total
}

// Close closes all proxies.
func (n *Network) Close() error {
	var errs []error
	for _, p := range n.proxies {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
