package balance_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/balance"
)

// shard is a primary and replicas that hold everything, of a number of nodes together.
func shard(n int, now time.Time, random func() uint64) *balance.Set {
	s := balance.New(now, random)
	var all []balance.Node
	for i := range n {
		all = append(all, balance.Node{ID: strconv.Itoa(i), Primary: i == 0, Via: i})
	}
	s.Update(now, all)
	for i := range n {
		s.Look(strconv.Itoa(i), balance.Look{Asked: now, Primary: i == 0, History: "h", Linked: i > 0})
	}
	return s
}

// What a read pays: a choice and its outcome. The promise is 100 ns and no allocation, without what the caller needs to know the time.
func BenchmarkPickAndDone(b *testing.B) {
	now := time.Now()
	for _, n := range []int{2, 3, 5, 9} {
		r := balance.Read{Within: time.Hour}
		s := shard(n, now, nil)
		b.Run(strconv.Itoa(n)+" nodes", func(b *testing.B) {
			b.ReportAllocs()
			at := now
			for b.Loop() {
				c, _ := s.Pick(at, r)
				at = at.Add(300 * time.Microsecond)
				c.Done(at, balance.Answered)
			}
		})
		s = shard(n, now, nil)
		b.Run(strconv.Itoa(n)+" nodes, in parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				at := now
				for pb.Next() {
					c, _ := s.Pick(at, r)
					at = at.Add(300 * time.Microsecond)
					c.Done(at, balance.Answered)
				}
			})
		})
	}
}
