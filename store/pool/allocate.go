package pool

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/faults"
	"github.com/slotgate/slotgate/store/packed"
)

// Bounds of an allocation.
const (
	MaxCount   = 16
	MaxExclude = 64 // members; each is one more that Redis looks at
)

// Request is an allocation.
type Request struct {
	Exclude []string `json:"exclude,omitempty"` // members not to choose: those that have just failed the caller
	// Count is how many are allocated, 1 to 16; 0 = 1. It is as that many allocations one after the other, so that a member may be
	// among them several times.
	Count int `json:"count,omitempty"`
	// LeaseMS is how long each is leased, up to the pool's max_ms; 0 = not at all, of least_inflight the pool's default_ms.
	LeaseMS int64 `json:"lease_ms,omitempty"`
	// Sticky names who asks, in 1 to 256 bytes; "" = nobody. Who was allocated to it before is allocated again, as long as the policy could
	// choose it and for the pool's sticky_ms. The turn of the others is not moved by that.
	Sticky string `json:"sticky,omitempty"`
}

// Validate finds every fault. Error: validation_failed.
func (r *Request) Validate(d *Definition) error {
	var f faults.List
	f.Between("/count", int64(r.Count), 0, MaxCount)
	if r.LeaseMS != 0 {
		f.Between("/lease_ms", r.LeaseMS, 1, d.Lease.MaxMS)
	}
	if len(r.Sticky) > MaxMember {
		f.Add("/sticky", "has %d bytes; give %d at most", len(r.Sticky), MaxMember)
	}
	if len(r.Exclude) > MaxExclude {
		f.Add("/exclude", "has %d members; give %d at most", len(r.Exclude), MaxExclude)
	}
	for i, m := range r.Exclude[:min(len(r.Exclude), MaxExclude)] {
		checkMember(&f, fmt.Sprintf("/exclude/%d", i), m)
	}
	return f.Problem()
}

// Allocated is one choice.
type Allocated struct {
	Member      string
	Meta        string // a JSON object; "" = it has none
	Allocations int64  // of the member so far, this one counted
	Lease       *Held  // nil = none
	Mode        Mode   // of adaptive
}

// Mode is how adaptive has come to its choice.
type Mode string

// The modes.
const (
	Normal Mode = ""      // by weight
	Trial  Mode = "trial" // of a member that was ejected: at most once a second, and its report decides
	Panic  Mode = "panic" // too few members are healthy, so all of them are used
)

// Held is a lease.
type Held struct {
	ID string // for who holds it alone
	// Fence is greater than that of every lease of the pool before. What the lease protects should refuse a smaller one than it has seen.
	Fence       int64
	ExpiresAtMS int64 // since 1970, by the clock of Redis
}

// modes are in the order of the script's numbers.
var modes = [4]Mode{Normal, Trial, Panic}

// Reason is why nobody was allocated.
type Reason string

// The reasons.
const (
	Empty     Reason = "empty"     // no member is available
	Excluded  Reason = "excluded"  // none that is not excluded
	NoWeight  Reason = "no_weight" // none that has a weight
	Cooling   Reason = "cooling"   // none until one has cooled
	Saturated Reason = "saturated" // all have max_per_member leases
)

// reasons are in the order of the script's statuses, from -1 down.
var reasons = []Reason{Empty, Excluded, NoWeight, Cooling, Saturated}

// Result is what was allocated: Count, or fewer if there were no more to have; then never none. With none there is a reason.
type Result struct {
	// Policy and Version are those of the definition by which it was chosen.
	Policy    Policy
	Version   int64
	Allocated []Allocated
	Reason    Reason // "" = there are some
	// RetryAfterMS is when that may change by itself; 0 = unknown.
	RetryAfterMS int64
}

const (
	// maxRounds is how often a choice is tried: when others have come back that had cooled, 100 members each time, or abandoned leases were ended.
	maxRounds = 2 + 2*MaxMembers/100
	// reapedAtOnce is how many of these one ends, or a caller would wait for the neglect of others.
	reapedAtOnce = 32
)

// Allocate chooses members. With i.Key set, a repetition has the answer of the first time that there was one; that there is nobody is
// not kept. replayed says so. Errors: those of Request.Validate, ErrNoPool, forbidden, idempotency_mismatch, corrupt_value, or an outcome.
func (p *Pools) Allocate(ctx context.Context, id *acl.Identity, pool Pool, r *Request, i store.Idempotency) (res Result, replayed bool, err error) {
	if err := r.Validate(pool.Definition); err != nil {
		return res, false, err
	}
	c := choiceOf(pool.Definition, r)
	if c.script == nil {
		return res, false, store.NewError(store.CodeCorruptValue, "the definition of the pool has a policy that this gateway does not know")
	}
	k := keysOf(id, pool.Name)
	t := attempt{choice: c, pool: pool, keys: k, name: poolOf(id, k), request: r, once: i}
	if t.limited() && p.views.isLarge(t.name) {
		t.enlarge(true)
	}
	for range maxRounds {
		if t.chosen {
			if err := p.draw(ctx, id, &t); err != nil {
				return res, false, store.NotDone(err)
			}
		}
		names, argv := p.words(&t)
		values, err := p.run(ctx, id, CommandAllocate, t.script, names, argv...)
		if err != nil {
			return res, false, err
		}
		a, err := readAnswer(values)
		if err != nil {
			return res, false, err
		}
		final, why, err := p.prepare(ctx, id, &t, a.status)
		switch {
		case err != nil:
			return res, false, store.NotDone(err)
		case why != "":
			return Result{Policy: pool.Definition.Policy, Version: pool.Version, Reason: why}, false, nil
		case final:
			res, err = t.result(a)
			return res, a.replayed, err
		}
	}
	return res, false, store.NewError(store.CodeBackendError, "the pool changes faster than its members can be chosen")
}

// attempt is an allocation until it has an answer.
type attempt struct {
	choice
	pool    Pool
	keys    keys
	name    string // of the pool, among all
	request *Request
	once    store.Idempotency
	args    []byte // ARGV[1]; nil = to be made
	onward  bool   // it goes on though leases have expired
	plans   int    // how many schedules were made for it
}

// words are the keys and arguments of the script.
func (p *Pools) words(t *attempt) ([]string, []any) {
	names := t.choice.keys(t.keys)
	if t.request.Sticky != "" {
		names = append(names, t.keys.sticky(t.request.Sticky))
	}
	if t.args == nil || t.chosen {
		t.args = p.arguments(t.choice, t.request)
	}
	if t.onward {
		_ = packed.Append(t.args[:onwardAt], 1) // in place
	}
	names, argv := p.keep(t.keys, t.once, names, []any{t.args})
	if t.once.Key != "" {
		argv = append(argv, t.about())
	}
	return names, argv
}

// prepare does what a script has asked for by its status before it can choose. final says that it has chosen, or has found nobody; a reason
// says so for it.
func (p *Pools) prepare(ctx context.Context, id *acl.Identity, t *attempt, status int64) (final bool, why Reason, err error) {
	switch status {
	case statusCooled:
		err = p.cooled(ctx, id, t.keys, t.pool.Definition)
		p.views.changed(t.name)
	case statusExpired:
		var reaped Reaped
		if reaped, err = p.reap(ctx, id, t.pool, CommandAllocate, reapedAtOnce); err == nil {
			p.Reaped(id, t.pool.Name, reaped)
		}
		t.onward = true
		p.views.changed(t.name)
	case statusSize:
		t.enlarge(!t.large)
		p.views.setLarge(t.name, t.large)
	case statusPlan:
		if t.leaveSchedule() {
			break
		}
		err = p.plan(ctx, id, t.keys, t.variant, len(t.request.Exclude) > 0)
	case statusFar:
		if t.leaveSchedule() {
			break
		}
		why, err = p.replan(ctx, id, t.keys, t.variant, leading{turns: t.count, exclude: t.request.Exclude})
	case statusStale:
		t.fewer = true
		p.views.changed(t.name)
	default:
		return true, "", nil
	}
	return false, why, err
}

// choice is how a request is decided.
type choice struct {
	script *store.Script       // nil = none of ours
	more   func(keys) []string // keys of the policy beside st and cnt
	drawn  bool                // it needs random numbers
	adapts *Adaptive           // its settings; nil = it does not
	count  int
	micros int64 // of the lease, 0 = none
	sticky int64 // ms that a sticky key is known, 0 = there is none
	most   int64 // leases of a member, 0 = any number

	variant Variant // of weighted_round_robin
	large   bool    // it is by the script for more than 64 members
	chosen  bool    // of whom the gateway draws
	list    []drawn
	why     Reason // why it has drawn nobody
	fewer   bool   // it takes fewer than count, since it has read again who is left
	view    *view
}

// limited says whether the script is for 64 members at most.
func (c *choice) limited() bool { return c.variant != "" || c.drawn }

func choiceOf(d *Definition, r *Request) choice {
	c := choice{count: max(r.Count, 1), sticky: d.StickyMS, micros: r.LeaseMS * 1000, more: keys.none}
	if r.Sticky == "" {
		c.sticky = 0
	}
	switch d.Policy {
	case LeastUsed:
		c.script = scriptLeastUsed
	case RoundRobin:
		c.script, c.more = scriptRoundRobin, keys.ordered
	case WeightedRoundRobin:
		c.script, c.more, c.variant = scriptSmooth, keys.weighted, d.Variant
		if d.Variant == Classic {
			c.script = scriptClassic
		}
	case WeightedRandom:
		c.script, c.more, c.drawn = scriptRandom, keys.summed, true
	case AdaptivePolicy:
		c.script, c.more, c.drawn, c.adapts, c.most = scriptAdaptive, keys.known, true, &d.Adaptive, d.Lease.MaxPerMember
	case LeastInflight:
		c.script, c.most = scriptLeastInflight, d.Lease.MaxPerMember
		if c.micros == 0 {
			c.micros = d.Lease.DefaultMS * 1000
		}
	}
	return c
}

func (k keys) none() []string     { return nil }
func (k keys) ordered() []string  { return []string{k.ring()} }
func (k keys) weighted() []string { return []string{k.weights(), k.ring()} }
func (k keys) summed() []string   { return []string{k.ring(), k.sums(), k.weights()} }
func (k keys) known() []string    { return []string{k.ring(), k.health(), k.weights(), k.adaptiveSums()} }

// keys are KEYS of the script without the record.
func (c *choice) keys(k keys) []string {
	names := append([]string{k.state(), k.counts()}, c.more(k)...)
	if c.micros > 0 {
		names = append(names, k.held()...)
	}
	return append(names, k.members())
}

// onwardAt is where arguments say whether to go on though leases have expired.
const onwardAt = 6 * 8

const sizeOfID = 22 // 128 bits in base64

// arguments are ARGV[1] of the script.
func (p *Pools) arguments(c choice, r *Request) []byte {
	b := make([]byte, 0, 8*7+c.count*(8+sizeOfID))
	b = packed.Append(b, p.Clock(), int64(c.count), c.micros, c.most, int64(len(r.Exclude)), c.sticky, 0)
	for _, m := range r.Exclude {
		b = packed.AppendText(b, m)
	}
	switch {
	case c.chosen:
		b = c.view.given(b, &c)
	case c.large:
		b = packed.Append(b, map[Variant]int64{Smooth: 1, Classic: 2}[c.variant])
	case c.adapts != nil:
		b = c.adapts.append(b)
		fallthrough
	case c.drawn:
		for range c.count {
			b = packed.AppendFraction(b, p.Draw())
		}
	}
	if c.micros > 0 {
		for range c.count {
			var id [16]byte
			rand.Read(id[:]) // never fails
			b = base64.RawURLEncoding.AppendEncode(b, id[:])
		}
	}
	return b
}

// about is what is kept before an answer, since the repetition may come when the pool has another definition: what the answer has of each
// member, and by which definition it was chosen.
func (t *attempt) about() string {
	b := packed.Append([]byte(t.shape()), t.pool.Version)
	return string(packed.AppendText(b, string(t.pool.Definition.Policy)))
}

// shape says what the answer has of each member.
func (c *choice) shape() string {
	shape := byte('0')
	if c.micros > 0 {
		shape |= leased
	}
	if c.adapts != nil {
		shape |= moded
	}
	return string(shape)
}

const (
	leased byte = 1 << iota
	moded
)

// result reads what the script has answered.
func (t *attempt) result(a answer) (Result, error) {
	shape, policy, version := t.shape(), t.pool.Definition.Policy, t.pool.Version
	if a.replayed {
		q := packed.Reader{Rest: a.text}
		shape, version, policy = q.Bytes(1), q.Number(), Policy(q.Text())
		if q.Err != nil || shape < "0" || shape > "3" {
			return Result{}, store.NewError(store.CodeCorruptValue, "what is kept of the first request with this Idempotency-Key cannot be read")
		}
		a.text = q.Rest
	}
	res, err := parse(shape[0], a)
	res.Policy, res.Version = policy, version
	return res, err
}

// metaUnit is by how much the length of meta counts more than that of a member, with which it is in one number.
const metaUnit = 512

func parse(shape byte, a answer) (res Result, err error) {
	if a.status < 0 {
		if int(-a.status) > len(reasons) {
			return res, badReply()
		}
		return Result{Reason: reasons[-a.status-1], RetryAfterMS: a.wait}, nil
	}
	for q := (packed.Reader{Rest: a.text}); ; {
		m := Allocated{Allocations: q.Number()}
		if shape&leased != 0 {
			m.Lease = &Held{Fence: q.Number(), ExpiresAtMS: q.Number() / 1000, ID: q.Bytes(sizeOfID)}
		}
		sizes := q.Number()
		m.Member = q.Bytes(sizes % metaUnit)
		if sizes >= metaUnit {
			m.Meta = q.Bytes(sizes / metaUnit)
		}
		if shape&moded != 0 {
			m.Mode = modes[q.Number()&3]
		}
		if q.Err != nil {
			return Result{}, badReply()
		}
		if res.Allocated = append(res.Allocated, m); q.Rest == "" {
			return res, nil
		}
	}
}
