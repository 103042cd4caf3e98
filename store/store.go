package store

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/alive"
)

// Config is what a Store needs to know. Zero fields of Redis, Retries and Batch mean the defaults beside them.
type Config struct {
	Clusters   map[string]ClusterConfig // by the name that apps carry
	Redis      RedisConfig
	Retries    Retries
	Batch      BatchConfig
	Coalesce   CoalesceConfig
	Durability DurabilityConfig
	Circuit    CircuitConfig
	Overload   OverloadConfig
	Replicas   ReplicaReadsConfig
	// CursorKey authenticates listing cursors; the same in all gateways. Required, 32 bytes or more.
	CursorKey []byte
	// OtherCursorKeys are accepted too, while the secret is changed.
	OtherCursorKeys [][]byte
	// NodePoll is how often all nodes are asked for INFO, for the metrics; 0 = never. Without a registry nobody is asked.
	NodePoll time.Duration
	// RecordTTL is how long the repetition of a write with an Idempotency-Key is known; 0 = 24 h.
	RecordTTL time.Duration
	// IdleClose: connections to a cluster that no request has used for this long are closed. 0 = 10 minutes.
	IdleClose time.Duration
}

// RedisConfig holds the bounds of every connection pool; each counts per node of a cluster.
type RedisConfig struct {
	PoolSize         int           // connections for single commands; 0 = 32
	PipelinePoolSize int           // connections for batches; 0 = 8
	PoolTimeout      time.Duration // wait for a free connection; 0 = 50 ms
	DialTimeout      time.Duration // 0 = 300 ms
	ReadTimeout      time.Duration // one reply; a request's deadline may cut it shorter; 0 = 1 s
	WriteTimeout     time.Duration // 0 = 1 s
	TopologyReload   time.Duration // regular re-reading of the slot map; 0 = 5 s
}

// Retries counts repetitions after the first try, for faults that pass by themselves. 0 = 3; negative = none. Reads are
// repeated after any such fault, writes only if Redis certainly did not execute them.
type Retries struct {
	Read, Write int
	// BudgetPercent bounds the repetitions to a cluster as a share of the requests to it, beside a few that are always
	// allowed; 0 = 10, negative = no bound.
	BudgetPercent int
}

// BatchConfig bounds the fan-out of mget, mset, mdelete and mexists.
type BatchConfig struct {
	Chunk      int // commands in one pipeline; 0 = 100
	PerRequest int // chunks of one request under way; 0 = 4. At least one per node, so that no node waits for another
	PerNode    int // chunks that go to one node by themselves at once, of all requests: large values, or all without shared pipes; 0 = 8, the pipeline connections
}

func (c Config) withDefaults() Config {
	def(&c.Redis.PoolSize, 32)
	def(&c.Redis.PipelinePoolSize, 8)
	def(&c.Redis.PoolTimeout, 50*time.Millisecond)
	def(&c.Redis.DialTimeout, 300*time.Millisecond)
	def(&c.Redis.ReadTimeout, time.Second)
	def(&c.Redis.WriteTimeout, time.Second)
	def(&c.Redis.TopologyReload, 5*time.Second)
	def(&c.Retries.Read, 3)
	def(&c.Retries.Write, 3)
	def(&c.Retries.BudgetPercent, 10)
	def(&c.Circuit.OpenAfter, 500*time.Millisecond)
	def(&c.Circuit.Probe, 400*time.Millisecond)
	def(&c.Circuit.Dials, 10)
	def(&c.Batch.Chunk, 100)
	def(&c.Batch.PerRequest, 4)
	def(&c.Batch.PerNode, 8)
	def(&c.Durability.ReplicaWait, 200*time.Millisecond)
	def(&c.Durability.FsyncWait, 1500*time.Millisecond)
	def(&c.Replicas.Within, 5*time.Second)
	def(&c.RecordTTL, defaultRecordTTL)
	def(&c.IdleClose, 10*time.Minute)
	c.Overload.off = new(atomic.Bool)
	c.Overload.off.Store(c.Overload.Off)
	return c
}

func def[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Store runs the operations of the gateway on the clusters of its configuration. It is safe for concurrent use.
// Every method takes the caller, checks its permission and the sizes first, and returns an *Error.
type Store struct {
	cfg      Config
	clusters clusters
	metrics  *metrics
	log      *slog.Logger
	now      func() time.Time
	stop     context.CancelFunc
	done     sync.WaitGroup
	retired  chan []*cluster // to be closed by and by
	// recordTTL is the configured one, until it is set anew.
	recordTTL atomic.Int64
}

// New makes a Store; it connects to nothing yet, but for the polls of nodes. Close must be called. registry and log may be nil.
func New(cfg Config, registry prometheus.Registerer, log *slog.Logger) (*Store, error) {
	if len(cfg.CursorKey) < 32 {
		return nil, fmt.Errorf("store: the cursor key has %d bytes, it needs 32", len(cfg.CursorKey))
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg.withDefaults(), log: log, now: time.Now, retired: make(chan []*cluster)}
	s.KeepRecords(s.cfg.RecordTTL)
	s.clusters = clusters{store: s, configs: cfg.Clusters, byName: map[string]*cluster{}}
	s.metrics = newMetrics(registry, s)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	background := []func(context.Context){s.closeIdleClusters, s.closeRetired, s.sweepPipes}
	if registry != nil && s.cfg.NodePoll > 0 {
		p := newPoller(s, s.cfg.NodePoll)
		registry.MustRegister(p)
		background = append(background, p.run)
	}
	for _, work := range background {
		s.done.Go(func() { alive.Loop(ctx, s.log, "store", work) })
	}
	return s, nil
}

// Close ends the background work and all connections. Calls under way fail.
func (s *Store) Close() error {
	s.stop()
	s.done.Wait()
	return s.clusters.close()
}

// forgetAfter is how long a node that has left its cluster is kept in mind, and in the metrics.
const forgetAfter = time.Minute

func (s *Store) closeIdleClusters(ctx context.Context) {
	tick := time.NewTicker(min(s.cfg.IdleClose/2, forgetAfter))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.clusters.closeIdle(s.now().Add(-s.cfg.IdleClose))
			s.clusters.forgetNodes(ctx)
		}
	}
}

// SetClusters replaces Config.Clusters. A new cluster is connected to on first use. A cluster that is gone or has changed gets no more
// requests; its connections are closed when those under way have had their time. Not to be called after Close.
func (s *Store) SetClusters(configs map[string]ClusterConfig) {
	if gone := s.clusters.replace(maps.Clone(configs)); len(gone) > 0 {
		s.retired <- gone
	}
}

// Clusters names the clusters in their order.
func (s *Store) Clusters() []string {
	return slices.Sorted(maps.Keys(s.clusters.current()))
}

// retireAfter is twice what a request may take by default.
const retireAfter = 2 * time.Second

// closeRetired closes connections that SetClusters has replaced, each some time after; when ctx ends, at once.
func (s *Store) closeRetired(ctx context.Context) {
	type batch struct {
		clusters []*cluster
		due      time.Time
	}
	var waiting []batch
	timer := time.NewTimer(retireAfter)
	defer timer.Stop()
	shut := func(keep func(batch) bool) {
		waiting = slices.DeleteFunc(waiting, func(b batch) bool {
			if keep(b) {
				return false
			}
			for _, c := range b.clusters {
				_ = c.close()
			}
			return true
		})
	}
	for {
		select {
		case <-ctx.Done():
			shut(func(batch) bool { return false })
			return
		case gone := <-s.retired:
			waiting = append(waiting, batch{gone, s.now().Add(retireAfter)})
			timer.Reset(retireAfter)
		case <-timer.C:
			shut(func(b batch) bool { return s.now().Before(b.due) })
			if len(waiting) > 0 {
				timer.Reset(waiting[0].due.Sub(s.now()))
			}
		}
	}
}

// Routable says whether a cluster's slot map can be read and at least one of the primaries that it names answers; nil = yes. Replicas alone
// have a slot map too, but serve nothing. One primary of several is enough: a failover of the others is no reason to send callers away.
func (s *Store) Routable(ctx context.Context, name string) error {
	c, err := s.clusters.get(name)
	if err != nil {
		return err
	}
	t, e := c.topo.read(ctx, c.client)
	if e != nil {
		return classify(e).problem(false, e)
	}
	if len(t.shards) == 0 {
		return NewError(CodeClusterDown, "the cluster has no primaries")
	}
	return anyPrimary(ctx, c.client)
}

// anyPrimary returns as soon as one primary answers.
func anyPrimary(ctx context.Context, client *redis.ClusterClient) error {
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var answered atomic.Bool
	_ = client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		if node.Ping(ctx).Err() == nil {
			answered.Store(true)
			enough()
		}
		return nil // the others are asked nevertheless
	})
	if !answered.Load() {
		return NewError(CodeClusterDown, "no primary of the cluster answers")
	}
	return nil
}

// retries returns how often a command of this caller may be repeated.
func (s *Store) retries(id *acl.Identity, write bool) int {
	n := s.cfg.Retries.Read
	if write {
		n = s.cfg.Retries.Write
	}
	if r := id.App.Retries; r != nil {
		if n = r.Read; write {
			n = r.Write
		}
	}
	return max(n, 0)
}
