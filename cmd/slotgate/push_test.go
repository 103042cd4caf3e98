package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/cmd/slotgate/falcon"
)

// A gateway with push.url set sends its own figures to the agent. The step is 10 s, the least there is, so this waits for one.
func TestServePushesToAnAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a step of 10 s")
	}
	pushed := make(chan []falcon.Item, 10)
	agent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var items []falcon.Item
		if err := json.NewDecoder(r.Body).Decode(&items); err != nil {
			t.Error(err)
		}
		pushed <- items
	}))
	t.Cleanup(agent.Close)
	vars := clusterVars(t)
	token := newToken(t, vars, "shop")
	g := startGateway(t, append(vars, "SLOTGATE_PUSH_URL="+agent.URL+"/v1/push", "SLOTGATE_PUSH_STEP_S=10"))
	g.waitReady(t)
	for range 7 {
		expect(t, call(t, "GET", g.api+"/v1/strings/absent", token, ""), 404)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]bool{"slotgate.app.qps app=shop": true, "slotgate.app.latency_p99_ms app=shop": true, "slotgate.process.cpu_seconds ": true,
		"slotgate.process.resident_memory_bytes ": true, "slotgate.process.goroutines ": true,
		"slotgate.http.requests code=404,method=GET,route=/v1/strings/:key": true}
	for deadline := time.After(30 * time.Second); len(wanted) > 0; {
		select {
		case items := <-pushed:
			for _, item := range items {
				// Counters say all requests so far; a step may end in the middle of them.
				if item.CounterType == "GAUGE" || item.Value == 7 || strings.HasPrefix(item.Metric, "slotgate.process.") {
					delete(wanted, item.Metric+" "+item.Tags)
				}
				if item.Endpoint != host || item.Timestamp%10 != 0 || item.Step != 10 {
					t.Errorf("%+v", item)
				}
			}
		case <-deadline:
			t.Fatalf("not pushed: %v", wanted)
		}
	}
	body := call(t, "GET", g.admin+"/metrics", "", "").body
	contains(t, "/metrics", body, `slotgate_push_items_total{result="dropped"} 0`, `slotgate_push_failures_total{reason="timeout"} 0`)
}
