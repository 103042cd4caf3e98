package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// polled is a store whose nodes are polled, and its metrics.
type polled struct {
	*store.Store
	registry *prometheus.Registry
}

func newPolled(t *testing.T, c *localcluster.Cluster, change ...func(*store.Config)) polled {
	t.Helper()
	cfg := store.Config{
		Clusters:  map[string]store.ClusterConfig{"default": {Addrs: c.Addrs()}},
		CursorKey: []byte(strings.Repeat("k", 32)),
		NodePoll:  20 * time.Millisecond,
		// After so many failed dials go-redis leaves a goroutine that outlives Close by a second (v9.23.0, ConnPool.tryDial).
		Redis: store.RedisConfig{PoolSize: 1000},
	}
	for _, f := range change {
		f(&cfg)
	}
	p := polled{registry: prometheus.NewRegistry()}
	var err error
	if p.Store, err = store.New(cfg, p.registry, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// figures are the values of a metric by its labels' values, joined by commas in the order of their names.
func (p polled) figures(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			values[strings.Join(labels, ",")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// becomes polls until a metric has this value.
func (p polled) becomes(t *testing.T, name, labels string, want float64) {
	t.Helper()
	eventually(t, func() string {
		if got, ok := p.figures(t, name)[labels]; !ok || got != want {
			return fmt.Sprintf("%s{%s} is %v, %v; want %v", name, labels, got, ok, want)
		}
		return ""
	})
}

// growsFor waits until a figure of the node has grown, so that two polls of it have passed.
func (p polled) growsFor(t *testing.T, addr string) {
	t.Helper()
	read := func() float64 {
		for labels, v := range p.figures(t, "slotgate_redis_node_commands_total") {
			if strings.Contains(labels, addr) {
				return v
			}
		}
		return 0
	}
	before := read()
	eventually(t, func() string {
		if now := read(); now <= before || before == 0 && now == 0 {
			return addr + " is not polled"
		}
		return ""
	})
}

func TestNodesArePolled(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3, Replicas: 1})
	p, id := newPolled(t, c), newApp(t)
	ctx := testContext(t)
	for i := range 30 {
		if _, err := p.Set(ctx, id, fmt.Sprint("key", i), []byte("v"), store.SetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("the cluster", func(t *testing.T) {
		p.becomes(t, "slotgate_cluster_up", "default", 1)
		p.becomes(t, "slotgate_cluster_slots_ok", "default", 16384)
		p.becomes(t, "slotgate_cluster_nodes", "default,primary", 3)
		p.becomes(t, "slotgate_cluster_nodes", "default,replica", 3)
	})
	t.Run("each node, as what it is", func(t *testing.T) {
		for i, n := range c.Nodes() {
			role := "primary"
			if i >= 3 {
				role = "replica"
			}
			labels := "default," + n.Addr + "," + role
			p.becomes(t, "slotgate_redis_node_up", labels, 1)
			for _, name := range []string{"uptime_seconds", "memory_used_bytes", "memory_fragmentation_ratio", "cpu_seconds_total", "clients",
				"commands_total", "network_input_bytes_total", "network_output_bytes_total"} {
				if v := p.figures(t, "slotgate_redis_node_"+name)[labels]; v <= 0 && name != "uptime_seconds" {
					t.Errorf("%s of %s is %v", name, labels, v)
				}
			}
			if v, ok := p.figures(t, "slotgate_redis_node_memory_max_bytes")[labels]; !ok || v != 0 {
				t.Errorf("maxmemory of %s is %v, %v", labels, v, ok)
			}
			_, linked := p.figures(t, "slotgate_redis_node_master_link_up")[labels]
			if linked != (role == "replica") {
				t.Errorf("%s tells of a link to a primary: %v", labels, linked)
			}
			if role == "replica" {
				p.becomes(t, "slotgate_redis_node_master_link_up", labels, 1)
				p.becomes(t, "slotgate_redis_node_replication_lag_bytes", labels, 0)
			}
		}
	})
	t.Run("keys, hits and misses are exact", func(t *testing.T) {
		for i := range 40 {
			_, _ = p.Store.Get(ctx, id, fmt.Sprint("key", i), store.GetOptions{})
		}
		sum := func(name string) (total float64) {
			for labels, v := range p.figures(t, name) {
				if strings.HasSuffix(labels, ",primary") {
					total += v
				}
			}
			return total
		}
		for name, want := range map[string]float64{"keys": 30, "keyspace_hits_total": 30, "keyspace_misses_total": 10} {
			eventually(t, func() string {
				if got := sum("slotgate_redis_node_" + name); got != want {
					return fmt.Sprintf("%s is %v, want %v", name, got, want)
				}
				return ""
			})
		}
	})
	t.Run("a replica that falls behind", func(t *testing.T) {
		if err := c.StallReplication(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Set(ctx, id, "key", []byte(strings.Repeat("v", 10_000)), store.SetOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			for _, lag := range p.figures(t, "slotgate_redis_node_replication_lag_bytes") {
				if lag > 100 {
					return ""
				}
			}
			return fmt.Sprint("no replica is behind: ", p.figures(t, "slotgate_redis_node_replication_lag_bytes"))
		})
		if err := c.ResumeReplication(ctx); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a node that hangs costs its own figures only", func(t *testing.T) {
		hung := c.Nodes()[3]
		if err := hung.Pause(); err != nil {
			t.Fatal(err)
		}
		p.becomes(t, "slotgate_redis_node_up", "default,"+hung.Addr+",replica", 0)
		p.growsFor(t, c.Nodes()[0].Addr)
		eventually(t, func() string { // from then on the slot map leaves it out
			list, err := c.Nodes()[0].Client().ClusterNodes(ctx).Result()
			for line := range strings.Lines(list) {
				if err == nil && strings.Contains(line, hung.Addr) && strings.Contains(line, "fail ") {
					return ""
				}
			}
			return fmt.Sprint("the cluster does not take it for failed: ", list, err)
		})
		p.growsFor(t, c.Nodes()[0].Addr)
		p.growsFor(t, c.Nodes()[0].Addr)
		p.becomes(t, "slotgate_redis_node_up", "default,"+hung.Addr+",replica", 0)
		if err := hung.Resume(); err != nil {
			t.Fatal(err)
		}
		p.becomes(t, "slotgate_redis_node_up", "default,"+hung.Addr+",replica", 1)
	})
	t.Run("a node that leaves disappears", func(t *testing.T) {
		gone := c.Nodes()[4]
		for _, n := range c.Nodes() {
			if n != gone {
				if err := n.Client().ClusterForget(ctx, gone.ID).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		eventually(t, func() string {
			for labels := range p.figures(t, "slotgate_redis_node_up") {
				if strings.Contains(labels, gone.Addr) {
					return gone.Addr + " is still there"
				}
			}
			return ""
		})
		p.becomes(t, "slotgate_cluster_nodes", "default,replica", 2)
	})
	t.Run("a cluster that does not serve all slots is down", func(t *testing.T) {
		c.Nodes()[1].Kill() // its replica was forgotten
		p.becomes(t, "slotgate_cluster_up", "default", 0)
		eventually(t, func() string {
			if v := p.figures(t, "slotgate_cluster_slots_ok")["default"]; v == 16384 || v == 0 {
				return fmt.Sprint(v, " slots are ok")
			}
			return ""
		})
	})
}

func TestNobodyIsPolledUnlessAskedFor(t *testing.T) {
	p := newPolled(t, clustertest.Shared(t), func(cfg *store.Config) {
		cfg.NodePoll = 0
		cfg.Clusters = map[string]store.ClusterConfig{"default": {Addrs: []string{"127.0.0.1:1"}, Dialer: func(_ context.Context, _, addr string) (net.Conn, error) {
			t.Error("somebody dials ", addr)
			return nil, errors.New("nobody should")
		}}}
	})
	if v := p.figures(t, "slotgate_cluster_up"); len(v) != 0 {
		t.Error(v)
	}
}

func TestAClusterThatCannotBeReachedIsDown(t *testing.T) {
	p := newPolled(t, clustertest.Shared(t), func(cfg *store.Config) {
		cfg.Clusters = map[string]store.ClusterConfig{"default": {Addrs: []string{"127.0.0.1:1"}}}
	})
	p.becomes(t, "slotgate_cluster_up", "default", 0)
	if v := p.figures(t, "slotgate_redis_node_up"); len(v) != 0 {
		t.Error(v)
	}
}

// Batches, times, pools and retries of the gateway's own commands.
func TestMetricsOfCommands(t *testing.T) {
	c := clustertest.Shared(t)
	p, id := newPolled(t, c, func(cfg *store.Config) { cfg.NodePoll = 0 }), newApp(t)
	ctx := testContext(t)
	var items []store.SetItem
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint("k", i))
		items = append(items, store.SetItem{Key: keys[i], Data: []byte(strings.Repeat("v", 100))})
	}
	if _, err := p.MSet(ctx, id, append(items, items[0])); err != nil { // a key twice is two items
		t.Fatal(err)
	}
	id.Sizes.ResponseMaxBytes = 1050 // ten of the values
	if _, err := p.MGet(ctx, id, append(keys, "nowhere"), store.Reading{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"default,ok": 21 + 11, "default,response_too_large": 10}
	if got := p.figures(t, "slotgate_batch_items_total"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("items %v, want %v", got, want)
	}
	byCommand, byNode := 0.0, 0.0
	for _, v := range p.figures(t, "slotgate_redis_command_duration_seconds") {
		byCommand += v
	}
	for _, v := range p.figures(t, "slotgate_redis_node_command_duration_seconds") {
		byNode += v
	}
	if byCommand != 6 || byNode != 6 { // one chunk for each of three nodes, twice
		t.Errorf("%v commands, %v by node, want 6", byCommand, byNode)
	}
	pools := p.figures(t, "slotgate_redis_pool_connections")
	for _, n := range c.Nodes() {
		if _, ok := pools["default,"+n.Addr+",idle"]; !ok {
			t.Errorf("nothing is told of the pool of %s: %v", n.Addr, pools)
		}
	}
}
