package store

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/wire"
)

// cluster is the connection to one Redis Cluster. It is made on the first use of its name and kept while in use.
type cluster struct {
	name      string
	client    *redis.ClusterClient
	cfg       *Config
	metrics   *metrics
	ways      sync.Map // *redis.Client -> *way
	slots     slotWays
	large     largeKeys
	nodes     nodes
	took      []*metric.Histogram // time of commands, by the number of their row
	itemsOK   prometheus.Counter
	overspent prometheus.Counter // retries that the budget refused
	// lastUse is in unix seconds: exact enough to close a client that nobody has used for minutes.
	lastUse atomic.Int64
	// lastReload is in unix nanoseconds.
	lastReload atomic.Int64
	// lastDoubt, of all slots, is in unix nanoseconds.
	lastDoubt atomic.Int64
	topo      topologyCache
	replies   wire.Limit    // the most that a reply may hold
	raw       dialFunc      // what makes connections, without the gate
	reach     ClusterConfig // how nodes are reached, with the gate
	retries   *retryBudget
	replicas  atomic.Pointer[replicas] // nil = no read was for them yet
}

// reloadInterval bounds how often transport errors make go-redis read the topology again: its own cool-down is 200 ms.
const reloadInterval = 200 * time.Millisecond

// newCluster dials nothing: go-redis connects on the first command.
func newCluster(name string, cc ClusterConfig, cfg *Config, m *metrics) *cluster {
	c := &cluster{
		name: name, cfg: cfg, metrics: m, took: m.observers(name), itemsOK: m.items.WithLabelValues(name, "ok"),
		overspent: m.overspent.WithLabelValues(name),
		nodes: nodes{
			byAddr: map[string]knownNode{}, labels: newLabels(metric.MaxNodes),
			healths: map[string]*health{}, dials: cfg.Circuit.Dials,
		},
		raw:     cc.rawDial(),
		retries: newRetryBudget(cfg.Retries.BudgetPercent),
	}
	cc.Dialer = c.gate(c.raw)
	c.reach = cc
	c.client = redis.NewClusterClient(clusterOptions(cc, cfg.Redis, &c.replies))
	c.client.OnNewNode(func(node *redis.Client) {
		h := c.nodes.add(node)
		node.AddHook(nodeHook{m, name, h.label, h})
	})
	return c
}

// clusterOptions is the client set-up of library-notes 10: no hidden retries beyond redirects, every wait bounded,
// replicas never read, and no extra round trips on a new connection.
// No reply can make it hold more than the limit; nil = what the gateway asks for itself.
func clusterOptions(cc ClusterConfig, rc RedisConfig, limit *wire.Limit) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: cc.Addrs, Username: cc.Username, Password: cc.Password,
		Dialer:                     wire.Dialer(cc.Dialer, rc.DialTimeout, limit),
		CredentialsProviderContext: cc.credentials(),
		Protocol:                   2,
		ReadOnly:                   false, // true would send every read to a replica and lose read-your-writes
		DisableRoutingPolicies:     true,  // the resolver turns a dead shard into nil values; this package splits by itself
		MaxRedirects:               3,
		MaxRetries:                 -1,
		MinRetryBackoff:            8 * time.Millisecond,
		MaxRetryBackoff:            64 * time.Millisecond,
		ContextTimeoutEnabled:      true,
		DialTimeout:                rc.DialTimeout, DialerRetries: 1,
		ReadTimeout: rc.ReadTimeout, WriteTimeout: rc.WriteTimeout,
		PoolSize: rc.PoolSize, MaxActiveConns: rc.PoolSize, PoolTimeout: rc.PoolTimeout,
		PipelinePoolSize: rc.PipelinePoolSize,
		ReadBufferSize:   singleBuffer, WriteBufferSize: singleBuffer,
		PipelineReadBufferSize: pipelineBuffer, PipelineWriteBufferSize: pipelineBuffer,
		ConnMaxLifetime: 30 * time.Minute, ConnMaxLifetimeJitter: 5 * time.Minute,
		ClusterStateReloadInterval: rc.TopologyReload,
		DisableIdentity:            true,
		MaintNotificationsConfig:   &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Buffers of one connection. 16 KiB hold most single values; a chunk of 100 values of a few hundred bytes fits 64 KiB.
const (
	singleBuffer   = 16 << 10
	pipelineBuffer = 64 << 10
)

// reload asks go-redis to read the topology again. A crashed primary sends no MOVED, so without this its slots would
// fail until the next regular reload (redis/go-redis#3979).
func (c *cluster) reload(ctx context.Context) {
	now := time.Now().UnixNano()
	last := c.lastReload.Load()
	if due(now, last, reloadInterval) && c.lastReload.CompareAndSwap(last, now) {
		c.client.ReloadState(ctx)
		c.doubtAll() // a way that comes back before the reload has ended is doubted at the next fault, or in time
	}
}

// close ends all connections.
func (c *cluster) close() error {
	if rs := c.replicas.Load(); rs != nil {
		rs.close()
	}
	return c.client.Close()
}

// due says whether so much time has passed between two moments in unix nanoseconds. A clock that was set back makes everything due,
// not nothing until it has caught up.
func due(now, last int64, interval time.Duration) bool {
	return now-last >= int64(interval) || now < last
}

// observe notes how long a command took, w being the node that was asked last; nil = none is known.
func (c *cluster) observe(r *row, w *way, start time.Time) {
	took := time.Since(start).Seconds()
	c.took[r.number].Observe(took)
	if w != nil {
		w.took.Observe(took)
	}
}

// ClusterConfig says how to reach one Redis Cluster.
type ClusterConfig struct {
	Addrs    []string // seeds, host:port; one that answers is enough
	Username string   // Redis ACL user; "" = default
	Password string
	// PasswordFrom is asked for the password of each new connection, in place of Password; nil = Password.
	PasswordFrom func() (string, error)
	// ID tells apart two configurations that differ only in what their functions do.
	ID string
	// Dialer connects to a node, with TLS if there is any, and bounds the time itself; nil = plain TCP. Tests put faults here.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
}

// credentials is nil unless the password has to be asked for. A password that cannot be had is a node that cannot be reached: it may
// be there at the next try, and nothing was sent.
func (cc ClusterConfig) credentials() func(context.Context) (string, string, error) {
	if cc.PasswordFrom == nil {
		return nil
	}
	return func(context.Context) (string, string, error) {
		password, err := cc.PasswordFrom()
		if err != nil {
			return "", "", &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
		return cc.Username, password, nil
	}
}

// same says whether a connection made for one serves the other. Functions cannot be compared, so what they stand for is the caller's
// to compare: ID.
func (cc ClusterConfig) same(o ClusterConfig) bool {
	return cc.ID == o.ID && cc.Username == o.Username && cc.Password == o.Password && slices.Equal(cc.Addrs, o.Addrs)
}

// clusters are the connections of this process, by name.
type clusters struct {
	store   *Store
	mu      sync.RWMutex
	configs map[string]ClusterConfig // replaced as a whole, never written
	byName  map[string]*cluster
	closed  bool
}

// get returns the connection to a configured cluster, made now if it is not there. Callers that come at the same time
// share one. Errors: cluster_down for a name that is not configured.
func (cs *clusters) get(name string) (*cluster, *Error) {
	cs.mu.RLock()
	c := cs.byName[name]
	cs.mu.RUnlock()
	if c == nil {
		var err *Error
		if c, err = cs.open(name); err != nil {
			return nil, err
		}
	}
	if now := time.Now().Unix(); c.lastUse.Load() != now {
		c.lastUse.Store(now)
	}
	return c, nil
}

func (cs *clusters) open(name string) (*cluster, *Error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cc, ok := cs.configs[name]
	if !ok {
		return nil, &Error{Code: CodeClusterDown, Detail: "the app's cluster is not configured at this gateway", Outcome: NotApplied}
	}
	if cs.closed {
		return nil, &Error{Code: CodeDraining, Detail: "the gateway is shutting down", Outcome: NotApplied}
	}
	if c := cs.byName[name]; c != nil {
		return c, nil
	}
	c := newCluster(name, cc, &cs.store.cfg, cs.store.metrics)
	c.lastUse.Store(time.Now().Unix())
	cs.byName[name] = c
	return c, nil
}

// current is the set of configurations now. It is not to be changed.
func (cs *clusters) current() map[string]ClusterConfig {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	return cs.configs
}

// replace takes a new set of configurations. It takes from byName, and returns, the connections that no configuration is for any more.
func (cs *clusters) replace(configs map[string]ClusterConfig) (retired []*cluster) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for name, c := range cs.byName {
		if cc, ok := configs[name]; !ok || !cc.same(cs.configs[name]) {
			delete(cs.byName, name)
			retired = append(retired, c)
		}
	}
	cs.configs = configs
	return retired
}

// closeIdle closes the connections to clusters that nobody has used since before. A request lasts seconds, before lies
// minutes back, so none is under way.
func (cs *clusters) closeIdle(before time.Time) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for name, c := range cs.byName {
		if c.lastUse.Load() < before.Unix() {
			delete(cs.byName, name)
			_ = c.close()
			c.keepNodes(nil, 0)
		}
	}
}

// forgetNodes drops the ways to nodes that have left their cluster, as their clients, which go-redis has closed.
func (cs *clusters) forgetNodes(ctx context.Context) {
	var all []*cluster
	cs.each(func(c *cluster) { all = append(all, c) })
	for _, c := range all {
		c.forgetNodes(ctx)
	}
}

func (cs *clusters) close() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	var first error
	for name, c := range cs.byName {
		delete(cs.byName, name)
		if err := c.close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (cs *clusters) each(f func(*cluster)) {
	cs.mu.RLock()
	defer cs.mu.RUnlock()
	for _, c := range cs.byName {
		f(c)
	}
}
