package store

import (
	"cmp"
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/metric"
)

// metrics are the store's figures. Labels come from closed sets: configured clusters, their nodes up to a bound, rows of the table,
// error codes.
type metrics struct {
	duration  metric.HistogramVec    // cluster, command
	nodes     metric.HistogramVec    // cluster, node
	errors    *prometheus.CounterVec // cluster, kind = the error code
	retries   *prometheus.CounterVec // cluster, node
	redirects *prometheus.CounterVec // cluster, node, kind = moved | ask
	items     *prometheus.CounterVec // cluster, result = ok | the error code
	durable   *prometheus.CounterVec // cluster, durability, result = ok | the error code
	waits     metric.HistogramVec    // cluster, durability
	overspent *prometheus.CounterVec // cluster
	shed      *prometheus.CounterVec // cluster, node, reason, class
	reads     *prometheus.CounterVec // cluster, result
}

func newMetrics(registry prometheus.Registerer, s *Store) *metrics {
	m := &metrics{
		duration:  metric.RedisDuration.NewDurations(),
		nodes:     metric.RedisNodeDuration.NewDurations(),
		errors:    metric.RedisErrors.NewCounterVec(),
		retries:   metric.RedisRetries.NewCounterVec(),
		redirects: metric.RedisRedirects.NewCounterVec(),
		items:     metric.BatchItems.NewCounterVec(),
		durable:   metric.DurableWrites.NewCounterVec(),
		waits:     metric.DurableDuration.NewDurations(),
		overspent: metric.RedisRetriesRefused.NewCounterVec(),
		shed:      metric.RedisShed.NewCounterVec(),
		reads:     metric.ReplicaReads.NewCounterVec(),
	}
	if registry != nil {
		registry.MustRegister(m.duration, m.nodes, m.errors, m.retries, m.redirects, m.items, m.durable, m.waits, m.overspent, m.shed, m.reads, poolCollector{s}, readCollector{s})
	}
	return m
}

// observers are the histograms of a cluster's commands, by the number of their row: looking one up by labels costs more
// than observing.
func (m *metrics) observers(cluster string) []*metric.Histogram {
	list := make([]*metric.Histogram, len(table))
	for _, r := range table {
		list[r.number] = m.duration.With(cluster, strings.ToLower(r.name))
	}
	return list
}

func (m *metrics) failed(cluster string, v verdict) {
	m.errors.WithLabelValues(cluster, string(v.code)).Inc()
}

// retried counts a repetition that a node made necessary; w is nil when none was known.
func (m *metrics) retried(cluster string, w *way) {
	node := ""
	if w != nil {
		node = w.label
	}
	m.retries.WithLabelValues(cluster, node).Inc()
}

// redirected counts a redirect by a node, if err is one.
func (m *metrics) redirected(cluster, node string, err error) {
	if err == nil || err == redis.Nil { //nolint:errorlint // the bare sentinel is the common case
		return
	}
	if _, ok := redis.IsMovedError(err); ok {
		m.redirects.WithLabelValues(cluster, node, "moved").Inc()
	} else if _, ok := redis.IsAskError(err); ok {
		m.redirects.WithLabelValues(cluster, node, "ask").Inc()
	}
}

// forgetNode removes what is told of a node that has left.
func (m *metrics) forgetNode(cluster, node string) {
	of := prometheus.Labels{"cluster": cluster, "node": node}
	m.nodes.DeletePartialMatch(of)
	m.retries.DeletePartialMatch(of)
	m.redirects.DeletePartialMatch(of)
	m.shed.DeletePartialMatch(of)
}

// counted adds the items of a batch, by what became of them. An item that stands for others counts for each.
func (b *batch) counted(items []int) {
	ok := 0
	for _, i := range items {
		it := &b.items[i]
		if err := cmp.Or(it.err, it.got.Err); err != nil {
			b.count(err)
		} else {
			ok++
		}
	}
	b.cluster.itemsOK.Add(float64(ok))
}

// count counts one item; nil = it went well.
func (b *batch) count(err *Error) {
	if err == nil {
		b.cluster.itemsOK.Inc()
		return
	}
	b.cluster.metrics.items.WithLabelValues(b.cluster.name, string(err.Code)).Inc()
}

// durably counts a durable write that ended with err. One that a condition refused is none.
func (m *metrics) durably(cluster string, level Durability, err error) {
	result := "ok"
	if e, ok := errors.AsType[*Error](err); ok {
		result = string(e.Code)
	} else if err != nil {
		return
	}
	m.durable.WithLabelValues(cluster, level.String(), result).Inc()
}

// poolCollector reads the connection pools when they are scraped.
type poolCollector struct{ store *Store }

var (
	poolConnections = metric.RedisPoolConns.Desc()
	poolTimeouts    = metric.RedisPoolTimeouts.Desc()
	poolWait        = metric.RedisPoolWait.Desc()
	circuitOpen     = metric.RedisCircuitOpen.Desc()
	circuitOpens    = metric.RedisCircuitOpens.Desc()
	nodePlaces      = metric.RedisPlaces.Desc()
	nodePlacesTaken = metric.RedisPlacesTaken.Desc()
)

// Describe implements prometheus.Collector.
func (poolCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- poolConnections
	ch <- poolTimeouts
	ch <- poolWait
	ch <- circuitOpen
	ch <- circuitOpens
	ch <- nodePlaces
	ch <- nodePlacesTaken
}

// Collect implements prometheus.Collector. It asks nobody, unlike the PoolStats of a whole cluster, which reads the slot map if
// there is none yet.
func (p poolCollector) Collect(ch chan<- prometheus.Metric) {
	p.store.clusters.each(func(c *cluster) {
		for label, st := range c.pools() {
			ch <- metric.RedisPoolConns.Const(poolConnections, st.idle, c.name, label, "idle")
			ch <- metric.RedisPoolConns.Const(poolConnections, st.used, c.name, label, "used")
			ch <- metric.RedisPoolTimeouts.Const(poolTimeouts, st.timeouts, c.name, label)
			ch <- metric.RedisPoolWait.Const(poolWait, st.wait, c.name, label)
		}
		for label, st := range c.nodes.circuits() {
			ch <- metric.RedisCircuitOpen.Const(circuitOpen, st.open, c.name, label)
			ch <- metric.RedisCircuitOpens.Const(circuitOpens, st.opens, c.name, label)
		}
		for label, st := range c.placesByNode() {
			ch <- metric.RedisPlaces.Const(nodePlaces, st.limit, c.name, label)
			ch <- metric.RedisPlacesTaken.Const(nodePlacesTaken, st.inFlight, c.name, label)
		}
	})
}
