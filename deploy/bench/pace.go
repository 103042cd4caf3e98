//go:build linux

package main

import (
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// pacer is an open loop: requests come at a constant rate, whatever becomes of the earlier ones, and latency counts from the moment a
// request was due, not from when it could be sent. So a server that stalls is charged for all who came meanwhile (no coordinated
// omission). A request takes the connection that has been idle longest; when all are busy it waits for one.
type pacer struct {
	crowd *crowd
	start time.Time

	mu      sync.Mutex
	idle    []*caller       // the longest idle first
	backlog []time.Duration // requests that are due and wait for a connection
	over    bool            // nothing more will come
	turn    int             // number of the next request

	late      histogram // how late the generator itself was with each request
	lateTotal time.Duration

	// Of a flow only.
	lead     time.Duration
	patience time.Duration
	ledger   bool
	tally    *tally
}

// schedule is when request i of a constant rate is due, from the start.
func schedule(i int, rate float64) time.Duration {
	return time.Duration(float64(i) / rate * float64(time.Second))
}

// pace runs for d, then waits for the answers under way. What was due and got no answer counts as an error.
func (c *crowd) pace(rate float64, d time.Duration) report {
	p := &pacer{crowd: c, late: newHistogram()}
	all := p.join(time.Now().Add(d+roundGrace), p.receive)
	total := p.send(constant(rate), d)
	p.finish()
	all.Wait()
	r := c.report(time.Since(p.start))
	r.Late, r.LateTotal = p.late, p.lateTotal
	if missing := int64(total) - r.Requests; missing > 0 {
		r.Errors += missing
		r.Requests = int64(total)
		if r.FirstError == "" {
			r.FirstError = "requests without an answer"
		}
	}
	return r
}

// join connects the callers, up to a deadline, and lets each read its answers.
func (p *pacer) join(end time.Time, receive func(*caller)) *sync.WaitGroup {
	for _, one := range p.crowd.callers {
		one.reset()
		if one.conn == nil {
			one.fail(one.dial(p.crowd))
		}
		if one.conn != nil {
			_ = one.conn.SetDeadline(end)
			one.due = pacerIdle
			p.idle = append(p.idle, one)
		}
	}
	if p.start.IsZero() {
		p.start = time.Now()
	}
	var all sync.WaitGroup
	for _, one := range slices.Clone(p.idle) { // a reader may take itself off the list
		all.Go(func() { receive(one) })
	}
	return &all
}

// constant returns the times of a constant rate, one after the other.
func constant(rate float64) func() time.Duration {
	i := -1
	return func() time.Duration {
		i++
		return schedule(i, rate)
	}
}

// send hands out the requests in time. It owns its thread: Go's own timers are only right to a millisecond when nothing else runs.
func (p *pacer) send(next func() time.Duration, d time.Duration) (total int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A wake-up may come 50 us late unless the thread asks for less (PR_SET_TIMERSLACK, 29).
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, 29, 1000, 0)
	for i := 0; ; i++ {
		due := next()
		if due >= d {
			return i
		}
		if wait := due - time.Since(p.start); wait > 0 {
			pause := syscall.NsecToTimespec(wait.Nanoseconds())
			_ = syscall.Nanosleep(&pause, nil) // too short a sleep only sends the request a little early
		}
		late := max(time.Since(p.start)-due, 0)
		p.late.record(late)
		p.lateTotal += late
		p.mu.Lock()
		if len(p.idle) == 0 {
			p.backlog = append(p.backlog, due)
			p.mu.Unlock()
			continue
		}
		one := p.idle[0]
		p.idle = p.idle[1:]
		conn, request := p.begin(one, due)
		p.mu.Unlock()
		_, _ = conn.Write(request) // a failure shows when the answer is read
	}
}

// Instead of a time when a request was due: none is under way, or none will come any more.
const (
	pacerIdle = -1
	pacerDone = -2
)

// begin makes a request the caller's own; it has to be sent on the connection returned. p.mu is held.
func (p *pacer) begin(one *caller, due time.Duration) (net.Conn, []byte) {
	one.due = due
	one.turn = p.turn
	p.turn++
	return one.conn, p.crowd.requests[one.turn%len(p.crowd.requests)]
}

// receive reads a caller's answers until the loop is over or the connection is broken for good. A connection may also break while nothing
// is asked on it.
func (p *pacer) receive(one *caller) {
	for {
		err := one.receive(p.crowd)
		now := time.Since(p.start)
		p.mu.Lock()
		due := one.due
		if due == pacerIdle {
			p.idle = slices.DeleteFunc(p.idle, func(c *caller) bool { return c == one })
		}
		p.mu.Unlock()
		if due == pacerDone {
			return
		}
		if due >= 0 {
			one.took(now - due)
		}
		if err != nil && !one.recover(p.crowd, err) {
			return
		}
		if !p.rejoin(one) {
			return
		}
	}
}

// rejoin gives a caller the request that waits longest, or lets it wait for one; false says that nothing will come.
func (p *pacer) rejoin(one *caller) bool {
	p.mu.Lock()
	if p.tally != nil {
		p.giveUp(p.patience)
	}
	switch {
	case len(p.backlog) > 0:
		due := p.backlog[0]
		p.backlog = p.backlog[1:]
		conn, request := p.begin(one, due)
		p.mu.Unlock()
		_, _ = conn.Write(request)
		return true
	case p.over:
		p.mu.Unlock()
		return false
	}
	one.due = pacerIdle
	p.idle = append(p.idle, one)
	p.mu.Unlock()
	return true
}

// finish ends the readers of idle connections: nothing comes any more, so their reads are broken off.
func (p *pacer) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, one := range p.idle {
		one.due = pacerDone
		_ = one.conn.SetReadDeadline(time.Unix(1, 0))
	}
	p.idle = nil
}
