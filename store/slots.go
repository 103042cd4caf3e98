package store

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/slot"
)

// slotWays is the way to the primary of each slot, as far as it was asked for. go-redis' own answer computes the slot anew
// and reads the clock, 80 ns for each key of a batch. A way stays until a command on the slot fails or is redirected:
// whatever moves a slot, Redis says so to the first command that comes to the wrong node.
type slotWays [slot.Count]atomic.Pointer[way]

// wayTo returns the way to the primary of a slot.
func (c *cluster) wayTo(ctx context.Context, number int) (*way, error) {
	if w := c.slots[number].Load(); w != nil && !w.left.Load() {
		return w, nil
	}
	node, err := c.primary(ctx, number)
	if err != nil {
		return nil, err
	}
	w := c.way(node)
	c.slots[number].Store(w)
	return w, nil
}

// doubt makes the next command on a slot ask go-redis where it is.
func (c *cluster) doubt(number int) { c.slots[number].Store(nil) }

// primary is the client of the node that has a slot.
func (c *cluster) primary(ctx context.Context, number int) (*redis.Client, error) {
	return c.client.MasterForKey(ctx, slot.Sample(number))
}
