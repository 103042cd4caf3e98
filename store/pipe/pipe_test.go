package pipe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/store/pipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a scripted Redis: it answers each command with its own name, when it is let.
type node struct {
	mu      sync.Mutex
	batches [][]string
	hold    chan struct{} // nil = answers at once
	started chan struct{}
}

func (n *node) exec(_ context.Context, cmds []redis.Cmder) {
	names := make([]string, len(cmds))
	for i, cmd := range cmds {
		names[i] = cmd.Name()
	}
	n.mu.Lock()
	n.batches = append(n.batches, names)
	hold, started := n.hold, n.started
	n.mu.Unlock()
	if started != nil {
		started <- struct{}{}
	}
	if hold != nil {
		<-hold
	}
	for _, cmd := range cmds {
		cmd.(*redis.Cmd).SetVal(cmd.Name())
	}
}

// next says what the batches after the one under way wait for.
func (n *node) next(hold, started chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hold, n.started = hold, started
}

func (n *node) seen() (commands, largest int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.batches {
		commands += len(b)
		largest = max(largest, len(b))
	}
	return commands, largest
}

func entry(names ...string) *pipe.Entry {
	e := pipe.NewEntry()
	for _, name := range names {
		e.Cmds = append(e.Cmds, redis.NewCmd(context.Background(), name))
	}
	return e
}

func answer(e *pipe.Entry, i int) any { return e.Cmds[i].(*redis.Cmd).Val() }

// held starts a caller that keeps the pipe busy until release.
func held(t *testing.T, cfg pipe.Config) (p *pipe.Pipe, n *node, release func()) {
	t.Helper()
	hold := make(chan struct{})
	n = &node{hold: hold, started: make(chan struct{}, 1)}
	cfg.MaxLone = 1
	p = pipe.New(n.exec, cfg)
	done := make(chan error)
	go func() { done <- p.Do(t.Context(), entry("first")) }()
	<-n.started
	n.next(nil, nil)
	return p, n, func() {
		close(hold)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// eventually polls with a deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain: " + what)
		}
	}
}

func TestALoneCallerRunsItsOwnCommands(t *testing.T) {
	n := &node{}
	p := pipe.New(n.exec, pipe.Config{})
	e := entry("a", "b")
	for range 3 {
		if err := p.Do(t.Context(), e); err != nil || answer(e, 0) != "a" || answer(e, 1) != "b" {
			t.Fatal(err, answer(e, 0), answer(e, 1))
		}
	}
}

func TestTwoCallersOfAnIdleNodeGoAloneAndTheThirdWaits(t *testing.T) {
	hold, started := make(chan struct{}), make(chan struct{}, 3)
	n := &node{hold: hold, started: started}
	p := pipe.New(n.exec, pipe.Config{})
	var wg sync.WaitGroup
	call := func(name string) { wg.Go(func() { _ = p.Do(t.Context(), entry(name)) }) }
	call("a")
	call("b")
	<-started
	<-started
	call("c")
	eventually(t, "it waits", func() bool { return p.Waiting() == 1 })
	close(hold)
	wg.Wait()
	if commands, largest := n.seen(); commands != 3 || largest != 1 {
		t.Errorf("%d commands were sent, in batches of up to %d", commands, largest)
	}
	eventually(t, "nobody is there", p.Idle)
}

func TestAmongManyACallerWaitsForTheNextBatchEvenIfTheNodeIsIdle(t *testing.T) {
	type mine struct{}
	hold, started := make(chan struct{}), make(chan struct{}, 1)
	var first sync.Once
	var alone atomic.Bool // who runs its own commands does so in its own context
	p := pipe.New(func(ctx context.Context, _ []redis.Cmder) {
		alone.Store(ctx.Value(mine{}) != nil)
		first.Do(func() { started <- struct{}{}; <-hold })
	}, pipe.Config{MaxLone: 1})
	ctx := context.WithValue(t.Context(), mine{}, true)
	var wg sync.WaitGroup
	call := func(name string) { wg.Go(func() { _ = p.Do(ctx, entry(name)) }) }
	call("first")
	<-started
	call("a")
	call("b")
	call("c")
	eventually(t, "three wait", func() bool { return p.Waiting() == 3 })
	close(hold)
	wg.Wait()
	eventually(t, "nobody is there", p.Idle)
	for n := range 10 { // eight batches of one
		if err := p.Do(ctx, entry("next")); err != nil || alone.Load() != (n >= 8) {
			t.Errorf("caller %d after a batch of three runs its own commands: %v (%v)", n, alone.Load(), err)
		}
		eventually(t, "nobody is there", p.Idle)
	}
}

func TestConcurrentCallersGetTheirOwnAnswers(t *testing.T) {
	n := &node{}
	p := pipe.New(n.exec, pipe.Config{MaxBatch: 16})
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			e := pipe.NewEntry()
			for i := range 200 {
				name := fmt.Sprintf("%d-%d", w, i)
				e.Cmds = append(e.Cmds[:0], redis.NewCmd(t.Context(), name))
				if err := p.Do(t.Context(), e); err != nil || answer(e, 0) != name {
					t.Errorf("%s got %v, %v", name, answer(e, 0), err)
				}
			}
		})
	}
	wg.Wait()
	if commands, largest := n.seen(); commands != 64*200 || largest > 16 {
		t.Errorf("%d commands were sent, in batches of up to %d", commands, largest)
	}
}

func TestWaitingCallersGoInOneBatch(t *testing.T) {
	p, n, release := held(t, pipe.Config{MaxBatch: 6})
	var wg sync.WaitGroup
	var queued atomic.Int32
	for i := range 10 {
		wg.Go(func() {
			queued.Add(1)
			if err := p.Do(t.Context(), entry(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return queued.Load() == 10 && p.Waiting() == 10 })
	release()
	wg.Wait()
	if commands, largest := n.seen(); commands != 11 || largest != 6 {
		t.Errorf("%d commands, batches of up to %d", commands, largest)
	}
}

func TestAWaitingCallerIsWithdrawnWhenItLeaves(t *testing.T) {
	for name, leave := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"its deadline passes": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 20*time.Millisecond)
		},
		"it is cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(20*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		for _, swept := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/swept %v", name, swept), func(t *testing.T) {
				p, n, release := held(t, pipe.Config{})
				ctx, cancel := leave(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- p.Do(ctx, entry("late")) }()
				eventually(t, "it waits", func() bool { return p.Waiting() == 1 })
				<-ctx.Done()
				if swept {
					p.Sweep(time.Now())
					if err := <-done; !errors.Is(err, pipe.ErrWithdrawn) || p.Waiting() != 0 {
						t.Errorf("%v, %d wait", err, p.Waiting())
					}
					release()
				} else {
					release()
					if err := <-done; !errors.Is(err, pipe.ErrWithdrawn) {
						t.Error(err)
					}
				}
				if commands, _ := n.seen(); commands != 1 {
					t.Errorf("%d commands were sent; one was withdrawn", commands)
				}
			})
		}
	}
}

func TestACallerThatHasLeftBeforeSendsNothing(t *testing.T) {
	n := &node{}
	p := pipe.New(n.exec, pipe.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{ctx, late} {
		if err := p.Do(ctx, entry("a")); !errors.Is(err, pipe.ErrWithdrawn) {
			t.Error(err)
		}
	}
	if commands, _ := n.seen(); commands != 0 {
		t.Errorf("%d commands were sent", commands)
	}
}

func TestACallerReturnsByItsDeadlineFromABatchUnderWay(t *testing.T) {
	p, n, release := held(t, pipe.Config{})
	hold := make(chan struct{})
	patient := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	hasty := make(chan error, 1)
	go func() { hasty <- p.Do(ctx, entry("hasty")) }()
	go func() { patient <- p.Do(t.Context(), entry("patient")) }()
	eventually(t, "both wait", func() bool { return p.Waiting() == 2 })
	started := make(chan struct{}, 1)
	n.next(hold, started)
	release()
	<-started
	<-ctx.Done()
	p.Sweep(time.Now())
	if err := <-hasty; !errors.Is(err, pipe.ErrAbandoned) {
		t.Errorf("the hasty caller got %v", err)
	}
	select {
	case err := <-patient:
		t.Errorf("the patient caller did not wait: %v", err)
	default:
	}
	close(hold)
	if err := <-patient; err != nil {
		t.Error(err)
	}
}

func TestWhatWasAbandonedIsUnderWayUntilTheNodeAnswers(t *testing.T) {
	for _, told := range []string{"before the answer", "after it"} {
		t.Run(told, func(t *testing.T) {
			p, n, release := held(t, pipe.Config{})
			hold, started := make(chan struct{}), make(chan struct{}, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			e, left := entry("hasty"), make(chan error, 1)
			go func() { left <- p.Do(ctx, e) }()
			eventually(t, "it waits", func() bool { return p.Waiting() == 1 })
			n.next(hold, started)
			release()
			<-started
			<-ctx.Done()
			p.Sweep(time.Now())
			if err := <-left; !errors.Is(err, pipe.ErrAbandoned) {
				t.Fatalf("it got %v", err)
			}
			var calls atomic.Int32
			if told == "before the answer" {
				e.After(func() { calls.Add(1) })
				if calls.Load() != 0 {
					t.Error("the node has not answered")
				}
			}
			close(hold)
			eventually(t, "the batch is over", p.Idle)
			if told == "after it" {
				e.After(func() { calls.Add(1) })
			}
			if calls.Load() != 1 {
				t.Errorf("it was told %d times", calls.Load())
			}
			if err := e.Err(); !errors.Is(err, pipe.ErrAbandoned) {
				t.Errorf("when the batch is over it says %v", err)
			}
		})
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	p, _, release := held(t, pipe.Config{MaxQueued: 5})
	var wg sync.WaitGroup
	var refused atomic.Int32
	for range 20 {
		wg.Go(func() {
			if errors.Is(p.Do(t.Context(), entry("x")), pipe.ErrSaturated) {
				refused.Add(1)
			}
		})
	}
	eventually(t, "15 are refused", func() bool { return refused.Load() == 15 && p.Waiting() == 5 })
	release()
	wg.Wait()
}

// A batch of more commands than may wait is let in while nobody waits: refused, it could never be sent.
func TestAnEntryLargerThanTheQueue(t *testing.T) {
	p, _, release := held(t, pipe.Config{MaxQueued: 2})
	done := make(chan *pipe.Entry, 2)
	if err := p.Start(t.Context(), entry("a", "b", "c"), done); err != nil {
		t.Errorf("nobody else waits: %v", err)
	}
	if err := p.Start(t.Context(), entry("d"), done); !errors.Is(err, pipe.ErrSaturated) {
		t.Errorf("behind it: %v", err)
	}
	release()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("it was never sent")
	}
}

func TestAPanicOfTheDriverIsTheErrorOfItsBatch(t *testing.T) {
	hold, started := make(chan struct{}), make(chan struct{}, 1)
	var calls atomic.Int32
	p := pipe.New(func(context.Context, []redis.Cmder) {
		if calls.Add(1) == 1 {
			started <- struct{}{}
			<-hold
			return
		}
		panic("driver")
	}, pipe.Config{MaxLone: 1})
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Do(t.Context(), entry("first")) })
	<-started
	e := entry("second")
	wg.Go(func() { _ = p.Do(t.Context(), e) })
	eventually(t, "it waits", func() bool { return p.Waiting() == 1 })
	close(hold)
	wg.Wait()
	if e.Cmds[0].Err() == nil {
		t.Error("the command of the batch that panicked has no error")
	}
}

func BenchmarkDo(b *testing.B) {
	for _, callers := range []int{1, 4, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			p := pipe.New(func(context.Context, []redis.Cmder) {}, pipe.Config{})
			b.ReportAllocs()
			b.SetParallelism(callers)
			b.RunParallel(func(pb *testing.PB) {
				e := entry("x")
				for pb.Next() {
					_ = p.Do(context.Background(), e)
				}
			})
		})
	}
}
