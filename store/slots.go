package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/slot"
)

// slotWays is the way to the primary of each slot, as far as it was asked for. go-redis' own answer computes the slot anew
// and reads the clock, 80 ns for each key of a batch. A way stays until a command on the slot fails or is redirected, or
// until all are doubted: with every reload of the topology, because a node that is dead or hangs has no answer for any of its
// slots, and by time, because go-redis looks at the age of its slot map only when it is asked.
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

// doubtAll is doubt of every slot.
func (c *cluster) doubtAll() {
	for i := range c.slots {
		if c.slots[i].Load() != nil { // a load costs a twentieth of a store, and few callers use all slots
			c.slots[i].Store(nil)
		}
	}
}

// doubtShare of the reload interval is how long ways are believed: what they add to the age of go-redis' map. If all slots
// are in use, it is 0.1 ms and 16,384 questions to go-redis: three thousandths of a core at the default of 5 s.
const doubtShare = 5

// doubtInTime doubts all slots when their ways were believed long enough.
func (c *cluster) doubtInTime(now time.Time) {
	last := c.lastDoubt.Load()
	if due(now.UnixNano(), last, c.cfg.Redis.TopologyReload/doubtShare) && c.lastDoubt.CompareAndSwap(last, now.UnixNano()) {
		c.doubtAll()
	}
}

// errNoSlotMap is a node that says nothing when it is asked for the slot map.
var errNoSlotMap = errors.New("redis: cluster has no nodes in its slot map")

// primary is the client of the node that has a slot.
func (c *cluster) primary(ctx context.Context, number int) (*redis.Client, error) {
	node, err := c.client.MasterForKey(ctx, slot.Sample(number))
	if err != nil && errors.Is(err, redis.Nil) {
		return nil, errNoSlotMap // of a key it would mean that there is none
	}
	return node, err
}
