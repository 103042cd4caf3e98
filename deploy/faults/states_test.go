package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// state is something that a primary goes through, during which it answers with errors, or late.
type state struct {
	name   string
	begin  func(t *testing.T, c *localcluster.Cluster, n *localcluster.Node, key string) (end func())
	writes []string // what writers of its keys may be told; the first one must occur
	reads  []string // and readers
	target string
}

// Rows of the design's table 1c.
var states = []state{
	{
		name: "a script that does not end (BUSY)", begin: beginBusy,
		// What came before the server calls itself busy is late, and nobody can say what will become of it.
		writes: []string{"503 cluster_down not_applied", "504 backend_timeout unknown", "504 backend_timeout not_applied", "200"},
		reads:  []string{"503 cluster_down", "504 backend_timeout", "200"},
		target: "503 not_applied, at once",
	},
	{
		name: "a disk that takes no snapshot (MISCONF)", begin: beginMisconf,
		writes: []string{"503 cluster_down not_applied"}, reads: []string{"200"},
		target: "writes 503 not_applied, reads 200",
	},
	{
		name: "CLIENT PAUSE of 3 s", begin: beginPause,
		writes: []string{"504 backend_timeout unknown", "504 backend_timeout not_applied", "503 cluster_down not_applied", "200"},
		reads:  []string{"503 cluster_down", "504 backend_timeout", "200"}, // the first write may be the only one that waits
		target: "504 unknown, or not sent; nothing lost or double",
	},
	{
		name: "a slot of nobody (CLUSTERDOWN)", begin: beginHole,
		writes: []string{"503 cluster_down not_applied"}, reads: []string{"503 cluster_down"},
		target: "503 not_applied",
	},
	{
		name: "a restart with data to load (LOADING)", begin: beginLoading,
		writes: []string{"503 cluster_down not_applied", "504 backend_timeout unknown", "504 backend_timeout not_applied", "200"},
		reads:  []string{"503 cluster_down", "504 backend_timeout", "200"},
		target: "503 not_applied",
	},
}

// TestF18StatesOfANode puts a primary into states in which it refuses, while others go on.
func TestF18StatesOfANode(t *testing.T) {
	scenario(t)
	dir := t.TempDir()
	c := startCluster(t, partial, func(o *localcluster.Options) {
		o.Replicas = 0 // whose failover would end the state
		o.Dir = dir
		o.Config["busy-reply-threshold"] = "200"
		o.Config["appendfsync"] = "always" // so that a kill loses nothing
		// A snapshot of 15,000 keys is loaded in two seconds or three, and while it lasts LOADING is answered every few milliseconds.
		o.Config["key-load-delay"] = "100"
		o.Config["loading-process-events-interval-bytes"] = "1024"
	})
	in := install(t, c)
	g := in.serve(t)
	app := newCaller(t, "http://"+g.api, in.token)
	node := must(c.Primaries(within(t)))(t)[0]
	sound := keyOn(t, otherPrimary(t, c, node), "sound")
	for _, s := range states {
		t.Run(s.name, func(t *testing.T) {
			key := keyOn(t, node, strings.Map(func(r rune) rune {
				if r >= 'a' && r <= 'z' {
					return r
				}
				return -1
			}, s.name))
			s.run(t, in, c, node, app, key, sound)
		})
	}
}

func (s state) run(t *testing.T, in *installation, c *localcluster.Cluster, node *localcluster.Node, app *caller, key, sound string) {
	l := newLedger()
	add := func(key string) reply {
		r := app.call(t.Context(), "POST", "/v1/counters/"+key+"/add", `{"delta":1}`)
		l.added(key, r.told())
		return r
	}
	app.eventually(t, 200, "PUT", "/v1/counters/"+key, `{"value":0}`)
	app.eventually(t, 200, "PUT", "/v1/counters/"+sound, `{"value":0}`)
	end := s.begin(t, c, node, key)
	writes, reads, others := tallied{}, tallied{}, tallied{}
	var longest, refusal time.Duration
	for began := time.Now(); time.Since(began) < 1500*time.Millisecond; {
		w, r := writes.add(add(key)), reads.add(app.call(t.Context(), "GET", "/v1/counters/"+key, ""))
		longest = max(longest, w.took, r.took)
		if w.status == 503 {
			refusal = max(refusal, w.took)
		}
		o := others.add(add(sound))
		if o.status != 200 {
			t.Errorf("another node's key: %d %s", o.status, o.body)
		}
		pause(t, 5*time.Millisecond)
	}
	end()
	app.eventually(t, 200, "GET", "/v1/counters/"+key, "")
	l.added(key, app.eventually(t, 200, "POST", "/v1/counters/"+key+"/add", `{"delta":1}`).told())
	writes.among(t, "writes", s.writes)
	reads.among(t, "reads", s.reads)
	v, err := l.compare(stored(within(t), in.redis(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range v.examples {
		t.Log(e)
	}
	v.mustBeExact(t)
	results.add(row{
		id: "F-18", done: s.name,
		counted: fmt.Sprintf("writes %v, reads %v; longest answer %v, longest refusal %v; others' keys %v; %s", writes, reads, ms(longest), ms(refusal), others, v.counted()),
		target:  s.target + "; others' keys 200", verdict: met(!t.Failed()),
	})
}

// among wants the first of the words, and none but them.
func (c tallied) among(t *testing.T, what string, words []string) {
	t.Helper()
	if c[words[0]] == 0 {
		t.Errorf("%s: nobody was told %s, but %v", what, words[0], c)
	}
	allowed := map[string]bool{}
	for _, w := range words {
		allowed[w] = true
	}
	for w := range c {
		if !allowed[w] {
			t.Errorf("%s: %v, %s is not among what may be said", what, c, w)
		}
	}
}

func beginBusy(t *testing.T, _ *localcluster.Cluster, n *localcluster.Node, _ string) func() {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	ended := make(chan struct{})
	killer := n.Client().Conn() // a connection that is there when the script runs
	if err := killer.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		_ = n.Client().Eval(ctx, "while true do end", nil).Err() // it is killed
	}()
	return func() {
		defer cancel()
		eventually(t, "the script is killed", func() bool { return killer.ScriptKill(ctx).Err() == nil })
		_ = killer.Close()
		<-ended
	}
}

func beginMisconf(t *testing.T, _ *localcluster.Cluster, n *localcluster.Node, _ string) func() {
	t.Helper()
	dir := must(n.Client().ConfigGet(within(t), "dir").Result())(t)["dir"]
	file := must(n.Client().ConfigGet(within(t), "dbfilename").Result())(t)["dbfilename"]
	path := filepath.Join(dir, file)
	_ = os.Remove(path)
	if err := os.Mkdir(path, 0o700); err != nil { // nothing is renamed over a folder
		t.Fatal(err)
	}
	configure(t, n, "save", "3600 1000000")
	save := func(want string) {
		_ = n.Client().BgSave(within(t)).Err() // one may be under way
		eventually(t, "a snapshot ends "+want, func() bool {
			info := n.Client().Info(within(t), "persistence").Val()
			return strings.Contains(info, "rdb_bgsave_in_progress:0") && strings.Contains(info, "rdb_last_bgsave_status:"+want)
		})
	}
	save("err")
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		configure(t, n, "save", "") // before the next one can fail
		save("ok")
	}
}

func beginPause(t *testing.T, _ *localcluster.Cluster, n *localcluster.Node, _ string) func() {
	t.Helper()
	if err := n.Client().Do(within(t), "CLIENT", "PAUSE", 3000, "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	return func() {} // it ends by itself
}

func beginHole(t *testing.T, c *localcluster.Cluster, _ *localcluster.Node, key string) func() {
	t.Helper()
	slot := slotOf(key)
	owner := must(c.PrimaryOf(within(t), slot))(t)
	for _, n := range c.Nodes() {
		if err := n.Client().ClusterDelSlots(within(t), slot).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := owner.Client().ClusterAddSlots(within(t), slot).Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitOK(within(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func beginLoading(t *testing.T, c *localcluster.Cluster, n *localcluster.Node, _ string) func() {
	t.Helper()
	pipe := n.Client().Pipeline()
	for _, key := range keysOn(t, n, "bulk", 15_000) {
		pipe.Set(within(t), namespace+":"+key, "something to load", 0)
	}
	if _, err := pipe.Exec(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := n.Client().BgRewriteAOF(within(t)).Err(); err != nil { // the log of commands becomes a snapshot
		t.Fatal(err)
	}
	eventually(t, "the log is rewritten", func() bool {
		info := n.Client().Info(within(t), "persistence").Val()
		return strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0")
	})
	n.Kill()
	back := make(chan error, 1)
	ctx := within(t)
	go func() { back <- n.Restart(ctx) }()
	return func() {
		if err := <-back; err != nil {
			t.Fatal(err)
		}
		if err := c.WaitOK(within(t)); err != nil {
			t.Fatal(err)
		}
	}
}
