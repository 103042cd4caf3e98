// Package purge deletes everything a deleted app has in its cluster: its keys, and the gateway's own keys about it.
//
// It promises to delete nothing else (every key is looked at in Go before it is named in an UNLINK, whatever the
// pattern matched), to end only after a whole pass over every primary found nothing more, and to be safe to stop at
// any moment: a purge that runs again goes on with what is left. It refuses apps that are not tombstones, since
// nothing would keep a live app's keys from coming back.
package purge

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
)

// ErrNotDeleted is returned for an app that is still in use.
var ErrNotDeleted = errors.New("purge: the app is not deleted")

// Progress is how far a purge is. Counts are of all passes together.
type Progress struct {
	Pass      int   // from 1; the last one deletes nothing
	Primaries int   // of this pass
	Done      int   // primaries this pass has finished
	Seen      int64 // keys of the app found
	Deleted   int64 // of these, deleted by this purge; others expired or went by themselves
}

const (
	// scanCount is the work of one SCAN step: well under a millisecond, so that others get in between.
	scanCount = 1000
	// batch is how many UNLINKs travel together, for the same reason.
	batch = 500
	// maxPasses bounds a purge in a cluster that never stops moving slots.
	maxPasses = 10
)

// Run deletes what app left in its cluster. report, which may be nil, is called often, never concurrently. The Progress
// returned is valid with an error too.
func Run(ctx context.Context, client *redis.ClusterClient, app *acl.App, report func(Progress)) (Progress, error) {
	if app.State != acl.Deleted {
		return Progress{}, ErrNotDeleted
	}
	p := &purge{client: client, mine: ownership{app.Prefix(), app.Namespace}, report: report}
	for {
		before := p.progress.Seen
		if err := p.pass(ctx); err != nil {
			return p.progress, err
		}
		// A key can be missed while its slot moves between nodes, and requests that were under way when the app was
		// deleted may have written behind the scan: only a pass without a find is the end.
		if p.progress.Seen == before {
			return p.progress, nil
		}
		if p.progress.Pass == maxPasses {
			return p.progress, fmt.Errorf("purge: %d passes each found more keys; is the cluster resharding?", maxPasses)
		}
	}
}

type purge struct {
	client *redis.ClusterClient
	mine   ownership
	report func(Progress)

	mu       sync.Mutex
	progress Progress
}

// pass looks at every primary once, all at the same time.
func (p *purge) pass(ctx context.Context) error {
	p.update(func(s *Progress) { s.Pass++; s.Primaries, s.Done = 0, 0 })
	err := p.client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		p.update(func(s *Progress) { s.Primaries++ })
		for _, pattern := range p.mine.patterns() {
			if err := p.scan(ctx, node, pattern); err != nil {
				return fmt.Errorf("purge: at %s: %w", node.Options().Addr, err)
			}
		}
		p.update(func(s *Progress) { s.Done++ })
		return nil
	})
	if err == nil && p.progress.Primaries == 0 {
		return errors.New("purge: the cluster names no primary")
	}
	return err
}

func (p *purge) scan(ctx context.Context, node *redis.Client, pattern string) error {
	var cursor uint64
	for {
		var keys []string
		err := again(ctx, func() (err error) {
			keys, cursor, err = node.Scan(ctx, cursor, pattern, scanCount).Result()
			return err
		})
		if err != nil {
			return err
		}
		for rest := keys; len(rest) > 0; {
			n := min(len(rest), batch)
			if err := p.unlink(ctx, rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		if cursor == 0 {
			return nil
		}
	}
}

// unlink deletes those of keys that are the app's. They go through the cluster's client, which finds a key whose slot
// has moved since the scan.
func (p *purge) unlink(ctx context.Context, keys []string) error {
	var seen, deleted int64
	err := again(ctx, func() error {
		seen = 0
		cmds, err := p.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range keys {
				if p.mine.owns(key) {
					seen++
					pipe.Unlink(ctx, key)
				}
			}
			return nil
		})
		for _, cmd := range cmds {
			deleted += cmd.(*redis.IntCmd).Val()
		}
		return err
	})
	p.update(func(s *Progress) { s.Seen += seen; s.Deleted += deleted })
	return err
}

func (p *purge) update(change func(*Progress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.progress)
	if p.report != nil {
		p.report(p.progress)
	}
}
