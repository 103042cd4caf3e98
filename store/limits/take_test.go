package limits_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// failing makes a gateway with a limit of each way to fail, named like it, and then lets Redis fail.
func failing(t *testing.T, failure *store.Error, gateways int) (*gateway, *acl.Identity) {
	t.Helper()
	g := newGateway(t, func(c *limits.Config) { c.Gateways = func(string) int { return gateways } })
	id := newApp(t, "ratelimits:*")
	for _, way := range []ratelimit.OnError{ratelimit.Open, ratelimit.Closed, ratelimit.Local} {
		d := ratelimit.Definition{OnError: way, Rules: []ratelimit.Rule{slow("hour", 10)}}
		if _, err := g.Define(t.Context(), id, string(way), d, store.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	g.store.fails.Store(failure)
	return g, id
}

func (g *gateway) of(name string, id *acl.Identity, cost int64) (limits.Verdict, error) {
	return g.Take(g.t.Context(), id, name, ratelimit.Request{Subject: "u", Cost: &cost}, store.Idempotency{})
}

func TestATakeThatRedisDoesNotAnswerIsAnsweredAsDefined(t *testing.T) {
	for _, failure := range []*store.Error{
		{Code: store.CodeClusterDown, Outcome: store.NotApplied}, {Code: store.CodeBackendTimeout, Outcome: store.Unknown},
		{Code: store.CodeBackendSaturated, Outcome: store.NotApplied}, {Code: store.CodeBackendError, Outcome: store.Unknown},
		{Code: store.CodeOutOfMemory, Outcome: store.NotApplied},
	} {
		t.Run(string(failure.Code), func(t *testing.T) {
			g, id := failing(t, failure, 2)
			v, err := g.of("open", id, 7)
			if err != nil || !v.Allowed || v.Granted != 7 || v.Source != ratelimit.FailedOpen || len(v.Rules) != 0 {
				t.Errorf("open: %+v, %v", v, err)
			}
			_, err = g.of("closed", id, 1)
			e := wantCode(t, err, store.CodeLimiterUnavailable)
			if e.Outcome != failure.Outcome || e.RetryAfter != time.Second {
				t.Errorf("closed: outcome %q, retry after %v", e.Outcome, e.RetryAfter)
			}
			for i, want := range []bool{true, true, false} { // a half of 10
				v, err := g.of("local", id, 2)
				if err != nil || v.Allowed != want || v.Source != ratelimit.FromLocal || v.Rules[0].Limit != 5 {
					t.Errorf("local %d: %+v, %v", i, v, err)
				}
			}
		})
	}
}

// How many gateways there are is asked before it is needed, for whoever counts them needs the cluster; and again when it is needed.
func TestALocalShareFollowsTheNumberOfGateways(t *testing.T) {
	var asked []string
	n := 1
	g := newGateway(t, func(c *limits.Config) {
		c.Gateways = func(cluster string) int {
			asked = append(asked, cluster)
			return n
		}
	})
	id := newApp(t, "ratelimits:*")
	for _, way := range []ratelimit.OnError{ratelimit.Open, ratelimit.Local} {
		d := ratelimit.Definition{OnError: way, Rules: []ratelimit.Rule{slow("hour", 12)}}
		if _, err := g.Define(t.Context(), id, string(way), d, store.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	g.pass(2 * limits.Fresh)
	if _, err := g.of("open", id, 1); err != nil || len(asked) != 0 {
		t.Fatalf("asked for %v for a limit that needs no number: %v", asked, err)
	}
	if _, err := g.of("local", id, 1); err != nil || len(asked) != 1 || asked[0] != "default" {
		t.Fatalf("asked for %v while the cluster is there: %v", asked, err)
	}
	g.store.fails.Store(&store.Error{Code: store.CodeClusterDown, Outcome: store.NotApplied})
	for _, c := range []struct {
		gateways int
		limit    int64
	}{{1, 12}, {3, 4}, {2, 6}} {
		n = c.gateways
		v, err := g.of("local", id, 1)
		if err != nil || v.Source != ratelimit.FromLocal || v.Rules[0].Limit != c.limit {
			t.Errorf("%d gateways: %+v, %v", n, v, err)
		}
	}
}

// A refusal to do what was asked is no failure of Redis.
func TestABadTakeIsRefusedAlsoWhereALimitIsOpen(t *testing.T) {
	g, id := failing(t, nil, 1)
	_, err := g.of("open", id, 11)
	wantCode(t, err, store.CodeCostExceedsLimit)
	_, err = g.of("open", id, 0)
	wantCode(t, err, store.CodeValidationFailed)
	g.store.fails.Store(&store.Error{Code: store.CodeClusterDown})
	_, err = g.of("local", id, 11)
	wantCode(t, err, store.CodeCostExceedsLimit)
}

// A question, a refund and a reset are not in anybody's way: they fail when Redis does.
func TestWhatIsNoTakeFailsWithRedis(t *testing.T) {
	g, id := failing(t, &store.Error{Code: store.CodeClusterDown, Outcome: store.NotApplied}, 1)
	wantCode(t, second(g.Peek(t.Context(), id, "open", of("u"))), store.CodeClusterDown)
	wantCode(t, second(g.Refund(t.Context(), id, "open", of("u"), store.Idempotency{})), store.CodeClusterDown)
	wantCode(t, g.Reset(t.Context(), id, "open", "u"), store.CodeClusterDown)
}

// A take waits for Redis as long as is set, and not for the deadline of the request.
func TestATakeWaitsNoLongerThanItsTime(t *testing.T) {
	g := newGateway(t, func(c *limits.Config) { c.Timeout = time.Millisecond; c.Decide = ratelimit.New(silent{}) })
	id := newApp(t, "ratelimits:*")
	d := ratelimit.Definition{Rules: []ratelimit.Rule{slow("hour", 10)}}
	if _, err := g.Define(t.Context(), id, "api", d, store.Condition{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	v, err := g.Take(ctx, id, "api", of("u"), store.Idempotency{})
	if err != nil || v.Source != ratelimit.FailedOpen || ctx.Err() != nil {
		t.Errorf("%+v, %v", v, err)
	}
}

// silent never answers.
type silent struct{}

func (silent) RecordTTL() time.Duration { return time.Minute }
func (silent) RunLimit(ctx context.Context, _ *acl.Identity, _ acl.Access, _ *store.Script, _ []string, _ []any) ([]any, error) {
	<-ctx.Done()
	return nil, &store.Error{Code: store.CodeBackendTimeout, Outcome: store.Unknown}
}

func TestABatchAnswersEachInItsPlace(t *testing.T) {
	g := newGateway(t)
	id := g.defined(slow("hour", 5))
	var takes []limits.Take
	var want []string
	for i := range limits.MaxBatch {
		take := limits.Take{Name: "api", Request: of(fmt.Sprint("u", i%7))}
		said := fmt.Sprint(i/7 < 5) // each subject has 5, in the order of the batch
		switch i {
		case 13:
			take.Name, said = "none", "limit_not_found"
		case 14:
			take.Subject, said = "", "validation_failed"
		case 15:
			take.Cost, said = ptr(6), "cost_exceeds_limit"
		case 16:
			take.Name, said = "a b", "validation_failed"
		}
		takes, want = append(takes, take), append(want, said)
	}
	want[6+7*5] = "true"                                           // 13 was no take of u6
	want[0+7*5], want[1+7*5], want[2+7*5] = "true", "true", "true" // nor were those of u0, u1 and u2
	results, err := g.TakeMany(t.Context(), id, takes)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		if r.Problem != nil {
			got = append(got, string(r.Problem.Code))
		} else {
			got = append(got, fmt.Sprint(r.Verdict.Allowed))
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	wantCode(t, second(g.TakeMany(t.Context(), newApp(t, "ratelimits:read"), takes)), store.CodeForbidden)
}

// A panic in a take of a batch is an item without an answer, not the end of the process.
func TestAPanicInABatchIsAnItemWithoutAnAnswer(t *testing.T) {
	g := newGateway(t, func(c *limits.Config) { c.Decide = ratelimit.New(panicking{}) })
	id := g.defined(slow("hour", 5))
	results, err := g.TakeMany(t.Context(), id, []limits.Take{{Name: "api", Request: of("u")}, {Name: "none", Request: of("u")}})
	if err != nil || results[0].Problem == nil || results[0].Problem.Code != store.CodeInternal || results[0].Problem.Outcome != store.Unknown {
		t.Fatalf("%+v, %v", results, err)
	}
	if results[1].Problem.Code != store.CodeLimitNotFound {
		t.Errorf("its neighbour: %+v", results[1])
	}
}

type panicking struct{ silent }

func (panicking) RunLimit(context.Context, *acl.Identity, acl.Access, *store.Script, []string, []any) ([]any, error) {
	panic("a take")
}

func TestAPartitionKeyTellsSubjectsApartAndNothingElse(t *testing.T) {
	a, b := limits.PartitionKey("10.0.0.1"), limits.PartitionKey("10.0.0.2")
	if a == b || a != limits.PartitionKey("10.0.0.1") || strings.Contains(a, "10.0") {
		t.Errorf("%s, %s", a, b)
	}
	if raw, err := base64.StdEncoding.DecodeString(a); err != nil || len(raw) != 9 {
		t.Errorf("%s is no byte sequence of a header", a)
	}
}
