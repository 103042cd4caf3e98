package middleware_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
)

// crowd is a chain with many apps, each with a limit of its own, and what it counts.
type crowd struct {
	http.Handler
	*gateway
}

// crowdRoutes are more than an app uses.
var crowdRoutes = []string{"strings", "bytes", "counters", "keys", "hashes", "lists", "sets", "zsets", "streams", "json"}

func newCrowd(apps int) crowd {
	c := crowd{gateway: &gateway{reg: prometheus.NewRegistry()}}
	tokens := people{}
	for i := range apps {
		tokens[fmt.Sprint("sg_", i)] = identity(fmt.Sprintf("team-%05d.production", i), perApp("app-rps", 1000, time.Second, 1000))
	}
	limiter, inFlight := middleware.NewLimiter(nil), middleware.NewBytesInFlight(1<<30)
	c.Handler = engine(middleware.Config{
		Log: slog.New(slog.DiscardHandler), Authenticator: tokens, Limiter: limiter, BytesInFlight: inFlight, Drain: &middleware.Drain{},
		Metrics: middleware.NewMetrics(c.reg, middleware.MetricsConfig{Bytes: inFlight, Limiter: limiter}),
	}, func(_, v1 gin.IRouter) {
		for _, r := range crowdRoutes {
			v1.GET("/"+r+"/:key", func(c *gin.Context) {
				if c.Param("key") == "none" {
					_ = c.Error(store.NewError(store.CodeKeyNotFound, ""))
					return
				}
				c.String(200, "hello")
			})
			v1.PUT("/"+r+"/:key", func(c *gin.Context) { c.Status(http.StatusNoContent) })
		}
	})
	return c
}

// asks sends one request of an app.
func (c crowd) asks(app int, method, path string) {
	req := httptest.NewRequest(method, path, nil)
	req.Header.Set("Authorization", fmt.Sprint("Bearer sg_", app))
	c.ServeHTTP(httptest.NewRecorder(), req)
}

// scrape is the text that a scraper without native histograms gets.
func (c crowd) scrape(t testing.TB) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(c.reg, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.Bytes()
}

func TestThousandsOfAppsShareTheLastLabel(t *testing.T) {
	c := newCrowd(2000)
	for app := range 2000 {
		c.asks(app, "GET", "/v1/strings/a")
	}
	for labels, want := range map[string]float64{
		"team-00000.production": 1, "team-00499.production": 1, "team-00500.production": 0, "team-01999.production": 0, "__other__": 1500,
	} {
		for _, name := range []string{"slotgate_http_requests_total", "slotgate_app_request_duration_seconds"} {
			if got := c.metric(t, name, map[string]string{"app": labels}); got != want {
				t.Errorf("%s of %s: %v, want %v", name, labels, got, want)
			}
		}
	}
	if got := c.metric(t, "slotgate_http_requests_total", nil); got != 2000 {
		t.Errorf("%v requests in all, want 2000", got)
	}
	if got := c.metric(t, "slotgate_http_in_flight_requests", nil); got != 0 {
		t.Errorf("%v in flight", got)
	}
	if got := c.metric(t, "slotgate_metrics_dropped_labels_total", nil); got != 1500 {
		t.Errorf("%v dropped, want 1500", got)
	}
	families, err := c.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		apps := map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "app" {
					apps[l.GetValue()] = true
				}
			}
		}
		if len(apps) > 502 { // and __other__, __none__
			t.Errorf("%s has %d apps", f.GetName(), len(apps))
		}
	}
}

// 10,000 apps, of which those that have a label of their own use 20 routes and methods and make a mistake on half of them.
func TestAScrapeOfTenThousandAppsIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of requests")
	}
	c := newCrowd(10_000)
	for app := range 10_000 {
		routes := crowdRoutes
		if app > 600 {
			routes = routes[app%10 : app%10+1] // all of them share a label
		}
		for _, r := range routes {
			c.asks(app, "GET", "/v1/"+r+"/a")
			c.asks(app, "GET", "/v1/"+r+"/none")
			c.asks(app, "PUT", "/v1/"+r+"/a")
		}
	}
	text := c.scrape(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(text)
	_ = z.Close()
	t.Logf("a scrape of 10,000 apps has %d bytes, %d lines, %d bytes compressed", len(text), bytes.Count(text, []byte("\n")), packed.Len())
	if len(text) > 5<<20 {
		t.Errorf("a scrape has %d bytes", len(text))
	}
}

// What prometheus cannot take must not end the process, and what breaks a line must not break the exposition.
func TestHostileNamesAreNotTheExpositionsProblem(t *testing.T) {
	c := newCrowd(0)
	m := middleware.NewMetrics(prometheus.WrapRegistererWithPrefix("x_", c.reg), middleware.MetricsConfig{})
	for _, app := range []string{"a\"b", "a\nb{c=\"d\"} 1\n", "a\\", "\xff\xfe", strings.Repeat("a", 10_000)} {
		m.QuotaRejected(app, app)
	}
	text := string(c.scrape(t))
	for _, line := range []string{
		`x_slotgate_quota_rejections_total{app="a\"b",policy="a\"b"} 1`,
		`x_slotgate_quota_rejections_total{app="a\nb{c=\"d\"} 1\n",policy="a\nb{c=\"d\"} 1\n"} 1`,
		`x_slotgate_quota_rejections_total{app="a\\",policy="a\\"} 1`,
		"x_slotgate_quota_rejections_total{app=\"\uFFFD\",policy=\"\uFFFD\"} 1",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the exposition lacks %s", line)
		}
	}
	if strings.Contains(text, strings.Repeat("a", 300)) {
		t.Error("a name of 10,000 bytes is a label")
	}
}
