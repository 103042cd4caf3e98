package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// replies lets a test look at what nodes answer. The function gets the node's address and the bytes, and its error
// breaks the connection, so that they are lost.
type replies struct {
	seen atomic.Pointer[func(addr string, answer []byte) error]
}

func (r *replies) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &watched{Conn: c, replies: r, addr: addr}, nil
}

type watched struct {
	net.Conn
	replies *replies
	addr    string
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if f := w.replies.seen.Load(); f != nil && err == nil {
		if fault := (*f)(w.addr, p[:n]); fault != nil {
			_ = w.Conn.Close()
			return 0, fault
		}
	}
	return n, err
}

// staleStore makes a Store that has not heard that the slot of key has moved. Another slot of from, the old owner,
// holds the key stays.
func staleStore(t *testing.T, id *acl.Identity, key string) (s *store.Store, r *replies, from, to *localcluster.Node, stays string) {
	t.Helper()
	c, ctx := clustertest.Shared(t), testContext(t)
	r = &replies{}
	s = newStore(t, c, func(cfg *store.Config) {
		cfg.Clusters["default"] = store.ClusterConfig{Addrs: c.Addrs(), Dialer: r.Dial}
		cfg.Redis.TopologyReload = time.Hour
	})
	n := slotOf(id, key)
	from = must[*localcluster.Node](t)(c.PrimaryOf(ctx, n))
	for _, p := range must[[]*localcluster.Node](t)(c.Primaries(ctx)) {
		if p != from {
			to = p
		}
	}
	must[[]store.GetItem](t)(s.MGet(ctx, id, []string{key}, store.Reading{}))
	stays = keyAt(t, c, id, from)
	if err := c.MigrateSlot(ctx, n, from, to); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.MigrateSlot(context.WithoutCancel(ctx), n, to, from); err != nil {
			t.Error(err)
		}
	})
	return s, r, from, to, stays
}

var setCalls = regexp.MustCompile(`cmdstat_set:calls=(\d+)`)

// sets is how many SETs a node has executed.
func sets(t *testing.T, n *localcluster.Node) (count int) {
	t.Helper()
	info := must[string](t)(n.Client().Info(testContext(t), "commandstats").Result())
	if m := setCalls.FindStringSubmatch(info); m != nil {
		_, _ = fmt.Sscan(m[1], &count)
	}
	return count
}

func TestABatchIsSentOnceToTheNodeItIsRedirectedTo(t *testing.T) {
	id := newApp(t)
	var items []store.SetItem
	for i := range 50 {
		items = append(items, store.SetItem{Key: fmt.Sprint("{moved}", i), Data: []byte("v")})
	}
	s, r, _, to, _ := staleStore(t, id, "{moved}")
	var lost atomic.Bool
	lose := func(addr string, answer []byte) error {
		if addr == to.Addr && bytes.HasPrefix(answer, []byte("+OK")) && lost.CompareAndSwap(false, true) {
			return io.EOF
		}
		return nil
	}
	r.seen.Store(&lose)
	before := sets(t, to)
	_, err := s.MSet(testContext(t), id, items)
	if !lost.Load() {
		t.Fatal("no reply was lost: the test tests nothing")
	}
	unknown := 0
	var e *store.Error
	if errors.As(err, &e) {
		for _, it := range e.Items {
			if it.Outcome == store.Unknown {
				unknown++
			}
		}
	}
	// What is known to be lost is not sent again; everything else is executed once.
	if n := sets(t, to) - before; n > len(items) || unknown == 0 {
		t.Errorf("%d SETs for %d items, %d of them of unknown outcome: %v", n, len(items), unknown, err)
	}
}

func TestWhatWasAnsweredBeforeTheEndIsApplied(t *testing.T) {
	id := newApp(t)
	s, r, from, _, stays := staleStore(t, id, "{moved}")
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	end := func(addr string, answer []byte) error {
		if addr == from.Addr && bytes.HasPrefix(answer, []byte("+OK")) { // not the PONG of a new connection
			cancel()
		}
		return nil
	}
	r.seen.Store(&end)
	_, err := s.MSet(ctx, id, []store.SetItem{{Key: stays, Data: []byte("new")}, {Key: "{moved}", Data: []byte("new")}})
	e := wantCode(t, err, store.CodeBatchIncomplete)
	if e.Items[0].Outcome != store.Applied {
		t.Errorf("the item that was answered is %s", e.Items[0].Outcome)
	}
	r.seen.Store(nil)
	for _, it := range e.Items {
		_, err := s.Get(testContext(t), id, it.Key, store.GetOptions{})
		if (err == nil) != (it.Outcome == store.Applied) {
			t.Errorf("%s is %s: %v", it.Key, it.Outcome, err)
		}
	}
}
