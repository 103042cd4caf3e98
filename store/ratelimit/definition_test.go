package ratelimit

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
)

// fields are the pointers of an error's faults.
func fields(t testing.TB, err error, code store.Code) string {
	t.Helper()
	var e *store.Error
	if !errors.As(err, &e) || e.Code != code || e.Status() != 422 {
		t.Fatalf("got %v, want %s", err, code)
	}
	var all []string
	for _, f := range e.Fields {
		if f.Detail == "" {
			t.Errorf("%s: no detail", f.Pointer)
		}
		all = append(all, f.Pointer)
	}
	return strings.Join(all, " ")
}

func TestBadDefinitions(t *testing.T) {
	good := bucketOf("b", 60, 60_000, 60)
	with := func(change func(*Rule)) []Rule {
		r := good
		change(&r)
		return []Rule{r}
	}
	eleven := make([]Rule, 11)
	for i := range eleven {
		eleven[i] = bucketOf(string(rune('a'+i)), 1, 1000, 1)
	}
	for _, c := range []struct {
		name string
		d    Definition
		want string
	}{
		{"no rules", Definition{}, "/rules"},
		{"eleven rules", Definition{Rules: eleven}, "/rules"},
		{"two rules with one id", Definition{Rules: []Rule{good, good}}, "/rules/1/id"},
		{"a rule without id", Definition{Rules: with(func(r *Rule) { r.ID = "" })}, "/rules/0/id"},
		{"an id with a comma", Definition{Rules: with(func(r *Rule) { r.ID = "a,b" })}, "/rules/0/id"},
		{"a limit of 0", Definition{Rules: with(func(r *Rule) { r.Limit = 0 })}, "/rules/0/limit"},
		{"a negative limit", Definition{Rules: with(func(r *Rule) { r.Limit = -1 })}, "/rules/0/limit"},
		{"a limit over 2^53", Definition{Rules: with(func(r *Rule) { r.Limit = MaxCount + 1 })}, "/rules/0/limit"},
		{"a period of 0", Definition{Rules: with(func(r *Rule) { r.PeriodMS = 0 })}, "/rules/0/period_ms"},
		{"a period of 367 days", Definition{Rules: with(func(r *Rule) { r.PeriodMS = MaxPeriodMS + 1 })}, "/rules/0/period_ms"},
		{"a negative burst", Definition{Rules: with(func(r *Rule) { r.Burst = -1 })}, "/rules/0/burst"},
		{"a burst over 2^53", Definition{Rules: with(func(r *Rule) { r.Burst = MaxCount + 1 })}, "/rules/0/burst"},
		{"no algorithm", Definition{Rules: with(func(r *Rule) { r.Algorithm = "" })}, "/rules/0/algorithm /rules/0/burst"},
		{"an unknown algorithm", Definition{Rules: with(func(r *Rule) { r.Algorithm = "magic"; r.Burst = 0 })}, "/rules/0/algorithm"},
		{"an unknown scope", Definition{Rules: with(func(r *Rule) { r.Scope = "world" })}, "/rules/0/scope"},
		{"an unknown mode", Definition{Rules: with(func(r *Rule) { r.Algorithm, r.Mode = LeakyBucket, "drop" })}, "/rules/0/mode"},
		{"a mode of a token bucket", Definition{Rules: with(func(r *Rule) { r.Mode = Shaper })}, "/rules/0/mode"},
		{"a burst of a window", Definition{Rules: with(func(r *Rule) { r.Algorithm = SlidingWindow })}, "/rules/0/burst"},
		{"an unknown alignment", Definition{Rules: with(func(r *Rule) { r.Algorithm, r.Align, r.Burst = FixedWindow, "moon", 0 })}, "/rules/0/align"},
		{"an alignment of a bucket", Definition{Rules: with(func(r *Rule) { r.Align = AlignEpoch })}, "/rules/0/align"},
		{"a time zone of a sliding window", Definition{Rules: with(func(r *Rule) { r.Algorithm, r.TZOffsetMin, r.Burst = SlidingWindow, 60, 0 })}, "/rules/0/tz_offset_min"},
		{"a time zone that nobody has", Definition{Rules: with(func(r *Rule) { r.Algorithm, r.TZOffsetMin, r.Burst = FixedWindow, 841, 0 })}, "/rules/0/tz_offset_min"},
		{"an unknown isolation", Definition{Isolation: "none", Rules: []Rule{good}}, "/isolation"},
		{"an unknown on_error", Definition{OnError: "panic", Rules: []Rule{good}}, "/on_error"},
		{"two faults at once", Definition{OnError: "panic", Rules: with(func(r *Rule) { r.Limit = 0 })}, "/on_error /rules/0/limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fields(t, c.d.Validate(), store.CodeValidationFailed); got != c.want {
				t.Errorf("faults at %s, want %s", got, c.want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	d := Definition{Rules: []Rule{
		{ID: "t", Algorithm: TokenBucket, Limit: 60, PeriodMS: 60_000}, {ID: "l", Algorithm: LeakyBucket, Limit: 5, PeriodMS: 1000},
		{ID: "f", Algorithm: FixedWindow, Limit: 1, PeriodMS: 1},
	}}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	if d.Isolation != Atomic || d.OnError != Open || d.Rules[0].Scope != PerSubject || d.Rules[0].Burst != 60 || d.Rules[1].Mode != Policer || d.Rules[2].Align != AlignEpoch {
		t.Errorf("defaults: %+v", d)
	}
}

func TestOverrides(t *testing.T) {
	d := Definition{Rules: valid(t, bucketOf("own", 1, 1000, 1), Rule{ID: "total", Scope: PerLimit, Algorithm: FixedWindow, Limit: 9, PeriodMS: 1000})}
	for _, c := range []struct {
		name  string
		rules []Rule
		want  string
	}{
		{"without rules", nil, "/rules"},
		{"of a rule that is not there", []Rule{bucketOf("other", 1, 1, 1)}, "/rules/0/id"},
		{"of the total", []Rule{bucketOf("total", 1, 1, 1)}, "/rules/0/scope"},
		{"that makes a rule a total", []Rule{{ID: "own", Scope: PerLimit, Algorithm: FixedWindow, Limit: 1, PeriodMS: 1}}, "/rules/0/scope"},
	} {
		o := Override{Rules: c.rules}
		if got := fields(t, o.Validate(&d), store.CodeValidationFailed); got != c.want {
			t.Errorf("%s: faults at %s, want %s", c.name, got, c.want)
		}
	}
	now := time.Unix(1_800_000_000, 0)
	o := Override{Rules: []Rule{bucketOf("own", 100, 1000, 100)}, ExpiresAt: now.Add(time.Second)}
	if err := o.Validate(&d); err != nil {
		t.Fatal(err)
	}
	if got := d.RulesFor(&o, now); got[0].Limit != 100 || got[1].Limit != 9 || d.Rules[0].Limit != 1 {
		t.Errorf("overridden: %+v, the definition %+v", got, d.Rules)
	}
	if got := d.RulesFor(&o, o.ExpiresAt); got[0].Limit != 1 {
		t.Errorf("expired: %+v", got)
	}
}

func TestBadRequests(t *testing.T) {
	rules := valid(t, bucketOf("b", 10, 1000, 5), Rule{ID: "w", Algorithm: FixedWindow, Limit: 100, PeriodMS: 1000})
	for _, c := range []struct {
		name string
		r    Request
		code store.Code
		want string
	}{
		{"no subject", Request{}, store.CodeValidationFailed, "/subject"},
		{"a subject of 257 bytes", Request{Subject: strings.Repeat("x", 257)}, store.CodeValidationFailed, "/subject"},
		{"a cost of 0", Request{Subject: "u", Cost: ptr(0)}, store.CodeValidationFailed, "/cost"},
		{"a negative cost", Request{Subject: "u", Cost: ptr(-1)}, store.CodeValidationFailed, "/cost"},
		{"a cost over 2^53", Request{Subject: "u", Cost: ptr(MaxCount + 1)}, store.CodeValidationFailed, "/cost"},
		{"a cost over the burst", Request{Subject: "u", Cost: ptr(6)}, store.CodeCostExceedsLimit, "/cost"},
		{"a minimum of 0", Request{Subject: "u", Cost: ptr(5), MinGrant: ptr(0)}, store.CodeValidationFailed, "/min_grant"},
		{"a minimum over the cost", Request{Subject: "u", MinGrant: ptr(2)}, store.CodeValidationFailed, "/min_grant"},
		{"a minimum over the burst", Request{Subject: "u", Cost: ptr(9), MinGrant: ptr(6)}, store.CodeCostExceedsLimit, "/cost"},
		{"a negative wait", Request{Subject: "u", MaxWaitMS: -1}, store.CodeValidationFailed, "/max_wait_ms"},
		{"a wait of more than a minute", Request{Subject: "u", MaxWaitMS: 60_001}, store.CodeValidationFailed, "/max_wait_ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fields(t, c.r.Validate(rules), c.code); got != c.want {
				t.Errorf("faults at %s, want %s", got, c.want)
			}
		})
	}
	for name, r := range map[string]Request{
		"256 bytes":                    {Subject: strings.Repeat("x", 256)},
		"any bytes":                    {Subject: "{}:%\x00\xff"},
		"more than the burst, in part": {Subject: "u", Cost: ptr(50), MinGrant: ptr(5)},
		"more than the burst, waiting": {Subject: "u", Cost: ptr(7), MaxWaitMS: 200},
	} {
		if err := r.Validate(rules); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "a/b", "{a}", "ü", strings.Repeat("n", 65), "take"} {
		if CheckName(name) == nil {
			t.Errorf("%q can be the name of a limit", name)
		}
	}
	for _, name := range []string{"Api.v1_user-2", "Take", "takes", "peek"} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
}

// FuzzOverride: an override that a limit takes is stored and read as the same, and its rules are as sound as those it replaces.
func FuzzOverride(f *testing.F) {
	for _, seed := range []string{
		`{"rules":[{"id":"m","algorithm":"token_bucket","limit":600,"period_ms":60000}]}`,
		`{"rules":[{"id":"w","algorithm":"fixed_window","limit":9007199254740992,"period_ms":1,"tz_offset_min":-60}],"expires_at":"2999-01-01T00:00:00Z"}`,
		`{"rules":[{"id":"m","algorithm":"leaky_bucket","mode":"shaper","limit":1,"period_ms":31622400000,"burst":3},{"id":"w","algorithm":"gcra","limit":1,"period_ms":1}]}`,
		`{"rules":[{"id":"t","scope":"limit","algorithm":"gcra","limit":1,"period_ms":1}]}`, `{"rules":[{"id":"m"},{"id":"m"}]}`, `{"rules":null}`,
	} {
		f.Add(seed)
	}
	d := Definition{Rules: []Rule{
		{ID: "m", Algorithm: TokenBucket, Limit: 60, PeriodMS: 60_000}, {ID: "w", Algorithm: SlidingWindow, Limit: 5, PeriodMS: 1000},
		{ID: "t", Scope: PerLimit, Algorithm: GCRA, Limit: 9, PeriodMS: 1000},
	}}
	if err := d.Validate(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var o Override
		if json.Unmarshal([]byte(text), &o) != nil {
			return
		}
		if err := o.Validate(&d); err != nil {
			if e, ok := errors.AsType[*store.Error](err); !ok || e.Code != store.CodeValidationFailed || len(e.Fields) == 0 {
				t.Errorf("%s: %v", text, err)
			}
			return
		}
		stored, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var back Override
		if err := json.Unmarshal(stored, &back); err != nil || !slices.Equal(back.Rules, o.Rules) || !back.ExpiresAt.Equal(o.ExpiresAt) {
			t.Errorf("%s is stored as %s and read as %+v, %v", text, stored, back, err)
		}
		rules := d.RulesFor(&Override{Rules: o.Rules}, time.Unix(0, 0))
		if len(rules) != len(d.Rules) || rules[2] != d.Rules[2] {
			t.Errorf("%s makes %+v", text, rules)
		}
		for i := range rules {
			if x := rules[i].exactly(MaxWaitMS * 1000); x.period < 1 || x.unit < 1 || x.most > MaxCount || rules[i].capacity(0) < 1 {
				t.Errorf("%s: rule %d counts with %+v", text, i, x)
			}
		}
	})
}
