package clustertest_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

func TestSharedIsRepaired(t *testing.T) {
	c := clustertest.Shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.StallReplication(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Nodes()[3].Pause(); err != nil {
		t.Fatal(err)
	}
	c.Nodes()[4].Kill()

	again := clustertest.Shared(t)
	if again != c {
		t.Error("a second cluster was started")
	}
	for _, n := range again.Nodes() {
		if !n.Running() {
			t.Errorf("%s does not run", n.Addr)
		}
	}
	primary := again.Nodes()[0]
	if err := primary.Client().Do(ctx, "SET", "{06S}", "v").Err(); err != nil { // slot 0
		t.Fatal(err)
	}
	if n, err := primary.Client().Wait(ctx, 1, 5*time.Second).Result(); err != nil || n != 1 {
		t.Errorf("replicas in step: %d, %v", n, err)
	}
}

func TestProxiedClientGoesThroughTheProxies(t *testing.T) {
	c := clustertest.Shared(t)
	network := clustertest.Proxied(t, c)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()[:1], Dialer: network.Dial, Protocol: 2,
		MaxRedirects: -1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	defer client.Close()
	if err := client.Set(t.Context(), "k2{k}", "0", 0).Err(); err != nil {
		t.Fatal(err)
	}
	owner, err := c.PrimaryOfKey(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	network.Proxy(owner.Addr).DropReplies(1, "INCR")
	if err := client.Incr(t.Context(), "k2{k}").Err(); err == nil {
		t.Error("the reply came through")
	}
	if v, err := owner.Client().Get(t.Context(), "k2{k}").Result(); err != nil || v != "1" {
		t.Errorf("the request was executed: %q, %v", v, err)
	}
}

func TestRunStartsAnotherCluster(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 1})
	if len(c.Addrs()) != 1 || c.Addrs()[0] == clustertest.Shared(t).Addrs()[0] {
		t.Errorf("addresses %v", c.Addrs())
	}
}
