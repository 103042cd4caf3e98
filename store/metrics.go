package store

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// commandBuckets are seconds. HTTP's usual ones begin at 5 ms, where a healthy Redis has long answered.
var commandBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

// metrics are the store's figures. Labels come from closed sets: configured clusters, rows of the table, kinds below.
type metrics struct {
	duration  *prometheus.HistogramVec // cluster, command
	errors    *prometheus.CounterVec   // cluster, kind = the error code
	retries   *prometheus.CounterVec   // cluster
	redirects *prometheus.CounterVec   // cluster, kind = moved | ask
}

func newMetrics(registry prometheus.Registerer, s *Store) *metrics {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "slotgate_redis_command_duration_seconds", Help: "Time of a Redis command, repetitions included; a batch counts once for each chunk.",
			Buckets: commandBuckets, NativeHistogramBucketFactor: 1.1,
		}, []string{"cluster", "command"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slotgate_redis_errors_total", Help: "Commands that failed, repetitions included, by error code.",
		}, []string{"cluster", "kind"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slotgate_redis_retries_total", Help: "Commands sent again by the gateway.",
		}, []string{"cluster"}),
		redirects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slotgate_redis_redirects_total", Help: "MOVED and ASK answers.",
		}, []string{"cluster", "kind"}),
	}
	if registry != nil {
		registry.MustRegister(m.duration, m.errors, m.retries, m.redirects, poolCollector{s})
	}
	return m
}

// observers are the histograms of a cluster's commands, by the number of their row: looking one up by labels costs more
// than observing.
func (m *metrics) observers(cluster string) []prometheus.Observer {
	list := make([]prometheus.Observer, len(table))
	for _, r := range table {
		list[r.number] = m.duration.WithLabelValues(cluster, strings.ToLower(r.name))
	}
	return list
}

func (m *metrics) failed(cluster string, v verdict) {
	m.errors.WithLabelValues(cluster, string(v.code)).Inc()
}

func (m *metrics) retried(cluster string) { m.retries.WithLabelValues(cluster).Inc() }

// redirected counts a redirect of a raw command, which go-redis does not see.
func (m *metrics) redirected(cluster string, err error) { redirectHook{m, cluster}.count(err) }

// redirectHook counts redirects, which go-redis follows without telling anybody. It changes nothing.
type redirectHook struct {
	metrics *metrics
	cluster string
}

// DialHook passes.
func (redirectHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook looks at the error of a single command.
func (h redirectHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.count(err)
		return err
	}
}

// ProcessPipelineHook looks at the error of every command.
func (h redirectHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err != nil {
			for _, cmd := range cmds {
				h.count(cmd.Err())
			}
		}
		return err
	}
}

func (h redirectHook) count(err error) {
	if err == nil || err == redis.Nil { //nolint:errorlint // the bare sentinel is the common case
		return
	}
	if _, ok := redis.IsMovedError(err); ok {
		h.metrics.redirects.WithLabelValues(h.cluster, "moved").Inc()
	} else if _, ok := redis.IsAskError(err); ok {
		h.metrics.redirects.WithLabelValues(h.cluster, "ask").Inc()
	}
}

// poolCollector reads the connection pools when they are scraped.
type poolCollector struct{ store *Store }

var (
	poolConnections = prometheus.NewDesc("slotgate_redis_pool_connections", "Connections to a cluster, all nodes together.", []string{"cluster", "state"}, nil)
	poolTimeouts    = prometheus.NewDesc("slotgate_redis_pool_timeouts_total", "Waits for a connection that were given up.", []string{"cluster"}, nil)
	poolWait        = prometheus.NewDesc("slotgate_redis_pool_wait_seconds_total", "Time spent waiting for a free connection.", []string{"cluster"}, nil)
)

// Describe implements prometheus.Collector.
func (poolCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- poolConnections
	ch <- poolTimeouts
	ch <- poolWait
}

// Collect implements prometheus.Collector.
func (p poolCollector) Collect(ch chan<- prometheus.Metric) {
	p.store.clusters.each(func(c *cluster) {
		st := c.client.PoolStats()
		gauge := func(state string, v uint32) {
			ch <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue, float64(v), c.name, state)
		}
		gauge("idle", st.IdleConns)
		gauge("used", st.TotalConns-min(st.IdleConns, st.TotalConns))
		ch <- prometheus.MustNewConstMetric(poolTimeouts, prometheus.CounterValue, float64(st.Timeouts), c.name)
		ch <- prometheus.MustNewConstMetric(poolWait, prometheus.CounterValue, time.Duration(st.WaitDurationNs).Seconds(), c.name)
	})
}
