package faults

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bigBatch is the items of a batch of F-07.
const bigBatch = 1000

// TestF07BatchesAndADeadShard sends batches over all shards while one of them dies and comes back as its replica.
func TestF07BatchesAndADeadShard(t *testing.T) {
	scenario(t)
	c := startCluster(t, partial)
	in := install(t, c)
	g := in.serve(t)
	direct := in.redis(t)
	b := &batches{caller: newCaller(t, "http://"+g.api, in.token), ledger: newLedger()}
	for i := range bigBatch {
		key := fmt.Sprint("b", i)
		b.keys = append(b.keys, key)
		if err := direct.Set(within(t), namespace+":"+key, echo(key), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	n := times(1, 10)
	for range n {
		primaries, err := c.Primaries(within(t))
		if err != nil {
			t.Fatal(err)
		}
		victim := primaries[0]
		group := bySlot(t, victim)
		b.dead.Store(&group)
		b.run(t, func() {
			pause(t, 300*time.Millisecond)
			victim.Kill()
			pause(t, 5*time.Second) // silence, failover, and what comes after
		})
		if err := victim.Restart(within(t)); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitOK(within(t)); err != nil {
			t.Fatal(err)
		}
	}

	v, err := b.ledger.compare(stored(within(t), direct))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range append(b.wrong, v.examples...) {
		t.Log(e)
	}
	if len(b.wrong) > 0 || v.wrong+v.crossed+v.double+v.silent > 0 {
		t.Errorf("%d things wrong in the batches; %s", len(b.wrong), v.counted())
	}
	if b.itemsFailed.Load() == 0 {
		t.Error("no item ever failed: nothing was tested")
	}
	results.add(row{
		id: "F-07", done: fmt.Sprintf("%d kills of a primary under batches of %d items over all shards", n, bigBatch),
		counted: fmt.Sprintf("%d batches, %d of them with failed items, %d items failed; %d healthy items failed, %d misassigned, %d without an outcome of their own; %s",
			b.sent.Load(), b.partial.Load(), b.itemsFailed.Load(), b.healthy.Load(), b.misassigned.Load(), b.mute.Load(), v.counted()),
		target: "misassigned 0, healthy failed 0, each dead item with an error and an outcome", verdict: met(!t.Failed()),
	})
}

// batches are clients that send mget and mset by turns, and look at each item of the answer.
type batches struct {
	caller *caller
	ledger *ledger
	keys   []string
	dead   atomic.Pointer[func(key string) string] // "hit": the key was on the node that dies

	sent, partial, itemsFailed, healthy, misassigned, mute atomic.Int64

	round int64
	mu    sync.Mutex
	wrong []string // the first things that were wrong
}

func (b *batches) note(n *atomic.Int64, format string, args ...any) {
	n.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wrong) < 5 {
		b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
	}
}

// run sends batches while meanwhile runs.
func (b *batches) run(t *testing.T, meanwhile func()) {
	stop := make(chan struct{})
	var running sync.WaitGroup
	b.round++
	for w := range 4 {
		running.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if w%2 == 0 {
					b.mget(t)
				} else {
					b.mset(t, w, i)
				}
			}
		})
	}
	meanwhile()
	close(stop)
	running.Wait()
}

// item is one item of an answer to a batch.
type item struct {
	Key     string
	Value   *string
	Found   bool
	Outcome string
	Problem *problem
}

func (b *batches) mget(t *testing.T) {
	body, _ := json.Marshal(map[string]any{"keys": b.keys})
	r := b.caller.call(t.Context(), "POST", "/v1/mget", string(body))
	b.sent.Add(1)
	var got struct{ Items []item }
	if err := json.Unmarshal(r.body, &got); r.status != 200 || err != nil || len(got.Items) != len(b.keys) {
		b.note(&b.mute, "mget: status %d, %d items, %v %v", r.status, len(got.Items), err, r.err)
		return
	}
	failed := 0
	for i, it := range got.Items {
		switch {
		case it.Key != b.keys[i]:
			b.note(&b.misassigned, "item %d is %s, not %s", i, it.Key, b.keys[i])
		case it.Problem != nil:
			failed++
			b.failedItem(it.Key, it.Problem.Code != "", "mget", *it.Problem)
		case it.Value == nil || *it.Value != echo(it.Key):
			b.note(&b.misassigned, "item %d, %s, has another value: %+v", i, it.Key, it)
		}
	}
	b.countPartial(failed)
}

func (b *batches) countPartial(failed int) {
	if failed > 0 {
		b.partial.Add(1)
		b.itemsFailed.Add(int64(failed))
	}
}

// failedItem judges an item that failed: it must have been on the node that dies, and say what became of it.
func (b *batches) failedItem(key string, says bool, op string, p problem) {
	if (*b.dead.Load())(key) != "hit" {
		b.note(&b.healthy, "%s: %s, of a sound node, failed: %+v", op, key, p)
	}
	if !says {
		b.note(&b.mute, "%s: %s says nothing: %+v", op, key, p)
	}
}

func (b *batches) mset(t *testing.T, worker, number int) {
	type write struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	items := make([]write, len(b.keys))
	for i := range items {
		items[i] = write{fmt.Sprintf("w%d-%d", worker, i), fmt.Sprintf("%d-%d-%d;", b.round, worker, number)}
	}
	body, _ := json.Marshal(map[string]any{"items": items})
	r := b.caller.call(t.Context(), "POST", "/v1/mset", string(body))
	b.sent.Add(1)
	if r.err != nil || r.status == 200 {
		for _, w := range items {
			b.ledger.set(w.Key, w.Value, r.told())
		}
		return
	}
	var got struct{ Items []item }
	if err := json.Unmarshal(r.body, &got); err != nil || len(got.Items) != len(items) {
		b.note(&b.mute, "mset: status %d, %d items of %d: %.300s", r.status, len(got.Items), len(items), r.body)
		return
	}
	failed := 0
	for i, it := range got.Items {
		if it.Key != items[i].Key {
			b.note(&b.misassigned, "item %d is %s, not %s", i, it.Key, items[i].Key)
			continue
		}
		told := outcomeOf(it.Outcome, unknown)
		if told == applied {
			told = acked // an item says applied where a single write answers 200
		}
		b.ledger.set(it.Key, items[i].Value, told)
		if it.Outcome != "applied" {
			failed++
			p := problem{Outcome: it.Outcome}
			if it.Problem != nil {
				p.Code = it.Problem.Code
			}
			b.failedItem(it.Key, it.Outcome == "not_applied" || it.Outcome == "unknown", "mset", p)
		}
	}
	b.countPartial(failed)
}
