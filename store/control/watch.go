package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl/alive"
)

const (
	// pingEvery is how long a silent subscription is believed; after as long again without an answer it is made anew.
	pingEvery = 3 * time.Second
	rejoin    = 250 * time.Millisecond
	// touchBatch keeps one script short; the node serves others between two.
	touchBatch = 500
)

// Watch listens for changes and looks at the version each PollInterval. Messages make a change known at once, the polls that no lost
// message matters for longer.
func (r *Redis) Watch(ctx context.Context, changed func()) error {
	heard := make(chan bool, 1) // true for a message, false for a subscription that may have missed some
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		alive.Loop(ctx, r.log, "listening to the control store", func(ctx context.Context) { r.listen(ctx, heard) })
	})
	defer wg.Wait()
	defer cancel()
	tick := time.NewTicker(r.poll)
	defer tick.Stop()
	seen := ""
	first := true
	for {
		message := false
		if !first {
			select {
			case <-ctx.Done():
				return nil
			case message = <-heard:
			case <-tick.C:
			}
		}
		version, err := r.version(ctx)
		if message || first || (err == nil && version != seen) {
			changed()
		}
		if err == nil {
			seen = version
		}
		first = false
	}
}

// version asks for the version, "" when there is none. After a transport error the topology is loaded again, which go-redis does on
// redirects only: the node may be dead and its slots elsewhere.
func (r *Redis) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.poll, time.Second))
	defer cancel()
	version, err := r.client.Get(ctx, versionKey).Result()
	if errors.Is(err, redis.Nil) {
		version, err = "", nil
	}
	if !errors.Is(err, context.Canceled) {
		r.Note(time.Now(), err)
	}
	if cluster, ok := r.client.(interface{ ReloadState(context.Context) }); ok && transport(err) {
		cluster.ReloadState(ctx)
	}
	return version, err
}

func transport(err error) bool {
	var reply redis.Error
	return err != nil && !errors.As(err, &reply) && !errors.Is(err, context.Canceled)
}

// listen keeps a subscription until ctx ends.
func (r *Redis) listen(ctx context.Context, heard chan bool) {
	for ctx.Err() == nil {
		r.listenOnce(ctx, heard)
		wait(ctx, rejoin)
	}
}

// listenOnce returns when the subscription is broken or silent, and another must be made, perhaps with another node. It does not use
// PubSub.Channel, whose goroutines know nothing of ctx.
func (r *Redis) listenOnce(ctx context.Context, heard chan bool) {
	sub := r.client.Subscribe(ctx, changesChannel)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { // a read ends early only by closing what it reads from
		<-ctx.Done()
		alive.Once(r.log, "ending a subscription", func() { sub.Close() })
	})
	defer wg.Wait()
	defer cancel()
	asked := false
	for {
		message, err := sub.ReceiveTimeout(ctx, pingEvery)
		switch {
		case err == nil:
			asked = false
			tell(heard, message)
		case isTimeout(err) && !asked:
			asked = true
			if sub.Ping(ctx) != nil {
				return
			}
		default:
			return
		}
	}
}

// tell passes on that something was heard. A message replaces a subscription that was not looked at yet, never the other way round.
func tell(heard chan bool, message any) {
	var is bool
	switch message.(type) {
	case *redis.Message:
		is = true
	case *redis.Subscription:
	default:
		return
	}
	select {
	case heard <- is:
	default:
		if is {
			select {
			case <-heard:
			default:
			}
			select {
			case heard <- true:
			default:
			}
		}
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// touchScript never goes back in time, and leaves no trace of keys that do not exist.
var touchScript = redis.NewScript(`
for i = 1, #ARGV, 2 do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 and tonumber(redis.call('HGET', KEYS[2], ARGV[i]) or '0') < tonumber(ARGV[i + 1]) then
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
  end
end
return ''
`)

// Touch records the last use of keys. Sent twice it does the same, so go-redis may repeat it.
func (r *Redis) Touch(ctx context.Context, used map[string]time.Time) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(used)), touchBatch) {
		args := make([]any, 0, 2*len(ids))
		for _, id := range ids {
			args = append(args, id, used[id].Unix())
		}
		if err := touchScript.Run(ctx, r.client, []string{keysKey, usedKey}, args...).Err(); err != nil {
			return fmt.Errorf("recording the use of keys in Redis: %w", err)
		}
	}
	return nil
}
