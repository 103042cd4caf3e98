package middleware

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestPeer(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, c := range map[string]struct {
		remote  string
		trusted []netip.Prefix
		xff     []string
		want    string
	}{
		"no proxy": {"192.0.2.1:5", nil, nil, "192.0.2.1"},
		"nobody is trusted: the header is worthless": {"10.0.0.1:5", nil, []string{"1.1.1.1"}, "10.0.0.1"},
		"the peer is not trusted":                    {"192.0.2.1:5", proxies, []string{"1.1.1.1"}, "192.0.2.1"},
		"one trusted proxy":                          {"10.0.0.1:5", proxies, []string{"1.1.1.1"}, "1.1.1.1"},
		"what the client wrote itself is skipped":    {"10.0.0.1:5", proxies, []string{"6.6.6.6, 1.1.1.1"}, "1.1.1.1"},
		"two trusted proxies":                        {"10.0.0.1:5", proxies, []string{"6.6.6.6, 1.1.1.1, 10.0.0.2"}, "1.1.1.1"},
		"two headers are one list":                   {"10.0.0.1:5", proxies, []string{"6.6.6.6", "1.1.1.1,10.0.0.2"}, "1.1.1.1"},
		"all hops are ours":                          {"10.0.0.1:5", proxies, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		"a trusted proxy that says nothing":          {"10.0.0.1:5", proxies, nil, "10.0.0.1"},
		"a hop that is no address ends the walk":     {"10.0.0.1:5", proxies, []string{"1.1.1.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		"an empty element ends the walk":             {"10.0.0.1:5", proxies, []string{"1.1.1.1, "}, "10.0.0.1"},
		"a hop with a port":                          {"10.0.0.1:5", proxies, []string{"1.1.1.1:99"}, "1.1.1.1"},
		"IPv6 in brackets with a port":               {"[fd00::1]:5", proxies, []string{"[2001:db8::1]:99"}, "2001:db8::1"},
		"IPv6 in brackets":                           {"[fd00::1]:5", proxies, []string{"[2001:db8::1]"}, "2001:db8::1"},
		"IPv4 mapped into IPv6":                      {"[::ffff:10.0.0.1]:5", proxies, []string{"::ffff:1.1.1.1"}, "1.1.1.1"},
		"a chain of endless proxies is cut":          {"10.0.0.1:5", proxies, []string{"1.1.1.1" + strings.Repeat(", 10.0.0.2", 2*maxHops)}, "10.0.0.2"},
		"a zone is dropped":                          {"[fe80::1%eth0]:5", nil, nil, "fe80::1"},
	} {
		req := &http.Request{RemoteAddr: c.remote, Header: http.Header{}}
		if c.xff != nil {
			req.Header["X-Forwarded-For"] = c.xff
		}
		if got := peerOf(req, c.trusted).String(); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestPeerOfASocketWithoutAddress(t *testing.T) {
	if got := peerOf(&http.Request{RemoteAddr: "@"}, nil); got.IsValid() {
		t.Errorf("got %s", got)
	}
}

func TestHousehold(t *testing.T) {
	for in, want := range map[string]string{"1.2.3.4": "1.2.3.4", "::ffff:1.2.3.4": "1.2.3.4", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::"} {
		if got := Household(netip.MustParseAddr(in)).String(); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func FuzzForwarded(f *testing.F) {
	f.Add("1.1.1.1, 10.0.0.2", "")
	f.Add("unknown", "[::1]:9, ,")
	f.Add(strings.Repeat("10.0.0.1,", 100), ",,,")
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	peer := netip.MustParseAddr("10.9.9.9")
	f.Fuzz(func(t *testing.T, first, second string) {
		got := forwarded(peer, []string{first, second}, trusted)
		if !got.IsValid() || got.Is4In6() || got.Zone() != "" {
			t.Fatalf("%q %q: %v", first, second, got)
		}
		// What the client puts before its own address, which a trusted proxy appends, changes nothing.
		honest := forwarded(peer, []string{"198.51.100.7"}, trusted)
		if spoofed := forwarded(peer, []string{first, second, "198.51.100.7"}, trusted); spoofed != honest {
			t.Fatalf("%q %q: %v instead of %v", first, second, spoofed, honest)
		}
		if spoofed := forwarded(peer, []string{first, second + ",198.51.100.7"}, trusted); spoofed != honest {
			t.Fatalf("%q %q: %v instead of %v", first, second, spoofed, honest)
		}
	})
}
