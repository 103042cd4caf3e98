package prepaid

import (
	"context"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// NewRedis keeps limits in the clusters of a store.
func NewRedis(s *store.Store) Place { return clusters{s, ratelimit.New(runner{s})} }

// runner runs the script of rate limits for the gateway itself: of the identity it needs the cluster alone.
type runner struct{ store *store.Store }

func (r runner) RecordTTL() time.Duration { return r.store.RecordTTL() }

func (r runner) RunLimit(ctx context.Context, id *acl.Identity, _ acl.Access, sc *store.Script, keys []string, argv []any) ([]any, error) {
	return r.store.RunShared(ctx, id.App.Cluster, sc, keys, argv)
}

type clusters struct {
	store   *store.Store
	limiter *ratelimit.Limiter
}

// asker is who asks: no app.
func asker(cluster string) *acl.Identity { return &acl.Identity{App: &acl.App{Cluster: cluster}} }

func (c clusters) Take(ctx context.Context, l *Limit, cost, least int64) (ratelimit.Grant, error) {
	return c.limiter.TakeAt(ctx, asker(l.Cluster), l.Key, l.Rule, cost, least)
}

func (c clusters) Refund(ctx context.Context, l *Limit, n int64) error {
	return c.limiter.RefundAt(ctx, asker(l.Cluster), l.Key, l.Rule, n)
}
