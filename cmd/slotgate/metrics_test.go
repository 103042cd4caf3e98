package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/slotgate/slotgate/store/info"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/slot"
)

const protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

// scrape reads /metrics as Prometheus does: in the text format, or in protobuf, which has native histograms.
func (g *running) scrape(t *testing.T, accept string) map[string]*dto.MetricFamily {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", g.admin+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	got := do(t, http.DefaultClient, req)
	families := map[string]*dto.MetricFamily{}
	if accept == "" {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		if families, err = parser.TextToMetricFamilies(strings.NewReader(got.body)); err != nil {
			t.Fatal(err)
		}
		return families
	}
	decoder := expfmt.NewDecoder(strings.NewReader(got.body), expfmt.ResponseFormat(got.Header))
	for {
		var f dto.MetricFamily
		if decoder.Decode(&f) != nil {
			return families
		}
		families[f.GetName()] = &f
	}
}

// series finds the one series whose labels have these values ("name=value name=value"), or nil.
func series(families map[string]*dto.MetricFamily, name, labels string) *dto.Metric {
	for _, m := range families[name].GetMetric() {
		if has(m, strings.Fields(labels)) {
			return m
		}
	}
	return nil
}

func has(m *dto.Metric, labels []string) bool {
	for _, want := range labels {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName()+"="+l.GetValue() == want }) {
			return false
		}
	}
	return true
}

// value is that of a counter or gauge, the count of a histogram; NaN = there is none.
func value(families map[string]*dto.MetricFamily, name, labels string) float64 {
	m := series(families, name, labels)
	switch {
	case m == nil:
		return math.NaN()
	case m.Histogram != nil:
		return float64(m.GetHistogram().GetSampleCount())
	case m.Counter != nil:
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}

// A gateway with everything on, a cluster of its own and a fixed scenario: what a scrape says is exact, and the names, types and
// labels are those that store/metric and so deploy/metrics.md list, all of them and no others.
func TestAScrapeAfterAFixedScenario(t *testing.T) {
	cluster := clustertest.Run(t, localcluster.Options{Primaries: 3, Replicas: 1})
	agent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(agent.Close)
	vars := []string{
		"SLOTGATE_CLUSTERS_DEFAULT_ADDRS=" + strings.Join(cluster.Addrs(), ","),
		"SLOTGATE_SECRET_FILE=testdata/secret",
		"SLOTGATE_LISTEN=127.0.0.1:0",
		"SLOTGATE_ADMIN_LISTEN=127.0.0.1:0",
		"SLOTGATE_HTTP_DRAIN_DELAY_MS=0",
		"SLOTGATE_METRICS_REDIS_POLL_MS=1000",
		"SLOTGATE_PUSH_URL=" + agent.URL,
		"SLOTGATE_CEILINGS_TOP_LIMIT=1000000",
	}
	mustRun(t, vars, "app", "create", "shop", "--permission", "*", "--limit", "id=tight,limit=16,period_ms=3600000,burst=16")
	token := tokenForm.FindString(mustRun(t, vars, "key", "create", "shop", "--expires", "90d").stdout)
	g := startGateway(t, vars)
	g.waitReady(t)

	for i := range 3 {
		expect(t, call(t, "PUT", g.api+fmt.Sprint("/v1/strings/a", i), token, `{"value":"hello"}`), 200)
	}
	for range 4 {
		expect(t, call(t, "GET", g.api+"/v1/strings/a0", token, ""), 200)
	}
	expect(t, call(t, "GET", g.api+"/v1/strings/nowhere", token, ""), 404, "key_not_found")
	expect(t, call(t, "POST", g.api+"/v1/mget", token, `{"keys":["a0","a1","nowhere"]}`), 200) // costs 3
	expect(t, call(t, "PUT", g.api+"/v1/strings/a0", token, `{"value":`), 400, "invalid_request")
	expect(t, call(t, "GET", g.api+"/v1/strings/a0", "", ""), 401)
	expect(t, call(t, "GET", g.api+"/nowhere", "", ""), 404)
	// A slot moves: the next command on it is redirected.
	moved := slot.Of("shop:a0")
	from, err := cluster.PrimaryOf(t.Context(), moved)
	if err != nil {
		t.Fatal(err)
	}
	to := cluster.Nodes()[0]
	if to == from {
		to = cluster.Nodes()[1]
	}
	if err := cluster.MigrateSlot(t.Context(), moved, from, to); err != nil {
		t.Fatal(err)
	}
	expect(t, call(t, "GET", g.api+"/v1/strings/a0", token, ""), 200)
	expect(t, call(t, "POST", g.api+"/v1/mget", token, `{"keys":["a0","a1","a2"]}`), 200)
	expect(t, call(t, "GET", g.api+"/v1/strings/a0", token, ""), 429, "quota_exceeded")

	var now map[string]*dto.MetricFamily
	const strs, mget = "route=/v1/strings/:key", "route=/v1/mget"
	eventually(t, func() bool { // the last answer is counted just after it was sent
		now = g.scrape(t, "")
		return value(now, "slotgate_http_requests_total", strs+" method=GET code=429 app=shop") == 1
	})
	for _, c := range []struct {
		name, labels string
		want         float64
	}{
		{"slotgate_http_requests_total", strs + " method=PUT code=200 app=shop", 3},
		{"slotgate_http_requests_total", strs + " method=PUT code=400 app=shop", 1},
		{"slotgate_http_requests_total", strs + " method=GET code=200 app=shop", 5},
		{"slotgate_http_requests_total", strs + " method=GET code=404 app=shop", 1},
		{"slotgate_http_requests_total", strs + " method=GET code=401 app=__none__", 1},
		{"slotgate_http_requests_total", "route=unmatched method=GET code=404 app=__none__", 1},
		{"slotgate_http_requests_total", mget + " method=POST code=200 app=shop", 2},
		{"slotgate_http_errors_total", strs + " app=shop code=key_not_found", 1},
		{"slotgate_http_errors_total", strs + " app=shop code=invalid_request", 1},
		{"slotgate_http_errors_total", strs + " app=shop code=quota_exceeded", 1},
		{"slotgate_http_errors_total", strs + " app=__none__ code=unauthenticated", 1},
		{"slotgate_http_errors_total", "route=unmatched app=__none__ code=not_found", 1},
		{"slotgate_http_request_bytes_total", strs + " app=shop", 3*17 + 9},
		{"slotgate_http_request_bytes_total", mget + " app=shop", 30 + 25},
		{"slotgate_http_request_duration_seconds", strs + " method=GET", 8},
		{"slotgate_http_request_duration_seconds", strs + " method=PUT", 4},
		{"slotgate_http_request_size_bytes", strs + " method=PUT", 4},
		{"slotgate_http_response_size_bytes", mget + " method=POST", 2},
		{"slotgate_app_request_duration_seconds", "app=shop", 13},
		{"slotgate_http_in_flight_requests", "app=shop", 0},
		{"slotgate_quota_rejections_total", "app=shop policy=tight", 1},
		{"slotgate_auth_failures_total", "reason=no_credentials", 1},
		{"slotgate_batch_items_total", "cluster=default result=ok", 6},
		{"slotgate_redis_command_duration_seconds", "cluster=default command=set", 3},
		{"slotgate_bytes_in_flight", "", 0},
		{"slotgate_control_connected", "", 1},
		{"slotgate_cluster_up", "cluster=default", 1},
		{"slotgate_cluster_slots_ok", "cluster=default", 16384},
		{"slotgate_cluster_nodes", "cluster=default role=primary", 3},
		{"slotgate_cluster_nodes", "cluster=default role=replica", 3},
		{"slotgate_http_panics_total", "", 0},
	} {
		if got := value(now, c.name, c.labels); got != c.want {
			t.Errorf("%s{%s} is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	// go-redis may ask the old node once more before it knows better; the node has counted.
	stats := info.Parse(from.Client().Info(t.Context(), "errorstats").Val())
	if got := value(now, "slotgate_redis_redirects_total", "cluster=default kind=moved node="+from.Addr); fmt.Sprintf("count=%v", got) != stats["errorstat_MOVED"] {
		t.Errorf("%v redirects are counted, the node says %s", got, stats["errorstat_MOVED"])
	}
	if left := value(now, "slotgate_quota_remaining_ratio", "app=shop policy=tight"); !(left >= 0 && left < 0.1) {
		t.Errorf("%v of the quota is left", left)
	}
	id := "key_id=" + token[3:15] + " app=shop"
	if used := value(now, "slotgate_key_last_used_timestamp_seconds", id); time.Since(time.Unix(int64(used), 0)) > 5*time.Minute {
		t.Errorf("the key was last used at %v", used)
	}
	if expires := time.Until(time.Unix(int64(value(now, "slotgate_key_expires_timestamp_seconds", id)), 0)); expires.Round(24*time.Hour) != 90*24*time.Hour {
		t.Errorf("the key expires in %v", expires)
	}
	for _, name := range []string{"slotgate_control_last_success_timestamp_seconds", "slotgate_config_reload_success_timestamp_seconds"} {
		if at := value(now, name, ""); !(time.Since(time.Unix(int64(at), 0)) < 5*time.Minute) {
			t.Errorf("%s is %v", name, at)
		}
	}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds", "process_start_time_seconds",
		"go_goroutines", "go_gc_duration_seconds", "go_memstats_heap_alloc_bytes"} {
		if now[name] == nil {
			t.Errorf("%s is not there", name)
		}
	}

	// Without the primary of a slot, and without its replica, commands fail and are sent again.
	replica, err := cluster.ReplicaOf(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	free := newToken(t, vars, "free")
	limit := g.api + "/v1/ratelimits/api"
	eventually(t, func() bool { // the key is known a moment later
		return call(t, "PUT", limit, free, `{"rules":[{"id":"m","algorithm":"token_bucket","limit":5,"period_ms":3600000}]}`).StatusCode == 200
	})
	tries := 0
	eventually(t, func() bool { // a busy machine may not answer in the time of a take; one that is counted is near the limit too
		tries++
		return strings.Contains(call(t, "POST", limit+"/take", free, fmt.Sprintf(`{"subject":"u%d","cost":5}`, tries)).body, `"source":"redis"`)
	})
	eventually(t, func() bool {
		return strings.Contains(call(t, "POST", limit+"/take", free, fmt.Sprintf(`{"subject":"u%d","cost":5}`, tries)).body, `"source":"cache"`)
	})
	if n := value(g.scrape(t, ""), "slotgate_ratelimit_takes_total", "app=free limit=api result=cached"); n != 1 {
		t.Errorf("%v refusals were repeated without Redis", n)
	}
	eventually(t, func() bool {
		return call(t, "PUT", g.api+"/v1/strings/k", free, `{"value":"v"}`).StatusCode == 200
	})
	eventually(t, func() bool {
		return strings.HasPrefix(call(t, "GET", g.api+"/v1/strings/k?read=replica", free, "").Header.Get("Gateway-Served-By"), "replica")
	})
	usePool(t, g.api+"/v1/pools/models", free)
	get := func() int { return call(t, "GET", g.api+"/v1/strings/moved%7Bshop:a0%7D", free, "").StatusCode }
	eventually(t, func() bool { return get() == 404 })
	replica.Kill()
	to.Kill()
	eventually(t, func() bool { return get() >= 500 })
	wrong := "not scraped"
	for end := time.Now().Add(20 * time.Second); wrong != "" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		wrong = missing(g.scrape(t, protobuf))
	}
	if wrong != "" {
		t.Error(wrong)
	}
}

// usePool leases a member of an adaptive pool, completes the lease, and reports the member until it is ejected. A busy machine may not answer
// in the time of an allocation.
func usePool(t *testing.T, pool, token string) {
	t.Helper()
	done := func(method, path, body string, into any) {
		t.Helper()
		eventually(t, func() bool {
			got := call(t, method, pool+path, token, body)
			return got.StatusCode == 200 && (into == nil || json.Unmarshal([]byte(got.body), into) == nil)
		})
	}
	done("PUT", "", `{"policy":"adaptive"}`, nil)
	done("PUT", "/members", `{"members":[{"member":"a"},{"member":"b"},{"member":"c"}]}`, nil)
	var got struct {
		Lease struct {
			ID    string
			Fence int64
		}
	}
	done("POST", "/allocations", `{"lease_ms":60000}`, &got)
	done("POST", "/leases/"+got.Lease.ID+"/complete", fmt.Sprintf(`{"fence":%d}`, got.Lease.Fence), nil)
	fault := `{"member":"a","outcome":"failure"}`
	done("POST", "/reports", `{"reports":[`+strings.Repeat(fault+",", 4)+fault+`]}`, nil)
}

// elsewhere are the metrics that the scenario does not bring about, with the test that does.
var elsewhere = map[string]string{
	metric.CeilingRejections.Name: "TestGatewaysShareCeilings",
	metric.QuotaUnasked.Name:      "middleware's TestWhileTheClusterDoesNotAnswer",
	metric.CertificateExpiry.Name: "the tests of TLS",
	metric.DurableDuration.Name:   "the tests of durability",
	metric.DurableWrites.Name:     "the tests of durability",
	metric.RedisShed.Name:         "the tests of overload in store",

	metric.PoolMemberState.Name:       "store/pools' TestMembersHaveMetricsOfTheirOwn",
	metric.PoolMemberWeight.Name:      "store/pools' TestMembersHaveMetricsOfTheirOwn",
	metric.PoolMemberShare.Name:       "store/pools' TestMembersHaveMetricsOfTheirOwn",
	metric.PoolMemberAllocations.Name: "store/pools' TestMembersHaveMetricsOfTheirOwn",
	metric.PoolMemberInflight.Name:    "store/pools' TestMembersHaveMetricsOfTheirOwn",
}

// missing compares what is exposed with the list of names, both ways.
func missing(families map[string]*dto.MetricFamily) string {
	var wrong []string
	for _, m := range metric.All() {
		f := families[m.Name]
		if f == nil {
			if elsewhere[m.Name] == "" {
				wrong = append(wrong, m.Name+" is not exposed; bring it about here, or name the test that does")
			}
			continue
		}
		labels := slices.Sorted(slices.Values(m.Labels))
		var got []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			got = append(got, l.GetName())
		}
		if !slices.Equal(got, labels) || strings.ToLower(f.GetType().String()) != string(m.Kind) || f.GetHelp() != m.Help {
			wrong = append(wrong, fmt.Sprintf("%s is exposed as %s %v %q", m.Name, f.GetType(), got, f.GetHelp()))
		}
	}
	for name := range families {
		if strings.HasPrefix(name, "slotgate_") && !slices.ContainsFunc(metric.All(), func(m metric.Metric) bool { return m.Name == name }) {
			wrong = append(wrong, name+" is not in store/metric")
		}
	}
	return strings.Join(wrong, "\n")
}

// Percentiles from native buckets are off by 5 % at the most, and those from classic ones lie in the right bucket. The judge is the log,
// which has the time of every request.
func TestPercentilesAreThoseOfTheLog(t *testing.T) {
	vars := append(clusterVars(t), "SLOTGATE_LOG_SAMPLE=1")
	token := newToken(t, vars, "shop")
	g := startGateway(t, vars)
	g.waitReady(t)
	const n = 3000
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range n {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", g.api+fmt.Sprint("/v1/strings/k", i), nil)
		req.Header.Set("Authorization", "Bearer "+token)
		do(t, client, req)
	}
	var h *dto.Histogram
	eventually(t, func() bool {
		h = series(g.scrape(t, protobuf), "slotgate_app_request_duration_seconds", "app=shop").GetHistogram()
		return h.GetSampleCount() == n
	})
	var took []float64 // in microseconds, cut off
	for line := range strings.Lines(g.stderr.String()) {
		if l := decode[struct {
			Msg, App string
			DurUS    float64 `json:"dur_us"`
		}](t, line); l.Msg == "request" && l.App == "shop" {
			took = append(took, l.DurUS)
		}
	}
	if len(took) != n {
		t.Fatalf("%d requests are logged, want %d", len(took), n)
	}
	slices.Sort(took)
	for _, q := range []float64{.5, .9, .99, .999} {
		recorded := took[int(math.Ceil(q*n))-1]
		native := nativeQuantile(h, q) * 1e6
		low, high := classicBucket(h, q)
		t.Logf("p%v: recorded %.0f us, native %.1f us (%+.2f %%), classic between %v and %v us", 100*q, recorded, native, 100*(native-recorded)/recorded, low*1e6, high*1e6)
		if math.Abs(native-recorded) > .05*recorded+1 {
			t.Errorf("p%v from native buckets is %.1f us, recorded were %.0f", 100*q, native, recorded)
		}
		if recorded+1 < low*1e6 || recorded > high*1e6 {
			t.Errorf("p%v from classic buckets is between %v and %v us, recorded were %.0f", 100*q, low*1e6, high*1e6, recorded)
		}
	}
}

// nativeQuantile is histogram_quantile of Prometheus 3: the bucket of the rank, and in it an exponential interpolation.
func nativeQuantile(h *dto.Histogram, q float64) float64 {
	rank := q * float64(h.GetSampleCount())
	seen := float64(h.GetZeroCount())
	if rank <= seen {
		return h.GetZeroThreshold()
	}
	index, d, count := 0, 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		index += int(span.GetOffset())
		for range span.GetLength() {
			count += h.GetPositiveDelta()[d]
			if d++; seen+float64(count) >= rank && count > 0 {
				log2 := func(i int) float64 { return math.Ldexp(float64(i), -int(h.GetSchema())) }
				return math.Exp2(log2(index-1) + (log2(index)-log2(index-1))*(rank-seen)/float64(count))
			}
			seen += float64(count)
			index++
		}
	}
	return math.Inf(1)
}

func classicBucket(h *dto.Histogram, q float64) (low, high float64) {
	rank := q * float64(h.GetSampleCount())
	for _, b := range h.GetBucket() {
		if float64(b.GetCumulativeCount()) >= rank {
			return low, b.GetUpperBound()
		}
		low = b.GetUpperBound()
	}
	return low, math.Inf(1)
}
