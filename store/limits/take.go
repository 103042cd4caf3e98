package limits

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/definitions"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// Verdict is what became of a take.
type Verdict struct {
	ratelimit.Result
	Replayed bool // an earlier request with the same Idempotency-Key has taken; this is its answer
}

// Take is one take of a batch.
type Take struct {
	Name string
	ratelimit.Request
}

// TakeResult is a verdict or a problem.
type TakeResult struct {
	Verdict Verdict
	Problem *store.Error // nil = there is a verdict
}

// limit is a limit as it holds for a request.
type limit struct {
	ratelimit.Limit
	key     string // of this limit alone among those of all apps
	version int64
}

// Take asks a limit and takes from it. Errors: forbidden, limit_not_found, those of ratelimit.Request, and limiter_unavailable where
// the definition wants it; those of a command only while the definition is not known here.
func (l *Limits) Take(ctx context.Context, id *acl.Identity, name string, r ratelimit.Request, once store.Idempotency) (Verdict, error) {
	start := l.Now()
	lim, err := l.limitFor(ctx, id, commandTake, name, &r)
	if err != nil {
		return Verdict{}, err
	}
	v, err := l.take(ctx, id, lim, &r, once)
	l.metrics.took(id, lim.Limit, v, err, l.Now().Sub(start))
	return v, err
}

func (l *Limits) take(ctx context.Context, id *acl.Identity, lim limit, r *ratelimit.Request, once store.Idempotency) (Verdict, error) {
	asked := l.Now()
	if once.Key == "" { // with it, the answer may be that of an earlier take
		if res, ok := l.blocked.find(asked, lim, r); ok {
			return Verdict{Result: res}, r.Validate(lim.Definition.RulesFor(lim.Override, asked))
		}
	}
	asking, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	res, replayed, err := l.Decide.Take(asking, id, lim.Limit, r, once)
	switch {
	case definitions.Unanswered(err):
		res, err = l.unasked(id, lim, r, err)
	case err == nil && !replayed:
		l.blocked.keep(asked, l.Now(), lim, r, res)
	}
	return Verdict{res, replayed}, err
}

// Peek is what Take would say. Errors: as Take, and those of a command: there is nobody to protect from a question.
func (l *Limits) Peek(ctx context.Context, id *acl.Identity, name string, r ratelimit.Request) (Verdict, error) {
	lim, err := l.limitFor(ctx, id, commandPeek, name, &r)
	if err != nil {
		return Verdict{}, err
	}
	res, err := l.Decide.Peek(ctx, id, lim.Limit, &r)
	return Verdict{Result: res}, err
}

// Refund gives back. Errors: as Peek.
func (l *Limits) Refund(ctx context.Context, id *acl.Identity, name string, r ratelimit.Request, once store.Idempotency) (Verdict, error) {
	lim, err := l.limitFor(ctx, id, commandRefund, name, &r)
	if err != nil {
		return Verdict{}, err
	}
	res, replayed, err := l.Decide.Refund(ctx, id, lim.Limit, &r, once)
	whose := r.Subject
	if hasTotal(lim.Definition) { // others may have been refused by it
		whose = ""
	}
	l.blocked.forgive(l.Now(), lim.key, whose) // with an error too, it may have been done
	return Verdict{res, replayed}, err
}

// Reset makes a subject's rules full again. Errors: as Peek.
func (l *Limits) Reset(ctx context.Context, id *acl.Identity, name, subject string) error {
	if err := ratelimit.CheckSubject("path:subject", subject); err != nil {
		return err
	}
	lim, err := l.limitFor(ctx, id, commandReset, name, &ratelimit.Request{Subject: subject})
	if err != nil {
		return err
	}
	err = l.Decide.Reset(ctx, id, lim.Limit, subject)
	l.blocked.forgive(l.Now(), lim.key, subject)
	return err
}

// limitFor is the limit as it holds for the subject of r.
func (l *Limits) limitFor(ctx context.Context, id *acl.Identity, command, name string, r *ratelimit.Request) (limit, error) {
	if err := store.Allow(id, command); err != nil {
		return limit{}, err
	}
	if err := ratelimit.CheckName(name); err != nil {
		return limit{}, err
	}
	d, err := l.defined.Lookup(ctx, id, command, name)
	if err != nil {
		return limit{}, err
	}
	lim := limit{Limit: ratelimit.Limit{Name: name, Definition: &d.Definition}, key: definitions.CacheKey(id, name), version: d.Version}
	if o, ok := d.Overrides[r.Subject]; ok {
		lim.Override = &o.Override
	}
	return lim, nil
}

// unasked answers a take that Redis has not.
func (l *Limits) unasked(id *acl.Identity, lim limit, r *ratelimit.Request, why error) (ratelimit.Result, error) {
	switch lim.Definition.OnError {
	case ratelimit.Closed:
		e := store.NewError(store.CodeLimiterUnavailable, "the rate limit did not answer in time, and is defined to refuse then").WithCause(why)
		e.RetryAfter = time.Second
		if failed, ok := errors.AsType[*store.Error](why); ok {
			e.Outcome = failed.Outcome
		}
		return ratelimit.Result{}, e
	case ratelimit.Local:
		share := ratelimit.Share{App: id.App.Cluster + " " + id.App.Namespace, Gateways: l.Gateways(id.App.Cluster)}
		return l.local.Take(l.Now(), share, lim.Limit, r)
	}
	return ratelimit.Result{Allowed: true, Granted: cost(r), Source: ratelimit.FailedOpen}, nil
}

// parallel takes of one batch are under way at once: a batch shall not be more to a shard than eight callers are.
// One pipeline for each node would take a sixth of the time (a batch of 100: 1.1 ms against 7.4 in one process), but needs scripts in
// the store's pipes, whose callers may overstay a deadline by more than a take waits.
const parallel = 8

// TakeMany does takes each by itself; those of one limit and subject in their order. Errors: forbidden.
func (l *Limits) TakeMany(ctx context.Context, id *acl.Identity, takes []Take) ([]TakeResult, error) {
	if err := store.Allow(id, commandTake); err != nil {
		return nil, err
	}
	results := make([]TakeResult, len(takes))
	together := map[[2]string][]int{}
	for i := range takes {
		k := [2]string{takes[i].Name, takes[i].Subject}
		together[k] = append(together[k], i)
		results[i].Problem = &store.Error{Code: store.CodeInternal, Outcome: store.Unknown} // unless it ends
	}
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, places := range together {
		group.Go(func() error {
			alive.Once(l.Log, "takes of a batch", func() {
				for _, i := range places {
					var err error
					results[i].Verdict, err = l.Take(ctx, id, takes[i].Name, takes[i].Request, store.Idempotency{})
					results[i].Problem = problem(err)
				}
			})
			return nil
		})
	}
	return results, group.Wait()
}

func problem(err error) *store.Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*store.Error](err); ok {
		return e
	}
	return store.NewError(store.CodeInternal, "").WithCause(err)
}

// PartitionKey stands for a subject in a header, as base64: the same for the same subject, and telling nothing about it, since it may
// be an address or a name, and headers are logged on the way.
func PartitionKey(subject string) string {
	sum := sha256.Sum256([]byte(subject))
	return base64.StdEncoding.EncodeToString(sum[:9])
}
