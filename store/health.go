package store

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// CircuitConfig says when commands to a node that does not answer are refused at once, and how it is asked whether it is back.
// Zero fields mean the defaults beside them.
type CircuitConfig struct {
	// OpenAfter is for how long a node must have failed without one answer; 0 = 500 ms, negative = never.
	OpenAfter time.Duration
	// Probe is the longest pause between two questions to a node that does not answer; 0 = 400 ms.
	Probe time.Duration
	// Dials is the most connections to one node that are being made at once; 0 = 10.
	Dials int
}

// The states of a node.
const (
	sound    int32 = iota
	doubtful       // a connection to it failed, or it is silent; it is being asked, and commands go on
	open           // it has not answered for CircuitConfig.OpenAfter: commands are refused until it does
)

// leastProbePause keeps the questions to one node at five a second.
const leastProbePause = 200 * time.Millisecond

// errCircuitOpen is the error of commands that were not sent because their node is known not to answer.
var errCircuitOpen = errors.New("store: the node does not answer; it is asked until it does")

// health is what is known of the node behind an address: its circuit and its gate for dials. Faults and silence of commands only
// make a node doubtful; what opens its circuit is that it does not answer a question of our own either, on a new connection, so
// that neither the resets of a bad network nor one slow script among answers cuts it off. A request never is the question: while
// the circuit is open all are refused at once. An answer to a command closes it as well.
//
// sony/gobreaker and failsafe-go were weighed: they take a lock and the clock for every call, count failures (one broken
// connection of a pipe is 256), and let a user's request find out whether the node is back. This is two atomic additions and two
// loads for each pipeline.
type health struct {
	addr  string
	state atomic.Int32
	_     [64]byte // every command reads what is above, and every pipeline writes what is below
	// traffic is the commands and pipelines under way, and above 32 bits those that have ended.
	traffic atomic.Uint64

	mu       sync.Mutex
	label    string    // in metrics
	since    time.Time // doubtful: the first sign, since which there was no answer
	probing  bool
	silent   bool          // the latest question was not answered
	next     time.Time     // when the next may be asked
	pause    time.Duration // from the next to the one behind it
	opens    uint64        // how often the circuit has opened
	seen     uint64        // traffic when it was looked at last
	seenAt   time.Time     // when what has ended changed last
	dialErr  error         // why no connection can be made: nobody but the probe dials until that changes
	verdict  chan struct{} // closed at the end of each probe
	dialling chan struct{} // places of those who dial
	alone    chan struct{} // the one place while the node is doubtful
}

func newHealth(addr, label string, dials int) *health {
	return &health{
		addr: addr, label: label, verdict: make(chan struct{}),
		dialling: make(chan struct{}, max(dials, 1)), alone: make(chan struct{}, 1),
	}
}

func (h *health) refuses() bool { return h.state.Load() == open }

const endedOne = 1 << 32

func (h *health) begin() { h.traffic.Add(1) }

// end notes what became of commands that were begun.
func (h *health) end(err error) {
	h.traffic.Add(endedOne - 1)
	switch {
	case err == nil || err == redis.Nil || !isTransport(err): //nolint:errorlint // the bare sentinel is the common case
		if h.state.Load() != sound && answered(err) {
			h.recover()
		}
	default:
		h.suspect(time.Now())
	}
}

// answered says whether err, which is no fault of a connection, is something that the node has said.
func answered(err error) bool {
	var reply redis.Error
	return err == nil || errors.As(err, &reply) && !errors.Is(err, errCircuitOpen)
}

// isTransport says whether err is about a connection to the node, not about what was said on it, and not about our own pool.
func isTransport(err error) bool {
	var op *net.OpError
	var dial *dialError
	switch {
	case err == context.DeadlineExceeded, err == context.Canceled: //nolint:errorlint // the bare ones mean "not sent"
		return false
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return false
	}
	return errors.As(err, &op) || errors.As(err, &dial) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isTimeout(err)
}

// recover notes an answer.
func (h *health) recover() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state.Store(sound)
	h.silent, h.pause = false, 0
}

// suspect notes a sign, at a time, that the node might be dead.
func (h *health) suspect(at time.Time) {
	if h.state.Load() != sound {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state.Load() == sound {
		h.since, h.silent = at, false
		h.state.Store(doubtful)
	}
}

// watch looks at the node and opens its circuit. probe says that the node is to be asked now; probed must follow. It is for one
// goroutine, which calls it every few milliseconds.
func (h *health) watch(now time.Time, cfg CircuitConfig) (probe, opened bool) {
	// Half the time without an answer to anything is a sign of its own: the first time-outs come later.
	if n := h.traffic.Load(); n>>32 != h.seen>>32 || uint32(n) == 0 || h.seenAt.IsZero() {
		h.seen, h.seenAt = n, now
	} else if cfg.OpenAfter > 0 && now.Sub(h.seenAt) >= cfg.OpenAfter/2 {
		h.suspect(h.seenAt)
	}
	if h.state.Load() == sound {
		return false, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state.Load() == doubtful && h.silent && cfg.OpenAfter > 0 && now.Sub(h.since) >= cfg.OpenAfter {
		h.state.Store(open)
		h.opens++
		opened = true
	}
	if h.probing || now.Before(h.next) {
		return false, opened
	}
	h.probing = true
	return true, opened
}

// probed notes how the node has answered the question. closed says that its circuit was open.
func (h *health) probed(now time.Time, err error, cfg CircuitConfig) (closed bool) {
	answers := err == nil || errors.Is(err, errFull)
	if answers {
		closed = h.refuses()
		h.recover()
	}
	h.dialled(err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing, h.silent = false, !answers
	h.pause = min(max(2*h.pause, leastProbePause), max(cfg.Probe, leastProbePause))
	h.next = now.Add(h.pause)
	close(h.verdict)
	h.verdict = make(chan struct{})
	return closed
}

// name gives the node its label.
func (h *health) name(label string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.label = label
}

// circuit is what metrics tell of the node.
func (h *health) circuit() (label string, isOpen bool, opens uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.label, h.state.Load() == open, h.opens
}
