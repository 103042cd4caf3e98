package prepaid

import (
	"testing"

	"github.com/slotgate/slotgate/store/ratelimit"
)

func TestALimitOfOneGatewayIsKept(t *testing.T) {
	for name, mode := range map[string]Mode{"prepaid": Prepaid, "exact": Exact, "alone": Alone} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			p := w.live(t, 1)
			a := p.Allowance(Limit{Cluster: "c", Key: Key("ns", "l", ""), Rule: perSecond(t, 100), Mode: mode})
			allowed, denied := 0, 0
			for range 200 {
				switch d := a.Take(t.Context(), p.Now(), 1); d.Verdict {
				case Allowed:
					allowed++
				case Denied:
					denied++
					if d.RetryAfter <= 0 {
						t.Fatalf("retry after %d", d.RetryAfter)
					}
				default:
					t.Fatalf("%+v", d)
				}
			}
			if allowed < 100 || allowed > 102 || mode != Prepaid && allowed != 100 {
				t.Errorf("%d let through of 100", allowed)
			}
			t.Log(allowed, denied, w.takes, w.refunds)
		})
	}
}

func BenchmarkTry(b *testing.B) {
	w := newWorld()
	p := w.live(b, 1)
	a := p.Allowance(Limit{Cluster: "c", Key: Key("ns", "l", ""), Rule: rule(b, ratelimit.Rule{Limit: 1 << 50, PeriodMS: 1000})})
	a.Take(b.Context(), p.Now(), 1)
	now := p.Now()
	b.ReportAllocs()
	for b.Loop() {
		if d := a.Try(now, 1); d.Verdict != Allowed {
			b.Fatal(d)
		}
	}
}
