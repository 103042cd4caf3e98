package store

import "testing"

func TestSameNode(t *testing.T) {
	for _, c := range []struct {
		what, dialled, named string
		want                 bool
	}{
		{"the same address", "10.0.0.1:6379", "10.0.0.1:6379", true},
		{"another host", "10.0.0.2:6379", "10.0.0.1:6379", false},
		{"another port", "10.0.0.1:6380", "10.0.0.1:6379", false},
		{"names", "redis-1:6379", "redis-1:6379", true},
		{"IPv6", "[2001:db8::1]:6379", "[2001:db8::1]:6379", true},
		{"a node that calls itself loopback, by its seed's host", "redis.example:7001", "127.0.0.1:7001", true},
		{"by its seed's host and another port", "redis.example:7002", "127.0.0.1:7001", false},
		{"another address of loopback is another node", "127.0.0.2:7001", "127.0.0.1:7001", false},
		{"TLS only, without tls-cluster", "10.0.0.1:6379", "10.0.0.1:0", true},
		{"TLS only, another host", "10.0.0.2:6379", "10.0.0.1:0", false},
		{"TLS only, on addresses of loopback", "127.0.0.2:6379", "127.0.0.1:0", false},
		{"no address", "redis", "redis", true},
	} {
		if got := sameNode(c.dialled, c.named); got != c.want {
			t.Errorf("%s: sameNode(%q, %q) = %v", c.what, c.dialled, c.named, got)
		}
	}
}
