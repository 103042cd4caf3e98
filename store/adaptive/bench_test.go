package adaptive_test

import (
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/adaptive"
)

// What a request pays: a place and its release. The promise is 100 ns and no allocation.
func BenchmarkPlace(b *testing.B) {
	deadline := time.Now().Add(time.Hour)
	for name, taken := range map[string]int{"in peace": 0, "in peace, aged": 0, "near the limit": 150, "refused": 255} {
		l := adaptive.New(adaptive.Settings{Initial: 300, Max: 300})
		for range taken {
			l.Acquire(adaptive.Request{App: "other", Class: adaptive.Critical})
		}
		if name == "in peace, aged" {
			l.Age(time.Now(), time.Second)
		}
		r := adaptive.Request{App: "an-app", Deadline: deadline}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, _ := l.Acquire(r)
				p.Release(false)
			}
		})
		b.Run(name+", in parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					p, _ := l.Acquire(r)
					p.Release(false)
				}
			})
		})
	}
}

func BenchmarkObserve(b *testing.B) {
	l := adaptive.New(adaptive.Settings{})
	b.ReportAllocs()
	for b.Loop() {
		l.Observe(time.Millisecond, 3)
	}
}
