package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/adaptive"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
	"github.com/slotgate/slotgate/store/metric"
	"github.com/slotgate/slotgate/store/slot"
)

// crowded is a store with a node that does not answer, all of whose places for what is normal are taken.
type crowded struct {
	*store.Store
	id       *acl.Identity
	registry *prometheus.Registry
	proxy    *faultproxy.Proxy // of the node
	full     string            // a key there
	free     string            // and one of another node
	pass     func()            // lets the node answer, and waits for those who hold the places
}

// crowd makes one; eight places are five for what is normal.
func crowd(t *testing.T, change ...func(*store.Config)) *crowded {
	t.Helper()
	cluster := clustertest.Shared(t)
	network := clustertest.Proxied(t, cluster)
	cfg := store.Config{
		Clusters:  map[string]store.ClusterConfig{"default": {Addrs: cluster.Addrs(), Dialer: network.Dial}},
		CursorKey: make([]byte, 32),
		Coalesce:  store.CoalesceConfig{Off: *coalesceOff},
		Circuit:   store.CircuitConfig{OpenAfter: -1},
		Overload:  store.OverloadConfig{Initial: 8, Min: 8, Max: 8},
		Redis:     store.RedisConfig{ReadTimeout: time.Minute},
	}
	for _, f := range change {
		f(&cfg)
	}
	c := &crowded{id: newApp(t), registry: prometheus.NewRegistry()}
	s, err := store.New(cfg, c.registry, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c.Store = s
	ctx := testContext(t)
	primaries := must[[]*localcluster.Node](t)(cluster.Primaries(ctx))
	c.full, c.free = keyAt(t, cluster, c.id, primaries[0]), keyAt(t, cluster, c.id, primaries[1])
	for _, key := range []string{c.full, c.free} {
		must[store.SetResult](t)(s.Set(ctx, c.id, key, []byte("0"), store.SetOptions{}))
	}
	c.proxy = network.Proxy(primaries[0].Addr)
	c.proxy.BlackHole()
	var holders sync.WaitGroup
	for range 5 {
		holders.Go(func() { _, _ = s.Get(ctx, c.id, c.full, store.GetOptions{}) })
	}
	c.pass = sync.OnceFunc(func() { c.proxy.Pass(); holders.Wait() })
	t.Cleanup(c.pass)
	if !cfg.Overload.Off {
		eventually(t, func() string {
			if taken := c.metric(t, metric.RedisPlacesTaken.Name, nil); taken != 5 {
				return fmt.Sprintf("%v places are taken", taken)
			}
			return ""
		})
	}
	return c
}

// metric is the sum of a metric's values with these labels.
func (c *crowded) metric(t *testing.T, name string, labels map[string]string) float64 {
	t.Helper()
	sum := 0.
	for _, f := range must[[]*dto.MetricFamily](t)(c.registry.Gather()) {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if want, ok := labels[l.GetName()]; ok && want != l.GetValue() {
					continue series
				}
			}
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return sum
}

func TestANodeWithoutAPlaceRefusesAtOnceOnEveryPath(t *testing.T) {
	c := crowd(t)
	for name, send := range paths(c.Store, c.id) {
		t.Run(name, func(t *testing.T) {
			want := store.CodeOverloaded
			if name == "mset" {
				want = store.CodeBatchIncomplete
			}
			e := wantCode(t, send(testContext(t), c.full), want)
			if e.Status() != 503 || e.Outcome == store.Unknown || e.Outcome == store.Applied {
				t.Errorf("%d, outcome %q: nothing was sent", e.Status(), e.Outcome)
			}
			if name != "a listing" { // that looks at all nodes
				if err := send(testContext(t), c.free); err != nil {
					t.Errorf("of another node: %v", err)
				}
			}
		})
	}
	_, err := c.Set(testContext(t), c.id, c.full, []byte("1"), store.SetOptions{})
	if e := wantCode(t, err, store.CodeOverloaded); e.Outcome != store.NotApplied || e.RetryAfter == 0 || !e.Retryable(false) {
		t.Errorf("a write: outcome %q, retry after %v", e.Outcome, e.RetryAfter)
	}
	if shed := c.metric(t, metric.RedisShed.Name, map[string]string{"reason": "full", "class": "normal"}); shed < 9 {
		t.Errorf("%v are counted as refused", shed)
	}
	c.pass()
	for name, send := range paths(c.Store, c.id) {
		if err := send(testContext(t), c.full); err != nil {
			t.Errorf("%s, when the node answers again: %v", name, err)
		}
	}
	if taken := c.metric(t, metric.RedisPlacesTaken.Name, nil); taken != 0 {
		t.Errorf("%v places are taken in the end", taken)
	}
	if v := must[store.Value](t)(c.Get(testContext(t), c.id, c.full, store.GetOptions{})); string(v.Data) == "0" {
		t.Error("the paths have written nothing")
	}
}

func TestWhatIsMoreImportantStillGetsAPlace(t *testing.T) {
	c := crowd(t)
	critical := *c.id
	app := *c.id.App
	app.Priority = acl.Critical
	critical.App = &app
	ask := func(id *acl.Identity, lowered any) error {
		ctx, cancel := context.WithTimeout(withClass(testContext(t), lowered), 50*time.Millisecond)
		defer cancel()
		_, err := c.Get(ctx, id, c.full, store.GetOptions{})
		return err
	}
	wantCode(t, ask(c.id, nil), store.CodeOverloaded)
	wantCode(t, ask(&critical, nil), store.CodeBackendTimeout) // it was sent
	wantCode(t, ask(&critical, adaptive.Normal), store.CodeOverloaded)
	wantCode(t, ask(c.id, adaptive.Critical), store.CodeOverloaded) // a request raises nothing
}

// What decides about many requests goes before each of them, whoever it is asked for.
func TestALimitOfTheGatewaysIsAskedAsWhatIsCritical(t *testing.T) {
	c := crowd(t)
	ctx, cancel := context.WithTimeout(withClass(testContext(t), adaptive.Bulk), 50*time.Millisecond)
	defer cancel()
	key := "slotgate:l:{" + slot.Sample(slot.Of(c.id.Prefix+c.full)) + "}"
	_, err := c.RunShared(ctx, "default", store.NewScript("return {1}"), []string{key}, nil)
	wantCode(t, err, store.CodeBackendTimeout) // it was sent
	if shed := c.metric(t, metric.RedisShed.Name, nil); shed != 0 {
		t.Errorf("%v were refused", shed)
	}
}

// withClass is the context of a request that wants another class; nil = none.
func withClass(ctx context.Context, class any) context.Context {
	return context.WithValue(ctx, store.ClassKey(), class)
}

func TestOfABatchOnlyTheItemsOfTheCrowdedNodeFail(t *testing.T) {
	c := crowd(t)
	items := must[[]store.GetItem](t)(c.MGet(testContext(t), c.id, []string{c.full, c.free, c.full}, store.Reading{}))
	for i, want := range []bool{false, true, false} {
		if items[i].Found != want || !want && (items[i].Err == nil || items[i].Err.Code != store.CodeOverloaded) {
			t.Errorf("item %d: %+v", i, items[i])
		}
	}
	_, err := c.MSet(testContext(t), c.id, []store.SetItem{{Key: c.full, Data: []byte("1")}, {Key: c.free, Data: []byte("1")}})
	e := wantCode(t, err, store.CodeBatchIncomplete)
	if len(e.Items) != 2 || e.Items[0].Outcome != store.NotApplied || e.Items[1].Outcome != store.Applied {
		t.Errorf("%+v", e.Items)
	}
}

func TestWithoutTheLimitEverythingIsSent(t *testing.T) {
	c := crowd(t, func(cfg *store.Config) { cfg.Overload.Off = true })
	for range 20 {
		err := within(t, 20*time.Millisecond, func(ctx context.Context) error {
			_, err := c.Get(ctx, c.id, c.full, store.GetOptions{})
			return err
		})
		var e *store.Error
		if !errors.As(err, &e) || e.Code == store.CodeOverloaded { // it waits for an answer, or for a connection
			t.Fatalf("got the error %v", err)
		}
	}
	if n := c.metric(t, metric.RedisPlaces.Name, nil); n != 0 {
		t.Errorf("%v places are told of", n)
	}
}

func TestTheLimitIsTurnedOffAndOnWhileItRuns(t *testing.T) {
	c := crowd(t)
	get := func() error {
		return within(t, 20*time.Millisecond, func(ctx context.Context) error {
			_, err := c.Get(ctx, c.id, c.full, store.GetOptions{})
			return err
		})
	}
	for range 2 {
		wantCode(t, get(), store.CodeOverloaded)
		c.ProtectNodes(false)
		var e *store.Error
		if err := get(); !errors.As(err, &e) || e.Code == store.CodeOverloaded {
			t.Errorf("off: %v", err)
		}
		c.ProtectNodes(true)
	}
	c.pass()
	eventually(t, func() string {
		if taken := c.metric(t, metric.RedisPlacesTaken.Name, nil); taken != 0 {
			return fmt.Sprintf("%v places are taken", taken)
		}
		return ""
	})
}

func TestRefusalsOpenNoCircuit(t *testing.T) {
	c := crowd(t, func(cfg *store.Config) { cfg.Circuit = store.CircuitConfig{} })
	c.pass()
	eventually(t, func() string {
		if _, err := c.Get(testContext(t), c.id, c.full, store.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	c.proxy.Delay(100 * time.Millisecond) // slow, not dead
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		var burst sync.WaitGroup
		for range 50 {
			burst.Go(func() {
				if _, err := c.Get(testContext(t), c.id, c.full, store.GetOptions{}); err != nil {
					wantCode(t, err, store.CodeOverloaded)
				}
			})
		}
		burst.Wait()
	}
	if c.metric(t, metric.RedisShed.Name, nil) == 0 {
		t.Error("nothing was refused: the test tests nothing")
	}
	if opened := c.metric(t, metric.RedisCircuitOpens.Name, nil); opened > 1 { // once, while it was crowded
		t.Errorf("the circuit has opened %v times", opened)
	}
}

func TestADeadNodeIsDeadAndNotCrowded(t *testing.T) {
	c := crowd(t, func(cfg *store.Config) { cfg.Circuit = store.CircuitConfig{} })
	eventually(t, func() string {
		if c.metric(t, metric.RedisCircuitOpen.Name, nil) == 0 {
			return "the circuit is closed"
		}
		return ""
	})
	for name, send := range paths(c.Store, c.id) {
		if name != "a listing" {
			want := store.CodeClusterDown
			if name == "mset" {
				want = store.CodeBatchIncomplete
			}
			wantCode(t, send(testContext(t), c.full), want)
		}
	}
}
