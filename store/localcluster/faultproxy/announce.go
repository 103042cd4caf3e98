package faultproxy

import (
	"bytes"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
)

// Announce makes the network hold for clients whose dialling cannot be replaced, such as another process: wherever a node names an address
// (CLUSTER SLOTS, CLUSTER NODES, MOVED, ASK), its proxy names that of the node's proxy instead. Give such a client Addrs to begin with. It
// must be called before the first connection. Nodes and proxies are told apart by their ports, so all must be on 127.0.0.1; a value that
// looks like such a reply is changed as well.
func (n *Network) Announce() error {
	var swaps []swap
	for addr, p := range n.proxies {
		host, from, err := net.SplitHostPort(addr)
		if err != nil || host != loopback {
			return fmt.Errorf("%s is not on %s", addr, loopback)
		}
		_, to, _ := net.SplitHostPort(p.Addr())
		if len(from) != len(to) {
			return fmt.Errorf("port %s cannot stand for %s, which is of another length", to, from)
		}
		// In a slot map the port follows the address as a number of its own.
		swaps = append(swaps,
			swap{slotMap + from + "\r\n", slotMap + to + "\r\n"},
			swap{loopback + ":" + from + "@", loopback + ":" + to + "@"},
			swap{loopback + ":" + from + "\r\n", loopback + ":" + to + "\r\n"})
	}
	for _, p := range n.proxies {
		p.swaps.Store(&swaps)
	}
	return nil
}

// Addrs returns the addresses of the proxies.
func (n *Network) Addrs() []string {
	var addrs []string
	for _, p := range n.proxies {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

const loopback = "127.0.0.1"

// slotMap is what precedes a port in the reply to CLUSTER SLOTS.
var slotMap = "$" + strconv.Itoa(len(loopback)) + "\r\n" + loopback + "\r\n:"

// swap is a piece of a reply and what takes its place; both are of one length, as bulk strings tell theirs.
type swap struct{ from, to string }

// announced is the reply with the proxies' addresses in it.
func announced(swaps *atomic.Pointer[[]swap], raw []byte) []byte {
	all := swaps.Load()
	if all == nil || !bytes.Contains(raw, []byte(loopback)) {
		return raw
	}
	// In one pass: the new port of one node may be the old one of another.
	done := make([]byte, 0, len(raw))
	for at := 0; at < len(raw); {
		next := 1
		piece := raw[at : at+1]
		for _, s := range *all {
			if bytes.HasPrefix(raw[at:], []byte(s.from)) {
				piece, next = []byte(s.to), len(s.from)
				break
			}
		}
		done = append(done, piece...)
		at += next
	}
	return done
}
