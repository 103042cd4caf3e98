package falcon_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/cmd/slotgate/falcon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epoch is 7 s past a multiple of 60.
var epoch = time.Unix(1_800_000_000+7, 0)

// fakeClock stands until the test lets the next step come.
type fakeClock struct {
	mu    sync.Mutex
	t     time.Time
	asked chan time.Duration
	fire  chan time.Time
}

func newClock() *fakeClock {
	return &fakeClock{t: epoch, asked: make(chan time.Duration, 1), fire: make(chan time.Time)}
}

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *fakeClock) after(d time.Duration) <-chan time.Time {
	c.asked <- d
	return c.fire
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// wait is how long the pusher wants to wait; it returns when the push before is over.
func (c *fakeClock) wait(t *testing.T) time.Duration {
	t.Helper()
	select {
	case d := <-c.asked:
		return d
	case <-time.After(20 * time.Second):
		t.Fatal("the pusher does not come to its end")
		return 0
	}
}

// pushing is a pusher that runs on a clock of the test's.
type pushing struct {
	*fakeClock
	reg  *prometheus.Registry // what is pushed
	own  *prometheus.Registry // the pusher's own counters
	next time.Duration        // until the next step
	stop func()               // ends it and waits for its end
}

func start(t *testing.T, cfg falcon.Config, metrics ...prometheus.Collector) *pushing {
	t.Helper()
	p := &pushing{fakeClock: newClock(), reg: prometheus.NewRegistry(), own: prometheus.NewRegistry()}
	p.reg.MustRegister(metrics...)
	cfg.Now, cfg.After = p.now, p.after
	if cfg.Step == 0 {
		cfg.Step = time.Minute
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = "gw-01"
	}
	pusher := falcon.New(cfg, p.reg, p.own, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- pusher.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
	p.next = p.wait(t)
	return p
}

// step lets the next step come and waits until it is over.
func (p *pushing) step(t *testing.T) {
	t.Helper()
	p.stepLate(t, 0)
}

func (p *pushing) stepLate(t *testing.T, late time.Duration) {
	t.Helper()
	p.advance(p.next + late)
	p.fire <- p.now()
	p.next = p.wait(t)
}

// counted reads one of the pusher's own counters.
func (p *pushing) counted(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := p.own.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s of %s", name, label)
	return 0
}

func (p *pushing) wantCounts(t *testing.T, sent, dropped float64) {
	t.Helper()
	const name = "slotgate_push_items_total"
	if s, d := p.counted(t, name, "sent"), p.counted(t, name, "dropped"); s != sent || d != dropped {
		t.Errorf("%v sent and %v dropped, want %v and %v", s, d, sent, dropped)
	}
}

// receiver is an agent that takes what has all seven fields in their types, and nothing else.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	posts [][]map[string]any
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var items []map[string]any
		if err != nil || json.Unmarshal(body, &items) != nil || req.Method != http.MethodPost || req.URL.Path != "/v1/push" ||
			req.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %q: %v %.200s", req.Method, req.URL.Path, req.Header.Get("Content-Type"), err, body)
		}
		for _, item := range items {
			checkItem(t, item)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.posts = append(r.posts, items)
		_, _ = io.WriteString(w, "success")
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) config() falcon.Config { return falcon.Config{URL: r.URL + "/v1/push"} }

// checkItem holds an item against Open-Falcon's rules.
func checkItem(t *testing.T, item map[string]any) {
	t.Helper()
	bad := func(format string, args ...any) { t.Helper(); t.Errorf(format+" in %v", append(args, item)...) }
	if len(item) != 7 {
		bad("%d fields", len(item))
	}
	for _, field := range []string{"metric", "endpoint"} {
		if s, ok := item[field].(string); !ok || s == "" || strings.ContainsAny(s, " ,=\t\n") {
			bad("%s %q", field, item[field])
		}
	}
	stamp, ok1 := item["timestamp"].(float64)
	step, ok2 := item["step"].(float64)
	if !ok1 || !ok2 || stamp != float64(int64(stamp)) || step < 10 || int64(stamp)%int64(step) != 0 {
		bad("timestamp %v of step %v", item["timestamp"], item["step"])
	}
	if _, ok := item["value"].(float64); !ok {
		bad("value %v", item["value"])
	}
	if kind := item["counterType"]; kind != "GAUGE" && kind != "COUNTER" {
		bad("counterType %v", kind)
	}
	list, ok := item["tags"].(string)
	if !ok || strings.ContainsAny(list, " \t\r\n") {
		bad("tags %q", item["tags"])
	}
	for tag := range strings.SplitSeq(list, ",") {
		if k, v, _ := strings.Cut(tag, "="); list != "" && (k == "" || v == "" || strings.Contains(v, "=")) {
			bad("tag %q", tag)
		}
	}
}

// take empties the receiver: all items by "metric{tags}", and how many each POST had.
func (r *receiver) take(t *testing.T) (items map[string]map[string]any, sizes []int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	items = map[string]map[string]any{}
	for _, post := range r.posts {
		sizes = append(sizes, len(post))
		for _, item := range post {
			name := item["metric"].(string) + "{" + item["tags"].(string) + "}"
			if items[name] != nil {
				t.Errorf("%s was pushed twice", name)
			}
			items[name] = item
		}
	}
	r.posts = nil
	return items, sizes
}
