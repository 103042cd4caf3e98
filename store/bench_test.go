package store_test

import (
	"fmt"
	"testing"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// The benchmarks run against a real cluster; CPU of the whole process and allocations are what they are for:
// go test ./store -run xxx -bench . -cpuprofile cpu.out.

func BenchmarkGet(b *testing.B) {
	for _, off := range []bool{false, true} {
		for _, callers := range []int{1, 32} {
			b.Run(fmt.Sprintf("off=%v/callers=%d", off, callers), func(b *testing.B) {
				s := newStore(b, clustertest.Shared(b), func(c *store.Config) { c.Coalesce.Off = off })
				id, ctx := newApp(b), b.Context()
				keys, items := numbered(1000, func(i int) string { return fmt.Sprintf("%0100d", i) })
				must[int](b)(s.MSet(ctx, id, items))
				b.ReportAllocs()
				b.SetParallelism(callers)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						if _, err := s.Get(ctx, id, keys[i%1000], store.GetOptions{}); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkReplicaReads is beside BenchmarkGet what a read pays for being chosen a node.
func BenchmarkReplicaReads(b *testing.B) {
	s, id := newStore(b, clustertest.Shared(b)), newApp(b)
	keys, items := numbered(1000, func(i int) string { return fmt.Sprintf("%0100d", i) })
	must[int](b)(s.MSet(b.Context(), id, items))
	fromReplicas(b, s, id, keys[0])
	for name, rd := range map[string]store.Reading{"primary": {}, "replicas": {Replicas: true}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, err := s.Get(b.Context(), id, keys[i%1000], store.GetOptions{Reading: rd}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func BenchmarkBatches(b *testing.B) {
	for _, off := range []bool{false, true} {
		s := newStore(b, clustertest.Shared(b), func(c *store.Config) { c.Coalesce.Off = off })
		id, ctx := newApp(b), b.Context()
		keys, items := numbered(5000, func(i int) string { return fmt.Sprintf("%0100d", i) })
		must[int](b)(s.MSet(ctx, id, items))
		run := func(name string, batch func() error) {
			b.Run(fmt.Sprintf("%s/off=%v", name, off), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(16)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := batch(); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
		for _, n := range []int{50, 500, 5000} {
			run(fmt.Sprint("mget", n), func() error { _, err := s.MGet(ctx, id, keys[:n], store.Reading{}); return err })
			run(fmt.Sprint("mset", n), func() error { _, err := s.MSet(ctx, id, items[:n]); return err })
		}
	}
}

// What the limit of a node costs a request: without it, and with it. Compare -count=10 of both; they take turns.
func BenchmarkLimit(b *testing.B) {
	for _, callers := range []int{1, 32, 256} {
		for _, off := range []bool{true, false} {
			b.Run(fmt.Sprintf("callers=%d/off=%v", callers, off), func(b *testing.B) {
				s := newStore(b, clustertest.Shared(b), func(c *store.Config) { c.Overload.Off = off })
				id, ctx := newApp(b), b.Context()
				keys, items := numbered(1000, func(i int) string { return fmt.Sprintf("%0100d", i) })
				must[int](b)(s.MSet(ctx, id, items))
				b.ReportAllocs()
				b.SetParallelism(callers)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						if _, err := s.Get(ctx, id, keys[i%1000], store.GetOptions{}); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
