package handlers_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/slotgate/slotgate/middleware"
)

func TestALeaseIsRenewedAndCompleted(t *testing.T) {
	g := start(t)
	a := pooler(t, g, inflightOne, "p1")
	const t0 int64 = vectorStart
	g.clock.Store(t0)
	lease := func() (path, fence string) {
		l := a.allocate(t, `{"lease_ms":30000}`)["lease"].(map[string]any)
		return leasesPath + "/" + l["id"].(string), number(l["fence"])
	}
	path, fence := lease()
	if list := a.call(t, "GET", leasesPath, "").want(t, 200)["items"].([]any); len(list) != 1 || !strings.HasSuffix(path, list[0].(map[string]any)["id"].(string)) {
		t.Errorf("%v", list)
	}
	g.clock.Store(t0 + 10e6)
	m := a.call(t, "PATCH", path, `{"fence":`+fence+`,"lease_ms":30000}`).want(t, 200)
	if m["member"] != "p1" || number(m["held_ms"]) != "10000" || number(m["expires_at_ms"]) != fmt.Sprint((t0+40e6)/1000) {
		t.Errorf("%v", m)
	}
	a.call(t, "PATCH", path, `{"fence":1,"lease_ms":30000}`).refused(t, 409, "fence_mismatch", "")
	a.call(t, "POST", path+"/complete", `{"fence":1}`).refused(t, 409, "fence_mismatch", "")
	done := a.call(t, "POST", path+"/complete", `{"fence":`+fence+`,"outcome":"success","latency_ms":10}`).want(t, 200)
	if done["late"] != false || done["member"] != "p1" || done["health"].(map[string]any)["state"] != "healthy" {
		t.Errorf("%v", done)
	}
	a.call(t, "POST", path+"/complete", `{"fence":`+fence+`}`).refused(t, 404, "lease_not_found", "")

	path, fence = lease()
	g.clock.Store(t0 + 41e6)
	a.call(t, "PATCH", path, `{"fence":`+fence+`,"lease_ms":30000}`).refused(t, 409, "lease_lost", "")
	for query, n := range map[string]int{"?expired=true": 1, "?expired=false": 0, "?member=p1": 1, "?member=p2": 0, "?member=" + base64url("p1") + "&key_encoding=base64url": 1} {
		if list := a.call(t, "GET", leasesPath+query, "").want(t, 200)["items"].([]any); len(list) != n {
			t.Errorf("%s: %v", query, list)
		}
	}
	if late := a.call(t, "POST", path+"/complete", `{"fence":`+fence+`}`).want(t, 200); late["late"] != true || late["health"] != nil {
		t.Errorf("%v", late)
	}
}

func TestAnAllocationIsRepeatedSafely(t *testing.T) {
	a := pooler(t, start(t), inflightOne, "p1", "p2")
	one, two := a.call(t, "POST", allocatePath, `{}`, "Idempotency-Key: k1"), a.call(t, "POST", allocatePath, `{}`, "Idempotency-Key: k1")
	if m := one.want(t, 200); m["member"] != "p1" || two.body != one.body || two.header.Get("Idempotency-Replayed") != "true" || one.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%s, then %s %v", one.body, two.body, two.header)
	}
	if m := a.allocate(t, `{}`); m["member"] != "p2" {
		t.Errorf("the repetition has allocated too: %v", m)
	}
	a.call(t, "POST", allocatePath, `{"count":1}`, "Idempotency-Key: k1").refused(t, 422, "idempotency_mismatch", "header:Idempotency-Key")
	if m := a.allocate(t, `{}`, "Idempotency-Key: k2"); m["reason"] != "saturated" {
		t.Errorf("%v", m)
	}
	lease := one.want(t, 200)["lease"].(map[string]any)
	complete, body := leasesPath+"/"+lease["id"].(string)+"/complete", `{"fence":`+number(lease["fence"])+`}`
	first, again := a.call(t, "POST", complete, body, "Idempotency-Key: k3"), a.call(t, "POST", complete, body, "Idempotency-Key: k3")
	if first.want(t, 200); again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s, then %d %s", first.body, again.status, again.body)
	}
	if m := a.allocate(t, `{}`, "Idempotency-Key: k2"); m["member"] != "p1" { // that there was nobody is not kept
		t.Errorf("%v", m)
	}
	for path, methods := range map[string][]string{poolPath: {"PUT", "PATCH", "DELETE", "GET"}, membersPath: {"PUT"}, membersPath + "/p1": {"PUT", "PATCH", "DELETE"}, poolPath + "/reports": {"POST"}, strings.TrimSuffix(complete, "/complete"): {"PATCH"}, poolPath + "/rebase": {"POST"}} {
		for _, method := range methods {
			a.call(t, method, path, "", "Idempotency-Key: k").refused(t, 422, "idempotency_unsupported", "header:Idempotency-Key")
		}
	}
}

func TestARepetitionHasTheDefinitionOfTheFirstTime(t *testing.T) {
	a := pooler(t, start(t), leastUsed, "p1")
	first := a.call(t, "POST", allocatePath, `{}`, "Idempotency-Key: k")
	a.call(t, "PATCH", poolPath, `{"policy":"adaptive"}`).want(t, 200)
	if again := a.call(t, "POST", allocatePath, `{}`, "Idempotency-Key: k"); again.body != first.body {
		t.Errorf("%s, then %s", first.body, again.body)
	}
}

// The bound of records is for those that are kept, and that there was nobody is not.
func TestNobodyCountsAsNoRecord(t *testing.T) {
	a := pooler(t, start(t), leastUsed)
	for i := range 3 * middleware.DefaultRecordsPerSecond * 10 {
		if m := a.allocate(t, `{}`, fmt.Sprint("Idempotency-Key: ", i)); m["reason"] != "empty" {
			t.Fatalf("%d: %v", i, m)
		}
	}
}

// The policy may be changed while leases are out.
func TestLeasesSurviveAChangeOfThePolicy(t *testing.T) {
	a := pooler(t, start(t), inflightOne, "p1", "p2")
	lease := a.allocate(t, `{}`)["lease"].(map[string]any)
	for _, policy := range []string{"round_robin", "adaptive", "weighted_round_robin", "least_used"} {
		a.call(t, "PATCH", poolPath, `{"policy":"`+policy+`"}`).want(t, 200)
		if m := a.allocate(t, `{}`); m["policy"] != policy || m["member"] == nil {
			t.Errorf("%s: %v", policy, m)
		}
	}
	path, fence := leasesPath+"/"+lease["id"].(string), number(lease["fence"])
	a.call(t, "PATCH", path, `{"fence":`+fence+`,"lease_ms":1000}`).want(t, 200)
	if m := a.call(t, "POST", path+"/complete", `{"fence":`+fence+`}`).want(t, 200); m["member"] != "p1" || m["late"] != false {
		t.Errorf("%v", m)
	}
	for name, m := range members(t, a) {
		if number(m["inflight"]) != "0" {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// Who allocates while the pool is deleted has a member or is told that there is no pool, and nothing is left behind.
func TestAPoolIsDeletedUnderLoad(t *testing.T) {
	a := pooler(t, start(t), inflightOne, "p1")
	a.call(t, "PATCH", poolPath, `{"lease":{"max_per_member":0}}`).want(t, 200)
	for range 5 {
		var all sync.WaitGroup
		deleted := make(chan struct{})
		for range 8 {
			all.Go(func() {
				for over := false; !over; {
					select {
					case <-deleted:
						over = true
					default:
					}
					switch got := a.call(t, "POST", allocatePath, `{}`); got.status {
					case 200:
						if over && !strings.Contains(got.body, `"reason":"empty"`) {
							t.Errorf("after the deletion: %s", got.body)
						}
					case 404:
						if !strings.Contains(got.body, `"code":"pool_not_found"`) {
							t.Errorf("%s", got.body)
						}
					default:
						t.Errorf("%d %s", got.status, got.body)
					}
				}
			})
		}
		eventually(t, "allocations", func() bool { return len(a.call(t, "GET", leasesPath, "").want(t, 200)["items"].([]any)) >= 8 })
		a.call(t, "DELETE", poolPath, "").want(t, 204)
		close(deleted)
		all.Wait()
		a.call(t, "PUT", poolPath, inflightOne).want(t, 200)
		if m := a.call(t, "GET", membersPath, "").want(t, 200); len(m["items"].([]any)) != 0 || len(a.call(t, "GET", leasesPath, "").want(t, 200)["items"].([]any)) != 0 {
			t.Errorf("left behind: %v", m)
		}
		a.call(t, "PATCH", poolPath, `{"lease":{"max_per_member":0}}`).want(t, 200)
		a.putMembers(t, "p1")
	}
}
