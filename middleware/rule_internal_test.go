package middleware

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/prepaid"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// endless is a Redis that gives whatever is asked.
type endless struct{}

func (endless) Take(_ context.Context, l *prepaid.Limit, cost, _ int64) (ratelimit.Grant, error) {
	return ratelimit.Grant{Granted: cost, Remaining: l.Rule.Limit, Reset: time.Second}, nil
}

func (endless) Refund(context.Context, *prepaid.Limit, int64) error { return nil }

// What the limits of a caller cost a request, its RateLimit header included; "alone" is what every gateway did before limits were shared.
func BenchmarkTake(b *testing.B) {
	limits := func(of ...string) (list []acl.Limit) {
		for i, what := range of {
			what, mode, _ := strings.Cut(what, " ")
			l := acl.Limit{ID: fmt.Sprint("limit", i), Per: acl.PerApp, Of: what, Limit: 1 << 40, PeriodMS: 1000, Mode: mode}
			if what == acl.OfConcurrency {
				l.PeriodMS = 0
			}
			list = append(list, l)
		}
		return list
	}
	for name, list := range map[string][]acl.Limit{
		"alone":  limits("requests local"),
		"shared": limits("requests"),
		"three":  limits("requests", "bytes", "concurrency"),
	} {
		b.Run(name, func(b *testing.B) {
			l := NewLimiter(nil)
			pool := prepaid.New(prepaid.Config{Redis: endless{}, Now: l.Now, Timeout: time.Minute, Gateways: 1})
			defer pool.Close()
			l.Set(LimiterSettings{Shared: pool})
			caller := l.forCaller(&acl.App{ID: "shop", Namespace: "shop", Limits: list}, "")
			ctx, now, asked := context.Background(), l.Now(), &cost{ofRequests: 1, ofBytes: 1}
			text := make([]byte, 0, 256)
			b.ReportAllocs()
			for b.Loop() {
				if v, _ := caller.view("GET", "/v1/strings/:key", nil).take(ctx, now, asked, text); !v.ok {
					b.Fatal("refused")
				}
			}
		})
	}
}
