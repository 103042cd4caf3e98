package store

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/adaptive"
	"github.com/slotgate/slotgate/store/slot"
)

// ListOptions choose keys and a page.
type ListOptions struct {
	Prefix string // literal beginning of the keys; "" = all of the app's
	Type   string // "" = all; string, hash, list, set, zset or stream
	Limit  int    // keys a page, 1 or more; a page may have fewer, or a few more where one step of Redis' SCAN found them
	Cursor string // "" = from the beginning, or NextCursor of the page before
}

// Page is a part of a listing.
type Page struct {
	Keys []string
	// NextCursor continues; "" is the only sign of the end: a page may be empty before.
	NextCursor string
}

// Bounds of the work for one page: an app with few keys in a large cluster gets empty pages, not a timeout.
const (
	maxScanSteps = 200
	// A step looks at as many keys as the page lacks, but at 10 or more; while it finds nothing, at twice as many each time,
	// up to 500 or the page's limit: that is how far a page may overshoot.
	minStride, maxStride = 10, 500
	scanShare            = 2 // a page takes no more than this part of the remaining deadline
)

// List returns a page of the app's keys, in no order. A key that is there all the time is listed; one that comes or
// goes meanwhile may be, and across pages a key can be listed twice. Errors: cursor_expired when the slots have moved
// since the first page.
func (s *Store) List(ctx context.Context, id *acl.Identity, o ListOptions) (Page, error) {
	if err := rowScan.allow(id); err != nil {
		return Page{}, err
	}
	if err := checkType(o.Type); err != nil {
		return Page{}, err
	}
	c, cerr := s.clusters.get(id.App.Cluster)
	if cerr != nil {
		return Page{}, cerr
	}
	sc, err := s.newScan(ctx, c, id, o)
	if err != nil {
		return Page{}, err
	}
	return sc.page(ctx)
}

var (
	errCursorExpired   = NewError(CodeCursorExpired, "slots have moved between nodes since the listing began: begin it again without a cursor")
	errTopologyChanged = errors.New("store: another primary holds the shard's slots")
)

// scan is the work for one page.
type scan struct {
	store   *Store
	cluster *cluster
	id      *acl.Identity
	o       ListOptions
	shards  []shard
	at      cursor
	stride  int // the least COUNT of a step
	seen    map[string]struct{}
	keys    []string
}

func (s *Store) newScan(ctx context.Context, c *cluster, id *acl.Identity, o ListOptions) (*scan, error) {
	sc := &scan{store: s, cluster: c, id: id, o: o, stride: minStride, seen: map[string]struct{}{}}
	given := cursor{}
	if o.Cursor != "" {
		var err *Error
		if given, err = decodeCursor(o.Cursor, s.cursorKeys(), id, o); err != nil {
			return nil, err
		}
	}
	var t topology
	fail := c.try(ctx, rowScan, s.retries(id, false), func() (_ *way, e error) { t, e = c.topo.read(ctx, c.client); return nil, e })
	if fail != nil {
		return nil, fail
	}
	if o.Cursor != "" && given.epoch != t.epoch {
		return nil, errCursorExpired
	}
	sc.at = cursor{epoch: t.epoch, shard: given.shard, redis: given.redis}
	sc.shards = t.shards
	if id.App.Layout == acl.Together {
		sc.shards = sc.only(slot.Of(id.Prefix))
	}
	return sc, nil
}

// only keeps the shard of one slot: an app of the layout together has all its keys there.
func (sc *scan) only(number int) []shard {
	for _, s := range sc.shards {
		if s.holds(number) {
			return []shard{s}
		}
	}
	return nil
}

// page scans until it has enough, is through, or has worked long enough.
func (sc *scan) page(ctx context.Context) (Page, error) {
	stop := time.Time{}
	if deadline, ok := ctx.Deadline(); ok {
		stop = time.Now().Add(time.Until(deadline) / scanShare)
	}
	for range maxScanSteps {
		if int(sc.at.shard) >= len(sc.shards) {
			return Page{Keys: sc.keys}, nil
		}
		if err := sc.step(ctx); err != nil {
			return Page{}, err
		}
		if len(sc.keys) >= sc.o.Limit || !stop.IsZero() && time.Now().After(stop) {
			break
		}
	}
	if int(sc.at.shard) >= len(sc.shards) {
		return Page{Keys: sc.keys}, nil
	}
	return Page{Keys: sc.keys, NextCursor: sc.at.encode(sc.store.cfg.CursorKey, sc.id, sc.o)}, nil
}

// step is one SCAN on the current shard.
func (sc *scan) step(ctx context.Context) error {
	count := max(sc.o.Limit-len(sc.keys), sc.stride)
	args := []any{"SCAN", sc.at.redis, "MATCH", matchPattern(sc.id, sc.o.Prefix), "COUNT", count}
	if sc.o.Type != "" {
		args = append(args, "TYPE", sc.o.Type)
	}
	var found []string
	var next uint64
	fail := sc.cluster.try(ctx, rowScan, sc.store.retries(sc.id, false), func() (*way, error) {
		node, err := sc.cluster.node(ctx, sc.shards[sc.at.shard])
		if err != nil {
			return nil, err
		}
		w := sc.cluster.way(node)
		place, err := w.admit(ctx, sc.id, classOf(ctx, sc.id), adaptive.WeightOf(count))
		if err != nil {
			return w, err
		}
		defer place.Release(false)
		cmd := redis.NewScanCmd(ctx, node.Process, args...)
		err = node.Process(ctx, cmd)
		found, next = cmd.Val()
		return w, err
	})
	if errors.Is(fail, errTopologyChanged) {
		return errCursorExpired
	}
	if fail != nil {
		return fail
	}
	for _, stored := range found {
		sc.add(stored)
	}
	// Nothing of the app's is near: larger steps until there is.
	if sc.stride = minStride; len(found) == 0 {
		sc.stride = min(2*count, max(sc.o.Limit, maxStride))
	}
	if sc.at.redis = next; next == 0 {
		sc.at.shard++
	}
	return nil
}

// add takes a key of the app once a page; what is not the app's is dropped, whatever Redis matched.
func (sc *scan) add(stored string) {
	key, ok := callerKey(sc.id, stored)
	if !ok || key == "" {
		return
	}
	if _, twice := sc.seen[key]; twice {
		return
	}
	sc.seen[key] = struct{}{}
	sc.keys = append(sc.keys, key)
}

// node is the client of the shard's primary. Another primary at all of the shard's slots means another keyspace order, in
// which the cursor means nothing; at some of them only means that go-redis has not yet heard of a migration.
func (c *cluster) node(ctx context.Context, s shard) (*redis.Client, error) {
	for _, r := range s.slots {
		node, err := c.client.MasterForKey(ctx, slot.Sample(r[0]))
		if err != nil {
			return nil, err
		}
		if sameNode(node.Options().Addr, s.addr) {
			return node, nil
		}
	}
	c.topo.forget()
	c.reload(ctx)
	return nil, errTopologyChanged
}

// sameNode compares the address by which go-redis reaches a node with the one that the cluster names. go-redis replaces a part of what
// is named in two cases: a node that calls itself loopback is reached by the host of its seed, unless that is loopback too; and
// a node that names port 0, having a TLS port only in a cluster without tls-cluster, by the port of its seed.
func sameNode(dialled, named string) bool {
	host, port, err := net.SplitHostPort(named)
	dialledHost, dialledPort, err2 := net.SplitHostPort(dialled)
	if err != nil || err2 != nil {
		return dialled == named
	}
	sameHost := host == dialledHost || isLoopback(host) && !isLoopback(dialledHost)
	return sameHost && (port == dialledPort || port == "0")
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
