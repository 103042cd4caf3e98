package ratelimit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/packed"
)

var (
	sequences = flag.Int("sequences", 2000, "random sequences that Lua and the model are driven through")
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random sequences")
	rounds    = flag.Int("rounds", 3, "of the scripts whose time is reported")
)

// random draws rules and what happens to them.
type random struct{ *rand.Rand }

func newRandom(t testing.TB) random {
	t.Logf("go test ./store/ratelimit -run '^%s$' -args -seed=%d -sequences=%d", t.Name(), *seed, *sequences)
	return random{rand.New(rand.NewPCG(*seed, 0))} //nolint:gosec // not a secret
}

// count is a number of tokens: mostly few, sometimes the most that there can be.
func (r random) count() int64 {
	switch r.IntN(8) {
	case 0:
		return 1 + r.Int64N(MaxCount)
	case 1:
		return MaxCount - r.Int64N(3)
	case 2:
		return 1 + r.Int64N(1_000_000_000)
	default:
		return 1 + r.Int64N(12)
	}
}

func (r random) periodMS() int64 {
	common := []int64{1, 10, 100, 1000, 60_000, 3_600_000, 86_400_000, MaxPeriodMS}
	if r.IntN(3) == 0 {
		return 1 + r.Int64N(MaxPeriodMS)
	}
	return common[r.IntN(len(common))]
}

func (r random) rule(id string) Rule {
	rule := Rule{ID: id, Limit: r.count(), PeriodMS: r.periodMS()}
	if r.IntN(3) == 0 {
		rule.Scope = PerLimit
	}
	switch r.IntN(6) {
	case 0, 1:
		rule.Algorithm, rule.Burst = TokenBucket, r.count()
	case 2:
		rule.Algorithm, rule.Burst = LeakyBucket, r.count()
		rule.Mode = []Mode{Policer, Shaper}[r.IntN(2)]
	case 3:
		rule.Algorithm, rule.TZOffsetMin = FixedWindow, r.IntN(2*maxTZOffset+1)-maxTZOffset
	case 4:
		rule.Algorithm, rule.Align = FixedWindow, AlignFirstHit
	case 5:
		rule.Algorithm = SlidingWindow
	}
	return rule
}

func (r random) rules(t testing.TB) []Rule {
	rules := make([]Rule, 1+r.IntN(4))
	for i := range rules {
		rules[i] = r.rule(fmt.Sprint("r", i))
	}
	return valid(t, rules...)
}

// edit changes one rule, some of its numbers or all of it, or which rules there are and in which order.
func (r random) edit(t testing.TB, rules []Rule) []Rule {
	rules = slices.Clone(rules)
	i := r.IntN(len(rules))
	switch r.IntN(6) {
	case 0:
		rules[i].Limit = r.count()
	case 1:
		rules[i].PeriodMS = r.periodMS()
	case 2:
		rules[i] = r.rule(rules[i].ID)
	case 3:
		rules = slices.Insert(rules, i, r.rule(fmt.Sprintf("new%d", r.Int64())))
	case 4:
		if len(rules) > 1 {
			rules = slices.Delete(rules, i, i+1)
		}
	case 5:
		r.Shuffle(len(rules), func(a, b int) { rules[a], rules[b] = rules[b], rules[a] })
	}
	return valid(t, rules...)
}

// step is how far the clock goes, in us: also back, by less than is waited for and by more.
func (r random) step() int64 {
	scales := []int64{1, 1000, second, minute, 86_400 * second, 366 * 86_400 * second}
	switch r.IntN(10) {
	case 0, 1:
		return 0
	case 2:
		return -r.Int64N(jitter + 1)
	case 3:
		return -jitter - r.Int64N(100*second)
	}
	scale := scales[r.IntN(len(scales))]
	return r.Int64N(scale + 1)
}

// operation is one call of a sequence.
type operation struct {
	at    int64
	mode  mode
	rules []Rule
	call  call
}

// request draws costs that the rules can often grant.
func (r random) request(rules []Rule) call {
	most := int64(MaxCount)
	for i := range rules {
		most = min(most, rules[i].capacity(0))
	}
	c := call{mode: []mode{take, take, take, take, take, peek, refund}[r.IntN(7)], cost: 1}
	switch r.IntN(5) {
	case 0:
		c.cost = 1 + r.Int64N(most)
	case 4: // what is granted is then all that there is
		c.cost, c.least = most, 1
	case 1:
		c.cost = r.count()
	case 2:
		c.cost = 1 + r.Int64N(min(most, 5))
	}
	if c.least == 0 {
		if c.least = c.cost; r.IntN(4) == 0 {
			c.least = 1 + r.Int64N(c.cost)
		}
	}
	if r.IntN(3) == 0 {
		c.maxWait = r.Int64N(MaxWaitMS+1) * 1000
	}
	return c
}

func (r random) sequence(t testing.TB) []operation {
	list := make([]operation, 2+r.IntN(9))
	rules, at := r.rules(t), int64(T0)+r.Int64N(86_400*second)
	before := rules
	for i := range list {
		switch r.IntN(5) {
		case 0:
			before, rules = rules, r.edit(t, rules)
		case 1: // by a gateway that does not know of the edit yet
			before, rules = rules, before
		}
		step := r.step()
		if r.IntN(3) == 0 { // into the window that follows, or to where a part has drained
			step = r.Int64N(rules[r.IntN(len(rules))].PeriodMS * 2000)
		}
		at = max(at+step, T0-1000*second)
		c := r.request(rules)
		list[i] = operation{at, c.mode, rules, c}
	}
	return list
}

// sorted puts rules into the order of the script.
func sorted(rules []Rule) (all []Rule, own int) {
	s := split(rules)
	return slices.Concat(s.subject, s.total), len(s.subject)
}

// held is what Redis holds of one key: the states of some rules.
type held struct {
	tags   []int64 // of each state
	states []state
}

func (h held) text() string {
	var b []byte
	for i, s := range h.states {
		b = packed.Append(b, h.tags[i], s.a, s.b, s.c, s.d)
	}
	return string(b)
}

// of are the states of rules.
func (h held) of(rules []exact) held {
	now := held{make([]int64, len(rules)), make([]state, len(rules))}
	for i := range rules {
		now.tags[i] = rules[i].tag
		if at := slices.Index(h.tags, rules[i].tag); at >= 0 {
			now.states[i] = h.states[at]
		}
	}
	return now
}

// and are the states of h, and behind them those of other rules in old that count at the time now: ten at most.
func (h held) and(old held, now int64) held {
	known := len(h.tags)
	for i, tag := range old.tags {
		s := old.states[i]
		over := s.d
		if s.b <= MaxPeriodMS*1000 { // a window, and no time
			over = s.a + 2*s.b
		}
		if over > now && len(h.tags) < known+10 && !slices.Contains(h.tags, tag) {
			h.tags, h.states = append(h.tags, tag), append(h.states, s)
		}
	}
	return h
}

// play runs an operation in the model, on what there is by scope.
func (o *operation) play(own, total *held) verdict {
	rules, first := sorted(o.rules)
	numbers := o.call.exactly(rules)
	newOwn, newTotal := own.of(numbers[:first]), total.of(numbers[first:])
	states := slices.Concat(newOwn.states, newTotal.states)
	v := decide(o.at, o.mode, o.call.cost, o.call.least, numbers, states)
	newOwn.states, newTotal.states = slices.Clone(states[:first]), states[first:]
	if v.written && first > 0 {
		*own = newOwn.and(*own, o.at)
	}
	if v.written && first < len(rules) {
		*total = newTotal.and(*total, o.at)
	}
	return v
}

// Lua and the model are driven through the same sequences; every grant and every stored byte must be the same.
func TestLuaAndTheModelAreEqual(t *testing.T) {
	r := newRandom(t)
	cluster := clustertest.Shared(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ReadTimeout: time.Minute, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	const together = 50 // in one MULTI, so that no key expires between two steps however busy the machine is
	steps, refused := 0, 0
	for done := 0; done < *sequences && !t.Failed(); done += together {
		batch := make([][]operation, min(together, *sequences-done))
		for i := range batch {
			batch[i] = r.sequence(t)
		}
		replies := runBatch(t, client, batch)
		for i, list := range batch {
			n, denied := compare(t, list, replies[i])
			steps, refused = steps+n, refused+denied
		}
	}
	t.Logf("%d sequences, %d steps of which %d were refused", *sequences, steps, refused)
}

// observed is what Redis said to one step, and what it held afterwards.
type observed struct {
	reply      *redis.Cmd
	own, total heldKey
}

type heldKey struct {
	text *redis.StringCmd
	life *redis.DurationCmd
}

func look(ctx context.Context, pipe redis.Pipeliner, key string) heldKey {
	return heldKey{pipe.Get(ctx, key), pipe.PTTL(ctx, key)}
}

// runBatch runs a batch again if the node was lost meanwhile: a batch begins by forgetting.
func runBatch(t testing.TB, client *redis.ClusterClient, batch [][]operation) [][]observed {
	t.Helper()
	ctx := testContext(t)
	for {
		all, err := tryBatch(ctx, client, batch)
		if err == nil {
			return all
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		client.ReloadState(ctx)
	}
}

func tryBatch(ctx context.Context, client *redis.ClusterClient, batch [][]operation) ([][]observed, error) {
	master, err := client.MasterForKey(ctx, "{same}")
	if err != nil {
		return nil, err
	}
	sha, err := master.ScriptLoad(ctx, source).Result()
	if err != nil {
		return nil, err
	}
	pipe := master.TxPipeline()
	all := make([][]observed, len(batch))
	for i, list := range batch {
		own, total := fmt.Sprintf("{same}:s:%d", i), fmt.Sprintf("{same}:t:%d", i)
		pipe.Del(ctx, own, total)
		for j := range list {
			all[i] = append(all[i], observed{pipe.Do(ctx, list[j].words(sha, own, total)...), look(ctx, pipe, own), look(ctx, pipe, total)})
		}
	}
	if _, err = pipe.Exec(ctx); errors.Is(err, redis.Nil) { // of a GET
		err = nil
	}
	return all, err
}

// words are the command of an operation.
func (o *operation) words(sha, own, total string) []any {
	rules, first := sorted(o.rules)
	names := []string{own, total}
	switch first {
	case 0:
		names, first = names[1:], len(rules)
	case len(rules):
		names = names[:1]
	}
	l := Limiter{clock: func() int64 { return o.at }}
	keys, argv := l.arguments(o.call, names, first, rules)
	args := []any{"EVALSHA", sha, len(keys)}
	for _, k := range keys {
		args = append(args, k)
	}
	return append(args, argv...)
}

// compare holds one sequence against the model.
func compare(t *testing.T, list []operation, got []observed) (steps, refused int) {
	var own, total held
	for i, o := range list {
		was, wasTotal := own, total
		v := o.play(&own, &total)
		rules, first := sorted(o.rules)
		said, err := got[i].reply.Text()
		if err != nil {
			t.Errorf("step %d of %+v: %v", i, o.rules, err)
			return steps, refused
		}
		if first == 0 {
			first = len(rules)
		}
		r, err := parse(o.call, first, rules, []any{said})
		if err != nil || !reflect.DeepEqual(r.verdict, v) || got[i].own.text.Val() != own.text() || got[i].total.text.Val() != total.text() {
			t.Errorf("step %d of %+v:\nat %d, %d %+v\nbefore    %v and %v\nLua says  %q, read as %+v, %v, and holds %q and %q\nthe model %+v and holds %q and %q",
				i, o.rules, o.at, o.mode, o.call, was, wasTotal, said, r, err, got[i].own.text.Val(), got[i].total.text.Val(), v, own.text(), total.text())
			return steps, refused
		}
		steps++
		if !v.allowed {
			refused++
		}
		if v.written {
			o.compareLife(t, v, got[i])
		}
	}
	return steps, refused
}

// compareLife looks for a key that lives shorter than any of its rules remembers, or longer by more than a second.
func (o *operation) compareLife(t *testing.T, v verdict, got observed) {
	t.Helper()
	_, first := sorted(o.rules)
	for _, key := range []struct {
		rules []answer
		life  time.Duration
	}{{v.rules[:first], got.own.life.Val()}, {v.rules[first:], got.total.life.Val()}} {
		want := int64(0)
		for _, a := range key.rules {
			want = max(want, a.reset)
		}
		whole := time.Duration(millis(want)+1000) * time.Millisecond
		if len(key.rules) > 0 && want < forever/2 && (key.life > whole || key.life < whole-30*time.Second) {
			t.Errorf("%+v: a key lives for %v, want %v", o, key.life, whole)
		}
	}
}

// A bucket never gives more than burst + rate * time, in any interval; a refused take and a peek leave its state as it was.
func TestNoIntervalGetsMoreThanTheBurstAndTheRate(t *testing.T) {
	r := newRandom(t)
	for range *sequences {
		rule := valid(t, Rule{ID: "b", Algorithm: TokenBucket, Limit: r.count(), PeriodMS: r.periodMS(), Burst: r.count()})
		x, states := rule[0].exactly(0), make([]state, 1)
		at, taken, times := int64(T0), []int64{}, []int64{}
		for range 30 {
			at += max(0, r.step())
			c := r.request(rule)
			before := states[0]
			v := decide(at, take, c.cost, c.least, []exact{x}, states)
			if !v.allowed && states[0] != before {
				t.Fatalf("refused, and %v became %v", before, states[0])
			}
			taken, times = append(taken, v.granted), append(times, at)
		}
		for from := range taken {
			sum := big.NewInt(0)
			for to := from; to < len(taken); to++ {
				sum.Add(sum, big.NewInt(taken[to]))
				// sum <= burst + limit * elapsed / period, with nothing rounded
				micros := big.NewInt(rule[0].PeriodMS * 1000)
				left := new(big.Int).Mul(sum, micros)
				right := new(big.Int).Mul(big.NewInt(rule[0].Burst), micros)
				right.Add(right, new(big.Int).Mul(big.NewInt(x.limit), big.NewInt(times[to]-times[from]+x.unit)))
				if left.Cmp(right) > 0 {
					t.Fatalf("%+v: %v in %d us", rule[0], sum, times[to]-times[from])
				}
			}
		}
	}
}

// A refused take passes when it was told to come back, if nobody else takes, and not a unit of time before.
func TestARefusedTakePassesWhenItWasTold(t *testing.T) {
	r := newRandom(t)
	told := 0
	for range *sequences {
		rules := r.rules(t)
		exacts, states := make([]exact, len(rules)), make([]state, len(rules))
		for i := range rules {
			exacts[i] = rules[i].exactly(0)
		}
		at := int64(T0) + r.Int64N(86_400*second)
		for range 12 {
			at += max(0, r.step())
			c := r.request(rules)
			v := decide(at, take, c.cost, c.least, exacts, states)
			wait := int64(0)
			for _, a := range v.rules {
				if wait >= 0 && (a.retry < 0 || a.retry > wait) {
					wait = a.retry
				}
			}
			if v.allowed || wait < 0 || wait > forever/2 {
				continue
			}
			told++
			if later := decide(at+wait, peek, c.cost, c.least, exacts, states); !later.allowed {
				t.Fatalf("%+v: refused at %d, told to wait for %d us, refused again\n%+v\n%+v", rules, at, wait, v, later)
			}
			if early := decide(at+wait-1, peek, c.cost, c.least, exacts, states); early.allowed {
				t.Fatalf("%+v: refused at %d, told to wait for %d us, and would have passed earlier", rules, at, wait)
			}
		}
	}
	t.Logf("%d takes were told", told)
}
