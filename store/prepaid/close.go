package prepaid

import (
	"context"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/acl/alive"
)

// parallel settlements are under way at once when a pool closes.
const parallel = 16

// settleAll ends all allowances: what is held goes back, what is owed is paid.
func (p *Pool) settleAll(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, a := range p.all(nil) {
		held, owed := a.end()
		if held == 0 && owed == 0 {
			continue
		}
		group.Go(func() error {
			alive.Once(p.cfg.Log, "giving back to a limit", func() {
				l := &a.terms.Load().Limit
				if held > 0 {
					_ = p.cfg.Redis.Refund(ctx, l, held)
				}
				if owed > 0 {
					_, _ = p.cfg.Redis.Take(ctx, l, owed, 1)
				}
			})
			return nil
		})
	}
	_ = group.Wait()
}

// end closes an allowance and says what it holds or owes.
func (a *Allowance) end() (held, owed int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire(a.pool.Now())
	a.forgive(a.terms.Load(), a.pool.Now())
	p := a.position.Swap(0)
	a.unpaid, a.overdue = 0, 0
	held = a.dead + max(p, 0)
	a.dead = 0
	a.fail(a.pool.Now())
	a.askAt = math.MaxInt64
	return held, max(-p, 0)
}
