package middleware

import (
	"slices"
	"sync"
	"time"

	"github.com/slotgate/slotgate/store"
)

// watch takes down what one request sends to Redis. It is there only for a request that is traced or whose caller asks for times; all
// others have none, and store is told that nobody watches.
type watch struct {
	traced
	timed bool

	mu   sync.Mutex // the chunks of a batch end on goroutines of their own
	sent []interval // when timed
}

type interval struct{ start, end time.Time }

// watch makes the request watched, by whichever guard comes first.
func (r *request) watch() *watch {
	if r.event.watch == nil {
		r.event.watch = &watch{}
	}
	return r.event.watch
}

// Sent implements store.Observer.
func (w *watch) Sent(s store.Sent) {
	if w.sampled() {
		w.command(s)
	}
	if w.timed {
		w.mu.Lock()
		w.sent = append(w.sent, interval{s.Start, s.End})
		w.mu.Unlock()
	}
}

// inRedis is how long at least one command was under way.
func (w *watch) inRedis() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.sent, func(a, b interval) int { return a.start.Compare(b.start) })
	var sum time.Duration
	var until time.Time
	for _, s := range w.sent {
		if s.start.Before(until) {
			s.start = until
		}
		if s.end.After(s.start) {
			sum += s.end.Sub(s.start)
			until = s.end
		}
	}
	return sum
}
