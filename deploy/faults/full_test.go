package faults

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// configure changes a setting of a node.
func configure(t *testing.T, n *localcluster.Node, name, value string) {
	t.Helper()
	if err := n.Client().ConfigSet(within(t), name, value).Err(); err != nil {
		t.Fatal(err)
	}
}

// tallied counts answers by what they say.
type tallied map[string]int

func (c tallied) add(r reply) reply {
	word := fmt.Sprint(r.status)
	if r.err != nil {
		word = "no answer"
	}
	if r.code != "" {
		word += " " + r.code
	}
	if r.outcome != "" {
		word += " " + r.outcome
	}
	c[word]++
	return r
}

// only says whether nothing but these was counted, and each of them.
func (c tallied) only(t *testing.T, what string, words ...string) {
	t.Helper()
	for _, w := range words {
		if c[w] == 0 {
			t.Errorf("%s: nobody was told %s, but %v", what, w, c)
		}
	}
	if len(c) > len(words) {
		t.Errorf("%s: %v, want only %s", what, c, strings.Join(words, ", "))
	}
}

// fillTo bounds a primary's memory to what it holds and so many bytes.
func fillTo(t *testing.T, n *localcluster.Node, room int64) {
	t.Helper()
	var used int64
	for line := range strings.Lines(n.Client().Info(within(t), "memory").Val()) {
		_, _ = fmt.Sscanf(line, "used_memory:%d", &used)
	}
	if used == 0 {
		t.Fatal("a node does not say how much memory it uses")
	}
	configure(t, n, "maxmemory", fmt.Sprint(used+room))
}

// TestF16FullMemory fills a primary's memory, first where Redis then refuses writes, then where it evicts.
func TestF16FullMemory(t *testing.T) {
	scenario(t)
	c := startCluster(t)
	in := install(t, c)
	g := in.serve(t, generous...)
	app := newCaller(t, "http://"+g.api, in.token)
	node := must(c.Primaries(within(t)))(t)[0]
	keys := keysOn(t, node, "full", 400)
	value := `{"value":"` + incompressible(20_000) + `"}`
	app.must(t, 200, "PUT", "/v1/strings/"+keys[0], value)
	app.must(t, 200, "PUT", "/v1/counters/"+keys[1], `{"value":7}`)

	configure(t, node, "maxmemory-policy", "noeviction")
	fillTo(t, node, 2<<20)
	kept := 2
	for ; kept < len(keys) && app.call(t.Context(), "PUT", "/v1/strings/"+keys[kept], value).status == 200; kept++ {
	}
	fillTo(t, node, -1<<20)
	writes, reads, batches := tallied{}, tallied{}, tallied{}
	for range 100 {
		writes.add(app.call(t.Context(), "PUT", "/v1/strings/"+keys[0], value))
		writes.add(app.call(t.Context(), "POST", "/v1/counters/"+keys[1]+"/add", `{"delta":1}`))
		writes.add(app.call(t.Context(), "POST", "/v1/strings/"+keys[0]+"/append", `{"value":"x"}`))
		reads.add(app.call(t.Context(), "GET", "/v1/strings/"+keys[0], ""))
		reads.add(app.call(t.Context(), "GET", "/v1/counters/"+keys[1], ""))
		r := batches.add(app.call(t.Context(), "POST", "/v1/mset", `{"items":[{"key":"`+keys[0]+`","value":"v"}]}`))
		if len(parseProblem(r.body).Items) != 1 || parseProblem(r.body).Items[0].Outcome != "not_applied" {
			t.Fatalf("an mset: %s", r.body)
		}
	}
	writes.only(t, "writes to a full node", "507 out_of_memory not_applied")
	reads.only(t, "reads of a full node", "200")
	if v := app.must(t, 200, "GET", "/v1/counters/"+keys[1], ""); !strings.Contains(string(v.body), `"value":7`) {
		t.Errorf("a refused write was done: %s", v.body)
	}
	if other := keyOn(t, otherPrimary(t, c, node), "full"); app.call(t.Context(), "PUT", "/v1/strings/"+other, value).status != 200 {
		t.Error("another node's key cannot be written")
	}
	deletes := tallied{}
	for _, key := range keys[2:kept] {
		deletes.add(app.call(t.Context(), "DELETE", "/v1/keys/"+key, ""))
	}
	deletes.only(t, "deletes on a full node", "204")
	freed := time.Now()
	configure(t, node, "maxmemory", "0")
	app.eventually(t, 200, "PUT", "/v1/strings/"+keys[0], value)
	results.add(row{
		id: "F-16", done: "a primary without memory left (noeviction)",
		counted: fmt.Sprintf("writes %v, mset %v, reads %v, deletes %v; writable %v after there was room", writes, batches, reads, deletes, ms(time.Since(freed))),
		target:  "writes 507 not_applied, reads and deletes done, back ≤ 1 s", verdict: met(!t.Failed()),
	})
	evicting(t, app, node, keys, value)
}

// evicting fills a node that makes room by itself.
func evicting(t *testing.T, app *caller, node *localcluster.Node, keys []string, value string) {
	configure(t, node, "maxmemory-policy", "allkeys-lru")
	fillTo(t, node, 2<<20)
	writes, reads := tallied{}, tallied{}
	for range 3 {
		for _, key := range keys {
			writes.add(app.call(t.Context(), "PUT", "/v1/strings/"+key, value))
		}
	}
	for _, key := range keys {
		reads.add(app.call(t.Context(), "GET", "/v1/strings/"+key, ""))
	}
	writes.only(t, "writes where Redis evicts", "200")
	reads.only(t, "reads where Redis evicts", "200", "404 key_not_found")
	results.add(row{
		id: "F-16", done: "a primary that evicts (allkeys-lru)", counted: fmt.Sprintf("writes %v, reads %v", writes, reads),
		target: "an evicted key is a miss, no error", verdict: met(!t.Failed()),
	})
}

// TestF17MaxClients takes a primary's places for connections away.
func TestF17MaxClients(t *testing.T) {
	scenario(t)
	c := startCluster(t)
	node := must(c.Primaries(within(t)))(t)[0]
	ours := connections(t, node)
	in := install(t, c)
	g := in.serve(t)
	app := newCaller(t, "http://"+g.api, in.token)
	key, other := keyOn(t, node, "c"), keyOn(t, otherPrimary(t, c, node), "c")
	for _, k := range []string{key, other} {
		app.must(t, 200, "PUT", "/v1/counters/"+k, `{"value":0}`)
	}
	before := g.size(t)
	gateways := connections(t, node)
	configure(t, node, "maxclients", "20")
	squatter := takePlaces(t, node)
	for id := range gateways {
		if !ours[id] {
			_ = node.Client().ClientKillByFilter(within(t), "ID", id).Err() // it may have been closed meanwhile
		}
	}
	squatter.full(t)
	l := newLedger()
	writes, reads, others := tallied{}, tallied{}, tallied{}
	worst := time.Duration(0)
	for range times(15, 60) {
		r := writes.add(app.call(t.Context(), "POST", "/v1/counters/"+key+"/add", `{"delta":1}`))
		l.added(key, r.told())
		worst = max(worst, r.took)
		reads.add(app.call(t.Context(), "GET", "/v1/counters/"+key, ""))
		o := others.add(app.call(t.Context(), "POST", "/v1/counters/"+other+"/add", `{"delta":1}`))
		l.added(other, o.told())
	}
	others.only(t, "writes to other nodes", "200")
	if status("http://"+g.admin+"/livez") != 200 {
		t.Error("the gateway is not alive")
	}
	for word := range writes {
		if !strings.HasPrefix(word, "503 ") && !strings.HasPrefix(word, "504 ") || strings.HasSuffix(word, "unknown") && writes[word] > 2 { // one may have been under way
			t.Errorf("writes to the full node: %v", writes)
		}
	}
	freed := time.Now()
	squatter.release()
	r := app.eventually(t, 200, "POST", "/v1/counters/"+key+"/add", `{"delta":1}`)
	l.added(key, r.told())
	recovery := time.Since(freed)
	v, err := l.compare(stored(within(t), in.redis(t)))
	if err != nil {
		t.Fatal(err)
	}
	v.mustBeExact(t)
	results.add(row{
		id: "F-17", done: "a primary with all 20 of its maxclients taken",
		counted: fmt.Sprintf("writes %v, reads %v, longest %v; others' keys %v; back %v after places were free; %s; %s", writes, reads, ms(worst), others,
			ms(recovery), v.counted(), g.flat(t, before)),
		target: "503, alive, back ≤ 1 s", verdict: met(!t.Failed() && recovery <= time.Second),
	})
}

// squatter takes every place for connections that a node has.
type squatter struct {
	refused atomic.Int64 // connections, so far
	release func()
}

// takePlaces connects to a node until it takes nobody any more, and again when a place is free, until release is called.
func takePlaces(t *testing.T, n *localcluster.Node) *squatter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &squatter{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var held []net.Conn
		for sleep(ctx, time.Millisecond) {
			conn, err := net.DialTimeout("tcp", n.Addr, time.Second)
			if err != nil {
				continue
			}
			answer := make([]byte, 1)
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			_, _ = conn.Write([]byte("PING\r\n"))
			if _, err := conn.Read(answer); err == nil && answer[0] == '+' {
				held = append(held, conn)
				continue
			}
			_ = conn.Close()
			s.refused.Add(1)
		}
		for _, conn := range held {
			_ = conn.Close()
		}
	}()
	s.release = func() {
		cancel()
		<-done
	}
	t.Cleanup(s.release)
	s.full(t)
	return s
}

// full waits until the node has refused somebody from now on.
func (s *squatter) full(t *testing.T) {
	t.Helper()
	now := s.refused.Load()
	eventually(t, "the node is full", func() bool { return s.refused.Load() > now+1 })
}

// connections are those of a node, by id.
func connections(t *testing.T, n *localcluster.Node) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	for line := range strings.Lines(must(n.Client().ClientList(within(t)).Result())(t)) {
		if id, _, ok := strings.Cut(strings.TrimPrefix(line, "id="), " "); ok && strings.Contains(line, " flags=N ") {
			ids[id] = true
		}
	}
	return ids
}
