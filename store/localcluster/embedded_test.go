package localcluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/slot"
)

func startEmbedded(t *testing.T) *localcluster.Embedded {
	e, err := localcluster.StartEmbedded(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// single returns a client of one node that follows no redirection.
func single(t *testing.T, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// at returns a key of a node's slots, next one with a number to choose.
func at(node int) string { return next(node, 0) }

func next(node, from int) string {
	for i := from; ; i++ {
		key := fmt.Sprint("key", i)
		if slot.Of(key)*3/slot.Count == node {
			return key
		}
	}
}

func TestEmbeddedServesClusterClients(t *testing.T) {
	e := startEmbedded(t)
	ctx := within(t, 10*time.Second)
	client := clusterClient(t, e.Addrs()[2:])
	for i := range 1000 {
		if err := client.Set(ctx, fmt.Sprint("key:", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	total := int64(0)
	for _, addr := range e.Addrs() {
		n, err := single(t, addr).DBSize(ctx).Result()
		if err != nil || n < 200 {
			t.Errorf("%s has %d keys, %v", addr, n, err)
		}
		total += n
	}
	if total != 1000 {
		t.Errorf("%d keys in all", total)
	}
	for i := range 1000 {
		if v, err := client.Get(ctx, fmt.Sprint("key:", i)).Int(); err != nil || v != i {
			t.Fatalf("key %d: %d, %v", i, v, err)
		}
	}
}

func TestEmbeddedRedirectsAndRefuses(t *testing.T) {
	e := startEmbedded(t)
	ctx := within(t, 10*time.Second)
	first := single(t, e.Addrs()[0])
	mine, other := at(0), at(1)
	moved := fmt.Sprintf("MOVED %d %s", slot.Of(other), e.Addrs()[1])
	script := "return redis.call('SET', ARGV[1], 'v')"
	for _, row := range []struct {
		command []any
		want    string
	}{
		{[]any{"GET", other}, moved},
		{[]any{"SET", other, "v"}, moved},
		{[]any{"EVAL", "return 1", 1, other}, moved},
		{[]any{"OBJECT", "ENCODING", other}, moved},
		{[]any{"XREAD", "COUNT", 1, "STREAMS", other, "0"}, moved},
		{[]any{"DEL", "{" + other + "}a", "{" + other + "}b"}, moved},
		{[]any{"MGET", mine, other}, "CROSSSLOT"},
		{[]any{"MSET", mine, "v", other, "v"}, "CROSSSLOT"},
		{[]any{"RENAME", mine, mine + "x"}, "CROSSSLOT"},
		{[]any{"EVAL", "return 1", 2, mine, other}, "CROSSSLOT"},
		{[]any{"BITOP", "AND", mine, other}, "CROSSSLOT"},
		{[]any{"ZUNIONSTORE", mine, 1, other}, "CROSSSLOT"},
		{[]any{"EVAL", script, 1, mine, other}, "non local key"},
		{[]any{"SELECT", 1}, "ERR SELECT is not allowed in cluster mode"},
		{[]any{"CLUSTER", "FAILOVER"}, "ERR the embedded cluster knows only"},
		{[]any{"EVAL", script, 1, mine, mine}, ""},
		{[]any{"MSET", mine, "v", "{" + mine + "}b", "v"}, ""},
		{[]any{"BLPOP", "list{" + mine + "}", 0.01}, "redis: nil"},
		{[]any{"READONLY"}, ""},
		{[]any{"CLUSTER", "COUNTKEYSINSLOT", slot.Of(mine)}, ""},
	} {
		err := first.Do(ctx, row.command...).Err()
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%v: %v, want %q", row.command, err, row.want)
		}
	}
	if v, err := first.ObjectEncoding(ctx, mine).Result(); err != nil || v != "embstr" {
		t.Errorf("encoding: %q, %v", v, err)
	}
}

func TestEmbeddedMapsAgree(t *testing.T) {
	e := startEmbedded(t)
	ctx := within(t, 10*time.Second)
	for i, addr := range e.Addrs() {
		node := single(t, addr)
		slots, err := node.ClusterSlots(ctx).Result()
		if err != nil || len(slots) != 3 {
			t.Fatalf("CLUSTER SLOTS: %v, %v", slots, err)
		}
		shards, err := node.ClusterShards(ctx).Result()
		if err != nil || len(shards) != 3 {
			t.Fatalf("CLUSTER SHARDS: %v, %v", shards, err)
		}
		begin := 0
		for j := range 3 {
			s, shard := slots[j], shards[j]
			if s.Start != begin || int64(begin) != shard.Slots[0].Start || int64(s.End) != shard.Slots[0].End {
				t.Errorf("range %d: %d-%d, %v", j, s.Start, s.End, shard.Slots)
			}
			if s.Nodes[0].Addr != e.Addrs()[j] || s.Nodes[0].ID != shard.Nodes[0].ID || fmt.Sprint("127.0.0.1:", shard.Nodes[0].Port) != s.Nodes[0].Addr {
				t.Errorf("node %d: %v, %v", j, s.Nodes, shard.Nodes)
			}
			begin = s.End + 1
		}
		if begin != slot.Count {
			t.Errorf("slots end before %d", begin)
		}
		if id, err := node.Do(ctx, "CLUSTER", "MYID").Text(); err != nil || id != slots[i].Nodes[0].ID {
			t.Errorf("CLUSTER MYID: %q, %v", id, err)
		}
		if text, err := node.ClusterNodes(ctx).Result(); err != nil || strings.Count(text, "\n") != 3 || !strings.Contains(text, slots[i].Nodes[0].ID+" "+addr) {
			t.Errorf("CLUSTER NODES: %q, %v", text, err)
		}
		if text, err := node.ClusterInfo(ctx).Result(); err != nil || !strings.Contains(text, "cluster_state:ok") {
			t.Errorf("CLUSTER INFO: %q, %v", text, err)
		}
		if n, err := node.ClusterKeySlot(ctx, "foo{{bar}}zap").Result(); err != nil || n != 4015 {
			t.Errorf("CLUSTER KEYSLOT: %d, %v", n, err)
		}
	}
}

func TestEmbeddedTransactions(t *testing.T) {
	e := startEmbedded(t)
	ctx := within(t, 10*time.Second)
	first := single(t, e.Addrs()[0])
	mine, other := at(0), at(1)
	for _, row := range []struct {
		name, second, want string
	}{
		{"another node's key", other, "EXECABORT"},
		{"another slot", next(0, 1000), "CROSSSLOT"},
		{"the same slot", "{" + mine + "}", ""},
	} {
		conn := first.Conn()
		_ = conn.Do(ctx, "MULTI").Err()
		_ = conn.Do(ctx, "INCR", mine).Err()
		_ = conn.Do(ctx, "INCR", row.second).Err()
		err := conn.Do(ctx, "EXEC").Err()
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.HasPrefix(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		if v, err := conn.Incr(ctx, "{"+mine+"}after").Result(); err != nil || v == 0 {
			t.Errorf("%s: the connection is still in the transaction: %v", row.name, err)
		}
		_ = conn.Close()
	}
	if v, err := first.Get(ctx, mine).Int(); err != nil || v != 1 {
		t.Errorf("refused transactions did something: %d, %v", v, err)
	}
	clusterClient := clusterClient(t, e.Addrs())
	_, err := clusterClient.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "{t}a", 1, 0)
		p.Incr(ctx, "{t}a")
		return nil
	})
	if v, _ := clusterClient.Get(ctx, "{t}a").Int(); err != nil || v != 2 {
		t.Errorf("a cluster client's transaction: %d, %v", v, err)
	}
}

func TestEmbeddedPublishesToAllNodes(t *testing.T) {
	e := startEmbedded(t)
	ctx := within(t, 10*time.Second)
	sub := single(t, e.Addrs()[2]).Subscribe(ctx, "news")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	first := single(t, e.Addrs()[0])
	if err := first.Publish(ctx, "news", "plain").Err(); err != nil {
		t.Fatal(err)
	}
	if err := first.Eval(ctx, "return redis.call('PUBLISH', 'news', 'script')", nil).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Publish(ctx, "news", "transaction").Err() }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"plain", "script", "transaction"} {
		if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != want {
			t.Errorf("received %v, %v, want %q", m, err, want)
		}
	}
}

func TestEmbeddedTimeRuns(t *testing.T) {
	e := startEmbedded(t)
	ctx := within(t, 10*time.Second)
	client := clusterClient(t, e.Addrs())
	if err := client.Set(ctx, "short", "v", 60*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	if left, err := client.PTTL(ctx, "short").Result(); err != nil || left <= 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	eventually(ctx, t, "the key expires", func() bool { return client.Get(ctx, "short").Err() == redis.Nil })
}

func TestEmbeddedNeedsNodes(t *testing.T) {
	for _, n := range []int{0, -1, slot.Count + 1} {
		if _, err := localcluster.StartEmbedded(t.Context(), n); err == nil {
			t.Errorf("%d nodes", n)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := localcluster.StartEmbedded(over, 3); err == nil {
		t.Error("started after the end")
	}
}

// Our slot function and Redis' own agree on all that a key may hold.
func TestSlotsAreThoseOfRedis(t *testing.T) {
	t.Parallel()
	c := start(t, localcluster.Options{Primaries: 1})
	ctx := within(t, 30*time.Second)
	keys := []string{"", "foo{}{bar}", "foo{{bar}}zap", "{}x", "a}{b", "foo{bar}{zap}", "{", "}", "{}", "{{}", "{}}", "\x00{\xff}\r\n"}
	for range 100_000 {
		key := make([]byte, rand.IntN(24))
		for i := range key {
			key[i] = "ab{}\x00\xff"[rand.IntN(6)]
			if rand.IntN(3) == 0 {
				key[i] = byte(rand.Uint32())
			}
		}
		keys = append(keys, string(key))
	}
	for len(keys) > 0 {
		batch := keys[:min(len(keys), 10_000)]
		keys = keys[len(batch):]
		answers, err := c.Nodes()[0].Client().Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range batch {
				p.ClusterKeySlot(ctx, key)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if want := a.(*redis.IntCmd).Val(); int64(slot.Of(batch[i])) != want {
				t.Fatalf("Of(%q) = %d, Redis says %d", batch[i], slot.Of(batch[i]), want)
			}
		}
	}
}

func TestCommandLineClientWorksWithTheEmbeddedCluster(t *testing.T) {
	program, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("redis-cli is not installed")
	}
	_, port, _ := strings.Cut(startEmbedded(t).Addrs()[0], ":")
	for _, command := range []string{"SET key1 v", "SET key2 v", "SET key3 v"} {
		args := append([]string{"-c", "-p", port}, strings.Fields(command)...)
		out, err := exec.CommandContext(within(t, 10*time.Second), program, args...).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "OK" {
			t.Errorf("redis-cli %s: %q, %v", command, out, err)
		}
	}
}
