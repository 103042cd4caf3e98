package faultproxy_test

import (
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
)

// A client that is told nothing but the proxies' addresses, and dials what the cluster names, stays behind the proxies: in its slot map, and
// when it is redirected.
func TestAnnounceKeepsClientsBehindTheProxies(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3, Replicas: 1})
	n := clustertest.Proxied(t, c)
	if err := n.Announce(); err != nil {
		t.Fatal(err)
	}
	behind := map[string]bool{}
	for _, addr := range n.Addrs() {
		behind[addr] = true
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: n.Addrs(), DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer client.Close()
	slots, err := client.ClusterSlots(t.Context()).Result()
	if err != nil || len(slots) == 0 {
		t.Fatal(slots, err)
	}
	for _, s := range slots {
		for _, node := range s.Nodes {
			if !behind[node.Addr] {
				t.Errorf("CLUSTER SLOTS names %s", node.Addr)
			}
		}
	}
	for i := range 30 {
		if err := client.Set(t.Context(), "k"+strconv.Itoa(i), "v", 0).Err(); err != nil {
			t.Error(err)
		}
	}
	// The wrong node redirects to the right one's proxy.
	primaries, err := c.Primaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	for _, p := range primaries {
		single := redis.NewClient(&redis.Options{Addr: n.Proxy(p.Addr).Addr(), DisableIdentity: true})
		err := single.Get(t.Context(), "k1").Err()
		if addr, ok := redis.IsMovedError(err); ok {
			if moved++; !behind[addr] {
				t.Errorf("MOVED to %s", addr)
			}
		}
		_ = single.Close()
	}
	if moved != 2 {
		t.Errorf("%d of three primaries redirect", moved)
	}
}

func TestAnnounceIsForLoopback(t *testing.T) {
	n, err := faultproxy.NewNetwork([]string{"192.0.2.1:6379"})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.Announce(); err == nil {
		t.Error("an address elsewhere was taken")
	}
}
