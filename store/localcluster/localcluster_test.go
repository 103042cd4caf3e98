package localcluster_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/store/localcluster"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild()
	}
	goleak.VerifyTestMain(m)
}

func TestFailoverOfAKilledPrimary(t *testing.T) {
	t.Parallel()
	c := start(t, localcluster.Options{Replicas: 1})
	ctx := within(t, 30*time.Second)
	client := clusterClient(t, c.Addrs())
	if err := client.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	old, err := c.PrimaryOfKey(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	replica, err := c.ReplicaOf(ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := old.Client().Wait(ctx, 1, 5*time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("replicas in step: %d, %v", n, err)
	}
	old.Kill()
	if err := c.WaitOK(ctx); err != nil {
		t.Fatal(err)
	}
	if now, err := c.PrimaryOfKey(ctx, "k"); err != nil || now != replica {
		t.Errorf("primary after the crash: %v, %v, want %v", now, err, replica.Addr)
	}
	if v, err := replica.Client().Get(ctx, "k").Result(); err != nil || v != "v" {
		t.Errorf("GET after the crash: %q, %v", v, err)
	}
	if err := old.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitOK(ctx); err != nil {
		t.Fatal(err)
	}
	if role, err := old.Role(ctx); err != nil || role != localcluster.Replica {
		t.Errorf("the killed primary came back as %v, %v", role, err)
	}
	if back, err := c.Failover(ctx, replica); err != nil || back != old {
		t.Errorf("planned failover made %v primary, %v", back, err)
	}
	stalledReplicasAnswerWithOldData(ctx, t, c)
}

func stalledReplicasAnswerWithOldData(ctx context.Context, t *testing.T, c *localcluster.Cluster) {
	primary, err := c.PrimaryOfKey(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	replica, err := c.ReplicaOf(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StallReplication(ctx); err != nil {
		t.Fatal(err)
	}
	read := func() string {
		conn := replica.Client().Conn()
		defer conn.Close()
		if err := conn.Process(ctx, redis.NewStatusCmd(ctx, "READONLY")); err != nil {
			t.Fatal(err)
		}
		v, err := conn.Get(ctx, "k").Result()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if err := primary.Client().Set(ctx, "k", "new", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := primary.Client().Wait(ctx, 1, 200*time.Millisecond).Result(); err != nil || n != 0 {
		t.Errorf("replicas in step while replication is stalled: %d, %v", n, err)
	}
	if v := read(); v != "v" {
		t.Errorf("stalled replica has %q", v)
	}
	if err := c.ResumeReplication(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the replica catches up", func() bool { return read() == "new" })
	if err := replica.CutReplication(ctx); err != nil {
		t.Fatal(err)
	}
	link := func() string { return replica.Client().Info(ctx, "replication").Val() }
	eventually(ctx, t, "the link is down", func() bool { return strings.Contains(link(), "master_link_status:down") })
	if err := primary.Client().Set(ctx, "k", "newest", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if v := read(); v != "new" {
		t.Errorf("a replica that is cut off has %q", v)
	}
	if err := replica.MendReplication(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the replica has found its primary", func() bool { return read() == "newest" })
}

func TestMigrateSlotLosesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, localcluster.Options{Username: "gate", Password: `pa"ss \word`})
	ctx := within(t, 20*time.Second)
	client := clusterClient(t, c.Addrs(), func(o *redis.ClusterOptions) { o.Username, o.Password = "gate", `pa"ss \word` })
	const keys, s = 250, 5061 // {bar}
	for i := range keys {
		if err := client.Set(ctx, fmt.Sprintf("{bar}%d", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	from, err := c.PrimaryOf(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	to := c.Nodes()[2]
	if err := c.MigrateSlot(ctx, s, from, to); err != nil {
		t.Fatal(err)
	}
	if now, err := c.PrimaryOfKey(ctx, "{bar}"); err != nil || now != to {
		t.Errorf("primary after the move: %v, %v", now, err)
	}
	if n, err := to.Client().ClusterCountKeysInSlot(ctx, s).Result(); err != nil || n != keys {
		t.Errorf("keys at the new primary: %d, %v", n, err)
	}
	for i := range keys {
		if v, err := client.Get(ctx, fmt.Sprintf("{bar}%d", i)).Int(); err != nil || v != i {
			t.Fatalf("key %d after the move: %d, %v", i, v, err)
		}
	}
	if n, err := c.KillConnections(ctx, to); err != nil || n == 0 {
		t.Errorf("closed %d connections, %v", n, err)
	}
}

func TestPausedNodeDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c := start(t, localcluster.Options{})
	n := c.Nodes()[1]
	if err := n.Pause(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := n.Client().Ping(short).Err(); err == nil {
		t.Error("a paused node answers")
	}
	if err := n.Resume(); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 10*time.Second)
	if err := c.WaitOK(ctx); err != nil {
		t.Error(err)
	}
	if err := n.Client().Ping(ctx).Err(); err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, localcluster.Options{})
	nodes, dir := c.Nodes(), c.Dir()
	if err := nodes[0].Pause(); err != nil { // a paused process ends as well
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := nodes[0].Restart(t.Context()); err == nil {
		t.Error("a node of a closed cluster was started")
	}
	for _, n := range nodes {
		if exists(n.PID()) {
			t.Errorf("process %d of %s is still there", n.PID(), n.Addr)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestKeptFolderComesBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), `with "quotes" and ü`)
	c := start(t, localcluster.Options{Dir: dir})
	ctx := within(t, 40*time.Second)
	client := clusterClient(t, c.Addrs())
	for i := range 100 {
		if err := client.Set(ctx, fmt.Sprint("key:", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := localcluster.Start(ctx, localcluster.Options{Dir: dir}); err == nil {
		t.Error("two clusters share a folder")
	}
	before := c.Addrs()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}

	// Someone has taken the first node's port meanwhile.
	taken := listen(t, before[0])
	c = start(t, localcluster.Options{Dir: dir})
	client = clusterClient(t, c.Addrs())
	for i := range 100 {
		if v, err := client.Get(ctx, fmt.Sprint("key:", i)).Int(); err != nil || v != i {
			t.Fatalf("key %d after the restart: %d, %v", i, v, err)
		}
	}
	for i, addr := range c.Addrs() {
		if (addr == before[i]) != (i > 0) {
			t.Errorf("node %d moved from %s to %s", i, before[i], addr)
		}
	}
	_ = taken.Close()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := localcluster.Start(ctx, localcluster.Options{Dir: dir, Primaries: 4}); err == nil {
		t.Error("a folder of three primaries was taken for four")
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	busy := listen(t, "127.0.0.1:0")
	for name, o := range map[string]localcluster.Options{
		"too few ports":             {Ports: []int{1, 2}},
		"a port in use":             {Ports: []int{port(busy), 20_001, 20_002}},
		"a user without a password": {Username: "u"},
		"an unknown program":        {Binary: "no-such-redis-server"},
		"a wrong directive":         {Config: map[string]string{"no-such-directive": "yes"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if c, err := localcluster.Start(ctx, o); err == nil {
			t.Errorf("%s: started", name)
			_ = c.Close()
		} else {
			t.Logf("%s: %v", name, err)
		}
		cancel()
	}
}

func start(t *testing.T, o localcluster.Options) *localcluster.Cluster {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("SLOTGATE_TEST_ALLOW_SKIP") != "" {
		t.Skip("SKIPPED, NOTHING TESTED: ", err)
	}
	begun := time.Now()
	c, err := localcluster.Start(within(t, 30*time.Second), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d nodes in %v", len(c.Nodes()), time.Since(begun).Round(time.Millisecond))
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func clusterClient(t *testing.T, addrs []string, change ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	o := &redis.ClusterOptions{Addrs: addrs, Protocol: 2, DisableIdentity: true, MaxRedirects: 8,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}}
	for _, f := range change {
		f(o)
	}
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func eventually(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("in vain waited that %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
