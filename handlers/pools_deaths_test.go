package handlers_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/pool/pooltest"
)

var deaths = flag.Int("pool-deaths", 40, "workers that die with a lease")

// Of the pools of the workers that die.
const (
	leaseMS   = 400
	perMember = 4
)

// A hundred workers lease a member from one of two gateways, use it for a moment, and complete. One of ten dies with its lease, some die
// while they wait for an answer, and some are so slow that their lease is over. By the clock of Redis, no member ever has more leases than it may.
func TestWorkersThatDie(t *testing.T) {
	for _, row := range []struct {
		policy  string
		members int // a gateway chooses from many, where from few Redis does
	}{{"least_inflight", 5}, {"adaptive", 5}, {"adaptive", 80}} {
		t.Run(fmt.Sprint(row.policy, " ", row.members), func(t *testing.T) { die(t, row.policy, row.members) })
	}
}

func die(t *testing.T, policy string, members int) {
	var names []string
	for i := range members {
		names = append(names, fmt.Sprint("m", i))
	}
	most := max(perMember*5/members, 1)
	definition := fmt.Sprintf(`{"policy":%q,"lease":{"max_per_member":%d}}`, policy, most)
	a := pooler(t, start(t, unprotected), definition, names...)
	w := &wards{crowd: a.crowd(t, start(t, unprotected)), t: t, began: time.Now(), toDie: *deaths}
	if testing.Short() {
		w.toDie /= 4
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for w.goOn() { // a new worker in the place of one that has died
				w.live()
			}
		})
	}
	wg.Wait()
	eventually(t, "all leases of the dead come back", func() bool {
		if h, _ := w.take(t.Context()); h != nil { // that notices what has expired
			w.complete(h)
		}
		held := int64(0)
		for _, m := range shown(t, a).Members {
			held += m.Inflight
		}
		return held == 0
	})
	w.check(a, most)

	// Every place is free again, and there is none beside them.
	for i := range members*most + 1 {
		m := a.call(t, "POST", allocatePath, `{"lease_ms":60000}`).want(t, 200)
		if saturated := m["reason"] == "saturated"; saturated != (i == members*most) {
			t.Errorf("allocation %d: %v", i, m)
		}
	}
}

// wards are the workers and what they were told.
type wards struct {
	crowd
	t     *testing.T
	began time.Time

	mu        sync.Mutex
	toDie     int
	leases    []pooltest.Lease
	unheard   int // died while they waited for a lease, and may have got one
	completed int
	late      int // of these when the lease was over
	gone      int // were told that the lease was not theirs any more
	renewed   int
	saturated int
}

func (w *wards) note(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// goOn says whether somebody still has to die.
func (w *wards) goOn() (more bool) {
	w.note(func() { more = w.toDie > 0 && !w.t.Failed() })
	return more
}

// live is what a worker does until it dies, or all have died who have to.
func (w *wards) live() {
	ctx := w.t.Context()
	for w.goOn() {
		h, alive := w.take(ctx)
		switch {
		case !alive:
			return
		case h == nil:
			wait(ctx, 5*time.Millisecond)
			continue
		}
		switch rand.IntN(20) {
		case 0, 1:
			w.note(func() {
				w.toDie--
				w.leases = append(w.leases, h.Lease)
			})
			return
		case 2:
			wait(ctx, time.Until(time.UnixMilli(h.expiresMS+2)))
		case 3, 4:
			wait(ctx, rand.N(20*time.Millisecond))
			w.renew(h)
		}
		wait(ctx, rand.N(20*time.Millisecond))
		w.complete(h)
	}
}

// holding is a lease in the hands of a worker.
type holding struct {
	pooltest.Lease
	path      string
	expiresMS int64
}

func (h *holding) expires(ms int64) { h.expiresMS, h.End = ms, ms*1000 }

// over says whether the lease was over at that time. The nodes have the clock of this machine, in finer units.
func (h *holding) over(at time.Time) bool { return at.UnixMilli() >= h.expiresMS }

// take leases a member; nil is that there is none. One of fifty workers does not live to see the answer.
func (w *wards) take(ctx context.Context) (h *holding, alive bool) {
	if rand.IntN(50) == 0 {
		var die context.CancelFunc
		ctx, die = context.WithTimeout(ctx, rand.N(3*time.Millisecond))
		defer die()
	}
	asked := time.Since(w.began)
	status, body := w.send(ctx, "POST", allocatePath, fmt.Sprintf(`{"lease_ms":%d}`, leaseMS))
	had := time.Since(w.began)
	if status == 0 && ctx.Err() != nil {
		w.note(func() { w.unheard++ })
		return nil, false
	}
	var got choice
	if status != 200 || json.Unmarshal(body, &got) != nil || got.Lease == nil && got.Reason != "saturated" {
		w.t.Errorf("allocation: %d %s", status, body)
		return nil, false
	}
	if got.Lease == nil {
		w.note(func() { w.saturated++ })
		return nil, true
	}
	h = &holding{
		pooltest.Lease{Member: *got.Member, Fence: got.Lease.Fence, Asked: asked, Had: had, Begin: got.Lease.Fence},
		leasesPath + "/" + got.Lease.ID, 0,
	}
	h.expires(got.Lease.ExpiresAtMS)
	return h, true
}

// kept is the answer to who renews or completes.
type kept struct {
	Code        string
	HeldMS      int64 `json:"held_ms"`
	ExpiresAtMS int64 `json:"expires_at_ms"`
	Late        bool
}

func (w *wards) settle(method, path, body string) (status int, k kept) {
	status, text := w.send(w.t.Context(), method, path, body)
	if err := json.Unmarshal(text, &k); err != nil {
		w.t.Errorf("%s %s: %d %s", method, path, status, text)
	}
	return status, k
}

func (w *wards) renew(h *holding) {
	status, k := w.settle("PATCH", h.path, fmt.Sprintf(`{"fence":%d,"lease_ms":%d}`, h.Fence, leaseMS))
	switch {
	case status == 200:
		h.expires(k.ExpiresAtMS)
		w.note(func() { w.renewed++ })
	case (k.Code == "lease_lost" || k.Code == "lease_not_found") && h.over(time.Now()):
	default:
		w.t.Errorf("renewal: %d %+v, the lease was until %d, now it is %d", status, k, h.expiresMS, time.Now().UnixMilli())
	}
}

// complete wants a worker that comes late to be told so, and only such a one.
func (w *wards) complete(h *holding) {
	before := time.Now()
	status, k := w.settle("POST", h.path+"/complete", fmt.Sprintf(`{"fence":%d,"outcome":"success","latency_ms":5}`, h.Fence))
	after := time.Now()
	told := k.Late || status == 404 && k.Code == "lease_not_found"
	switch {
	case status != 200 && status != 404, status == 404 && !told:
		w.t.Errorf("completion: %d %+v", status, k)
	case told && !h.over(after), !told && h.over(before.Add(-time.Millisecond)):
		w.t.Errorf("completion: %d %+v between %d and %d, the lease was until %d", status, k, before.UnixMilli(), after.UnixMilli(), h.expiresMS)
	case !told:
		h.End = h.Begin + k.HeldMS*1000
	}
	w.note(func() {
		w.leases = append(w.leases, h.Lease)
		switch {
		case status == 404:
			w.gone++
		case k.Late:
			w.late++
			w.completed++
		default:
			w.completed++
		}
	})
}

func (w *wards) check(a *app, limit int) {
	w.t.Helper()
	o := shown(w.t, a)
	all := 0
	for _, m := range o.Members {
		all += int(m.Allocations)
	}
	most, disorder := pooltest.Most(w.leases), pooltest.Disorder(w.leases)
	w.t.Logf("%d leases, at most %d of a member at the same time; %d renewed, %d completed, %d of them late, %d told that it is lost, %d abandoned; "+
		"%d answers were not waited for, %d times nobody was free", len(w.leases), most, w.renewed, w.completed, w.late, w.gone, o.Abandoned, w.unheard, w.saturated)
	if most > limit {
		w.t.Errorf("a member had %d leases at the same time, of %d", most, limit)
	}
	if disorder > 0 {
		w.t.Errorf("%d fences are not greater than those before", disorder)
	}
	if all < len(w.leases) || all > len(w.leases)+w.unheard {
		w.t.Errorf("%d allocations are counted, %d were told, and %d may have been made", all, len(w.leases), w.unheard)
	}
	if int(o.Abandoned) != all-w.completed {
		w.t.Errorf("%d leases are counted as abandoned, of %d that %d were completed of", o.Abandoned, all, w.completed)
	}
	if most < limit || w.late+w.gone == 0 || w.renewed == 0 || w.unheard == 0 || w.saturated == 0 && limit > 1 { // of 80 places some may always be free
		w.t.Error("something did not happen that the test is about")
	}
}
