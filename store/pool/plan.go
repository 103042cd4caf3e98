package pool

import (
	"context"
	"fmt"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/packed"
)

// plan gives a large pool a new schedule, if it has no good one or it is to be anew, and a small one that was large its credits. A gateway makes one at a time of each pool, and those
// who wait have the same; of two gateways the first has its way. Errors: forbidden, or an outcome.
func (p *Pools) plan(ctx context.Context, id *acl.Identity, k keys, v Variant, anew bool) error {
	_, err := together(ctx, p.Log, &p.planning, fmt.Sprint(poolOf(id, k), v, anew), func(ctx context.Context) (Reason, error) {
		return p.replan(ctx, id, k, v, leading{anew: anew})
	})
	return err
}

// leading is with whom a schedule is to begin.
type leading struct {
	anew    bool     // also if there is a good one
	turns   int      // so many of members that are not excluded; 0 = whoever is next
	exclude []string // of no use without turns
}

// replan makes a schedule. A reason says that there is nobody to lead it.
func (p *Pools) replan(ctx context.Context, id *acl.Identity, k keys, v Variant, l leading) (Reason, error) {
	argv := make([]any, len(l.exclude))
	for i, m := range l.exclude {
		argv[i] = m
	}
	values, err := p.Redis.RunScript(ctx, id, CommandAllocate, scriptPlan, []string{k.state(), k.weights(), k.schedule(), k.ring()}, argv...)
	if err != nil {
		return "", err
	}
	var text [4]string
	if len(values) != len(text) {
		return "", badReply()
	}
	for i := range text {
		text[i], _ = values[i].(string)
	}
	if text[0] == "" {
		return "", nil // it was removed meanwhile
	}
	t, err := readTurns(text[0], text[1], text[2])
	if err != nil {
		return "", err
	}
	epoch, turn := t.epoch, t.turn
	switch {
	case !t.large:
		t.settle()
	case l.turns == 0 && !l.anew && t.good(v):
		return "", nil // somebody has just made it
	case l.turns == 0:
		t.schedule(v, nil, 0)
	default:
		skip := map[int]bool{}
		for q := (packed.Reader{Rest: text[3]}); q.Rest != ""; {
			skip[int(q.Number())] = true
		}
		delete(skip, -1)
		if why := t.nobody(skip); why != "" {
			return why, nil
		}
		t.schedule(v, skip, l.turns)
	}
	state := packed.Append(nil, epoch, turn, t.place, t.level, t.length, t.plan)
	names := []string{k.state(), k.weights(), k.schedule()}
	_, err = p.Redis.RunScript(ctx, id, CommandAllocate, scriptPlanned, names, state, t.packed(), t.sch)
	return "", err
}

// nobody is why none can be chosen that is not skipped; "" = one can.
func (t *turns) nobody(skip map[int]bool) Reason {
	why := Excluded
	for i, w := range t.weights {
		if !skip[i] {
			if w > 0 {
				return ""
			}
			why = NoWeight
		}
	}
	return why
}
