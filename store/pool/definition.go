package pool

import (
	"fmt"
	"regexp"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/faults"
)

// Bounds of a definition.
const (
	MaxLeaseMS     = 43_200_000 // 12 h, as SQS has it: what is held longer is no lease
	DefaultLeaseMS = 30_000
	MaxPerMember   = 1_000_000
	MaxStickyMS    = 30 * 24 * hourMS
	// DefaultPerMember is MaxPerMember of adaptive: so many callers at most have taken a member before the first of them can report that it is dead.
	DefaultPerMember = 8
)

// Policy is how a pool chooses.
type Policy string

// The policies.
const (
	// LeastUsed takes the member with the fewest allocations, of several the first by its bytes.
	LeastUsed Policy = "least_used"
	// RoundRobin takes one after the other, in the order in which they were added.
	RoundRobin Policy = "round_robin"
	// WeightedRoundRobin does so in proportion to the weights; see Variant.
	WeightedRoundRobin Policy = "weighted_round_robin"
	// WeightedRandom draws, in proportion to the weights: the one policy that callers cannot foretell.
	WeightedRandom Policy = "weighted_random"
	// LeastInflight takes the member with the fewest leases, of several the first by its bytes, and leases it.
	LeastInflight Policy = "least_inflight"
	// AdaptivePolicy draws in proportion to the weights times what reports say of the members; see Adaptive.
	AdaptivePolicy Policy = "adaptive"
)

// Variant is how weighted_round_robin mixes.
type Variant string

// The variants.
const (
	Smooth  Variant = "smooth"  // as nginx does: spread as evenly as the weights allow; the default
	Classic Variant = "classic" // as LVS does: the heavy first, in rounds that sink; anew after each change of the members
)

// Restore is with which count a member comes back that was not available.
type Restore string

// The ways. `min` is the lowest count of the members that are available, 0 if there is none.
const (
	CatchUp Restore = "catchup" // its own, at least min; the default
	Keep    Restore = "keep"    // its own: it gets everything until it has caught up
	Zero    Restore = "zero"    // 0: likewise
	Min     Restore = "min"     // min
)

// Lease is how members of a pool are leased.
type Lease struct {
	DefaultMS int64 `json:"default_ms,omitempty"` // of an allocation by least_inflight that names none; 0 = 30 s
	// MaxMS is how long one may last, renewals counted, up to 12 h; 0 = 12 h.
	MaxMS int64 `json:"max_ms,omitempty"`
	// MaxPerMember is how many leases a member has at most, up to 1,000,000; 0 = of least_inflight any number, of adaptive 8. Allocations without a
	// lease are not counted. Other policies have none.
	MaxPerMember int64 `json:"max_per_member,omitempty"`
	// Abandoned, of adaptive, is what a lease says of its member that expires before it is completed.
	Abandoned Abandoned `json:"abandoned,omitempty"`
}

// Abandoned is what is made of abandoned leases.
type Abandoned string

// The ways.
const (
	Ignores Abandoned = "ignore"  // nothing: as often as the member it is the worker that has died; the default
	Fails   Abandoned = "failure" // as a report of a failure
)

// Definition is a pool without its members. Empty fields have the default named above; it is used after Validate.
type Definition struct {
	Policy  Policy  `json:"policy"`
	Variant Variant `json:"variant,omitempty"` // of weighted_round_robin
	Restore Restore `json:"restore,omitempty"`
	Lease   Lease   `json:"lease,omitzero"`
	// StickyMS is how long a sticky key is known after its last use: an hour, up to 30 days.
	StickyMS int64 `json:"sticky_ms,omitempty"`
	// Adaptive is of adaptive.
	Adaptive Adaptive `json:"adaptive,omitzero"`
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// CheckName says whether a pool can have this name. Error: validation_failed at path:pool.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return store.Invalid("path:pool", fmt.Sprintf("%.80q is not the name of a pool; use 1 to 64 of A-Z a-z 0-9 . _ -", name))
	}
	return nil
}

// Validate finds every fault and fills in the defaults. Error: validation_failed, with a field for each fault.
func (d *Definition) Validate() error {
	var f faults.List
	if d.Policy == "" {
		f.Add("/policy", "is missing; use least_used, round_robin, weighted_round_robin, weighted_random, adaptive or least_inflight")
	} else {
		faults.Choose(&f, "/policy", &d.Policy, LeastUsed, RoundRobin, WeightedRoundRobin, WeightedRandom, AdaptivePolicy, LeastInflight)
	}
	if d.Policy == WeightedRoundRobin {
		faults.Choose(&f, "/variant", &d.Variant, Smooth, Classic)
	} else {
		f.Only("/variant", d.Variant != "", string(WeightedRoundRobin))
	}
	faults.Choose(&f, "/restore", &d.Restore, CatchUp, Keep, Zero, Min)
	if d.StickyMS == 0 {
		d.StickyMS = hourMS
	}
	f.Between("/sticky_ms", d.StickyMS, 1, MaxStickyMS)
	d.Lease.validate(&f, d.Policy)
	if d.Policy == AdaptivePolicy {
		d.Adaptive.validate(&f)
	} else {
		f.Only("/adaptive", d.Adaptive != Adaptive{}, string(AdaptivePolicy))
	}
	return f.Problem()
}

func (l *Lease) validate(f *faults.List, p Policy) {
	if l.MaxMS == 0 {
		l.MaxMS = MaxLeaseMS
	}
	f.Between("/lease/max_ms", l.MaxMS, 1, MaxLeaseMS)
	if l.DefaultMS == 0 {
		l.DefaultMS = min(DefaultLeaseMS, max(l.MaxMS, 1))
	}
	f.Between("/lease/default_ms", l.DefaultMS, 1, min(max(l.MaxMS, 1), MaxLeaseMS))
	f.Between("/lease/max_per_member", l.MaxPerMember, 0, MaxPerMember)
	switch p {
	case AdaptivePolicy:
		if l.MaxPerMember == 0 {
			l.MaxPerMember = DefaultPerMember
		}
		faults.Choose(f, "/lease/abandoned", &l.Abandoned, Ignores, Fails)
		return
	case LeastInflight:
	default:
		f.Only("/lease/max_per_member", l.MaxPerMember != 0, "least_inflight and adaptive")
	}
	f.Only("/lease/abandoned", l.Abandoned != "", string(AdaptivePolicy))
}
