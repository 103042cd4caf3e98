package store

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patient is a node's health under a clock of the test.
type patient struct {
	*health
	cfg CircuitConfig
	now time.Time
}

func newPatient() *patient {
	cfg := Config{}.withDefaults().Circuit
	return &patient{health: newHealth("node:1", "node:1", cfg.Dials), cfg: cfg, now: time.Now()}
}

// pass lets time pass, as the sweeper sees it, each question being answered with reply, and returns how many there were.
func (p *patient) pass(d time.Duration, reply error) (asked int) {
	for end := p.now.Add(d); p.now.Before(end); p.now = p.now.Add(sweepInterval) {
		if probe, _ := p.watch(p.now, p.cfg); probe {
			asked++
			p.probed(p.now, reply, p.cfg)
		}
	}
	return asked
}

func (p *patient) command(err error) {
	p.begin()
	p.end(err)
}

var errDead = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func TestCircuit(t *testing.T) {
	for _, c := range []struct {
		name  string
		story func(p *patient)
		state int32
	}{
		{"a node nobody speaks to is sound", func(p *patient) { p.pass(time.Minute, errDead) }, sound},
		{"one that refuses connections is cut off within a second", func(p *patient) {
			p.command(errDead)
			p.pass(time.Second, errDead)
		}, open},
		{"one broken connection makes it doubtful", func(p *patient) { p.command(io.EOF) }, doubtful},
		{"until it answers a question", func(p *patient) { p.command(io.EOF); p.pass(2*sweepInterval, nil) }, sound},
		{"or a command", func(p *patient) { p.command(io.EOF); p.command(nil) }, sound},
		{"even that there is no such key", func(p *patient) { p.command(io.EOF); p.command(redis.Nil) }, sound},
		{"or that it is loading", func(p *patient) { p.command(io.EOF); p.command(replyError("LOADING")) }, sound},
		{"256 callers of one broken connection do not cut it off", func(p *patient) {
			for range 256 {
				p.command(io.EOF)
			}
			p.pass(time.Second, nil)
		}, sound},
		{"a network that breaks every second connection does not either", func(p *patient) {
			for range 100 {
				p.command(io.EOF)
				p.pass(20*time.Millisecond, errDead)
				p.command(nil)
			}
		}, sound},
		{"one that is silent to commands and to questions is cut off within a second, before any command is late", func(p *patient) {
			p.pass(time.Second, nil)
			p.begin()
			p.pass(700*time.Millisecond, errDead)
		}, open},
		{"one that is silent for 200 ms, on a large value, is not even asked", func(p *patient) {
			p.pass(time.Second, nil)
			p.begin()
			if p.pass(200*time.Millisecond, errDead) > 0 {
				p.state.Store(-1)
			}
		}, sound},
		{"one that is silent to one command and answers questions stays", func(p *patient) {
			p.pass(time.Second, nil)
			p.begin()
			p.pass(10*time.Second, nil)
			p.state.CompareAndSwap(doubtful, sound)
		}, sound},
		{"a full pool says nothing of the node", func(p *patient) { p.command(redis.ErrPoolTimeout) }, sound},
		{"nor does a command that was not sent", func(p *patient) { p.command(context.DeadlineExceeded) }, sound},
		{"an open circuit closes when the node answers a question", func(p *patient) {
			p.command(errDead)
			p.pass(time.Hour, errDead)
			p.pass(time.Second, nil)
		}, sound},
		{"and when it answers a command that was under way", func(p *patient) {
			p.begin()
			p.command(errDead)
			p.pass(time.Second, errDead)
			p.end(nil)
		}, sound},
		{"what was refused is no answer", func(p *patient) {
			p.command(errDead)
			p.pass(time.Second, errDead)
			p.command(errCircuitOpen)
		}, open},
		{"one that is full answers on the connections that there are", func(p *patient) {
			p.command(&dialError{errFull})
			p.pass(time.Minute, errFull)
		}, doubtful},
		{"it never opens when it is told not to", func(p *patient) {
			p.cfg.OpenAfter = -1
			p.command(errDead)
			p.pass(time.Minute, errDead)
		}, doubtful},
	} {
		p := newPatient()
		c.story(p)
		if got := p.state.Load(); got != c.state {
			t.Errorf("%s: the state is %d, want %d", c.name, got, c.state)
		}
	}
}

func TestADeadNodeIsAskedAtMostFiveTimesASecondAndAtLeastTwice(t *testing.T) {
	p := newPatient()
	p.command(errDead)
	if n := p.pass(time.Second, errDead); n > 5 {
		t.Errorf("%d questions in the first second", n)
	}
	if n := p.pass(time.Minute, errDead); n < 120 || n > 300 {
		t.Errorf("%d questions in a minute", n)
	}
}

// After a failed dial all others are refused without a dial, until a probe gets through; then few dial at once.
func TestDialsAreGated(t *testing.T) {
	h := newHealth("node:1", "node:1", 2)
	dials := 0
	var result error = errDead
	raw := func(context.Context, string, string) (net.Conn, error) {
		dials++
		a, b := net.Pipe()
		_ = b.Close()
		return a, result
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := h.dial(ctx, raw, "tcp", "node:1", time.Second); !errors.Is(err, syscall.ECONNREFUSED) || dials != 1 {
		t.Fatalf("%d dials, %v", dials, err)
	}
	cancel()
	for range 100 {
		if _, err := h.dial(ctx, raw, "tcp", "node:1", time.Second); !errors.Is(err, syscall.ECONNREFUSED) || dials != 1 {
			t.Fatalf("%d dials, %v", dials, err)
		}
	}
	h.state.Store(open)
	if _, err := h.dial(t.Context(), raw, "tcp", "node:1", time.Second); !errors.Is(err, syscall.ECONNREFUSED) || dials != 1 {
		t.Fatalf("an open circuit: %d dials, %v", dials, err)
	}
	h.recover()
	waits := make(chan error)
	go func() {
		conn, err := h.dial(t.Context(), raw, "tcp", "node:1", time.Second)
		if err == nil {
			_ = conn.Close()
		}
		waits <- err
	}()
	for h.state.Load() == sound { // it asks for a probe
		runtime.Gosched()
	}
	result = nil
	h.probed(time.Now(), nil, Config{}.withDefaults().Circuit)
	if err := <-waits; err != nil {
		t.Errorf("who has waited for the probe: %v", err)
	}
	if dials != 2 {
		t.Errorf("%d dials", dials)
	}
}

// untimed is a context with a deadline and no timer, as a shared pipe gives it.
type untimed struct {
	context.Context
	at time.Time
}

func (c untimed) Deadline() (time.Time, bool) { return c.at, true }

// Otherwise a caller with a deadline of 1 ms would keep all others from dialling.
func TestADialWhoseCallerHadNoMoreTimeSaysNothing(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for name, ctx := range map[string]context.Context{
		"it has left": cancelled, "its deadline has passed": late, "its pipe's deadline has passed": untimed{t.Context(), time.Now()},
	} {
		h := newHealth("node:1", "node:1", 2)
		_, err := h.dial(ctx, func(context.Context, string, string) (net.Conn, error) { return nil, context.DeadlineExceeded }, "tcp", "node:1", time.Second)
		if err == nil || h.dialErr != nil || h.state.Load() != sound {
			t.Errorf("%s: %v, %v, state %d", name, err, h.dialErr, h.state.Load())
		}
		if v := classify(&dialError{err}); v.code != CodeBackendTimeout || !v.notExecuted {
			t.Errorf("%s: the caller is told %s, not executed %v; want backend_timeout, true", name, v.code, v.notExecuted)
		}
	}
}

// Health of a node that has left is not watched any more: it must not refuse for good whoever still has its client.
func TestANodeThatHasLeftIsNotRefused(t *testing.T) {
	n := nodes{byAddr: map[string]knownNode{}, labels: newLabels(10), healths: map[string]*health{}, dials: 1}
	h := n.health("node:1")
	h.state.Store(open)
	n.keep(nil, time.Now(), 0)
	if h.refuses() || len(n.healths) != 0 {
		t.Errorf("refuses: %v; %d are known", h.refuses(), len(n.healths))
	}
}

// A node that is back before go-redis has closed its client has that client again, with the same health behind it.
func TestANodeThatComesBackIsStillKnown(t *testing.T) {
	n := nodes{byAddr: map[string]knownNode{}, labels: newLabels(10), healths: map[string]*health{}, dials: 1}
	client := redis.NewClient(&redis.Options{Addr: "node:1"})
	defer func() { _ = client.Close() }()
	h, start := n.add(client), time.Now()
	known := func() bool { return n.client("node:1") == client && n.healths["node:1"] == h }
	n.keep(nil, start, time.Minute)
	n.keep(nil, start.Add(59*time.Second), time.Minute)
	if !known() {
		t.Error("it is forgotten within the minute")
	}
	n.keep(map[*redis.Client]bool{client: true}, start.Add(59*time.Second), time.Minute)
	n.keep(nil, start.Add(2*time.Minute), time.Minute)
	if !known() {
		t.Error("it was back, and is forgotten when it leaves again")
	}
	if gone := n.keep(nil, start.Add(3*time.Minute), time.Minute); len(gone) != 1 || n.client("node:1") != nil || len(n.healths) != 0 {
		t.Errorf("%q are forgotten, %d healths are left", gone, len(n.healths))
	}
}

func TestRetryBudget(t *testing.T) {
	start := time.Now()
	spend := func(b *retryBudget, now time.Time) (n int) {
		for b.take(now) {
			if n++; n > 1_000_000 {
				return -1
			}
		}
		return n
	}
	for _, c := range []struct {
		name     string
		percent  int
		requests int64
		passes   time.Duration
		want     int
	}{
		{"ten percent of the requests", 10, 2_000, 0, 200},
		{"never more than is saved up", 10, 1_000_000, 0, savedRetries},
		{"ten a second without requests", 10, 0, 3 * time.Second, 30},
		{"the larger of both, not their sum", 10, 1_000, 3 * time.Second, 100},
		{"no bound", -1, 0, 0, -1},
	} {
		b := newRetryBudget(c.percent)
		if c.percent > 0 {
			if n := spend(b, start); n != savedRetries {
				t.Errorf("%s: %d at the start", c.name, n)
			}
		}
		b.requests.Add(c.requests)
		if got := spend(b, start.Add(c.passes)); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// The time of a dial itself is no caller's: a node that takes longer is to be doubted.
func TestADialThatHadItsTimeSaysSomething(t *testing.T) {
	h := newHealth("node:1", "node:1", 2)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // as go-redis does
	defer cancel()
	_, err := h.dial(ctx, func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, "tcp", "node:1", 20*time.Millisecond)
	if h.dialErr == nil || h.state.Load() != doubtful {
		t.Errorf("%v, %v, state %d", err, h.dialErr, h.state.Load())
	}
}

// HELLO, which a new connection begins with, may take longer than its caller has: that is the caller's deadline, and no node out of reach.
func TestAGreetingThatTakesLongerThanItsCallerHasIsADeadline(t *testing.T) {
	late := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		left time.Duration
		want Code
	}{
		"the deadline has passed": {-time.Second, CodeBackendTimeout},
		"there is time":           {time.Minute, CodeClusterDown},
	} {
		hook := nodeHook{health: newHealth("node:1", "node:1", 2), metrics: newMetrics(nil, &Store{}), cluster: "default"}
		ctx := untimed{t.Context(), time.Now().Add(c.left)}
		err := hook.ProcessHook(func(context.Context, redis.Cmder) error { return late })(ctx, redis.NewCmd(ctx, "hello", 2))
		if v := classify(err); v.code != c.want || !v.notExecuted {
			t.Errorf("%s: %s, not executed %v; want %s, true", name, v.code, v.notExecuted, c.want)
		}
	}
}
