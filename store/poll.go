package store

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/store/info"
	"github.com/slotgate/slotgate/store/metric"
)

const (
	// stateEvery is how often a cluster's state is looked at: a cluster that is down should be told of sooner than INFO is asked for.
	stateEvery = 10 * time.Second
	// nodeTimeout bounds what is waited for one node, twice the time in which the slowest answers a request.
	nodeTimeout = 2 * time.Second
	// pollParallel is how many clusters are polled at once.
	pollParallel = 8
)

// poller asks the nodes of every configured cluster what they say about themselves, for the metrics. It has clients of its own, so that
// it never takes a connection from a request and hears of nodes whose pool is used up; replicas are asked as well. It asks a node
// one thing at a time, so there is one connection to each. (A pool of that size would be no safer: after as many failed dials as it has
// places, go-redis leaves a goroutine behind that outlives Close by a second.)
type poller struct {
	store *Store
	every time.Duration

	mu    sync.Mutex // guards the views in seen; each is replaced, never changed
	seen  map[string]clusterView
	polls map[string]*clusterPoll // of the loop alone
}

// clusterPoll is what the poller keeps of a cluster from one poll to the next.
type clusterPoll struct {
	client *redis.ClusterClient
	cfg    ClusterConfig // that of client
	labels labels
	// replicas are those of the nodes with a label that were replicas when they were seen last.
	replicas map[string]bool
	fault    string // what INFO was refused for, as logged
}

func newClusterPoll(client *redis.ClusterClient, cfg ClusterConfig) *clusterPoll {
	return &clusterPoll{client: client, cfg: cfg, labels: newLabels(metric.MaxNodes), replicas: map[string]bool{}}
}

// clusterView is what a cluster and its nodes said.
type clusterView struct {
	up, slotsOK         float64
	known               bool // the cluster has named its nodes
	primaries, replicas float64
	nodes               []nodeView
}

// nodeView is one node of a view.
type nodeView struct {
	addr, label string
	replica     bool
	up          bool
	fields      info.Fields // empty if it refused to tell
	lag         float64
	behind      bool // lag is known
}

func newPoller(s *Store, every time.Duration) *poller {
	return &poller{store: s, every: every, seen: map[string]clusterView{}, polls: map[string]*clusterPoll{}}
}

// run polls until ctx ends, at once and then regularly: the state of clusters each time, INFO each few times.
func (p *poller) run(ctx context.Context) {
	defer p.close()
	times := (p.every + stateEvery - 1) / stateEvery
	tick := time.NewTicker(p.every / times)
	defer tick.Stop()
	for n := time.Duration(0); ; n++ {
		p.poll(ctx, n%times == 0)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *poller) close() {
	for _, c := range p.polls {
		_ = c.client.Close()
	}
	clear(p.polls) // after a panic it goes on
}

// poll asks all clusters. Without figures only their state is asked for, and the nodes keep the figures of before.
func (p *poller) poll(ctx context.Context, figures bool) {
	var g errgroup.Group
	g.SetLimit(pollParallel)
	configs := p.store.clusters.current()
	p.forget(configs)
	for name, cc := range configs {
		c := p.polls[name]
		if c == nil {
			client := redis.NewClusterClient(clusterOptions(cc, p.store.cfg.Redis, nil))
			c = newClusterPoll(client, cc)
			p.polls[name] = c
		}
		g.Go(func() error {
			alive.Once(p.store.log, "polling a cluster", func() {
				v := c.state(ctx)
				if figures && v.known {
					v.nodes = c.figures(ctx)
					p.report(name, c, v.nodes)
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				if !figures || !v.known {
					v.nodes = p.seen[name].nodes
				}
				if ctx.Err() == nil {
					p.seen[name] = v
				}
			})
			return nil
		})
	}
	_ = g.Wait()
}

// forget drops what is kept of clusters that are gone or are reached otherwise now.
func (p *poller) forget(configs map[string]ClusterConfig) {
	for name, c := range p.polls {
		if cc, ok := configs[name]; ok && cc.same(c.cfg) {
			continue
		}
		_ = c.client.Close()
		delete(p.polls, name)
		p.mu.Lock()
		delete(p.seen, name)
		p.mu.Unlock()
	}
}

// state asks all primaries how their cluster is, and counts the nodes.
func (c *clusterPoll) state(ctx context.Context) (v clusterView) {
	var mu sync.Mutex
	good := 0.0
	err := eachNode(ctx, c.client.ForEachMaster, func(ctx context.Context, node *redis.Client) {
		answer, err := node.ClusterInfo(ctx).Result()
		f := info.Parse(answer)
		mu.Lock()
		defer mu.Unlock()
		v.primaries++
		if err != nil {
			return
		}
		if f["cluster_state"] == "ok" {
			good++
		}
		if slots, ok := f.Number("cluster_slots_ok"); ok {
			v.slotsOK = max(v.slotsOK, slots)
		}
	})
	if err != nil || v.primaries == 0 {
		return clusterView{}
	}
	if 2*good > v.primaries {
		v.up = 1
	}
	v.known = nil == eachNode(ctx, c.client.ForEachSlave, func(context.Context, *redis.Client) {
		mu.Lock()
		defer mu.Unlock()
		v.replicas++
	})
	return v
}

// figures asks every node for INFO.
func (c *clusterPoll) figures(ctx context.Context) []nodeView {
	var mu sync.Mutex
	byAddr := map[string]nodeView{} // a failover between the two walks shows a node twice
	ask := func(replica bool) func(context.Context, *redis.Client) {
		return func(ctx context.Context, node *redis.Client) {
			n := nodeView{addr: node.Options().Addr, replica: replica}
			answer, err := node.Info(ctx).Result()
			var refused redis.Error
			if n.up = err == nil || errors.As(err, &refused); n.up {
				n.fields = info.Parse(answer)
			}
			if n.fields["role"] != "" {
				n.replica = n.fields.Replica()
			}
			if refused != nil {
				n.fields = info.Fields{"refused": refused.Error()}
			}
			mu.Lock()
			defer mu.Unlock()
			byAddr[n.addr] = n
		}
	}
	// Replicas first: what is written between the two readings makes one look behind, never ahead.
	_ = eachNode(ctx, c.client.ForEachSlave, ask(true))
	_ = eachNode(ctx, c.client.ForEachMaster, ask(false))
	c.addFailed(ctx, byAddr)
	return c.label(byAddr)
}

// addFailed adds the nodes that the cluster takes for failed, as down: its slot map leaves them out, though they have not left.
func (c *clusterPoll) addFailed(ctx context.Context, byAddr map[string]nodeView) {
	var missing []string
	for addr := range c.labels.given {
		if _, ok := byAddr[addr]; !ok {
			missing = append(missing, addr)
		}
	}
	if len(missing) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	list, err := c.client.ClusterNodes(ctx).Result()
	for _, addr := range missing {
		if err != nil || listed(list, addr) {
			byAddr[addr] = nodeView{addr: addr, replica: c.replicas[addr]}
		}
	}
}

// listed says whether CLUSTER NODES names an address. Its lines are "id ip:port@busport[,hostname] flags …", the brackets of an IPv6
// address left out.
func listed(list, addr string) bool {
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		at, name, _ := strings.Cut(fields[1], ",")
		at, _, _ = strings.Cut(at, "@")
		colon := strings.LastIndexByte(at, ':')
		if colon < 0 {
			continue
		}
		name, _, _ = strings.Cut(name, ",")
		for _, host := range []string{at[:colon], name} {
			if host != "" && net.JoinHostPort(host, at[colon+1:]) == addr {
				return true
			}
		}
	}
	return false
}

// label gives the nodes their labels, drops those beyond the bound, and works out who is behind whom.
func (c *clusterPoll) label(byAddr map[string]nodeView) []nodeView {
	for addr := range c.labels.given {
		if _, ok := byAddr[addr]; !ok {
			c.labels.free(addr)
			delete(c.replicas, addr)
		}
	}
	views := make([]nodeView, 0, len(byAddr))
	for addr, n := range byAddr {
		if n.label = c.labels.of(addr); n.label == metric.Other {
			continue
		}
		c.replicas[addr] = n.replica
		for _, primary := range byAddr {
			if lag, ok := info.Lag(primary.fields, n.fields); ok {
				n.lag, n.behind = lag, true
				break
			}
		}
		views = append(views, n)
	}
	return views
}

// report logs that nodes refuse INFO, when that begins.
func (p *poller) report(name string, c *clusterPoll, views []nodeView) {
	fault := ""
	for _, n := range views {
		if f := n.fields["refused"]; f != "" {
			fault = f
		}
	}
	if fault != "" && fault != c.fault {
		p.store.log.Warn("nodes refuse INFO, their metrics are missing; allow the gateway's Redis user +info", "cluster", name, "error", fault)
	}
	c.fault = fault
}

// eachNode calls f for each node of walk at the same time, with a deadline for each. Its error says that the slot map cannot be read.
func eachNode(ctx context.Context, walk func(context.Context, func(context.Context, *redis.Client) error) error, f func(context.Context, *redis.Client)) error {
	read, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	return walk(read, func(_ context.Context, node *redis.Client) error {
		ctx, cancel := context.WithTimeout(ctx, nodeTimeout) // the time for the slot map is not the node's
		defer cancel()
		alive.Once(slog.Default(), "asking a node", func() { f(ctx, node) }) // a goroutine of the driver
		return nil
	})
}
