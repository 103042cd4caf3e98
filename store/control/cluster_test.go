package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// emptied gives the shared cluster without anything of earlier tests.
func emptied(t *testing.T) *localcluster.Cluster {
	t.Helper()
	cluster := clustertest.Shared(t)
	c := newClient(t, cluster.Addrs()...)
	if err := c.Del(t.Context(), "slotgate:{acl}:apps", "slotgate:{acl}:keys", "slotgate:{acl}:namespaces",
		"slotgate:{acl}:version", "slotgate:{acl}:used", "slotgate:{acl}:clusters", "slotgate:{acl}:audit").Err(); err != nil {
		t.Fatal(err)
	}
	return cluster
}

func TestStorageOnACluster(t *testing.T) {
	acltest.Suite{
		New:            func(t *testing.T) acl.Storage { return open(newClient(t, emptied(t).Addrs()...), 50*time.Millisecond) },
		KeepsRevisions: true,
		KeepsUse:       true,
	}.Run(t)
}

func TestTwoGatewaysHearOfARevoke(t *testing.T) {
	cluster := emptied(t)
	admin, token, key := created(t, open(newClient(t, cluster.Addrs()...), never))
	one := follow(t, open(newClient(t, cluster.Addrs()...), never))
	two := follow(t, open(newClient(t, cluster.Addrs()...), never))
	acltest.Eventually(t, "the key opens at both", func() bool { return opens(one, token)() && opens(two, token)() })
	start := time.Now()
	if _, err := admin.RevokeKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	acltest.Eventually(t, "the key is refused at both", func() bool { return refuses(one, token)() && refuses(two, token)() })
	t.Logf("refused by two gateways after %v (aim 1 s)", time.Since(start))
}

func TestASubscriptionIsMadeAnew(t *testing.T) {
	cluster := emptied(t)
	admin, token, key := created(t, open(newClient(t, cluster.Addrs()...), never))
	d := follow(t, open(newClient(t, cluster.Addrs()...), never))
	acltest.Eventually(t, "the key opens", opens(d, token))
	for _, n := range cluster.Nodes() {
		if _, err := cluster.KillConnections(t.Context(), n, "pubsub"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.RevokeKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	acltest.Eventually(t, "the key is refused", refuses(d, token))
}

func TestAKilledPrimaryOfTheStorage(t *testing.T) {
	cluster := emptied(t)
	admin, token, key := created(t, open(newClient(t, cluster.Addrs()...), never))
	d := follow(t, open(newClient(t, cluster.Addrs()...), 100*time.Millisecond))
	acltest.Eventually(t, "the key opens", opens(d, token))
	primary, err := cluster.PrimaryOfKey(t.Context(), "slotgate:{acl}:apps")
	if err != nil {
		t.Fatal(err)
	}
	replica, err := cluster.ReplicaOf(t.Context(), primary)
	if err != nil {
		t.Fatal(err)
	}
	version, err := newClient(t, cluster.Addrs()...).Get(t.Context(), "slotgate:{acl}:version").Result()
	if err != nil {
		t.Fatal(err)
	}
	acltest.Eventually(t, "the replica has the key", func() bool {
		err := replica.Client().Do(t.Context(), "readonly").Err() // for one of its connections; the read below tells whether it was that one
		got, err2 := replica.Client().Get(t.Context(), "slotgate:{acl}:version").Result()
		return err == nil && err2 == nil && got == version
	})
	primary.Kill()
	if !opens(d, token)() {
		t.Fatal("a key is refused because its storage is away")
	}
	acltest.Eventually(t, "the key is revoked after the failover", func() bool {
		if !opens(d, token)() {
			return true
		}
		_, err := admin.RevokeKey(t.Context(), key.ID)
		return err == nil
	})
	acltest.Eventually(t, "the key is refused after the failover", refuses(d, token))
}

// The rights of the package comment are enough, and without the channel the polls do.
func TestRightsInRedis(t *testing.T) {
	cluster := emptied(t)
	for user, rights := range map[string][]any{
		"acl":  {"~slotgate:{acl}:*", "resetchannels", "&slotgate:{acl}:changes"},
		"mute": {"~slotgate:{acl}:*", "resetchannels"},
	} {
		emptied(t)
		for _, n := range cluster.Nodes() {
			rule := append([]any{"acl", "setuser", user, "reset", "on", ">secret", "+@all"}, rights...)
			if err := n.Client().Do(t.Context(), rule...).Err(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { n.Client().Do(context.Background(), "acl", "deluser", user) })
		}
		client := func() *redis.ClusterClient {
			o := options(cluster.Addrs()...)
			o.Username, o.Password = user, "secret"
			c := redis.NewClusterClient(o)
			t.Cleanup(func() { c.Close() })
			return c
		}
		admin, token, key := created(t, open(client(), never))
		d := follow(t, open(client(), 50*time.Millisecond))
		acltest.Eventually(t, "the key opens", opens(d, token))
		if _, err := admin.RevokeKey(t.Context(), key.ID); err != nil {
			t.Fatalf("user %s: %v", user, err)
		}
		acltest.Eventually(t, "the key is refused", refuses(d, token))
	}
}
