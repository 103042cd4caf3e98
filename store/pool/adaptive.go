package pool

import (
	"context"
	"errors"
	"fmt"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/faults"
	"github.com/slotgate/slotgate/store/packed"
)

// Adaptive is how adaptive follows the reports on members. The weight of a healthy member is what it was given times
//
//	1 - (latency / baseline - 1, at least 0) - 10 * rate of errors - 5 * (saturation above 0.8)
//
// and Floor at least. A degraded one has at most a share that grows with the time since its last fault; one that is ejected gets trials
// alone. A change of weight may take 200 ms to be seen, one of state takes none. All that was reported loses half of its weight in each HalfLifeMS. Zero fields have the default.
type Adaptive struct {
	HalfLifeMS int64   `json:"half_life_ms,omitempty"` // 10 s; 100 ms to an hour
	Floor      float64 `json:"floor,omitempty"`        // of the weight, so that recovery is seen: 0.1; 0.001 to 1
	// RecoverMS is how long one that was degraded must be without a fault to be healthy: 30 s; up to an hour.
	RecoverMS     int64   `json:"recover_ms,omitempty"`
	FailThreshold int64   `json:"fail_threshold,omitempty"` // failures in a row that eject: 5; 2 to 1,000
	FailSpanMS    int64   `json:"fail_span_ms,omitempty"`   // time that two of them may span until they do: 5 s; up to an hour
	EjectMS       int64   `json:"eject_ms,omitempty"`       // the first ejection, each further one is twice as long: 5 s; up to an hour
	EjectMaxMS    int64   `json:"eject_max_ms,omitempty"`   // the longest: 5 minutes; EjectMS to a day
	Panic         float64 `json:"panic,omitempty"`          // share of members below which not to eject: 0.5; 0.01 to 1
	// DegradeLatencyFactor times the baseline, or DegradeErrorRate, degrades: 2, 1.1 to 1,000, and 0.05, 0.001 to 1.
	DegradeLatencyFactor float64 `json:"degrade_latency_factor,omitempty"`
	DegradeErrorRate     float64 `json:"degrade_error_rate,omitempty"`
	BaselineMS           int64   `json:"baseline_ms,omitempty"` // the usual latency, up to an hour; 0 = the median of the members
}

const hourMS = 3_600_000

func (a *Adaptive) validate(f *faults.List) {
	whole := func(field string, n *int64, usual, least, most int64) {
		if *n == 0 {
			*n = usual
		}
		f.Between("/adaptive/"+field, *n, least, most)
	}
	part := func(field string, x *float64, usual, least, most float64) {
		if *x == 0 {
			*x = usual
		}
		if !(*x >= least && *x <= most) { // also not a number
			f.Add("/adaptive/"+field, "is %g; give %g to %g", *x, least, most)
		}
	}
	whole("half_life_ms", &a.HalfLifeMS, 10_000, 100, hourMS)
	part("floor", &a.Floor, 0.1, 0.001, 1)
	whole("recover_ms", &a.RecoverMS, 30_000, 1, hourMS)
	whole("fail_threshold", &a.FailThreshold, 5, 2, 1000)
	whole("fail_span_ms", &a.FailSpanMS, 5000, 1, hourMS)
	whole("eject_ms", &a.EjectMS, 5000, 1, hourMS)
	whole("eject_max_ms", &a.EjectMaxMS, max(300_000, a.EjectMS), max(a.EjectMS, 1), 24*hourMS)
	part("panic", &a.Panic, 0.5, 0.01, 1)
	part("degrade_latency_factor", &a.DegradeLatencyFactor, 2, 1.1, 1000)
	part("degrade_error_rate", &a.DegradeErrorRate, 0.05, 0.001, 1)
	whole("baseline_ms", &a.BaselineMS, 0, 0, hourMS)
}

// settings are those that d has of adaptive. Of another policy they are the usual ones: what is reported now counts when it becomes adaptive.
func (d *Definition) settings() *Adaptive {
	a := d.Adaptive
	if a == (Adaptive{}) {
		a.validate(new(faults.List))
	}
	return &a
}

// append packs the settings as health.lua has them.
func (a *Adaptive) append(b []byte) []byte {
	for _, x := range [...]float64{
		float64(a.HalfLifeMS) * 1000, a.Floor, float64(a.RecoverMS) * 1000, float64(a.FailThreshold), float64(a.FailSpanMS) * 1000,
		float64(a.EjectMS) * 1000, float64(a.EjectMaxMS) * 1000, a.Panic, a.DegradeLatencyFactor, a.DegradeErrorRate, float64(a.BaselineMS),
	} {
		b = packed.AppendFraction(b, x)
	}
	return b
}

// MaxReports is how many one request may have.
const MaxReports = 100

// Experience is what became of the use of a member.
type Experience string

// The experiences.
const (
	Success  Experience = "success"
	Failure  Experience = "failure" // at once: its latency says nothing
	TimedOut Experience = "timeout" // a failure that was waited for
)

var experiences = []Experience{Success, Failure, TimedOut}

// Report is what a caller says of its use of a member.
type Report struct {
	Member    string     `json:"member"`
	Outcome   Experience `json:"outcome"`
	LatencyMS float64    `json:"latency_ms,omitempty"` // up to a day, 0 = unknown; of a failure it is not used
	// Saturation is how busy the member says it is, 0 to 1; nil = unknown. Above 0.8 it loses weight.
	Saturation *float64 `json:"saturation,omitempty"`
}

// ValidateReports finds every fault of a list. Error: validation_failed; pointers begin with at.
func ValidateReports(at string, list []Report) error {
	var f faults.List
	if len(list) == 0 || len(list) > MaxReports {
		f.Add(at, "has %d reports; give 1 to %d", len(list), MaxReports)
		return f.Problem()
	}
	for i := range list {
		here := fmt.Sprintf("%s/%d", at, i)
		checkMember(&f, here+"/member", list[i].Member)
		list[i].validate(&f, here)
	}
	return f.Problem()
}

// ValidateUse finds every fault of a report that names no member yet. Error: validation_failed.
func (r *Report) ValidateUse() error {
	var f faults.List
	r.validate(&f, "")
	return f.Problem()
}

func (r *Report) validate(f *faults.List, at string) {
	if r.Outcome == "" {
		f.Add(at+"/outcome", "is missing; use success, failure or timeout")
	} else {
		faults.Choose(f, at+"/outcome", &r.Outcome, experiences...)
	}
	if !(r.LatencyMS >= 0 && r.LatencyMS <= 24*hourMS) {
		f.Add(at+"/latency_ms", "is %g; give 0 to %d", r.LatencyMS, 24*hourMS)
	}
	if r.Saturation != nil && !(*r.Saturation >= 0 && *r.Saturation <= 1) {
		f.Add(at+"/saturation", "is %g; give 0 to 1", *r.Saturation)
	}
}

// Condition is the state of a member's health.
type Condition string

// The conditions.
const (
	Healthy   Condition = "healthy"
	Degraded  Condition = "degraded"
	Unhealthy Condition = "unhealthy" // it is ejected, and gets trials
	Unknown   Condition = "unknown"   // there is no such member, or it is not available
)

var conditions = []Condition{Healthy, Degraded, Unhealthy, Unknown}

// Health is what the reports on a member come to.
type Health struct {
	Member    string    `json:"member"`
	Condition Condition `json:"state"`
	Factor    float64   `json:"factor"`     // by which its weight counts, Floor to 1
	LatencyMS float64   `json:"latency_ms"` // with five samples at the baseline supposed
	Changed   bool      `json:"changed"`    // it has another condition since this report
	Ejections int64     `json:"ejections"`  // since it was healthy: its next one is 2^n times as long as the first
}

// Report takes reports, in their order and at one time, and returns the health after each. Those on members that have left change nothing.
// Errors: validation_failed, ErrNoPool, forbidden, or an outcome.
func (p *Pools) Report(ctx context.Context, id *acl.Identity, pool Pool, list []Report) ([]Health, error) {
	if err := ValidateReports("/reports", list); err != nil {
		return nil, err
	}
	var b []byte
	for i := range list {
		r := &list[i]
		outcome, saturation := 0, -1.0
		for n, e := range experiences {
			if e == r.Outcome {
				outcome = n
			}
		}
		if r.Saturation != nil {
			saturation = *r.Saturation
		}
		b = packed.AppendFraction(packed.AppendFraction(packed.Append(b, int64(outcome)), r.LatencyMS), saturation)
		b = packed.AppendText(b, r.Member)
	}
	text, err := p.report(ctx, id, pool, CommandReport, b)
	if err != nil {
		return nil, err
	}
	q := packed.Reader{Rest: text}
	all, changed := make([]Health, len(list)), false
	for i := range all {
		all[i] = readHealth(&q)
		all[i].Member = list[i].Member
		changed = changed || all[i].Changed
	}
	if changed {
		p.views.changed(poolOf(id, keysOf(id, pool.Name)))
	}
	return all, whole(&q)
}

// Health is that of all eligible members, in the order of the ring. Errors: ErrNoPool, forbidden, or an outcome.
func (p *Pools) Health(ctx context.Context, id *acl.Identity, pool Pool) (all []Health, err error) {
	text, err := p.report(ctx, id, pool, CommandShow)
	if errors.Is(err, errLarge) {
		var large bool
		if all, large, err = p.healthOfLarge(ctx, id, pool); large || err != nil {
			return all, err
		}
		text, err = p.report(ctx, id, pool, CommandShow) // it has just become small
	}
	if err != nil {
		return nil, err
	}
	q := packed.Reader{Rest: text}
	for q.Rest != "" {
		h := readHealth(&q)
		h.Member = q.Text()
		all = append(all, h)
	}
	return all, whole(&q)
}

// errLarge says that the gateway has to compute what the script would need too long for.
var errLarge = errors.New("pool: it is large")

// report runs the script of reports, or with none that which tells the health of all. Error: also errLarge, of the latter.
func (p *Pools) report(ctx context.Context, id *acl.Identity, pool Pool, command string, reports ...any) (string, error) {
	k := keysOf(id, pool.Name)
	name := poolOf(id, k)
	names := []string{k.ring(), k.health(), k.adaptiveSums(), k.state()}
	settings := pool.Definition.settings()
	for range 3 {
		b := settings.append(packed.AppendFraction(packed.Append(nil, p.Clock()), p.Draw()))
		if settings.BaselineMS == 0 && len(reports) > 0 && p.views.isLarge(name) {
			usual, err := p.usual(ctx, id, pool, command)
			if err != nil {
				return "", err
			}
			b = packed.AppendFraction(b[:len(b)-8], usual) // the last of the settings
		}
		values, err := p.run(ctx, id, command, scriptReport, names, append([]any{b}, reports...)...)
		if err != nil {
			return "", err
		}
		if values[0] != any(int64(statusSize)) {
			text, ok := values[0].(string)
			if !ok {
				return "", badReply()
			}
			return text, nil
		}
		if p.views.setLarge(name, true); len(reports) == 0 {
			return "", errLarge
		}
	}
	return "", store.NewError(store.CodeBackendError, "the pool changes faster than its members can be weighed")
}

func readHealth(p *packed.Reader) (h Health) {
	h.Condition, h.Factor, h.LatencyMS, h.Changed = conditions[p.Number()&3], p.Fraction(), p.Fraction(), p.Number() == 1
	h.Ejections = p.Number()
	return h
}

// whole says whether all was read, and was right.
func whole(p *packed.Reader) error {
	if p.Err != nil || p.Rest != "" {
		return badReply()
	}
	return nil
}
