package ratelimit

import (
	"errors"
	"slices"
	"strings"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/packed"
)

// Statuses of the script beside 0 and 1.
const (
	statusReplay   = -20
	statusMismatch = -21
)

var errBadReply = errors.New("ratelimit: the script returned something else than it does")

// parse reads the reply of the script: what there was, and when. The answer is what the model makes of it; it must have granted what the
// script has. Errors: idempotency_mismatch; backend_error and corrupt_value for what no script of ours has written.
func parse(c call, first int, rules []Rule, values []any) (reply, error) {
	switch status, _ := values[0].(int64); status {
	case statusMismatch:
		return reply{}, store.OtherRequest()
	case statusReplay:
		r, err := parseRecord(values)
		if err != nil {
			return r, store.NewError(store.CodeCorruptValue, "what is kept of the first request with this Idempotency-Key cannot be read").WithCause(err)
		}
		return r, nil
	}
	text, _ := values[0].(string)
	d := decided{mode: c.mode, cost: c.cost, least: c.least, rules: c.exactly(rules), first: int64(first), ids: ids(rules)}
	r, err := d.again(text)
	if err != nil {
		return r, store.NewError(store.CodeBackendError, "").WithCause(err)
	}
	return r, nil
}

// decided is what the script was asked, with the rules in the order of its keys.
type decided struct {
	mode        mode
	cost, least int64
	rules       []exact
	ids         []string
	first       int64 // so many are those of the first key
}

// again decides here what the script has, by its reply.
func (d *decided) again(text string) (r reply, err error) {
	if d.first < 1 || d.first > int64(len(d.rules)) || len(d.ids) != len(d.rules) {
		return r, errBadReply
	}
	granted, now, states, err := d.read(text)
	if err != nil {
		return r, err
	}
	r.verdict = decide(now, d.mode, d.cost, d.least, d.rules, states)
	if r.order, r.asked, r.text = d.ids, *d, text; d.mode != peek && r.granted != granted {
		return r, errBadReply
	}
	return r, nil
}

// read takes the script's reply apart.
func (d *decided) read(text string) (granted, now int64, states []state, err error) {
	p := packed.Reader{Rest: text}
	granted, now = p.Number(), p.Number()
	own, e1 := readStates(p.Text(), d.rules[:d.first])
	total, e2 := readStates(p.Rest, d.rules[d.first:])
	return granted, now, slices.Concat(own, total), errors.Join(p.Err, e1, e2)
}

// regrant makes r what it would be if this part of what was granted had been asked for. It is made of what the record keeps alone, so that
// a repetition says the same.
func (r *reply) regrant(granted int64) {
	d := &r.asked
	if _, now, states, err := d.read(r.text); err == nil { // as it was the first time
		r.rules = decide(now, d.mode, granted, granted, d.rules, states).rules
	}
}

// parseRecord reads what the script has kept: its reply, what it was asked, and the ids of the rules.
func parseRecord(values []any) (reply, error) {
	if len(values) != 2 {
		return reply{}, errBadReply
	}
	kept, _ := values[1].(string)
	p := packed.Reader{Rest: kept}
	text := p.Text()
	asked := packed.Reader{Rest: p.Text()}
	d := decided{ids: strings.Split(p.Rest, ","), mode: mode(asked.Number()), cost: asked.Number(), least: asked.Number()}
	asked.Number() // the clock
	d.first = asked.Number()
	count := asked.Number()
	if d.rules = readRules(&asked); p.Err != nil || asked.Err != nil || count != int64(len(d.rules)) {
		return reply{}, errBadReply
	}
	r, err := d.again(text)
	r.replayed = true
	return r, err
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
