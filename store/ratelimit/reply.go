package ratelimit

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/slotgate/slotgate/store"
)

// Statuses of the script beside 0 and 1.
const (
	statusReplay   = -20
	statusMismatch = -21
)

var errBadReply = errors.New("ratelimit: the script returned something else than it does")

// parse reads the reply of the script for rules, or the record in it. Errors: idempotency_mismatch; backend_error and corrupt_value
// for what no script of ours has written.
func parse(values []any, rules []Rule) (reply, error) {
	status, _ := values[0].(int64)
	switch status {
	case statusMismatch:
		return reply{}, store.OtherRequest()
	case statusReplay:
		r, err := parseRecord(values)
		if err != nil {
			return r, store.NewError(store.CodeCorruptValue, "what is kept of the first request with this Idempotency-Key cannot be read").WithCause(err)
		}
		return r, nil
	}
	numbers := make([]int64, len(values))
	for i, v := range values {
		n, ok := v.(int64)
		if !ok {
			return reply{}, store.NewError(store.CodeBackendError, "").WithCause(errBadReply)
		}
		numbers[i] = n
	}
	r, ok := read(numbers)
	if !ok || len(r.rules) != len(rules) {
		return reply{}, store.NewError(store.CodeBackendError, "").WithCause(errBadReply)
	}
	r.order = strings.Split(ids(rules), ",")
	return r, nil
}

// parseRecord reads "<numbers>;<ids>", both with commas between.
func parseRecord(values []any) (reply, error) {
	if len(values) != 2 {
		return reply{}, errBadReply
	}
	text, _ := values[1].(string)
	list, names, _ := strings.Cut(text, ";")
	var numbers []int64
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return reply{}, errBadReply
		}
		numbers = append(numbers, n)
	}
	r, ok := read(numbers)
	if r.order = strings.Split(names, ","); !ok || len(r.order) != len(r.rules) {
		return reply{}, errBadReply
	}
	r.replayed = true
	return r, nil
}

// read reads {allowed, granted, limiting, then four for each rule}.
func read(n []int64) (r reply, ok bool) {
	if len(n) < 7 || (len(n)-3)%4 != 0 {
		return reply{}, false
	}
	r.allowed, r.granted, r.limiting = n[0] == 1, n[1], int(n[2])
	for i := 3; i < len(n); i += 4 {
		r.rules = append(r.rules, answer{n[i], n[i+1], n[i+2], n[i+3]})
	}
	return r, r.limiting >= 0 && r.limiting <= len(r.rules)
}

// result puts a reply into the words of the API and the order of rules. A rule that a kept answer does not know, because it was
// added since, is left out.
func (r *reply) result(rules []Rule, m mode) Result {
	res := Result{Allowed: r.allowed, Granted: r.granted, Source: FromRedis, Rules: make([]RuleResult, 0, len(rules))}
	limiting := r.limiting
	for i := range r.rules {
		a := &r.rules[i]
		if !r.allowed && m != refund && later(a.retry, res.RetryAfterMS) {
			res.RetryAfterMS, limiting = millis(a.retry), i+1
		}
		res.WaitMS = max(res.WaitMS, millis(a.wait))
	}
	if limiting > 0 {
		res.LimitedBy = &r.order[limiting-1]
	}
	for _, rule := range rules {
		i := slices.Index(r.order, rule.ID)
		if i < 0 || i >= len(r.rules) {
			continue
		}
		a := r.rules[i]
		res.Rules = append(res.Rules, RuleResult{ID: rule.ID, Limit: rule.Limit, PeriodMS: rule.PeriodMS, Remaining: a.remaining,
			ResetMS: millis(a.reset), RetryAfterMS: millis(a.retry), WaitMS: millis(a.wait)})
	}
	return res
}

// later says whether a retry in us is later than one in ms; never, -1, is later than all.
func later(micros, ms int64) bool { return ms != -1 && (micros == -1 || millis(micros) > ms) }

// millis rounds up, so that who comes then is not early; -1 stays.
func millis(micros int64) int64 {
	if micros < 0 {
		return -1
	}
	return (micros + 999) / 1000
}
