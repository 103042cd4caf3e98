package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
	"github.com/slotgate/slotgate/store/slot"
)

// Sizes of one history. Checking is exponential in what is open at the same time, so each history is short, has few clients, and
// there are many of them.
const (
	histories      = 20
	historiesShort = 4
	historyOps     = 60 // of each client on each key, on average
	historyMax     = 250
	clients        = 3
)

// tags put the keys of a history in three slots, which move.
var tags = [...]string{"a", "b", "c"}

// Without failover, clients that use the same keys at the same time see each key as if their calls had happened one after the other,
// each between its request and its answer: also where connections break, replies are lost or late, and slots move. A call
// whose outcome is unknown may have happened at any time after its request, or never.
func TestEachKeyIsLinearizable(t *testing.T) {
	for name, coalesce := range map[string]store.CoalesceConfig{"coalesced": {}, "each command by itself": {Off: true}} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.Shared(t)
			network := clustertest.Proxied(t, c)
			a := start(t, func(cfg *store.Config) {
				cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: network.Dial}
				cfg.Coalesce = coalesce
			}).app(t)
			defer disturb(t, c, network, a)()
			total := map[string]int{}
			rounds := histories
			if testing.Short() {
				rounds = historiesShort
			}
			for n := range rounds {
				for key, history := range record(t, a, n, total) {
					check(t, key, history)
				}
			}
			t.Logf("calls by answer: %v", total)
			if total["unknown"] == 0 || total["precondition_failed"] == 0 || total["ok"] < rounds*historyOps {
				t.Error("no reply was lost, no condition was unmet, or little went well: the test tests nothing")
			}
		})
	}
}

// disturb makes faults until its result is called: on the connections all the time, and slots move there and back.
func disturb(t *testing.T, c *localcluster.Cluster, network *faultproxy.Network, a *app) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		addrs := c.Addrs()
		for i := 0; ctx.Err() == nil; i++ {
			p := network.Proxy(addrs[rand.IntN(len(addrs))])
			switch i % 4 {
			case 0:
				p.ResetReplies(1)
			case 1:
				p.DropReplies(1)
			case 2:
				p.ResetAll()
			case 3:
				p.Delay(time.Duration(1+rand.IntN(30)) * time.Millisecond)
			}
			wait(ctx, 20*time.Millisecond)
			if i%4 == 3 {
				p.Pass()
			}
		}
	})
	var moved atomic.Int64
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if moveAndBack(ctx, t, c, slot.Of(a.stored("{"+tags[i%len(tags)]+"}"))) {
				moved.Add(1)
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		t.Logf("%d slots moved there and back", moved.Load())
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// moveAndBack ends with the slot where it was, even if ctx ends meanwhile.
func moveAndBack(ctx context.Context, t *testing.T, c *localcluster.Cluster, number int) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	from, err := c.PrimaryOf(ctx, number)
	if err != nil {
		t.Error(err)
		return false
	}
	primaries, err := c.Primaries(ctx)
	if err != nil {
		t.Error(err)
		return false
	}
	to := primaries[0]
	if to == from {
		to = primaries[1]
	}
	for _, way := range [][2]*localcluster.Node{{from, to}, {to, from}} {
		if err := c.MigrateSlot(ctx, number, way[0], way[1]); err != nil {
			t.Error(err)
			return false
		}
	}
	return true
}

// record lets clients loose on fresh keys and returns what they saw, by key. total counts the answers.
func record(t *testing.T, a *app, n int, total map[string]int) map[string][]porcupine.Operation {
	const openUntil = int64(time.Hour) // after everything else
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		began = time.Now()
		byKey = map[string][]porcupine.Operation{}
	)
	remember := func(key string, op porcupine.Operation) {
		mu.Lock()
		defer mu.Unlock()
		if total[op.Output.(seen).code]++; op.Output.(seen).code != "not_applied" { // as if it had not been asked
			byKey[key] = append(byKey[key], op)
		}
	}
	for client := range clients {
		wg.Go(func() {
			known := map[string]string{} // what this client saw last, for conditions
			for i := range historyOps * len(tags) {
				key := fmt.Sprintf("{%s}:%d", tags[rand.IntN(len(tags))], n)
				in := randomDeed(strconv.Itoa((client+1)*1_000_000+i), known[key])
				op := porcupine.Operation{ClientId: client, Input: in, Call: time.Since(began).Nanoseconds()}
				out := a.perform(t, key, in)
				op.Output, op.Return = out, time.Since(began).Nanoseconds()
				switch {
				case out.code == "unknown":
					// Whoever waits no longer is another client from now on: this one goes on beside its own call.
					op.Return, op.ClientId = openUntil, clients+i*clients+client
				case in.kind == "get" && out.code == "ok":
					known[key] = out.text
				case in.kind == "put" && out.code == "ok":
					known[key] = in.value
				}
				remember(key, op)
			}
		})
	}
	wg.Wait()
	return byKey
}

func randomDeed(value, known string) deed {
	d := deed{value: value, batch: rand.IntN(4) == 0, hurry: rand.IntN(8) == 0}
	switch rand.IntN(9) {
	case 0, 1, 2:
		d.kind = "get"
	case 3:
		d.kind = "put"
	case 4:
		d.kind, d.match = "put", known
	case 5:
		d.kind, d.fresh = "put", true
	case 6:
		d.kind = "delete"
		if rand.IntN(2) == 0 {
			d.match = known
		}
	case 7:
		d.kind, d.value = "append", strconv.Itoa(1+rand.IntN(9))
	case 8:
		d.kind, d.value, d.bound = "add", strconv.Itoa(1+rand.IntN(1000)), rand.IntN(2) == 0
	}
	return d
}

// perform asks the gateway for a deed.
func (a *app) perform(t *testing.T, key string, in deed) seen {
	var headers []string
	if in.match != "" {
		headers = append(headers, "If-Match: "+store.ETag([]byte(in.match)))
	}
	if in.fresh {
		headers = append(headers, "If-None-Match: *")
	}
	if in.hurry {
		headers = append(headers, "X-Request-Deadline-Ms: 15")
	}
	path := percent(key)
	batch := in.batch && headers == nil
	var r answer
	switch {
	case in.kind == "get" && batch:
		r = a.call(t, "POST", "/v1/mget", `{"keys":["`+key+`"]}`, headers...)
		return r.inBatch(t)
	case in.kind == "get":
		r = a.octets(t, "GET", "/v1/bytes/"+path, nil, headers...)
		if r.status == 200 {
			return seen{code: "ok", text: r.body}
		}
	case in.kind == "put" && batch:
		r = a.call(t, "POST", "/v1/mset", `{"items":[{"key":"`+key+`","value":"`+in.value+`"}]}`, headers...)
	case in.kind == "put":
		r = a.octets(t, "PUT", "/v1/bytes/"+path, []byte(in.value), headers...)
	case in.kind == "delete":
		r = a.call(t, "DELETE", "/v1/keys/"+path, "", headers...)
	case in.kind == "append":
		r = a.octets(t, "POST", "/v1/bytes/"+path+"/append", []byte(in.value), headers...)
	case in.kind == "add":
		body := `{"delta":` + in.value + `}`
		if in.bound {
			body = `{"delta":` + in.value + `,"min":0}` // goes by a script
		}
		r = a.call(t, "POST", "/v1/counters/"+path+"/add", body, headers...)
	}
	return r.seen(t, in.kind != "get")
}

// seen reads an answer.
func (r answer) seen(t *testing.T, write bool) seen {
	var body struct {
		Code, Outcome string
		Length, Value json.Number
	}
	if r.body != "" {
		if err := json.Unmarshal([]byte(r.body), &body); err != nil {
			t.Errorf("%v in %s", err, r.body)
		}
	}
	switch {
	case r.status < 300:
		return seen{code: "ok", text: body.Length.String() + body.Value.String()}
	case r.status < 500:
		return seen{code: body.Code}
	case !write:
		return seen{code: "not_applied"}
	case body.Outcome != "unknown" && body.Outcome != "not_applied":
		t.Errorf("a failed write without an outcome: %d %s", r.status, r.body)
	}
	return seen{code: body.Outcome}
}

// inBatch reads the one item of an mget.
func (r answer) inBatch(t *testing.T) seen {
	if r.status != 200 {
		return r.seen(t, false)
	}
	var body struct {
		Items []struct {
			Found   bool
			Value   string
			Problem *struct{}
		}
	}
	if err := json.Unmarshal([]byte(r.body), &body); err != nil || len(body.Items) != 1 {
		t.Errorf("%v in %s", err, r.body)
		return seen{code: "not_applied"}
	}
	switch it := body.Items[0]; {
	case it.Problem != nil:
		return seen{code: "not_applied"}
	case !it.Found:
		return seen{code: "key_not_found"}
	default:
		return seen{code: "ok", text: it.Value}
	}
}

// check fails unless the history of one key is linearizable, and then draws it.
func check(t *testing.T, key string, history []porcupine.Operation) {
	if len(history) > historyMax {
		t.Fatalf("%d calls on one key are too many to check", len(history))
	}
	result, info := porcupine.CheckOperationsVerbose(oneKey, history, time.Minute)
	if result == porcupine.Ok {
		return
	}
	picture, err := os.CreateTemp("", "linearizable-*.html")
	if err == nil {
		err = porcupine.Visualize(oneKey, info, picture)
		_ = picture.Close()
	}
	t.Fatalf("the %d calls on %s are not linearizable (%s): see %s %v", len(history), key, result, picture.Name(), err)
}
