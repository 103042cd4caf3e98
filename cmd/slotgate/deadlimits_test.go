package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/prepaid"
)

// shardsOf is a cluster without replicas, so that what dies stays dead, and the shards that live go on.
type shardsOf struct {
	*localcluster.Cluster
	t *testing.T
}

func (c shardsOf) of(key string) *localcluster.Node {
	c.t.Helper()
	node, err := c.PrimaryOfKey(c.t.Context(), key)
	if err != nil {
		c.t.Fatal(err)
	}
	return node
}

// limitOn is the id of a limit of an app that is kept on a shard, or on any other.
func (c shardsOf) limitOn(app string, shard *localcluster.Node, on bool) string {
	c.t.Helper()
	for i := 0; ; i++ {
		id := fmt.Sprint("a", i)
		if (c.of(prepaid.Key(app, id, "")) == shard) == on {
			return id
		}
	}
}

// The shard of the limits of some apps dies; the keys of all apps are elsewhere.
func TestLimitsWhoseShardIsDead(t *testing.T) {
	c := shardsOf{clustertest.Run(t, localcluster.Options{Primaries: 3, Config: map[string]string{"cluster-require-full-coverage": "no"}}), t}
	p := startPairOn(t, []string{
		"SLOTGATE_CLUSTERS_DEFAULT_ADDRS=" + strings.Join(c.Addrs(), ","),
		"SLOTGATE_SECRET_FILE=testdata/secret",
		"SLOTGATE_LISTEN=127.0.0.1:0",
		"SLOTGATE_ADMIN_LISTEN=127.0.0.1:0",
		"SLOTGATE_HTTP_DRAIN_DELAY_MS=0",
	})
	control := c.of("slotgate:{acl}:apps")
	victim := c.Nodes()[0]
	if victim == control {
		victim = c.Nodes()[1]
	}
	keys, paths := map[string]string{}, map[string]string{}
	for app, terms := range map[string]string{
		"open":   "limit=10,mode=exact,on_error=open",
		"closed": "limit=10,mode=exact,on_error=closed",
		"local":  "limit=10,mode=exact,on_error=local",
		"ahead":  "limit=100000,on_error=closed",
		"other":  "limit=10,mode=exact,on_error=closed",
	} {
		keys[app] = p.app(t, app, "id="+c.limitOn(app, victim, app != "other")+",period_ms=3600000,"+terms)
	}
	keys["none"] = p.app(t, "none")
	for app := range keys {
		for i := 0; paths[app] == ""; i++ {
			if key := fmt.Sprint("k", i); c.of(app+":"+key) != victim {
				paths[app] = "/v1/strings/" + key
			}
		}
		if n := p.passes(t, 2, "GET", paths[app], keys[app], "", quota); n != 2 {
			t.Fatalf("%s: %d of 2 passed while all was well", app, n)
		}
	}
	passes := func(app string, n int, refusal string) int {
		t.Helper()
		return p.passes(t, n, "GET", paths[app], keys[app], "", refusal)
	}
	victim.Kill()
	if n := passes("open", 40, quota); n != 40 {
		t.Errorf("open: %d of 40 passed", n)
	}
	if n := passes("closed", 10, "limiter_unavailable"); n != 0 {
		t.Errorf("closed: %d passed", n)
	}
	got := call(t, "GET", p.gateways[0].api+paths["closed"], keys["closed"], "")
	expect(t, got, 503, `"code":"limiter_unavailable"`, `"retryable":true`)
	if got.Header.Get("Retry-After") == "" {
		t.Error("closed: when to come back is not said")
	}
	if n := passes("local", 30, quota); n != 8 {
		t.Errorf("local: %d passed, want the 5 of each gateway less the one that each has used", n)
	}
	eventually(t, func() bool { return passes("ahead", 2, "limiter_unavailable") == 0 }) // what was drawn dies
	if n := passes("other", 20, quota); n != 8 {
		t.Errorf("a limit of another shard: %d passed, want the 8 that were left", n)
	}
	if n := passes("none", 40, quota); n != 40 {
		t.Errorf("no limit: %d of 40 passed", n)
	}
	for _, app := range []string{"open", "closed", "local", "ahead"} {
		if n := value(p.gateways[0].scrape(t, ""), "slotgate_quota_unasked_total", "app="+app); !(n > 0) {
			t.Errorf("%s: %v decisions were counted", app, n)
		}
	}
	if err := victim.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, app := range []string{"closed", "ahead"} {
		for _, g := range p.gateways {
			eventually(t, func() bool { return g.ask(t, "GET", paths[app], keys[app], "").StatusCode == 404 })
		}
	}
}
