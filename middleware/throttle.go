package middleware

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// ThrottleConfig bounds failed authentications of one peer (an IPv4 address, or an IPv6 /64). Requests with a good key are never counted
// and never refused.
type ThrottleConfig struct {
	Failures int64         // how many at once, and per Period; 0 = 20
	Period   time.Duration // 0 = 1 minute
	Peers    int           // how many peers are remembered, the least recent forgotten first; 0 = 65536
}

const throttleShards = 16

// Throttle counts failed authentications by peer. Its memory is bounded: an attacker with more addresses than it remembers is not slowed by
// it, and a key of 256 random bits does not need it to be; it keeps the noise of broken clients and scanners off the rest.
type Throttle struct {
	limit  limit
	clock  Clock
	start  time.Time
	seed   maphash.Seed
	shards [throttleShards]throttleShard
}

// throttleShard is a map with a ring through its entries, most recent first.
type throttleShard struct {
	mu    sync.Mutex
	room  int
	peers map[netip.Addr]*peer
	ring  peer // sentinel
}

type peer struct {
	addr       netip.Addr
	state      int64
	prev, next *peer
}

// NewThrottle makes a throttle that has seen nobody.
func NewThrottle(cfg ThrottleConfig, clock Clock) *Throttle {
	if cfg.Failures <= 0 {
		cfg.Failures = 20
	}
	if cfg.Period <= 0 {
		cfg.Period = time.Minute
	}
	if cfg.Peers <= 0 {
		cfg.Peers = 1 << 16
	}
	t := &Throttle{
		limit: newLimit(cfg.Failures, cfg.Period, cfg.Failures),
		clock: clock.orReal(),
		seed:  maphash.MakeSeed(),
	}
	t.start = t.clock()
	for i := range t.shards {
		s := &t.shards[i]
		s.room = max(cfg.Peers/throttleShards, 1)
		s.peers = map[netip.Addr]*peer{}
		s.ring.prev, s.ring.next = &s.ring, &s.ring
	}
	return t
}

// Fail counts one failure. When the peer has had its share, it says how long until the next.
func (t *Throttle) Fail(addr netip.Addr) (retry time.Duration, over bool) {
	addr = Household(addr)
	now := int64(t.clock().Sub(t.start))
	s := &t.shards[maphash.Comparable(t.seed, addr)%throttleShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.touch(addr)
	var d decision
	p.state, d = decide(now, p.state, t.limit, 1)
	return time.Duration(d.retry), !d.ok
}

// Peers is how many peers are remembered.
func (t *Throttle) Peers() int {
	n := 0
	for i := range t.shards {
		t.shards[i].mu.Lock()
		n += len(t.shards[i].peers)
		t.shards[i].mu.Unlock()
	}
	return n
}

// touch finds or makes the peer and puts it first; the last one's place is used again when there is no room.
func (s *throttleShard) touch(addr netip.Addr) *peer {
	p, ok := s.peers[addr]
	switch {
	case ok:
		p.unlink()
	case len(s.peers) < s.room:
		p = &peer{addr: addr}
		s.peers[addr] = p
	default:
		p = s.ring.prev
		p.unlink()
		delete(s.peers, p.addr)
		*p = peer{addr: addr}
		s.peers[addr] = p
	}
	p.prev, p.next = &s.ring, s.ring.next
	p.prev.next, p.next.prev = p, p
	return p
}

func (p *peer) unlink() { p.prev.next, p.next.prev = p.next, p.prev }
