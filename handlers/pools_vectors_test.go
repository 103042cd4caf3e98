package handlers_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/pool/pooltest"
)

// The vectors of the design, through HTTP.
func TestVectorsOfPoolsThroughHTTP(t *testing.T) {
	g := start(t)
	pooltest.Run(t, func(t *testing.T) pooltest.Way { return poolWay(t, pooler(t, g, `{"policy":"least_used"}`)) })
}

// poolWay is how the vectors reach the app's pool.
func poolWay(t *testing.T, a *app) pooltest.Way {
	member := func(m pool.Member) (path, body string) {
		path = membersPath + "/" + url.PathEscape(m.Member)
		m.Member = ""
		fields := decoded[map[string]json.RawMessage](t, encoded(t, m))
		delete(fields, "member")
		return path, encoded(t, fields)
	}
	return pooltest.Way{
		Define: func(d pool.Definition) {
			t.Helper()
			a.call(t, "PUT", poolPath, encoded(t, d)).want(t, 200)
		},
		Put: func(m pool.Member) {
			t.Helper()
			path, body := member(m)
			a.call(t, "PUT", path, body).want(t, 200)
		},
		Patch: func(m pool.Member) {
			t.Helper()
			path, body := member(m)
			a.call(t, "PATCH", path, body).want(t, 200)
		},
		Remove: func(m string) {
			t.Helper()
			a.call(t, "DELETE", membersPath+"/"+url.PathEscape(m), "").want(t, 204)
		},
		Allocate: func(r pool.Request, key string) (pool.Result, bool) {
			t.Helper()
			r.Count = max(r.Count, 1) // then they come as a list
			got := a.call(t, "POST", allocatePath, encoded(t, r), keyed(key)...)
			got.want(t, 200)
			return allocated(t, got.body), got.header.Get("Idempotency-Replayed") == "true"
		},
		Report: func(list ...pool.Report) []pool.Health {
			t.Helper()
			got := a.call(t, "POST", poolPath+"/reports", encoded(t, map[string]any{"reports": list}))
			got.want(t, 200)
			return decoded[struct{ Items []pool.Health }](t, got.body).Items
		},
		Renew: func(c pool.Claim, ms int64) (pool.Kept, error) {
			t.Helper()
			kept, _, err := settled(t, a.call(t, "PATCH", leasesPath+"/"+c.ID, fmt.Sprintf(`{"fence":%d,"lease_ms":%d}`, c.Fence, ms)))
			return kept, err
		},
		Complete: func(c pool.Claim, key string) (pool.Kept, bool, error) {
			t.Helper()
			return settled(t, a.call(t, "POST", leasesPath+"/"+c.ID+"/complete", encoded(t, c), keyed(key)...))
		},
		Show:  func() pool.Overview { return shown(t, a) },
		Clock: a.clock.Store,
		Draw: func(u float64) {
			draw := func() float64 { return u }
			a.draw.Store(&draw)
		},
	}
}

func keyed(key string) []string {
	if key == "" {
		return nil
	}
	return []string{"Idempotency-Key: " + key}
}

// shown are the members of the app's pool.
func shown(t testing.TB, a *app) (o pool.Overview) {
	t.Helper()
	got := a.call(t, "GET", membersPath, "")
	got.want(t, 200)
	all := decoded[struct {
		Items     []pool.State
		Abandoned int64
	}](t, got.body)
	o.Members, o.Abandoned = all.Items, all.Abandoned
	return o
}

// allocated is what the body of an answer says of an allocation that named a count.
func allocated(t testing.TB, body string) (res pool.Result) {
	t.Helper()
	all := decoded[struct {
		Reason       pool.Reason
		RetryAfterMS int64 `json:"retry_after_ms"`
		Items        []struct {
			Member      string
			Allocations int64
			Mode        pool.Mode
			Lease       *struct {
				ID          string
				Fence       int64
				ExpiresAtMS int64 `json:"expires_at_ms"`
			}
		}
	}](t, body)
	res.Reason, res.RetryAfterMS = all.Reason, all.RetryAfterMS
	for _, i := range all.Items {
		one := pool.Allocated{Member: i.Member, Allocations: i.Allocations, Mode: i.Mode}
		if l := i.Lease; l != nil {
			one.Lease = &pool.Held{ID: l.ID, Fence: l.Fence, ExpiresAtMS: l.ExpiresAtMS}
		}
		res.Allocated = append(res.Allocated, one)
	}
	return res
}

// settled is what became of a lease.
func settled(t testing.TB, got answer) (kept pool.Kept, replayed bool, err error) {
	t.Helper()
	if got.status != 200 {
		err, known := map[string]error{
			"404 lease_not_found": pool.ErrNoLease, "409 fence_mismatch": pool.ErrOtherFence, "409 lease_lost": pool.ErrLost,
		}[fmt.Sprint(got.status, " ", got.want(t, got.status)["code"])]
		if !known {
			t.Fatalf("status %d: %s", got.status, got.body)
		}
		return kept, false, err
	}
	k := decoded[struct {
		Member      string
		HeldMS      int64 `json:"held_ms"`
		ExpiresAtMS int64 `json:"expires_at_ms"`
		Late        bool
	}](t, got.body)
	return pool.Kept(k), got.header.Get("Idempotency-Replayed") == "true", nil
}

func encoded(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func decoded[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// An empty pool has nobody, and asking it leaves nothing behind.
func TestA0AskingAnEmptyPoolWritesNothing(t *testing.T) {
	a := pooler(t, start(t), `{"policy":"least_inflight"}`)
	before := a.poolKeys(t)
	for range 3 {
		m := a.call(t, "POST", allocatePath, `{"lease_ms":1000,"sticky":"s"}`, "Idempotency-Key: k").want(t, 200)
		if member, there := m["member"]; !there || member != nil || m["reason"] != "empty" {
			t.Errorf("%v", m)
		}
	}
	if after := a.poolKeys(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("keys %v, before %v", after, before)
	}
}

// poolKeys are all that Redis has of the app's pool.
func (a *app) poolKeys(t testing.TB) (found []string) {
	t.Helper()
	node, err := a.redis.MasterForKey(t.Context(), "{"+a.identity.App.Namespace+"/proxies}")
	if err != nil {
		t.Fatal(err)
	}
	scan := node.Scan(t.Context(), 0, "slotgate:p:{"+a.identity.App.Namespace+"/proxies}*", 1000).Iterator()
	for scan.Next(t.Context()) {
		found = append(found, scan.Val())
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}
