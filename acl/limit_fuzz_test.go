package acl_test

import (
	"testing"

	"github.com/slotgate/slotgate/acl"
)

// A limit that is valid is known, and says which requests it concerns.
func FuzzLimit(f *testing.F) {
	f.Add("rps", "app", "requests", "strings:read", "/v1/mget", "token_bucket", "exact", "open", int64(1), int64(1000), int64(5))
	f.Add("at-once", "key", "concurrency", "", "", "", "", "", int64(1), int64(0), int64(0))
	f.Add("x", "total", "bytes", ":", "/v1/", "leaky_bucket", "local", "closed", int64(-1), int64(1)<<60, int64(-1)<<63)
	f.Add("x", "app", "bytes", "*:*", "/v1/:", "sliding_window", "local", "local", int64(1)<<53, int64(86_400_000), int64(1)<<53+1)
	f.Fuzz(func(t *testing.T, id, per, of, class, route, algorithm, mode, onError string, limit, period, burst int64) {
		l := acl.Limit{
			ID: id, Per: per, Of: of, Class: class, Route: route, Algorithm: algorithm, Mode: mode, OnError: onError,
			Limit: limit, PeriodMS: period, Burst: burst,
		}
		if l.Validate() != nil {
			return
		}
		if _, _, ok := l.Concerns(); !ok || !l.Known() {
			t.Errorf("%+v is valid, but not known", l)
		}
		if l.EffectiveBurst() < 1 || (l.PeriodMS < 1) != (l.Of == acl.OfConcurrency) {
			t.Errorf("%+v is valid", l)
		}
	})
}
