package store_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/slotgate/slotgate/store"
)

// fakeNode is a cluster of one node that answers every command of a client with what a test tells it, and counts them.
type fakeNode struct {
	*server.Server
	reply atomic.Pointer[func(c *server.Peer)]
	sent  atomic.Int64 // commands on keys, since the reply was set
}

func newFakeNode(t *testing.T) *fakeNode {
	t.Helper()
	n := &fakeNode{}
	n.answer(func(c *server.Peer) { c.WriteError("ERR nobody has said what to answer") })
	srv, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.Server = srv
	t.Cleanup(srv.Close)
	port := srv.Addr().Port // asked of the server later, it is none: the slots may be asked for while it ends
	srv.SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		switch strings.ToUpper(cmd) {
		case "HELLO":
			c.WriteError("ERR unknown command 'HELLO'")
		case "PING":
			c.WriteInline("PONG")
		case "CLUSTER":
			c.WriteLen(1)
			c.WriteLen(3)
			c.WriteInt(0)
			c.WriteInt(16383)
			c.WriteLen(3)
			c.WriteBulk("127.0.0.1")
			c.WriteInt(port)
			c.WriteBulk("node")
		default:
			n.sent.Add(1)
			(*n.reply.Load())(c)
		}
		return true
	})
	return n
}

func (n *fakeNode) answer(reply func(c *server.Peer)) {
	n.reply.Store(&reply)
	n.sent.Store(0)
}

func saying(text string) func(*server.Peer) { return func(c *server.Peer) { c.WriteError(text) } }

func hangUp(c *server.Peer) { c.Close() }

func silence(*server.Peer) {}

// once, twice and again are how often a command is sent with one repetition allowed; waits means until the deadline.
const (
	once  = 1
	twice = 2
	waits = 3
)

// TestReplies is table 1c of the reliability page, on every path to a node: what each answer makes of a write and of a read, and how
// often they are sent.
func TestReplies(t *testing.T) {
	for _, r := range []struct {
		name    string
		reply   func(*server.Peer)
		code    store.Code
		outcome store.Outcome
		writes  int64
		reads   int64
	}{
		{"a slot that is half moved is waited for", saying("TRYAGAIN Multiple keys request during rehashing of slot"), store.CodeClusterDown, store.NotApplied, waits, waits},
		{"a cluster that is down may come back", saying("CLUSTERDOWN The cluster is down"), store.CodeClusterDown, store.NotApplied, twice, twice},
		{"a slot that nobody serves may be served soon", saying("CLUSTERDOWN Hash slot not served"), store.CodeClusterDown, store.NotApplied, twice, twice},
		{"a node that loads its data comes back", saying("LOADING Redis is loading the dataset in memory"), store.CodeClusterDown, store.NotApplied, twice, twice},
		{"a replica without its primary", saying("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), store.CodeClusterDown, store.NotApplied, twice, twice},
		{"a primary that has become a replica", saying("READONLY You can't write against a read only replica."), store.CodeClusterDown, store.NotApplied, twice, twice},
		{"one that finds out in a script, at its first write", saying("READONLY You can't write against a read only replica. script: 1f, on @user_script:3."), store.CodeClusterDown, store.NotApplied, twice, twice},
		{"too few replicas", saying("NOREPLICAS Not enough good replicas to write."), store.CodeClusterDown, store.NotApplied, twice, twice},
		{"too many clients", saying("ERR max number of clients reached"), store.CodeBackendSaturated, store.NotApplied, twice, twice},
		{"memory that is full stays full", saying("OOM command not allowed when used memory > 'maxmemory'."), store.CodeOutOfMemory, store.NotApplied, once, once},
		{"a script of somebody else may run for long", saying("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."), store.CodeClusterDown, store.NotApplied, once, once},
		{"a disk that is full stays full", saying("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."), store.CodeClusterDown, store.NotApplied, once, once},
		{"a transaction that was refused", saying("EXECABORT Transaction discarded because of previous errors."), store.CodeBackendError, store.NotApplied, once, once},
		{"a permission that the gateway lacks", saying("NOPERM this user has no permissions to run the 'set' command"), store.CodeInternal, store.NotApplied, once, once},
		{"a password that is asked for", saying("NOAUTH Authentication required."), store.CodeInternal, store.NotApplied, once, once},
		{"a password that is wrong", saying("WRONGPASS invalid username-password pair or user is disabled."), store.CodeInternal, store.NotApplied, once, once},
		{"a command that is not known", saying("ERR unknown command 'X', with args beginning with: 'k' "), store.CodeUnsupportedByCluster, store.NotApplied, once, once},
		{"an error that is not known", saying("ERR user_script:7: attempt to index a nil value"), store.CodeBackendError, store.Unknown, once, once},
		{"a connection that breaks", hangUp, store.CodeBackendTimeout, store.Unknown, once, twice},
		{"no answer", silence, store.CodeBackendTimeout, store.Unknown, once, once},
	} {
		t.Run(r.name, func(t *testing.T) {
			for _, off := range []bool{false, true} {
				for name, write := range map[string]bool{"a read": false, "a write": true, "a script": true, "a large value": true, "mget": false, "mset": true} {
					n := newFakeNode(t) // of its own: what still arrives of the case before is not counted here
					all := paths(fakeStore(t, n, off), newApp(t))
					n.answer(r.reply)
					limit := 5 * time.Second
					if r.writes == waits || r.code == store.CodeBackendTimeout && r.reads == once { // those that end by the deadline
						limit = 300 * time.Millisecond
					}
					err := within(t, limit, func(ctx context.Context) error { return all[name](ctx, "k") })
					sent, times := n.sent.Load(), r.reads
					if write {
						times = r.writes
					}
					if items := int64(2); strings.HasPrefix(name, "m") && sent > 0 {
						sent = (sent + items - 1) / items
					}
					if sent > waits {
						sent = waits
					}
					var e *store.Error
					if !errors.As(err, &e) {
						t.Fatalf("%s: %v", name, err)
					}
					want := r.code
					if name == "mset" {
						want = e.Code // that of the batch; its items have outcomes only
					}
					outcome := store.NoOutcome
					if write {
						outcome = r.outcome
					}
					if e.Code != want || e.Outcome != outcome || sent != times {
						t.Errorf("%s, coalesce off %v: %s, outcome %q, sent %d times; want %s, %q, %d", name, off, e.Code, e.Outcome, sent, want, outcome, times)
					}
				}
			}
		})
	}
}

// fakeStore is a Store on a fake node, which repeats once.
func fakeStore(t *testing.T, n *fakeNode, off bool) *store.Store {
	t.Helper()
	return openStore(t, store.Config{
		Clusters:  map[string]store.ClusterConfig{"default": {Addrs: []string{n.Addr().String()}}},
		Retries:   store.Retries{Read: 1, Write: 1},
		Coalesce:  store.CoalesceConfig{Off: off},
		CursorKey: []byte(strings.Repeat("k", 32)),
	})
}
