package pool

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/store"
)

const (
	// togetherTime is how long something is worked at that many wait for, if the first of them has no deadline: it takes some ms.
	togetherTime = time.Second
	// togetherTries is how often one who waits sees that fail whose deadline was another's.
	togetherTries = 3
)

// together does work once for all who ask for it at the same time. It is done within the deadline of who comes first, also if that one goes
// away: others wait for it too, each as long as they have time. Who has time left when it has failed tries again.
func together[T any](ctx context.Context, log *slog.Logger, group *singleflight.Group, name string, work func(context.Context) (T, error)) (t T, err error) {
	for try := 1; ; try++ {
		doing := group.DoChan(name, func() (v any, err error) {
			deadline, ok := ctx.Deadline()
			if !ok {
				deadline = time.Now().Add(togetherTime)
			}
			ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
			defer cancel()
			err = store.NewError(store.CodeInternal, "") // unless it ends
			alive.Once(log, "what callers of a large pool wait for", func() { v, err = work(ctx) })
			return v, err
		})
		select {
		case <-ctx.Done():
			late := store.NewError(store.CodeBackendTimeout, "").WithCause(ctx.Err())
			late.Outcome = store.NotApplied
			return t, late
		case done := <-doing:
			if done.Err == nil || !done.Shared || try == togetherTries || ctx.Err() != nil {
				t, _ = done.Val.(T)
				return t, done.Err
			}
		}
	}
}

// enlarge takes the script for more than 64 members, or the one for fewer.
func (t *attempt) enlarge(large bool) {
	t.choice = choiceOf(t.pool.Definition, t.request)
	t.args = nil
	if !large {
		return
	}
	t.large = true
	switch {
	case t.variant != "":
		t.script, t.more = scriptSchedule, keys.scheduled
	case t.adapts != nil:
		t.script, t.more, t.chosen = scriptGiven, keys.givenKnown, true
	default:
		t.script, t.more, t.chosen = scriptGiven, keys.given, true
	}
}

// maxPlans are how many schedules are made for one that excludes members.
const maxPlans = 3

// leaveSchedule draws by weight, as weighted_random does, for one that excludes members when no schedule has served it: while one is made for it
// others take turns, and it is not used then, or its first turns are taken.
func (t *attempt) leaveSchedule() bool {
	if t.plans++; t.plans <= maxPlans || len(t.request.Exclude) == 0 {
		return false
	}
	t.script, t.more, t.chosen, t.args = scriptGiven, keys.given, true, nil
	return true
}

func (k keys) scheduled() []string  { return []string{k.ring(), k.weights(), k.schedule()} }
func (k keys) given() []string      { return []string{k.ring(), k.weights()} }
func (k keys) givenKnown() []string { return []string{k.ring(), k.weights(), k.health()} }

// needs are what a view of the pool is read for.
func (d *Definition) needs(command string) needs {
	if d.Policy != AdaptivePolicy {
		return needs{command: command}
	}
	return needs{command: command, health: true, most: d.Lease.MaxPerMember}
}

// draw draws for an allocation from a large pool. Nobody is drawn only by what has just been read.
func (p *Pools) draw(ctx context.Context, id *acl.Identity, t *attempt) (err error) {
	numbers := make([]float64, t.count)
	for i := range numbers {
		numbers[i] = p.Draw()
	}
	for n := t.pool.Definition.needs(CommandAllocate); ; n.newest = true {
		if t.view, err = p.view(ctx, id, t.keys, n); err != nil {
			return err
		}
		if !t.view.large {
			t.list, t.why = nil, "" // the script says so
			return nil
		}
		t.list, t.why, err = t.view.draw(t.adapts, t.request.Exclude, t.micros > 0, numbers, p.now(t.view))
		if err != nil || t.why == "" || n.newest || time.Since(t.view.taken) < nobodyTime {
			return err
		}
	}
}

// usual is what health is measured by in a large pool, in ms.
func (p *Pools) usual(ctx context.Context, id *acl.Identity, pool Pool, command string) (float64, error) {
	a := pool.Definition.settings()
	n := pool.Definition.needs(command)
	n.health = true
	v, err := p.view(ctx, id, keysOf(id, pool.Name), n)
	if err != nil || !v.large {
		return 0, err
	}
	all, err := v.records(a, p.now(v))
	if err != nil {
		return 0, err
	}
	return a.usual(all), nil
}

// healthOfLarge is Health for a large pool; large says whether it is one still.
func (p *Pools) healthOfLarge(ctx context.Context, id *acl.Identity, pool Pool) (list []Health, large bool, err error) {
	a := pool.Definition.settings()
	n := pool.Definition.needs(CommandShow)
	n.health, n.newest = true, true
	v, err := p.view(ctx, id, keysOf(id, pool.Name), n)
	if err != nil || !v.large {
		return nil, false, err
	}
	now := p.now(v)
	all, err := v.records(a, now)
	if err != nil {
		return nil, false, err
	}
	usual := a.usual(all)
	list = make([]Health, len(all))
	for i := range all {
		r := &all[i]
		list[i] = Health{Member: v.names[i], Condition: conditions[int(r.state)&3], Ejections: int64(r.ejections)}
		list[i].Factor, list[i].LatencyMS = a.weigh(r, usual, float64(now))
	}
	return list, true, nil
}
