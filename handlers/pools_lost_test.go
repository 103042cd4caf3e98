package handlers_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/pool"
)

// lossy is a pool behind proxies, and a call after which the next reply of a script is lost: the node has run it by then.
func lossy(t *testing.T, definition string) (a *app, lose func(), lost func() bool) {
	t.Helper()
	c := clustertest.Shared(t)
	network := clustertest.Proxied(t, c)
	a = pooler(t, start(t, func(cfg *store.Config) {
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: network.Dial}
	}), definition)
	for _, m := range []string{"a", "b", "c"} {
		a.call(t, "PUT", membersPath+"/"+m, `{}`).want(t, 200)
	}
	a.call(t, "POST", poolPath+"/reports", `{"reports":[{"member":"a","outcome":"success","latency_ms":10}]}`).want(t, 200)
	node, err := c.PrimaryOfKey(t.Context(), "slotgate:p:{"+a.identity.App.Namespace+"/proxies}:st")
	if err != nil {
		t.Fatal(err)
	}
	proxy := network.Proxy(node.Addr)
	return a, func() { proxy.DropReplies(1, "EVALSHA", "EVAL") }, func() bool { return proxy.Pending() == 0 }
}

var policies = []string{
	`{"policy":"least_used"}`, `{"policy":"round_robin"}`, `{"policy":"weighted_round_robin"}`, `{"policy":"weighted_round_robin","variant":"classic"}`,
	`{"policy":"weighted_random"}`, `{"policy":"adaptive"}`, `{"policy":"least_inflight"}`,
}

// A reply that is lost says nothing of what was done. With an Idempotency-Key the repetition has the member that was allocated, and
// allocates none; without, nobody repeats it for the caller.
func TestAnAllocationWhoseReplyIsLostIsThereOnce(t *testing.T) {
	for _, definition := range policies {
		t.Run(definition, func(t *testing.T) {
			a, lose, lost := lossy(t, definition)
			// The script is in the node's memory, so that its first run is its only one.
			a.call(t, "POST", allocatePath, `{"count":1,"lease_ms":60000}`).want(t, 200)
			given := map[string]bool{}
			const rounds = 8
			for i := range rounds {
				lose()
				keyed := func() answer {
					return a.call(t, "POST", allocatePath, `{"count":1,"lease_ms":60000}`, fmt.Sprintf("Idempotency-Key: k%d", i))
				}
				first := keyed()
				if m := first.want(t, 504); m["outcome"] != "unknown" || !lost() {
					t.Fatalf("the reply was lost: %v; answered %s", lost(), first.body)
				}
				again := keyed()
				again.want(t, 200)
				if again.header.Get("Idempotency-Replayed") != "true" {
					t.Errorf("round %d: it was not done the first time", i)
				}
				one := allocated(t, again.body).Allocated[0]
				given[fmt.Sprint(one.Member, one.Allocations)] = true
			}
			if n := counted(shown(t, a)); n != 1+rounds || len(given) != rounds {
				t.Errorf("%d allocations with %d keys, %d different", n, 1+rounds, len(given))
			}
			for range rounds {
				lose()
				if m := a.call(t, "POST", allocatePath, `{"lease_ms":60000}`).want(t, 504); m["outcome"] != "unknown" || !lost() {
					t.Fatalf("%v", m)
				}
			}
			if n := counted(shown(t, a)); n != 1+2*rounds {
				t.Errorf("%d allocations of %d", n, 1+2*rounds)
			}
			held := int64(0)
			for _, m := range shown(t, a).Members {
				held += m.Inflight
			}
			if held != 1+2*rounds {
				t.Errorf("%d leases of %d", held, 1+2*rounds)
			}
		})
	}
}

// counted are the allocations of all members.
func counted(o pool.Overview) (sum int64) {
	for _, m := range o.Members {
		sum += m.Allocations
	}
	return sum
}

// Likewise a completion: with a key its repetition has the answer, without one it is told that there is no such lease, and either way the
// member has one less, once.
func TestACompletionWhoseReplyIsLostIsMadeOnce(t *testing.T) {
	a, lose, lost := lossy(t, `{"policy":"least_inflight"}`)
	for round, key := range []string{"", "Idempotency-Key: done"} {
		var leases []map[string]any
		for range 2 {
			leases = append(leases, a.call(t, "POST", allocatePath, `{"lease_ms":60000}`).want(t, 200)["lease"].(map[string]any))
		}
		complete := func(lease map[string]any) answer {
			headers := []string{key}
			if key == "" {
				headers = nil
			}
			return a.call(t, "POST", fmt.Sprint(leasesPath, "/", lease["id"], "/complete"), fmt.Sprintf(`{"fence":%s}`, lease["fence"].(json.Number)), headers...)
		}
		if round == 0 { // the script is in the node's memory
			complete(leases[0]).want(t, 200)
			leases[0] = a.call(t, "POST", allocatePath, `{"lease_ms":60000}`).want(t, 200)["lease"].(map[string]any)
		}
		lose()
		if m := complete(leases[0]).want(t, 504); m["outcome"] != "unknown" || !lost() {
			t.Fatalf("%v", m)
		}
		again := complete(leases[0])
		if key == "" {
			again.refused(t, 404, "lease_not_found", "")
		} else if again.want(t, 200); again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%v %s", again.header, again.body)
		}
		held := int64(0)
		for _, m := range shown(t, a).Members {
			held += m.Inflight
		}
		if held != int64(1+round) {
			t.Errorf("%d leases are out, want %d", held, 1+round)
		}
	}
}
