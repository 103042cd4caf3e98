package middleware

import (
	"strconv"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/metric"
)

// Metrics counts events. The handles of a label combination are looked up in prometheus once and then found without an allocation.
// Labels are bounded: route is a template, method one of the usual ones, app one of the first MetricsConfig.MaxApps seen; never a
// key, a key id or anything a client sends.
type Metrics struct {
	maxApps   int
	requests  *prometheus.CounterVec
	errors    *prometheus.CounterVec
	reqBytes  *prometheus.CounterVec
	respBytes *prometheus.CounterVec
	duration  metric.HistogramVec
	appDur    metric.HistogramVec
	inFlight  *prometheus.GaugeVec
	reqSize   metric.HistogramVec
	respSize  metric.HistogramVec
	panics    prometheus.Counter
	rejected  *prometheus.CounterVec
	unasked   *prometheus.CounterVec
	ceilings  *prometheus.CounterVec
	authFail  *prometheus.CounterVec
	dropped   prometheus.Counter
	refusals  refusals

	apps  cowMap[string, *appSeries]
	other *appSeries
	none  *appSeries
}

// appSeries are the handles of one value of the app label.
type appSeries struct {
	label    string
	inFlight prometheus.Gauge
	duration *metric.Histogram
	routes   cowMap[seriesKey, *series] // at most routes x methods x ways to end
}

type seriesKey struct {
	route, method string
	status        int
	code          store.Code
}

type series struct {
	requests          prometheus.Counter
	errors            prometheus.Counter // nil: no error
	reqBytes          prometheus.Counter
	respBytes         prometheus.Counter
	duration          *metric.Histogram
	reqSize, respSize *metric.Histogram
}

// MetricsConfig names what the metrics read at each scrape.
type MetricsConfig struct {
	MaxApps int            // values of the app label; 0 = metric.MaxApps
	Bytes   *BytesInFlight // nil: no gauge
	Limiter *Limiter       // nil: no remaining ratio
	// Overload is what the gauges of places, waits and memory are read from; nil: there are none.
	Overload *Overload
}

// NewMetrics registers the metrics; like prometheus itself it panics when they are registered already.
func NewMetrics(reg prometheus.Registerer, cfg MetricsConfig) *Metrics {
	m := &Metrics{
		maxApps:   cfg.MaxApps,
		requests:  metric.HTTPRequests.NewCounterVec(),
		errors:    metric.HTTPErrors.NewCounterVec(),
		reqBytes:  metric.HTTPRequestBytes.NewCounterVec(),
		respBytes: metric.HTTPResponseBytes.NewCounterVec(),
		duration:  metric.HTTPDuration.NewDurations(),
		appDur:    metric.AppDuration.NewDurations(),
		inFlight:  metric.HTTPInFlight.NewGaugeVec(),
		reqSize:   metric.HTTPRequestSize.NewSizes(),
		respSize:  metric.HTTPResponseSize.NewSizes(),
		panics:    metric.HTTPPanics.NewCounter(),
		rejected:  metric.QuotaRejections.NewCounterVec(),
		unasked:   metric.QuotaUnasked.NewCounterVec(),
		ceilings:  metric.CeilingRejections.NewCounterVec(),
		authFail:  metric.AuthFailures.NewCounterVec(),
		dropped:   metric.DroppedLabels.NewCounter(),
		refusals:  newRefusals(reg),
	}
	if m.maxApps <= 0 {
		m.maxApps = metric.MaxApps
	}
	reg.MustRegister(m.requests, m.errors, m.reqBytes, m.respBytes, m.duration, m.appDur, m.inFlight, m.reqSize, m.respSize,
		m.panics, m.rejected, m.unasked, m.ceilings, m.authFail, m.dropped)
	m.other, m.none = m.newApp(metric.Other), &appSeries{label: metric.NoApp}
	if cfg.Bytes != nil {
		reg.MustRegister(
			metric.BytesInFlight.NewGaugeFunc(func() float64 { return float64(cfg.Bytes.Used()) }),
			metric.BytesLimit.NewGaugeFunc(func() float64 { return float64(cfg.Bytes.limit.Load()) }),
		)
	}
	if cfg.Limiter != nil {
		reg.MustRegister(&remaining{limiter: cfg.Limiter, label: m.appLabel})
	}
	if cfg.Overload != nil {
		cfg.Overload.register(reg)
	}
	return m
}

// App is the guard behind Authenticate that counts the app's requests in flight; the event's end counts them out.
func (m *Metrics) App() gin.HandlerFunc {
	return func(c *gin.Context) {
		if r := of(c); r.event.Identity != nil && r.event.app == nil {
			r.event.app = r.caller(nil, m).series
			r.event.app.inFlight.Inc()
			if r.event.app == m.other {
				m.dropped.Inc()
			}
		}
	}
}

// Record is the sink that counts an event.
func (m *Metrics) Record(e *Event) {
	app := m.none
	if e.app != nil {
		app = e.app
		app.inFlight.Dec()
		observe(app.duration, e)
	}
	key := seriesKey{e.Route, e.Method, e.Status, e.Code}
	s, ok := app.routes.get(key)
	if !ok {
		s = app.routes.getOrMake(key, func() *series { return m.newSeries(app, key) })
	}
	s.requests.Inc()
	if s.errors != nil {
		s.errors.Inc()
	}
	s.reqBytes.Add(float64(e.BytesIn))
	s.respBytes.Add(float64(e.BytesOut))
	observe(s.duration, e)
	s.reqSize.Observe(float64(e.BytesIn))
	s.respSize.Observe(float64(e.BytesOut))
}

// observe counts the time of the request, with its trace as an example if that was sampled.
func observe(h *metric.Histogram, e *Event) {
	if e.sampled() {
		h.ObserveTraced(e.Duration.Seconds(), e.traceID(), e.Start.Add(e.Duration))
		return
	}
	h.Observe(e.Duration.Seconds())
}

// Panicked counts a panic.
func (m *Metrics) Panicked() { m.panics.Inc() }

// quotas counts what becomes of limits.
func (m *Metrics) quotas() *QuotaCounts {
	return &QuotaCounts{Rejected: m.QuotaRejected, Unasked: m.QuotaUnasked, Ceiling: m.CeilingReached}
}

// QuotaRejected counts a refusal by one policy.
func (m *Metrics) QuotaRejected(app, policy string) { m.ofPolicy(m.rejected, app, policy) }

// QuotaUnasked counts a decision about a limit whose cluster was not asked.
func (m *Metrics) QuotaUnasked(app, policy string) { m.ofPolicy(m.unasked, app, policy) }

// ofPolicy counts for a policy of an app. Policies of apps without a label of their own are not told apart either.
func (m *Metrics) ofPolicy(v *prometheus.CounterVec, app, policy string) {
	label := m.app(app).label
	if label == metric.Other {
		policy = metric.Other
	}
	v.WithLabelValues(label, metric.Label(policy)).Inc()
}

// CeilingReached counts a refusal by a ceiling, of which there are few.
func (m *Metrics) CeilingReached(ceiling string) {
	m.ceilings.WithLabelValues(metric.Label(ceiling)).Inc()
}

// AuthFailed counts a failed authentication; reason is one of our own words.
func (m *Metrics) AuthFailed(reason string) { m.authFail.WithLabelValues(reason).Inc() }

// app finds the app's handles, or those of all the others when there are too many apps.
func (m *Metrics) app(id string) *appSeries {
	if a, ok := m.apps.get(id); ok {
		return a
	}
	if m.apps.len() >= m.maxApps { // two at once may pass this; the cap may be off by the number of cores
		return m.other
	}
	return m.apps.getOrMake(id, func() *appSeries { return m.newApp(metric.Label(id)) })
}

func (m *Metrics) appLabel(id string) (string, bool) {
	a, ok := m.apps.get(id)
	if !ok {
		return "", false
	}
	return a.label, true
}

func (m *Metrics) newApp(label string) *appSeries {
	return &appSeries{label: label, inFlight: m.inFlight.WithLabelValues(label), duration: m.appDur.With(label)}
}

func (m *Metrics) newSeries(app *appSeries, k seriesKey) *series {
	s := &series{
		requests:  m.requests.WithLabelValues(k.route, k.method, strconv.Itoa(k.status), app.label),
		reqBytes:  m.reqBytes.WithLabelValues(k.route, app.label),
		respBytes: m.respBytes.WithLabelValues(k.route, app.label),
		duration:  m.duration.With(k.route, k.method),
		reqSize:   m.reqSize.With(k.route, k.method),
		respSize:  m.respSize.With(k.route, k.method),
	}
	if k.code != "" {
		s.errors = m.errors.WithLabelValues(app.label, k.route, string(k.code))
	}
	return s
}

// remaining reads the buckets at each scrape, so that requests pay nothing for it.
type remaining struct {
	limiter *Limiter
	label   func(app string) (string, bool)
}

var remainingDesc, ceilingDesc = metric.QuotaRemaining.Desc(), metric.CeilingRemaining.Desc()

func (r *remaining) Describe(ch chan<- *prometheus.Desc) {
	ch <- remainingDesc
	ch <- ceilingDesc
}

func (r *remaining) Collect(ch chan<- prometheus.Metric) {
	r.limiter.Remaining(func(app, policy string, ratio float64) {
		if label, ok := r.label(app); ok {
			ch <- metric.QuotaRemaining.Const(remainingDesc, ratio, label, metric.Label(policy))
		}
	}, func(ceiling string, ratio float64) {
		ch <- metric.CeilingRemaining.Const(ceilingDesc, ratio, metric.Label(ceiling))
	})
}
