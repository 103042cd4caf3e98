//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/control"
	"github.com/slotgate/slotgate/store/localcluster"
)

const (
	benchSecret = "bench-secret-bench-secret-bench-secret"
	maxApps     = 10_000
)

// tenancy is a control store with its apps, and a token of each. Gateways of one tenancy serve the same data.
type tenancy struct {
	addrs  []string // of the cluster that keeps apps and keys
	tokens []string
}

// tenancyOf makes the apps once. Each number of apps has a control cluster of its own, a small one: a gateway loads all apps it finds.
func (s *stage) tenancyOf(ctx context.Context, apps int) (*tenancy, error) {
	if t := s.tenancies[apps]; t != nil {
		return t, nil
	}
	t, err := s.newTenancy(ctx, apps, func(i int) acl.App { return benchApp(apps, i) })
	if err != nil {
		return nil, err
	}
	s.tenancies[apps] = t
	return t, nil
}

func (s *stage) newTenancy(ctx context.Context, apps int, app func(i int) acl.App) (*tenancy, error) {
	c, err := localcluster.Start(ctx, localcluster.Options{Primaries: 1, NodeTimeout: nodeTimeout})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = c.Close() })
	t := &tenancy{addrs: c.Addrs(), tokens: make([]string, apps)}
	if err := t.create(ctx, app); err != nil {
		return nil, fmt.Errorf("creating %d apps: %w", apps, err)
	}
	return t, nil
}

// create writes apps and keys as the command line would, several at once.
func (t *tenancy) create(ctx context.Context, appOf func(i int) acl.App) error {
	secret, err := acl.NewSecret([]byte(benchSecret))
	if err != nil {
		return err
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: t.addrs})
	defer client.Close()
	storage := control.New(control.Config{Client: client, Log: slog.New(slog.DiscardHandler)})
	now := time.Now().UTC().Truncate(time.Second)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range t.tokens {
		g.Go(func() error {
			app := appOf(i)
			app.CreatedAt = now
			token, key, err := acl.NewKey(secret, app.ID, now, nil, nil)
			if err != nil {
				return err
			}
			t.tokens[i] = token
			if err := storage.Apply(ctx, acl.Change{Op: acl.OpCreateApp, App: &app, At: now}); err != nil {
				return err
			}
			return storage.Apply(ctx, acl.Change{Op: acl.OpCreateKey, Key: key, At: now})
		})
	}
	return g.Wait()
}

// benchApp has what an app in earnest has: named permissions (an app that may do everything is never compressed for), and a limit,
// too high to refuse anything.
func benchApp(apps, i int) acl.App {
	id := fmt.Sprintf("bench-%d-%d", apps, i)
	return acl.App{
		ID: id, Namespace: id, Permissions: []string{"strings:*", "keys:*"},
		Limits: []acl.Limit{{ID: "bench", Per: "app", Of: "requests", Limit: 100_000_000, PeriodMS: 1000, Burst: 100_000_000}},
	}.WithDefaults()
}
