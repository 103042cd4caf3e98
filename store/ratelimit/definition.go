package ratelimit

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/faults"
)

// Bounds of a definition.
const (
	MaxRules    = 10      // of a limit; each costs Redis about 1 us for every take
	MaxCount    = 1 << 53 // tokens: what Lua, whose numbers are doubles, counts exactly
	MaxPeriodMS = 366 * 24 * 3600 * 1000
	MaxWaitMS   = 60_000 // of a reservation: a caller that waits longer has left
	maxTZOffset = 14 * 60
)

// Algorithm is how a rule counts.
type Algorithm string

// The algorithms. What each lets through at most in any window as long as its period:
const (
	TokenBucket   Algorithm = "token_bucket"   // limit + burst
	GCRA          Algorithm = "gcra"           // the same by another name
	LeakyBucket   Algorithm = "leaky_bucket"   // limit + burst as a policer, limit + 1 as a shaper, counted when the waits are over
	FixedWindow   Algorithm = "fixed_window"   // 2 * limit, across a border
	SlidingWindow Algorithm = "sliding_window" // about limit: the window before counts in proportion, as if its takes had been even
)

// Scope is who shares a rule.
type Scope string

// The scopes.
const (
	PerSubject Scope = "subject" // each subject has its own; the default
	PerLimit   Scope = "limit"   // one for all subjects together: the total
)

// Mode is what a leaky bucket does with a take that comes too early.
type Mode string

// The modes.
const (
	Policer Mode = "policer" // refuses what overflows the bucket; the default
	Shaper  Mode = "shaper"  // lets it wait its turn, one token after the other, in a queue of burst tokens
)

// Align is where the windows of a fixed window begin.
type Align string

// The alignments.
const (
	AlignEpoch    Align = "epoch"     // at multiples of the period since 1970 in UTC, moved by TZOffsetMin; the default
	AlignFirstHit Align = "first_hit" // at the first take after the window before
)

// Isolation is where the state of a limit lies.
type Isolation string

// The isolations.
const (
	// Atomic keeps a limit with all its subjects in one slot: rules of both scopes are decided in one step. The default.
	Atomic Isolation = "atomic"
	// Partitioned spreads the subjects over the cluster. Rules of scope limit are a second step, undone at the subject if it is
	// refused: never more is let through, and less by the takes that are about to be undone.
	Partitioned Isolation = "partitioned"
)

// OnError is what a take answers when Redis cannot be asked.
type OnError string

// The ways.
const (
	Open   OnError = "open"   // allowed; the default
	Closed OnError = "closed" // 503
	Local  OnError = "local"  // decided by the gateway alone, for its share of the limit
)

// Rule is one condition of a limit. Empty fields have the default named above; a rule is used after Validate of its definition.
type Rule struct {
	ID        string    `json:"id"`
	Scope     Scope     `json:"scope,omitempty"`
	Algorithm Algorithm `json:"algorithm"`
	// Limit is how many tokens each PeriodMS gives, 1 to 2^53.
	Limit    int64 `json:"limit"`
	PeriodMS int64 `json:"period_ms"` // 1 to 366 days
	// Burst, of buckets: how many tokens can be taken at once, for a shaper how many may queue; 0 = Limit.
	Burst int64 `json:"burst,omitempty"`
	Mode  Mode  `json:"mode,omitempty"`  // of leaky_bucket
	Align Align `json:"align,omitempty"` // of fixed_window
	// TZOffsetMin, of fixed_window aligned to the epoch: minutes east of UTC in which a day begins, -840 to 840. Fixed: no summer time.
	TZOffsetMin int `json:"tz_offset_min,omitempty"`
}

// Definition is a limit: the rules that a take must meet all, and what happens around them.
type Definition struct {
	Isolation Isolation `json:"isolation,omitempty"`
	OnError   OnError   `json:"on_error,omitempty"`
	// Shadow decides and counts, and lets everything through: for the days before a limit is enforced.
	Shadow bool   `json:"shadow,omitempty"`
	Rules  []Rule `json:"rules"`
}

// Override has other numbers for one subject.
type Override struct {
	// Rules replace those of the definition with the same ids, all of scope subject. The others stay.
	Rules []Rule `json:"rules"`
	// ExpiresAt is when the definition holds again; zero = never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	nameRule    = "1 to 64 of A-Z a-z 0-9 . _ -"
)

// batchName is where many limits are taken from at once: a limit of this name could not be reached.
const batchName = "take"

// CheckName says whether a limit can have this name. Error: validation_failed at path:name.
func CheckName(name string) error {
	if name == batchName {
		return store.Invalid("path:name", "no limit can be called take: POST /v1/ratelimits/take takes from many; use another name")
	}
	if !namePattern.MatchString(name) {
		return store.Invalid("path:name", fmt.Sprintf("%.80q is not the name of a limit; use %s", name, nameRule))
	}
	return nil
}

// Validate finds every fault and fills in the defaults. Error: validation_failed, with a field for each fault.
func (d *Definition) Validate() error {
	var f faults.List
	faults.Choose(&f, "/isolation", &d.Isolation, Atomic, Partitioned)
	faults.Choose(&f, "/on_error", &d.OnError, Open, Closed, Local)
	checkRules(&f, d.Rules)
	return f.Problem()
}

// Validate checks an override of d, which is valid, and fills in the defaults. Error: validation_failed.
func (o *Override) Validate(d *Definition) error {
	var f faults.List
	checkRules(&f, o.Rules)
	for i := range o.Rules {
		r := &o.Rules[i]
		was := slices.IndexFunc(d.Rules, func(other Rule) bool { return other.ID == r.ID })
		switch {
		case was < 0:
			f.Add(fmt.Sprintf("/rules/%d/id", i), "the limit has no rule %.80q; an override replaces rules by their id", r.ID)
		case d.Rules[was].Scope != PerSubject || r.Scope != PerSubject:
			f.Add(fmt.Sprintf("/rules/%d/scope", i), "only rules of scope subject can be overridden for a subject")
		}
	}
	return f.Problem()
}

// RulesFor is what holds now for a subject with the override o; nil = none. The result must not be changed.
func (d *Definition) RulesFor(o *Override, now time.Time) []Rule {
	if o == nil || !o.ExpiresAt.IsZero() && !now.Before(o.ExpiresAt) {
		return d.Rules
	}
	rules := slices.Clone(d.Rules)
	for _, r := range o.Rules {
		if i := slices.IndexFunc(rules, func(other Rule) bool { return other.ID == r.ID }); i >= 0 && rules[i].Scope == PerSubject {
			rules[i] = r
		}
	}
	return rules
}

func checkRules(f *faults.List, rules []Rule) {
	if len(rules) == 0 || len(rules) > MaxRules {
		f.Add("/rules", "there are %d rules; give 1 to %d", len(rules), MaxRules)
	}
	seen := make(map[string]bool, len(rules))
	for i := range rules[:min(len(rules), MaxRules)] {
		r, at := &rules[i], fmt.Sprintf("/rules/%d", i)
		switch {
		case !namePattern.MatchString(r.ID):
			f.Add(at+"/id", "%.80q is not the id of a rule; use %s", r.ID, nameRule)
		case seen[r.ID]:
			f.Add(at+"/id", "%q is the id of an earlier rule; each needs its own", r.ID)
		}
		seen[r.ID] = true
		r.validate(f, at)
	}
}

func (r *Rule) validate(f *faults.List, at string) {
	faults.Choose(f, at+"/scope", &r.Scope, PerSubject, PerLimit)
	if r.Algorithm == "" {
		f.Add(at+"/algorithm", "is missing; use token_bucket, gcra, leaky_bucket, fixed_window or sliding_window")
	} else {
		faults.Choose(f, at+"/algorithm", &r.Algorithm, TokenBucket, GCRA, LeakyBucket, FixedWindow, SlidingWindow)
	}
	f.Between(at+"/limit", r.Limit, 1, MaxCount)
	f.Between(at+"/period_ms", r.PeriodMS, 1, MaxPeriodMS)
	r.validateBucket(f, at)
	r.validateWindow(f, at)
}

func (r *Rule) validateBucket(f *faults.List, at string) {
	if !r.bucket() {
		f.Only(at+"/burst", r.Burst != 0, "buckets")
		f.Only(at+"/mode", r.Mode != "", "leaky_bucket")
		return
	}
	if r.Burst == 0 {
		r.Burst = r.Limit
	}
	f.Between(at+"/burst", r.Burst, 1, MaxCount)
	if r.Algorithm != LeakyBucket {
		f.Only(at+"/mode", r.Mode != "", "leaky_bucket")
		return
	}
	faults.Choose(f, at+"/mode", &r.Mode, Policer, Shaper)
}

func (r *Rule) validateWindow(f *faults.List, at string) {
	if r.Algorithm == FixedWindow {
		faults.Choose(f, at+"/align", &r.Align, AlignEpoch, AlignFirstHit)
	} else {
		f.Only(at+"/align", r.Align != "", "fixed_window")
	}
	if r.Align != AlignEpoch {
		f.Only(at+"/tz_offset_min", r.TZOffsetMin != 0, "fixed_window aligned to the epoch")
	}
	f.Between(at+"/tz_offset_min", int64(r.TZOffsetMin), -maxTZOffset, maxTZOffset)
}

// bucket says whether the rule is a bucket and not a window.
func (r *Rule) bucket() bool {
	return r.Algorithm == TokenBucket || r.Algorithm == GCRA || r.Algorithm == LeakyBucket
}

func (r *Rule) shaper() bool { return r.Algorithm == LeakyBucket && r.Mode == Shaper }
