package purge

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	tries      = 6                      // with the pauses between them 3 s, longer than a usual failover
	firstPause = 100 * time.Millisecond // doubled after each try
)

// again repeats do while Redis may yet answer. SCAN and UNLINK do no harm when they run twice.
func again(ctx context.Context, do func() error) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := do()
		if err == nil || try == tries || ctx.Err() != nil || isFinal(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		pause *= 2
	}
}

// isFinal tells errors that the next try meets again.
func isFinal(err error) bool {
	return errors.Is(err, redis.ErrClosed) || redis.IsPermissionError(err) || redis.IsAuthError(err)
}
