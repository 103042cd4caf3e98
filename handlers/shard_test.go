package handlers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// A shard that hangs fails its own items, each with its outcome and under the name the caller gave it.
func TestBatchesWithAHangingShard(t *testing.T) {
	g := start(t)
	a := g.app(t)
	cluster := clustertest.Shared(t)
	hung, err := cluster.PrimaryOfKey(t.Context(), a.stored("\xffkey0"))
	if err != nil {
		t.Fatal(err)
	}
	var items, keys []string
	isHung := map[string]bool{}
	for i := range 60 {
		key := fmt.Sprintf("\xffkey%d", i)
		owner, err := cluster.PrimaryOfKey(t.Context(), a.stored(key))
		if err != nil {
			t.Fatal(err)
		}
		isHung[base64url(key)] = owner == hung
		items = append(items, `{"key":"`+base64url(key)+`","value":"v"}`)
		keys = append(keys, `"`+base64url(key)+`"`)
	}
	mset := `{"key_encoding":"base64url","items":[` + strings.Join(items, ",") + `]}`
	mget := `{"key_encoding":"base64url","keys":[` + strings.Join(keys, ",") + `]}`
	a.call(t, "POST", "/v1/mset", mset).want(t, 200)
	// Each request has its own pause, too short for the cluster to take the node for dead.
	during := func(path, body string) answer {
		if err := hung.Pause(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := hung.Resume(); err != nil {
				t.Fatal(err)
			}
		}()
		return a.call(t, "POST", path, body, "X-Request-Deadline-Ms: 400")
	}
	m := during("/v1/mset", mset).want(t, 504)
	if m["code"] != "batch_incomplete" || m["outcome"] != "unknown" || m["retryable"] != true || len(m["items"].([]any)) != 60 {
		t.Errorf("%v", m)
	}
	for _, item := range m["items"].([]any) {
		it := item.(map[string]any)
		if applied := it["outcome"] == "applied"; applied == isHung[it["key"].(string)] {
			t.Errorf("%v", it)
		}
	}
	for _, row := range [][2]string{{"/v1/mget", "value"}, {"/v1/mexists", "exists"}, {"/v1/mdelete", "deleted"}} {
		path, member := row[0], row[1]
		m := during(path, mget).want(t, 200)
		if m["errors"] != true {
			t.Errorf("%s: no errors", path)
		}
		for _, item := range m["items"].([]any) {
			it := item.(map[string]any)
			hung := isHung[it["key"].(string)]
			problem, failed := it["problem"].(map[string]any)
			if failed != hung || (it[member] != nil) == hung || failed && problem["code"] != "backend_timeout" && problem["code"] != "cluster_down" {
				t.Errorf("%s: %v", path, it)
			}
		}
	}
}
