package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// client is one with a loopback address of its own; Linux has all of 127.0.0.0/8.
type client struct{ from string }

// stays says whether a connection is answered on, and leaves it open until the test ends or close is called.
func (c client) stays(t *testing.T, addr string) (close func(), ok bool) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.from)}, Timeout: 10 * time.Second}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if errors.Is(err, syscall.ECONNRESET) {
		return func() {}, false // before the dial was over
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(conn, "GET /v1/whoami HTTP/1.1\r\nHost: x\r\n\r\n")
	first := make([]byte, 9)
	_, err = io.ReadFull(conn, first)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("neither answered nor reset")
	}
	return func() { conn.Close() }, err == nil
}

func TestConnectionsAreBounded(t *testing.T) {
	const a, b = "127.0.0.1", "127.0.0.2"
	for why, c := range map[string]struct {
		set   []string
		from  []string // connections that are opened, one after the other
		stays string   // for each y or n
	}{
		"all together":                        {[]string{"http.max_connections=3", "http.max_connections_per_peer=3"}, []string{a, b, a, b, a}, "yyynn"},
		"each peer":                           {[]string{"http.max_connections=5", "http.max_connections_per_peer=2"}, []string{a, a, a, b, b, b}, "yynyyn"},
		"a peer has half of all unless told":  {[]string{"http.max_connections=4"}, []string{a, a, a, b}, "yyny"},
		"a trusted proxy is bounded with all": {[]string{"http.max_connections=4", "trusted_proxies=127.0.0.1/32"}, []string{a, a, a, a, a}, "yyyyn"},
	} {
		t.Run(why, func(t *testing.T) {
			var args []string
			for _, s := range c.set {
				args = append(args, "--set", s)
			}
			g := startGateway(t, fileVars(t, "apps: []\n"), args...)
			addr := strings.TrimPrefix(g.api, "http://")
			got, refused := "", 0
			var closes []func()
			for _, from := range c.from {
				closeIt, ok := client{from}.stays(t, addr)
				if ok {
					got += "y"
					closes = append(closes, closeIt)
				} else {
					got += "n"
					refused++
				}
			}
			if got != c.stays {
				t.Errorf("%v stay: %s, want %s", c.from, got, c.stays)
			}
			metrics := call(t, "GET", g.admin+"/metrics", "", "") // the admin listener has bounds of its own
			expect(t, metrics, 200, fmt.Sprintf("slotgate_http_connections %d\n", len(closes)))
			total := 0
			for line := range strings.Lines(metrics.body) {
				if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(name, "slotgate_http_connections_refused_total{") {
					n := 0
					_, _ = fmt.Sscan(value, &n)
					total += n
				}
			}
			if total != refused {
				t.Errorf("%d are counted as refused, want %d", total, refused)
			}
			for _, closeIt := range closes {
				closeIt()
			}
			eventually(t, func() bool {
				return strings.Contains(call(t, "GET", g.admin+"/metrics", "", "").body, "slotgate_http_connections 0\n")
			})
			if _, ok := (client{a}).stays(t, addr); !ok {
				t.Error("the places of closed connections are not free again")
			}
		})
	}
}

func TestBoundsOfConnections(t *testing.T) {
	bounds := func(change func(*Config)) *connections {
		cfg := defaultConfig()
		change(&cfg)
		return newConnections(cfg, prometheus.NewRegistry())
	}
	t.Run("by default three quarters of the descriptors, half of them for one peer", func(t *testing.T) {
		c := bounds(func(*Config) {})
		if want := int(0.75 * float64(descriptors())); c.most != want || c.perPeer != want/2 || want < 100 {
			t.Errorf("%d and %d, want %d and half of it", c.most, c.perPeer, want)
		}
	})
	t.Run("an IPv6 /64 is one peer, and a wrapped IPv4 address is that address", func(t *testing.T) {
		c := bounds(func(cfg *Config) { cfg.HTTP.MaxConnections, cfg.HTTP.MaxConnectionsPerPeer = 10, 1 })
		for _, row := range []struct{ addr, want string }{
			{"2001:db8::1", ""}, {"2001:db8::2", refusedPeer}, {"2001:db8:0:1::1", ""},
			{"192.0.2.1", ""}, {"::ffff:192.0.2.1", refusedPeer}, {"192.0.2.2", ""},
		} {
			if _, got := c.admit(&net.TCPAddr{IP: net.ParseIP(row.addr), Port: 1}); got != row.want {
				t.Errorf("%s: %q, want %q", row.addr, got, row.want)
			}
		}
	})
	t.Run("nothing is kept of peers that have gone", func(t *testing.T) {
		c := bounds(func(*Config) {})
		for i := range 1000 {
			peer, _ := c.admit(&net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i))})
			c.leave(peer)
		}
		if len(c.peers) != 0 || c.open != 0 {
			t.Errorf("%d peers and %d connections are remembered", len(c.peers), c.open)
		}
	})
	t.Run("closing twice is leaving once", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c := bounds(func(*Config) {})
		out, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		in, err := c.listener(l).Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = in.Close()
		_ = in.Close()
		if c.open != 0 {
			t.Errorf("%d are counted", c.open)
		}
	})
}

// What the wrapper hides would be missed: net/http ends a connection gently by CloseWrite.
func TestBoundedConnectionsEndGently(t *testing.T) {
	var conn net.Conn = &boundedConn{}
	if _, ok := conn.(interface{ CloseWrite() error }); !ok {
		t.Error("no CloseWrite")
	}
	if _, ok := conn.(io.ReaderFrom); !ok {
		t.Error("no ReadFrom")
	}
}
