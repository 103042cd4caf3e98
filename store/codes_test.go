package store_test

import (
	"context"
	"errors"
	"regexp"
	"testing"

	"github.com/slotgate/slotgate/store"
)

// shipped is every code ever released with its status: codes are added to it, never taken out and never given another meaning.
var shipped = map[string]int{
	"invalid_request": 400, "invalid_key": 400, "command_not_allowed": 400, "unauthenticated": 401, "forbidden": 403,
	"app_suspended": 403, "app_expired": 403, "not_found": 404, "key_not_found": 404, "field_not_found": 404, "limit_not_found": 404, "override_not_found": 404,
	"pool_not_found": 404, "member_not_found": 404, "lease_not_found": 404, "lease_lost": 409, "fence_mismatch": 409, "pool_empty": 409, "pool_saturated": 429,
	"method_not_allowed": 405, "wrong_type": 409, "not_a_number": 409, "out_of_range": 409, "cursor_expired": 409,
	"precondition_failed": 412, "payload_too_large": 413, "value_too_large": 413, "batch_too_large": 413,
	"unsupported_media_type": 415, "range_not_satisfiable": 416, "validation_failed": 422, "ttl_required": 422,
	"ttl_too_long": 422, "response_too_large": 422, "value_not_utf8": 422, "cross_slot": 422, "idempotency_mismatch": 422, "idempotency_unsupported": 422,
	"cost_exceeds_limit": 422, "quota_exceeded": 429,
	"too_many_failures": 429, "internal": 500, "unsupported_by_cluster": 501, "backend_error": 502, "corrupt_value": 502,
	"cluster_down": 503, "backend_saturated": 503, "overloaded": 503, "draining": 503, "batch_incomplete": 503, "limiter_unavailable": 503,
	"backend_timeout": 504, "applied_not_replicated": 504, "out_of_memory": 507,
}

func TestCodesAreUniqueAndNeverReused(t *testing.T) {
	seen := map[store.Code]bool{}
	last := 0
	for _, c := range store.Codes() {
		if seen[c] {
			t.Errorf("%s is in the table twice", c)
		}
		seen[c] = true
		want, ok := shipped[string(c)]
		if !ok {
			t.Errorf("%s is new: add it to the list of shipped codes", c)
		} else if c.Status() != want {
			t.Errorf("%s: status %d, shipped with %d", c, c.Status(), want)
		}
		if c.Status() < last {
			t.Errorf("%s: out of order", c)
		}
		last = c.Status()
	}
	for c := range shipped {
		if !seen[store.Code(c)] {
			t.Errorf("%s was shipped and is gone", c)
		}
	}
}

func TestEveryCodeHasItsWords(t *testing.T) {
	name := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	titles := map[string]store.Code{}
	for _, c := range store.Codes() {
		if !name.MatchString(string(c)) {
			t.Errorf("%q is not snake_case", c)
		}
		if c.Title() == "" || len(c.Explanation()) < 40 {
			t.Errorf("%s lacks a title or an explanation", c)
		}
		if other, ok := titles[c.Title()]; ok {
			t.Errorf("%s and %s share a title", c, other)
		}
		titles[c.Title()] = c
		want := "/problems/" + string(c)
		if c == store.CodeQuotaExceeded {
			want = "https://iana.org/assignments/http-problem-types#quota-exceeded"
		}
		if c.Type() != want {
			t.Errorf("%s: type %q, want %q", c, c.Type(), want)
		}
		if !c.Known() {
			t.Errorf("%s is in the table but not known", c)
		}
	}
}

func TestUnknownCodeIsAnInternalError(t *testing.T) {
	if c := store.Code("no_such"); c.Known() || c.Status() != 500 || c.Retryable() {
		t.Errorf("an unknown code: known %v, status %d, retryable %v", c.Known(), c.Status(), c.Retryable())
	}
}

func TestErrorStatusAndRetryable(t *testing.T) {
	items := func(out ...store.Outcome) []store.ItemOutcome {
		var its []store.ItemOutcome
		for _, o := range out {
			its = append(its, store.ItemOutcome{Key: "k", Outcome: o})
		}
		return its
	}
	for name, c := range map[string]struct {
		err        *store.Error
		idempotent bool
		status     int
		retryable  bool
	}{
		"a batch whose missing items were surely not applied": {err: &store.Error{Code: store.CodeBatchIncomplete,
			Items: items(store.Applied, store.NotApplied)}, status: 503, retryable: true},
		"a batch with an item of unknown outcome": {err: &store.Error{Code: store.CodeBatchIncomplete,
			Outcome: store.Unknown, Items: items(store.Applied, store.Unknown)}, status: 504, retryable: true},
		"a timeout of a read":              {err: &store.Error{Code: store.CodeBackendTimeout}, status: 504, retryable: true},
		"a write that was not applied":     {err: &store.Error{Code: store.CodeClusterDown, Outcome: store.NotApplied}, status: 503, retryable: true},
		"an increment of unknown outcome":  {err: &store.Error{Code: store.CodeBackendTimeout, Outcome: store.Unknown}, status: 504},
		"a PUT of unknown outcome":         {err: &store.Error{Code: store.CodeBackendTimeout, Outcome: store.Unknown}, idempotent: true, status: 504, retryable: true},
		"a quota that will be there again": {err: &store.Error{Code: store.CodeQuotaExceeded, RetryAfter: 1}, status: 429, retryable: true},
		"a batch larger than the quota":    {err: &store.Error{Code: store.CodeQuotaExceeded}, idempotent: true, status: 429},
		"a bad request":                    {err: store.Invalid("/ttl_ms", "must be at least 1"), idempotent: true, status: 422},
	} {
		if got := c.err.Status(); got != c.status {
			t.Errorf("%s: status %d, want %d", name, got, c.status)
		}
		if got := c.err.Retryable(c.idempotent); got != c.retryable {
			t.Errorf("%s: retryable %v, want %v", name, got, c.retryable)
		}
	}
}

func TestCauseIsForTheLogOnly(t *testing.T) {
	cause := errors.New("dial tcp 10.0.0.1:6379: refused")
	err := error(store.NewError(store.CodeBackendError, "the shard did not answer").WithCause(cause))
	if !errors.Is(err, cause) {
		t.Error("the cause is not reachable by errors.Is")
	}
	if got, want := err.Error(), "backend_error: the shard did not answer: dial tcp 10.0.0.1:6379: refused"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var e *store.Error
	if !errors.As(err, &e) || e.Detail != "the shard did not answer" {
		t.Error("the detail must not contain the cause")
	}
}

type chargeUpTo int64

func (c chargeUpTo) Charge(n int64) error {
	if n > int64(c) {
		return store.NewError(store.CodeQuotaExceeded, "")
	}
	return nil
}

func TestCharge(t *testing.T) {
	if err := store.Charge(context.Background(), 1<<40); err != nil {
		t.Errorf("without a charger nothing is limited, got %v", err)
	}
	ctx := store.WithCharger(context.Background(), chargeUpTo(10))
	if err := store.Charge(ctx, 10); err != nil {
		t.Errorf("ten of ten: %v", err)
	}
	var e *store.Error
	if err := store.Charge(ctx, 11); !errors.As(err, &e) || e.Code != store.CodeQuotaExceeded {
		t.Errorf("eleven of ten: %v", err)
	}
}
