package handlers

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// getRateLimit is GET /v1/ratelimits/{name}.
func (a *API) getRateLimit(r request) error {
	d, err := a.limits.Show(r.ctx, r.id, r.limit())
	if err != nil {
		return err
	}
	return a.answerLimit(r, d)
}

// putRateLimit is PUT /v1/ratelimits/{name}.
func (a *API) putRateLimit(r request) error {
	cond := r.condition()
	def := body(a, &r, parseDefinition)
	if r.bad != nil {
		return r.bad
	}
	d, err := a.limits.Define(r.ctx, r.id, r.limit(), def, cond)
	if err != nil {
		return err
	}
	return a.answerLimit(r, d)
}

// deleteRateLimit is DELETE /v1/ratelimits/{name}.
func (a *API) deleteRateLimit(r request) error {
	cond := r.match()
	if r.bad != nil {
		return r.bad
	}
	if err := a.limits.Delete(r.ctx, r.id, r.limit(), cond); err != nil {
		return err
	}
	return r.done(http.StatusNoContent)
}

// getRateLimitOverride is GET /v1/ratelimits/{name}/overrides/{subject}.
func (a *API) getRateLimitOverride(r request) error {
	unless := r.unless()
	if r.bad != nil {
		return r.bad
	}
	o, err := a.limits.ShowOverride(r.ctx, r.id, r.limit(), r.key)
	if err != nil {
		return err
	}
	r.Header("ETag", o.ETag)
	if unless.matchesWeakly(o.ETag) {
		return r.done(http.StatusNotModified)
	}
	return r.answer(r.reply().override(r.key, &o))
}

// putRateLimitOverride is PUT /v1/ratelimits/{name}/overrides/{subject}.
func (a *API) putRateLimitOverride(r request) error {
	cond := r.condition()
	override := body(a, &r, parseOverride)
	if r.bad != nil {
		return r.bad
	}
	etag, err := a.limits.Override(r.ctx, r.id, r.limit(), r.key, override, cond)
	if err != nil {
		return err
	}
	r.Header("ETag", etag)
	return r.done(http.StatusNoContent)
}

// deleteRateLimitOverride is DELETE /v1/ratelimits/{name}/overrides/{subject}.
func (a *API) deleteRateLimitOverride(r request) error {
	cond := r.match()
	if r.bad != nil {
		return r.bad
	}
	if err := a.limits.DeleteOverride(r.ctx, r.id, r.limit(), r.key, cond); err != nil {
		return err
	}
	return r.done(http.StatusNoContent)
}

// resetRateLimitSubject is DELETE /v1/ratelimits/{name}/subjects/{subject}.
func (a *API) resetRateLimitSubject(r request) error {
	r.unconditional()
	if r.bad != nil {
		return r.bad
	}
	if err := a.limits.Reset(r.ctx, r.id, r.limit(), r.key); err != nil {
		return err
	}
	return r.done(http.StatusNoContent)
}

// takeRateLimit is POST /v1/ratelimits/{name}/take.
func (a *API) takeRateLimit(r request) error {
	r.unconditional()
	enforce := r.word("enforce", "true", "false") == "true"
	take := body(a, &r, parseTake)
	if r.bad != nil {
		return r.bad
	}
	verdict, err := a.limits.Take(r.ctx, r.id, r.limit(), take, r.idempotency())
	if err != nil {
		return err
	}
	r.answered(verdict.Replayed, verdict.Allowed && !verdict.Shadowed)
	r.limitHeaders(take.Subject, verdict)
	if enforce && !verdict.Allowed {
		return errRefused(r.limit(), verdict)
	}
	return r.answer(r.reply().verdict(verdict))
}

// peekRateLimit is POST /v1/ratelimits/{name}/peek.
func (a *API) peekRateLimit(r request) error {
	r.unconditional()
	take := body(a, &r, parseTake)
	if r.bad != nil {
		return r.bad
	}
	verdict, err := a.limits.Peek(r.ctx, r.id, r.limit(), take)
	if err != nil {
		return err
	}
	r.limitHeaders(take.Subject, verdict)
	return r.answer(r.reply().verdict(verdict))
}

// refundRateLimit is POST /v1/ratelimits/{name}/refund.
func (a *API) refundRateLimit(r request) error {
	r.unconditional()
	refund := body(a, &r, parseRefund)
	if r.bad != nil {
		return r.bad
	}
	verdict, err := a.limits.Refund(r.ctx, r.id, r.limit(), refund, r.idempotency())
	if err != nil {
		return err
	}
	r.answered(verdict.Replayed, verdict.Allowed && !verdict.Shadowed)
	r.limitHeaders(refund.Subject, verdict)
	return r.answer(r.reply().verdict(verdict))
}

// takeRateLimits is POST /v1/ratelimits/take.
func (a *API) takeRateLimits(r request) error {
	r.unconditional()
	takes := body(a, &r, parseTakes)
	if r.bad != nil {
		return r.bad
	}
	if err := store.Charge(r.ctx, int64(len(takes))-1); err != nil {
		return err
	}
	results, err := a.limits.TakeMany(r.ctx, r.id, takes)
	if err != nil {
		return err
	}
	j, failed := r.reply().raw(`{"items":[`), false
	for i := range results {
		if i > 0 {
			j.raw(",")
		}
		if e := results[i].Problem; e != nil {
			failed = true
			j.raw(`{"problem":`).problem(e, false).raw("}")
			continue
		}
		j.raw(`{"verdict":`).verdict(results[i].Verdict).raw("}")
	}
	return r.answer(j.raw(`],"errors":`).bool(failed).raw("}"))
}

// limit is the name in the path. It is not decoded: no character that a name may have is ever encoded by a client that means it.
func (r *request) limit() string { return r.Param("name") }

// errRefused is the answer to a take that enforce makes a refusal of the request.
func errRefused(name string, v limits.Verdict) error {
	e := store.NewError(store.CodeQuotaExceeded, "the rate limit refuses")
	if v.LimitedBy != nil {
		e.Policies = []string{name + "/" + *v.LimitedBy}
	}
	e.RetryAfter = time.Duration(max(v.RetryAfterMS, 1)) * time.Millisecond
	return e
}

// answerLimit answers a definition with its ETag.
func (a *API) answerLimit(r request, d *limits.Defined) error {
	r.Header("ETag", d.ETag)
	j := r.reply().raw(`{"name":`).string(r.limit()).raw(`,"version":`).int(d.Version)
	j.raw(`,"isolation":`).string(string(d.Isolation)).raw(`,"on_error":`).string(string(d.OnError)).raw(`,"shadow":`).bool(d.Shadow)
	j.raw(`,"rules":`).rules(d.Rules).raw(`,"overrides":[`)
	first, now := true, a.now()
	for _, subject := range slices.Sorted(maps.Keys(d.Overrides)) {
		o := d.Overrides[subject]
		if o.Over(now) {
			continue
		}
		if !first {
			j.raw(",")
		}
		first = false
		j.override(subject, &o)
	}
	return r.answer(j.raw("]}"))
}

// override adds what one subject has instead of the definition.
func (r *reply) override(subject string, o *limits.Override) *reply {
	r.raw("{").nameOf("subject", subject, keyUTF8).raw(`,"rules":`).rules(o.Rules)
	if !o.ExpiresAt.IsZero() {
		r.raw(`,"expires_at":`).string(o.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
	return r.raw(`,"etag":`).string(o.ETag).raw("}")
}

// rules adds the rules of a limit, without what they have not.
func (r *reply) rules(rules []ratelimit.Rule) *reply {
	r.raw("[")
	for i := range rules {
		rule := &rules[i]
		if i > 0 {
			r.raw(",")
		}
		r.raw(`{"id":`).string(rule.ID).raw(`,"scope":`).string(string(rule.Scope)).raw(`,"algorithm":`).string(string(rule.Algorithm))
		r.raw(`,"limit":`).int(rule.Limit).raw(`,"period_ms":`).int(rule.PeriodMS)
		if rule.Burst != 0 {
			r.raw(`,"burst":`).int(rule.Burst)
		}
		if rule.Mode != "" {
			r.raw(`,"mode":`).string(string(rule.Mode))
		}
		if rule.Align != "" {
			r.raw(`,"align":`).string(string(rule.Align))
		}
		if rule.TZOffsetMin != 0 {
			r.raw(`,"tz_offset_min":`).int(int64(rule.TZOffsetMin))
		}
		r.raw("}")
	}
	return r.raw("]")
}

// verdict adds what a limit says.
func (r *reply) verdict(v limits.Verdict) *reply {
	r.raw(`{"allowed":`).bool(v.Allowed).raw(`,"granted":`).int(v.Granted)
	if v.LimitedBy != nil {
		r.raw(`,"limited_by":`).string(*v.LimitedBy)
	}
	r.raw(`,"retry_after_ms":`).int(v.RetryAfterMS).raw(`,"wait_ms":`).int(v.WaitMS).raw(`,"source":`).string(string(v.Source))
	if v.Shadowed {
		r.raw(`,"shadowed":true`)
	}
	r.raw(`,"rules":[`)
	for i := range v.Rules {
		rule := &v.Rules[i]
		if i > 0 {
			r.raw(",")
		}
		r.raw(`{"id":`).string(rule.ID).raw(`,"limit":`).int(rule.Limit).raw(`,"period_ms":`).int(rule.PeriodMS)
		r.raw(`,"remaining":`).int(rule.Remaining).raw(`,"reset_ms":`).int(rule.ResetMS)
		r.raw(`,"retry_after_ms":`).int(rule.RetryAfterMS).raw(`,"wait_ms":`).int(rule.WaitMS).raw("}")
	}
	return r.raw("]}")
}

// limitHeaders adds the rules that were asked to RateLimit-Policy and RateLimit. They stand behind the app's own limits in the same
// list, as the fields are made for: named limit/rule, which no limit of an app can be called, and with a partition key (pk) that
// stands for the subject, so that a client which obeys the fields does not take a subject's quota for its own.
func (r *request) limitHeaders(subject string, v limits.Verdict) {
	if v.Source == ratelimit.FailedOpen {
		return
	}
	pk := ";pk=:" + limits.PartitionKey(subject) + ":"
	var policy, left []byte
	for i := range v.Rules {
		rule := &v.Rules[i]
		if i > 0 {
			policy, left = append(policy, ", "...), append(left, ", "...)
		}
		name := `"` + r.limit() + "/" + rule.ID + `"`
		count, window := wholeSeconds(rule.Limit, rule.PeriodMS)
		policy = append(policy, name+";q="+fieldNumber(count)+";w="+strconv.FormatInt(window, 10)+pk...)
		left = append(left, name+";r="+fieldNumber(rule.Remaining)+";t="+strconv.FormatInt((rule.ResetMS+999)/1000, 10)+pk...)
	}
	r.addToList("Ratelimit-Policy", string(policy))
	r.addToList("Ratelimit", string(left))
}

// fieldNumber writes a number as large as a field can have (RFC 9651, 3.3.1): one digit more, and no client could read the list, in which
// the app's own limits are too.
func fieldNumber(n int64) string { return strconv.FormatInt(min(n, 999_999_999_999_999), 10) }

// addToList adds to a header field whose value is a list, in one line: not every client joins lines.
func (r *request) addToList(name, value string) {
	h := r.Writer.Header()
	if had := first(h[name]); had != "" {
		value = had + ", " + value
	}
	h[name] = []string{value}
}

// wholeSeconds writes a limit in a window of whole seconds, at least one, because the fields know no others.
func wholeSeconds(limit, periodMS int64) (count, seconds int64) {
	seconds = (periodMS + 999) / 1000
	if seconds*1000 != periodMS {
		limit = int64(float64(limit) * float64(seconds*1000) / float64(periodMS))
	}
	return limit, seconds
}
