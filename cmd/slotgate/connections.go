package main

import (
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store/metric"
)

// connections bounds those of the API listener: all together, so that descriptors are left for the nodes and for the admin listener,
// and those of one peer, so that nobody alone takes them all. One over a bound is reset as soon as it is accepted: leaving it in the
// kernel's queue would make everybody behind it wait. What it costs is in connections that come and go, nothing in requests.
type connections struct {
	most, perPeer int            // of each; always positive
	trusted       []netip.Prefix // proxies, which the second bound is not for
	sendBuffer    int            // of the kernel for each, in bytes; 0: its own choice
	refused       *prometheus.CounterVec

	mu    sync.Mutex
	open  int
	peers map[netip.Addr]int // by household; only of those that have some
}

// openShare is the share of the process's descriptors that clients may have when http.max_connections does not say: three of four. The
// rest holds the connections to some 25 nodes at the usual limit of 4,096, and to as many more as there are more descriptors.
const openShare = 0.75

func newConnections(cfg Config, registry prometheus.Registerer) *connections {
	c := &connections{most: cfg.HTTP.MaxConnections, perPeer: cfg.HTTP.MaxConnectionsPerPeer, trusted: prefixes(cfg.TrustedProxies), sendBuffer: cfg.HTTP.SendBufferBytes,
		refused: metric.HTTPConnectionsRefused.NewCounterVec(), peers: map[netip.Addr]int{}}
	if c.most == 0 {
		c.most = max(1, int(openShare*float64(descriptors())))
	}
	if c.perPeer == 0 {
		c.perPeer = max(1, c.most/2)
	}
	for _, reason := range []string{refusedTotal, refusedPeer} {
		c.refused.WithLabelValues(reason)
	}
	registry.MustRegister(c.refused, metric.HTTPConnections.NewGaugeFunc(func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(c.open)
	}))
	return c
}

// The values of the label reason.
const (
	refusedTotal = "total"
	refusedPeer  = "peer"
)

// descriptors is how many this process may have open: what systemd, the container or ulimit -n gave it (Go has raised the soft limit to
// the hard one).
func descriptors() uint64 {
	const unknown = 4096 // a usual limit; without one to read there is hardly a lower one
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return unknown
	}
	return min(limit.Cur, 1<<24) // more than any kernel gives; "unlimited" must not overflow
}

// listener is l with the bounds.
func (c *connections) listener(l net.Listener) net.Listener { return boundedListener{l, c} }

type boundedListener struct {
	net.Listener
	bounds *connections
}

// Accept implements net.Listener.
func (l boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil // no socket, nothing that could run out
		}
		peer, reason := l.bounds.admit(tcp.RemoteAddr())
		if reason == "" {
			if n := l.bounds.sendBuffer; n > 0 {
				_ = tcp.SetWriteBuffer(n) // fails on a socket that is gone, as the first read will say
			}
			return &boundedConn{TCPConn: tcp, bounds: l.bounds, peer: peer}, nil
		}
		l.bounds.refused.WithLabelValues(reason).Inc()
		_ = tcp.SetLinger(0) // a reset: with a polite end the kernel would keep what is left of it for a minute
		_ = tcp.Close()
	}
}

// admit counts a connection, or says which bound it is over. The zero peer is one that is not counted by itself.
func (c *connections) admit(addr net.Addr) (peer netip.Addr, refused string) {
	if ap, err := netip.ParseAddrPort(addr.String()); err == nil {
		peer = middleware.Household(ap.Addr())
		for _, p := range c.trusted {
			if p.Contains(ap.Addr().Unmap()) {
				peer = netip.Addr{}
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open >= c.most:
		return peer, refusedTotal
	case peer.IsValid() && c.peers[peer] >= c.perPeer:
		return peer, refusedPeer
	}
	c.open++
	if peer.IsValid() {
		c.peers[peer]++
	}
	return peer, ""
}

func (c *connections) leave(peer netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.peers[peer]--; c.peers[peer] <= 0 {
		delete(c.peers, peer)
	}
}

// boundedConn has all that a *net.TCPConn has, and is counted until it is closed.
type boundedConn struct {
	*net.TCPConn
	bounds *connections
	peer   netip.Addr
	once   sync.Once
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.once.Do(func() { c.bounds.leave(c.peer) })
	return c.TCPConn.Close()
}
