package ratelimit

import (
	"fmt"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/faults"
)

// MaxSubject is the longest subject in bytes.
const MaxSubject = 256

// Request is a take, a peek or, with Subject and Cost alone, a refund.
type Request struct {
	Subject string `json:"subject"` // who takes: 1 to 256 bytes, whichever they are
	// Cost is how many tokens are taken of each rule; nil = 1.
	Cost *int64 `json:"cost,omitempty"`
	// MinGrant is how many of them are enough; nil = all, a take is never granted in part.
	MinGrant *int64 `json:"min_grant,omitempty"`
	// MaxWaitMS is how long the caller would wait for its turn at a token bucket, in milliseconds, up to MaxWaitMS. Tokens that
	// are not there yet are then reserved, and Result.WaitMS says when they are.
	MaxWaitMS int64 `json:"max_wait_ms,omitempty"`
}

// Result is what became of a take, or would have become of it.
type Result struct {
	Allowed bool  `json:"allowed"`
	Granted int64 `json:"granted"` // tokens: the cost, less down to the minimum, or 0
	// LimitedBy is the id of the rule that refused, of several the one that does so longest, or that made the grant smaller than the
	// cost; nil = none.
	LimitedBy *string `json:"limited_by"`
	// RetryAfterMS is when the same take would pass if nobody else takes; 0 for one that has passed, -1 = never.
	RetryAfterMS int64  `json:"retry_after_ms"`
	WaitMS       int64  `json:"wait_ms"` // before what was granted may be used
	Source       Source `json:"source"`
	// Shadowed says that the limit is in shadow and would have refused.
	Shadowed bool         `json:"shadowed,omitempty"`
	Rules    []RuleResult `json:"rules"` // in the order of the definition; empty if Source is fail_open
}

// Source is who has decided.
type Source string

// The sources.
const (
	FromRedis  Source = "redis"
	FromLocal  Source = "local"
	FromCache  Source = "cache" // Redis, a moment ago; see package limits
	FailedOpen Source = "fail_open"
)

// RuleResult is the state of one rule after the take.
type RuleResult struct {
	ID        string `json:"id"`
	Limit     int64  `json:"limit"`
	PeriodMS  int64  `json:"period_ms"`
	Remaining int64  `json:"remaining"` // tokens that could be taken now
	ResetMS   int64  `json:"reset_ms"`  // until all are back, if nobody takes
	// RetryAfterMS and WaitMS are those of this rule alone, see Result.
	RetryAfterMS int64 `json:"retry_after_ms"`
	WaitMS       int64 `json:"wait_ms"`
}

// cost and least are the fields with their defaults.
func (r *Request) cost() int64 {
	if r.Cost == nil {
		return 1
	}
	return *r.Cost
}

func (r *Request) least() int64 {
	if r.MinGrant == nil {
		return r.cost()
	}
	return *r.MinGrant
}

// Validate finds every fault. Errors: validation_failed; cost_exceeds_limit, for what no rule of rules could ever grant.
func (r *Request) Validate(rules []Rule) error {
	var f faults.List
	if err := CheckSubject("/subject", r.Subject); err != nil {
		f.Add("/subject", "%s", err.Detail)
	}
	f.Between("/cost", r.cost(), 1, MaxCount)
	if r.MinGrant != nil {
		f.Between("/min_grant", *r.MinGrant, 1, max(r.cost(), 1))
	}
	f.Between("/max_wait_ms", r.MaxWaitMS, 0, MaxWaitMS)
	if err := f.Problem(); err != nil {
		return err
	}
	for i := range rules {
		if most := rules[i].capacity(r.MaxWaitMS * 1000); r.least() > most {
			detail := fmt.Sprintf("the rule %s grants %d at most at once; %d will never pass", rules[i].ID, most, r.least())
			return &store.Error{Code: store.CodeCostExceedsLimit, Detail: detail,
				Fields: []store.FieldError{{Pointer: "/cost", Code: string(store.CodeCostExceedsLimit), Detail: detail}}}
		}
	}
	return nil
}

// CheckSubject says whether there can be this subject. Error: validation_failed at pointer.
func CheckSubject(pointer, subject string) *store.Error {
	if len(subject) == 0 || len(subject) > MaxSubject {
		return store.Invalid(pointer, fmt.Sprintf("the subject has %d bytes; give 1 to %d", len(subject), MaxSubject))
	}
	return nil
}
