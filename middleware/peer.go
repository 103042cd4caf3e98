package middleware

import (
	"net/http"
	"net/netip"
	"strings"
)

// maxHops bounds how much of X-Forwarded-For is looked at.
const maxHops = 32

// peerOf is the address the request came from: the connection's, or, while that is a trusted proxy, what it says of the hop before it.
func peerOf(req *http.Request, trusted []netip.Prefix) netip.Addr {
	var peer netip.Addr
	if ap, err := netip.ParseAddrPort(req.RemoteAddr); err == nil {
		peer = plain(ap.Addr())
	}
	if len(trusted) == 0 {
		return peer
	}
	return forwarded(peer, req.Header["X-Forwarded-For"], trusted)
}

// forwarded walks X-Forwarded-For from the right, where the nearest proxy writes, to the first hop that is not trusted; what stands left
// of it was written by that hop and is worth nothing. An element that is no address ends the walk at the proxy that wrote it.
func forwarded(peer netip.Addr, headers []string, trusted []netip.Prefix) netip.Addr {
	hops := 0
	for i := len(headers) - 1; i >= 0; i-- {
		rest := headers[i]
		for more := true; more; {
			if !contains(trusted, peer) || hops == maxHops {
				return peer
			}
			hops++
			element := rest
			comma := strings.LastIndexByte(rest, ',')
			if more = comma >= 0; more {
				rest, element = rest[:comma], rest[comma+1:]
			}
			hop, ok := parseHop(strings.Trim(element, " \t"))
			if !ok {
				return peer
			}
			peer = hop
		}
	}
	return peer
}

// parseHop reads an address, also as some proxies write it: with a port, or in brackets.
func parseHop(s string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return plain(a), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return plain(ap.Addr()), true
	}
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		if a, err := netip.ParseAddr(s[1 : len(s)-1]); err == nil {
			return plain(a), true
		}
	}
	return netip.Addr{}, false
}

func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// Household is what one attacker is taken to own: an IPv4 address, also one that IPv6 has wrapped, or the /64 that every IPv6 customer gets.
func Household(a netip.Addr) netip.Addr {
	a = plain(a)
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
