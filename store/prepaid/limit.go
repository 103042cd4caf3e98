package prepaid

import (
	"strings"
	"time"

	"github.com/slotgate/slotgate/store/ratelimit"
)

// Slack is the part of a limit, per period, that all gateways together may hold or owe, in percent.
const Slack = 2

// Never is the RetryAfter of what no wait would help.
const Never = -1

// Mode is how exactly a limit is kept.
type Mode uint8

// The modes.
const (
	Prepaid Mode = iota // tokens are drawn ahead; the default
	Exact               // each take asks Redis, and is never let through beyond the rule
)

// OnError is what is answered while Redis does not: ratelimit.Local (and "") decides for this gateway's part of the limit, in memory.
type OnError = ratelimit.OnError

// Limit is one number to keep, for one subject.
type Limit struct {
	Cluster string // where it is kept
	Key     string // made by Key
	// Rule is valid (ratelimit.Definition.Validate) and no shaper: nobody would wait for its turn here.
	Rule    ratelimit.Rule
	Mode    Mode
	OnError OnError
}

// Key is where Redis keeps a limit: `slotgate:l:{namespace/limit}`, or `slotgate:l:{namespace/limit|subject}`. The subject may have any bytes;
// namespace and limit have no brace, slash or bar.
func Key(namespace, limit, subject string) string {
	var b strings.Builder
	b.WriteString("slotgate:l:{")
	b.WriteString(namespace)
	b.WriteByte('/')
	b.WriteString(limit)
	if subject != "" {
		b.WriteByte('|')
		b.WriteString(ratelimit.Encode(subject))
	}
	b.WriteByte('}')
	return b.String()
}

// Verdict is what becomes of a request.
type Verdict uint8

// The verdicts.
const (
	Allowed     Verdict = iota + 1
	Denied              // the limit is used up
	Unavailable         // Redis does not answer, and the limit is to refuse then
	Ask                 // of Try alone: Take must be called, and may wait for Redis
)

// Decision is a verdict and how the limit stands, as far as this gateway knows.
type Decision struct {
	Verdict Verdict
	// Unasked says that Redis should have been asked and did not answer: the verdict is that of Limit.OnError.
	Unasked bool
	// Remaining is how many tokens could be taken now, the least 0.
	Remaining int64
	// Next is when, in nanoseconds from now, Remaining grows: a bucket's next token, the end of a window; 0 = it is all there.
	Next int64
	// RetryAfter, of Denied and Unavailable, is when the same take may pass, in nanoseconds from now; Never = not at all.
	RetryAfter int64
}

// terms are a limit with what follows from it. They are not changed.
type terms struct {
	Limit
	capacity int64
	bucket   bool
	period   int64   // ns
	perToken int64   // ns, at least 1
	rate     float64 // tokens in a ns
	most     int64   // the most Remaining
}

func newTerms(l Limit) *terms {
	t := &terms{Limit: l, capacity: l.Rule.Capacity(), period: l.Rule.PeriodMS * int64(time.Millisecond)}
	switch l.Rule.Algorithm {
	case ratelimit.FixedWindow, ratelimit.SlidingWindow:
		t.most = l.Rule.Limit
	default:
		t.bucket, t.most = true, l.Rule.Burst
	}
	t.perToken = max(t.period/l.Rule.Limit, 1)
	t.rate = float64(l.Rule.Limit) / float64(t.period)
	return t
}

// share is how many tokens one of so many gateways may hold or owe; 0 = each take must ask, as if there are 0 = nobody knows how many. Not more than a quarter of what can be taken at once:
// a small burst is there to be kept.
func (t *terms) share(gateways int64) int64 {
	if t.Mode != Prepaid || gateways == 0 {
		return 0
	}
	total := t.Rule.Limit/100*Slack + t.Rule.Limit%100*Slack/100
	return min(total, t.capacity/4) / gateways
}

// part is the limit of one gateway that must decide alone, at least a token.
func (t *terms) part(gateways int64) ratelimit.Rule {
	r := t.Rule
	r.Limit = max(r.Limit/gateways, 1)
	if r.Burst > 0 {
		r.Burst = max(r.Burst/gateways, 1)
	}
	return r
}
