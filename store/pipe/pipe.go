// Package pipe merges the commands of concurrent callers to one Redis node into pipelines.
//
// It promises:
//
//   - One batch of a node is under way at a time; what arrives meanwhile forms the next one. A pipe knows one node, so
//     a node that hangs delays only its own callers.
//   - While there are no more than a few callers, each runs its own commands at once, with no other goroutine and no wait.
//   - A caller returns by its deadline, even if the node does not answer (the sweep interval later at the most).
//   - Nothing is sent after its caller has left: an entry whose deadline has passed or whose context has ended is
//     withdrawn from the queue, and its commands are certainly not executed. A batch that was given to the driver counts
//     as sent, also while the driver still waits for a connection.
//   - Each command is sent at most once. One that was sent and not answered in time may have been executed.
//   - The queue is bounded: beyond it callers are refused at once.
//
// It refuses to know commands, retries and redirects: a MOVED comes back to the caller as any other reply. Commands that
// work long or carry much do not belong here, since everybody behind them waits.
//
// The shape (one queue and one batch under way, yielding before a batch is taken, deadlines by sweeping) is the one that
// won the measurements of the design's page on the fast path; the lone callers and their hand-over to a runner are of here.
package pipe

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The reasons why Do did not execute, or does not know.
var (
	// ErrSaturated: the queue is full; nothing was sent.
	ErrSaturated = errors.New("pipe: too many commands are waiting for the node")
	// ErrWithdrawn: the caller's deadline passed, or its context ended, before its commands were sent.
	ErrWithdrawn = errors.New("pipe: withdrawn before it was sent")
	// ErrAbandoned: the deadline passed after the commands were sent. They may still be executed, and the entry and all that
	// its commands refer to belong to the pipe from now on: it writes the late replies there.
	ErrAbandoned = errors.New("pipe: no answer by the deadline")
)

// Config bounds a pipe. Zero fields mean the defaults beside them.
type Config struct {
	// MaxBatch is the most commands in one pipeline: also the most callers that one broken connection leaves without an
	// answer. An entry larger than this still goes in one piece. 0 = 256.
	MaxBatch int
	// MaxQueued is the most commands that wait. An entry larger than this waits alone. 0 = 4096.
	MaxQueued int
	// MaxLone is the most callers who run their own commands at the same time, each on a connection of its own. 0 = 2.
	MaxLone int
	// Timeout bounds a batch whose callers have no deadline. 0 = 1 s.
	Timeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.MaxBatch == 0 {
		c.MaxBatch = 256
	}
	if c.MaxQueued == 0 {
		c.MaxQueued = 4096
	}
	if c.MaxLone == 0 {
		c.MaxLone = 2
	}
	if c.Timeout == 0 {
		c.Timeout = time.Second
	}
	return c
}

// yields is how often a batch waits for the scheduler before it is taken. Each lets the callers that are runnable add
// their commands: a batch grows from 4 to 6 at 64 connections. Four was the best of 1, 4 and 16.
const yields = 4

// A batch of three callers or more says that there are many, and as many small batches as crowdLasts that there are few again.
// At 16 connections one that finds the node idle shares its trip with those about to come (-4 % CPU), at 4 it does not (a
// threshold of two callers cost them 7 %).
const (
	crowdFrom  = 3
	crowdLasts = 8
)

// The states of an entry.
const (
	waiting int32 = iota
	sent
	answered
	withdrawn
	abandoned
	forgotten // abandoned, and its batch is over
)

// Entry is one caller's commands, which go in one batch and in their order. It can be used again after Do has returned nil
// or ErrSaturated; after the others the pipe may still hold it.
type Entry struct {
	// Cmds are executed; each holds its own reply and error afterwards.
	Cmds []redis.Cmder

	ctx      context.Context
	deadline time.Time
	state    atomic.Int32
	own      chan *Entry // where Do waits
	done     chan<- *Entry
	after    atomic.Pointer[func()] // what is to be called when the batch of an abandoned entry is over; nil = nothing
}

// NewEntry makes an entry without commands.
func NewEntry() *Entry { return &Entry{own: make(chan *Entry, 1)} }

// Exec sends commands in one round trip and fills in their replies. It must return by the context's deadline.
type Exec func(ctx context.Context, cmds []redis.Cmder)

// Pipe is the way to one node. It is safe for concurrent use, and needs Sweep to be called for its promise of deadlines.
// It has no goroutine while nobody waits, so there is nothing to close.
type Pipe struct {
	exec Exec
	cfg  Config

	mu       sync.Mutex
	lone     int      // callers who are executing their own commands
	running  bool     // the runner is there
	crowd    int      // how many batches more it takes to believe that there are few callers
	queue    []*Entry // in order of arrival
	queued   int      // commands in queue
	underWay []*Entry // what the runner has sent
	spare    []*Entry // memory for the next queue
}

// New makes a pipe.
func New(exec Exec, cfg Config) *Pipe { return &Pipe{exec: exec, cfg: cfg.withDefaults()} }

// Do executes the entry's commands, alone or with those of others. nil says that they were executed or that the attempt
// failed as a whole; each command tells. Errors: ErrSaturated, ErrWithdrawn, ErrAbandoned.
func (p *Pipe) Do(ctx context.Context, e *Entry) error {
	e.ctx = ctx
	e.deadline, _ = ctx.Deadline()
	if ctx.Err() != nil { // also says whether the deadline has passed; sweeping finds those that only know it later
		return ErrWithdrawn
	}
	p.mu.Lock()
	if p.mayGoAlone() {
		p.lone++
		p.mu.Unlock()
		p.alone(ctx, e)
		return nil
	}
	err := p.enqueue(e, e.own)
	p.wake()
	p.mu.Unlock()
	if err != nil {
		return err
	}
	<-e.own
	return e.Err()
}

// Start is Do that does not wait: the entry is sent on done, which must have room for it, when it is over, and Err then says
// what Do would have returned. If Start returns an error, it is over already and nothing is sent.
func (p *Pipe) Start(ctx context.Context, e *Entry, done chan<- *Entry) error {
	e.ctx = ctx
	e.deadline, _ = ctx.Deadline()
	if ctx.Err() != nil {
		return ErrWithdrawn
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.enqueue(e, done)
	if !p.running && len(p.queue) > 0 { // also beside lone callers: a batch is worth a connection of its own
		p.running = true
		go p.run()
	}
	return err
}

// Err says how a started entry ended.
func (e *Entry) Err() error {
	switch e.state.Load() {
	case withdrawn:
		return ErrWithdrawn
	case abandoned, forgotten:
		return ErrAbandoned
	}
	return nil
}

// After calls f once when nothing of an abandoned entry is under way any more: the node has answered its batch, or the connection was
// closed. It may be called only once, after ErrAbandoned.
func (e *Entry) After(f func()) {
	e.after.Store(&f)
	if e.state.Load() == forgotten {
		e.callAfter()
	}
}

func (e *Entry) callAfter() {
	if f := e.after.Swap(nil); f != nil {
		(*f)()
	}
}

// enqueue puts an entry behind the others. p.mu is held.
func (p *Pipe) enqueue(e *Entry, done chan<- *Entry) error {
	if p.queued > 0 && p.queued+len(e.Cmds) > p.cfg.MaxQueued {
		return ErrSaturated
	}
	e.done = done
	e.state.Store(waiting)
	p.queue = append(p.queue, e)
	p.queued += len(e.Cmds)
	return nil
}

// mayGoAlone says whether a caller who has just come runs its own commands. Among many callers it does not, even if it
// finds the node idle: those who are about to come share its trip. p.mu is held.
func (p *Pipe) mayGoAlone() bool {
	return !p.running && p.crowd == 0 && len(p.queue) == 0 && p.lone < p.cfg.MaxLone
}

// wake starts the runner, if there is something for it to do and no caller under way who does it on its return: what
// arrives until then makes the batch larger. p.mu is held.
func (p *Pipe) wake() {
	if !p.running && p.lone == 0 && len(p.queue) > 0 {
		p.running = true
		go p.run()
	}
}

// alone runs the commands of a caller that found few before it, then leaves the queue that has formed behind it to a
// runner.
func (p *Pipe) alone(ctx context.Context, e *Entry) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lone--
		if !p.running && len(p.queue) > 0 { // the others under way may be slower
			p.running = true
			go p.run()
		}
	}()
	p.exec(ctx, e.Cmds) // with a context that ends: the driver may have to dial, and nobody else watches this deadline
}

// run sends batches until the queue is empty.
func (p *Pipe) run() {
	var cmds []redis.Cmder
	for {
		for range yields {
			runtime.Gosched()
		}
		batch := p.take()
		if batch == nil {
			return
		}
		var until time.Time
		cmds, until = p.send(batch, cmds[:0])
		if len(cmds) > 0 {
			p.execGuarded(until, cmds)
		}
		p.finish(batch)
		clear(cmds)
	}
}

// execGuarded keeps a panic in the driver from ending the process; the commands then say what they said before.
func (p *Pipe) execGuarded(until time.Time, cmds []redis.Cmder) {
	defer func() {
		if v := recover(); v != nil {
			for _, cmd := range cmds {
				cmd.SetErr(errPanic)
			}
		}
	}()
	p.exec(deadlineContext{context.Background(), until}, cmds)
}

var errPanic = errors.New("pipe: panic in the driver")

// take removes the next batch from the queue; nil = there is none, and the pipe is idle.
func (p *Pipe) take() []*Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.running = false
		return nil
	}
	n, commands := 0, 0
	for n < len(p.queue) && (n == 0 || commands+len(p.queue[n].Cmds) <= p.cfg.MaxBatch) {
		commands += len(p.queue[n].Cmds)
		n++
	}
	batch := p.queue[:n:n]
	if rest := p.queue[n:]; len(rest) > 0 {
		p.queue = append(p.spare[:0:cap(p.spare)], rest...)
	} else {
		p.queue = p.spare[:0:cap(p.spare)]
	}
	p.spare = nil
	p.queued -= commands
	p.underWay = batch
	if n >= crowdFrom {
		p.crowd = crowdLasts
	} else if p.crowd > 0 {
		p.crowd--
	}
	return batch
}

// send collects the commands of those who still wait. until is the latest of their deadlines.
func (p *Pipe) send(batch []*Entry, cmds []redis.Cmder) (_ []redis.Cmder, until time.Time) {
	now := time.Now()
	endless := now.Add(p.cfg.Timeout)
	for _, e := range batch {
		if e.gone(now) && e.state.CompareAndSwap(waiting, withdrawn) {
			e.done <- e
			continue
		}
		if !e.state.CompareAndSwap(waiting, sent) {
			continue
		}
		cmds = append(cmds, e.Cmds...)
		deadline := e.deadline
		if deadline.IsZero() {
			deadline = endless
		}
		if deadline.After(until) {
			until = deadline
		}
	}
	return cmds, until
}

// finish wakes those who still wait for the batch.
func (p *Pipe) finish(batch []*Entry) {
	p.mu.Lock()
	p.underWay = nil
	p.mu.Unlock()
	for i, e := range batch {
		if e.state.CompareAndSwap(sent, answered) {
			e.done <- e
		} else if e.state.CompareAndSwap(abandoned, forgotten) {
			e.callAfter()
		}
		batch[i] = nil
	}
	p.mu.Lock()
	p.spare = batch[:0]
	p.mu.Unlock()
}

// gone says whether the caller has left.
func (e *Entry) gone(now time.Time) bool { return e.late(now) || e.ctx.Err() != nil }

func (e *Entry) late(now time.Time) bool { return !e.deadline.IsZero() && !now.Before(e.deadline) }

// Sweep lets go of the callers whose deadline has passed and of those waiting whose context has ended. It must be called
// every few milliseconds; it costs nothing while nobody waits.
func (p *Pipe) Sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.queue[:0]
	for _, e := range p.queue {
		if !e.gone(now) || !e.state.CompareAndSwap(waiting, withdrawn) {
			kept = append(kept, e)
			continue
		}
		p.queued -= len(e.Cmds)
		e.done <- e
	}
	clear(p.queue[len(kept):])
	p.queue = kept
	for _, e := range p.underWay {
		if e.late(now) && e.state.CompareAndSwap(sent, abandoned) {
			e.done <- e
		}
	}
}

// Waiting is how many commands wait to be sent.
func (p *Pipe) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queued
}

// Idle says whether nobody is in the pipe.
func (p *Pipe) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.running && p.lone == 0 && len(p.queue) == 0
}

// deadlineContext has a deadline and nothing else: the driver sets it on the connection, and no timer is needed.
type deadlineContext struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context.
func (d deadlineContext) Deadline() (time.Time, bool) { return d.at, !d.at.IsZero() }
