package middleware

import (
	"strconv"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
)

// The metrics of the request path. Labels are bounded: route is a template, method one of the usual ones, app one of the first
// MetricsConfig.MaxApps seen; never a key, a key id or anything a client sends.
const (
	metricRequests      = "slotgate_http_requests_total"
	metricDuration      = "slotgate_http_request_duration_seconds"
	metricAppDuration   = "slotgate_app_request_duration_seconds"
	metricInFlight      = "slotgate_http_in_flight_requests"
	metricRequestSize   = "slotgate_http_request_size_bytes"
	metricResponseSize  = "slotgate_http_response_size_bytes"
	metricPanics        = "slotgate_http_panics_total"
	metricRejections    = "slotgate_quota_rejections_total"
	metricRemaining     = "slotgate_quota_remaining_ratio"
	metricAuthFailures  = "slotgate_auth_failures_total"
	metricBytesInFlight = "slotgate_bytes_in_flight"
	metricBytesLimit    = "slotgate_bytes_in_flight_limit"
	metricDropped       = "slotgate_metrics_dropped_labels_total"
)

const (
	noApp         = "__none__"  // not authenticated; no app id begins with an underscore
	otherApps     = "__other__" // apps beyond the cap
	defaultApps   = 500
	nativeFactor  = 1.1
	nativeBuckets = 160
)

var (
	durationBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	sizeBuckets     = []float64{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
)

// Metrics counts events. The handles of a label combination are looked up in prometheus once and then found without an allocation.
type Metrics struct {
	maxApps  int
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	appDur   *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	reqSize  *prometheus.HistogramVec
	respSize *prometheus.HistogramVec
	panics   prometheus.Counter
	rejected *prometheus.CounterVec
	authFail *prometheus.CounterVec
	dropped  prometheus.Counter

	apps  cowMap[string, *appSeries]
	other *appSeries
	none  *appSeries
}

// appSeries are the handles of one value of the app label.
type appSeries struct {
	label    string
	inFlight prometheus.Gauge
	duration prometheus.Observer
	routes   cowMap[seriesKey, *series] // at most routes x methods x statuses
}

type seriesKey struct {
	route, method string
	status        int
}

type series struct {
	requests          prometheus.Counter
	duration          prometheus.Observer
	reqSize, respSize prometheus.Observer
}

// MetricsConfig names what the metrics read at each scrape.
type MetricsConfig struct {
	MaxApps int            // values of the app label; 0 = 500
	Bytes   *BytesInFlight // nil: no gauge
	Limiter *Limiter       // nil: no remaining ratio
}

// NewMetrics registers the metrics; like prometheus itself it panics when they are registered already.
func NewMetrics(reg prometheus.Registerer, cfg MetricsConfig) *Metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histograms := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeBuckets}, labels)
	}
	m := &Metrics{
		maxApps:  cfg.MaxApps,
		requests: counters(metricRequests, "Requests answered, by route template, method, status and app.", "route", "method", "code", "app"),
		duration: histograms(metricDuration, "Time from arrival to the end of the answer.", durationBuckets, "route", "method"),
		appDur:   histograms(metricAppDuration, "Time from arrival to the end of the answer, by app.", durationBuckets, "app"),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricInFlight, Help: "Requests that run now, of authenticated callers."}, []string{"app"}),
		reqSize:  histograms(metricRequestSize, "Bytes of request bodies, as far as they were read.", sizeBuckets, "route", "method"),
		respSize: histograms(metricResponseSize, "Bytes of response bodies.", sizeBuckets, "route", "method"),
		panics:   prometheus.NewCounter(prometheus.CounterOpts{Name: metricPanics, Help: "Panics turned into 500."}),
		rejected: counters(metricRejections, "Requests refused with quota_exceeded, by app and policy.", "app", "policy"),
		authFail: counters(metricAuthFailures, "Failed authentications, by reason. Clients see one answer for all.", "reason"),
		dropped:  prometheus.NewCounter(prometheus.CounterOpts{Name: metricDropped, Help: "Requests counted under app __other__ because there are too many apps."}),
	}
	if m.maxApps <= 0 {
		m.maxApps = defaultApps
	}
	reg.MustRegister(m.requests, m.duration, m.appDur, m.inFlight, m.reqSize, m.respSize, m.panics, m.rejected, m.authFail, m.dropped)
	m.other, m.none = m.newApp(otherApps), &appSeries{label: noApp}
	if cfg.Bytes != nil {
		registerBytes(reg, cfg.Bytes)
	}
	if cfg.Limiter != nil {
		reg.MustRegister(&remaining{limiter: cfg.Limiter, label: m.appLabel})
	}
	return m
}

func registerBytes(reg prometheus.Registerer, b *BytesInFlight) {
	gauge := func(name, help string, read func() int64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(read()) }))
	}
	gauge(metricBytesInFlight, "Bytes of requests and answers reserved now.", b.Used)
	gauge(metricBytesLimit, "Bytes that may be reserved at once.", func() int64 { return b.limit })
}

// App is the guard behind Authenticate that counts the app's requests in flight; the event's end counts them out.
func (m *Metrics) App() gin.HandlerFunc {
	return func(c *gin.Context) {
		if r := of(c); r.event.Identity != nil && r.app == nil {
			r.app = m.app(r.event.Identity.App.ID)
			r.app.inFlight.Inc()
		}
	}
}

// Record is the sink that counts an event.
func (m *Metrics) Record(e *Event) {
	app := m.none
	if e.app != nil {
		app = e.app
		app.inFlight.Dec()
		app.duration.Observe(e.Duration.Seconds())
	}
	key := seriesKey{e.Route, e.Method, e.Status}
	s, ok := app.routes.get(key)
	if !ok {
		s = app.routes.getOrMake(key, func() *series { return m.newSeries(app, key) })
	}
	s.requests.Inc()
	s.duration.Observe(e.Duration.Seconds())
	s.reqSize.Observe(float64(e.BytesIn))
	s.respSize.Observe(float64(e.BytesOut))
}

// Panicked counts a panic.
func (m *Metrics) Panicked() { m.panics.Inc() }

// QuotaRejected counts a refusal by one policy. Policies of apps without a label of their own are not told apart either.
func (m *Metrics) QuotaRejected(app, policy string) {
	label := m.app(app).label
	if label == otherApps {
		policy = otherApps
	}
	m.rejected.WithLabelValues(label, policy).Inc()
}

// AuthFailed counts a failed authentication; reason is one of our own words.
func (m *Metrics) AuthFailed(reason string) { m.authFail.WithLabelValues(reason).Inc() }

// app finds the app's handles, or those of all the others when there are too many apps.
func (m *Metrics) app(id string) *appSeries {
	if a, ok := m.apps.get(id); ok {
		return a
	}
	if m.apps.len() >= m.maxApps { // two at once may pass this; the cap may be off by the number of cores
		m.dropped.Inc()
		return m.other
	}
	return m.apps.getOrMake(id, func() *appSeries { return m.newApp(id) })
}

func (m *Metrics) appLabel(id string) (string, bool) {
	a, ok := m.apps.get(id)
	if !ok {
		return "", false
	}
	return a.label, true
}

func (m *Metrics) newApp(label string) *appSeries {
	return &appSeries{label: label, inFlight: m.inFlight.WithLabelValues(label), duration: m.appDur.WithLabelValues(label)}
}

func (m *Metrics) newSeries(app *appSeries, k seriesKey) *series {
	return &series{
		requests: m.requests.WithLabelValues(k.route, k.method, strconv.Itoa(k.status), app.label),
		duration: m.duration.WithLabelValues(k.route, k.method),
		reqSize:  m.reqSize.WithLabelValues(k.route, k.method),
		respSize: m.respSize.WithLabelValues(k.route, k.method),
	}
}

// remaining reads the buckets at each scrape, so that requests pay nothing for it.
type remaining struct {
	limiter *Limiter
	label   func(app string) (string, bool)
}

var remainingDesc = prometheus.NewDesc(metricRemaining, "Share of the app's quota that is left now, from 0 to 1.", []string{"app", "policy"}, nil)

func (r *remaining) Describe(ch chan<- *prometheus.Desc) { ch <- remainingDesc }

func (r *remaining) Collect(ch chan<- prometheus.Metric) {
	r.limiter.Remaining(func(app, policy string, ratio float64) {
		if label, ok := r.label(app); ok {
			ch <- prometheus.MustNewConstMetric(remainingDesc, prometheus.GaugeValue, ratio, label, policy)
		}
	})
}
