package store

import (
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/slotgate/slotgate/store/slot"
)

func slotsOfKeys(keys []string) []uint16 {
	slots := make([]uint16, len(keys))
	for i, k := range keys {
		slots[i] = uint16(slot.Of(k))
	}
	return slots
}

// Of keys named more than once the last is sent, in the order of the batch, and it stands for the others.
func TestOfEachKeyTheLastIsSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return "{" + strconv.Itoa(rapid.IntRange(0, 2).Draw(t, "tag")) + "}" + strconv.Itoa(rapid.IntRange(0, 3).Draw(t, "key"))
		}), 1, 40).Draw(t, "keys")
		slots, last := slotsOfKeys(keys), map[string]int{}
		for i, k := range keys {
			last[k] = i
		}
		sent := sentOnce(slots, func(i int) string { return keys[i] })
		own, n := sent.slots(slots), 0
		others := map[int]int{}
		for i, j := range sent.others() {
			others[i] = j
		}
		for i, k := range keys {
			if last[k] != i {
				if others[i] != last[k] {
					t.Fatalf("for item %d stands %d, want %d", i, others[i], last[k])
				}
				continue
			}
			if sent.item(n) != i || own[n] != slots[i] {
				t.Fatalf("sent as number %d: item %d, slot %d; want %d, %d", n, sent.item(n), own[n], i, slots[i])
			}
			n++
		}
		if n != len(own) || len(others) != len(keys)-n {
			t.Fatalf("%d sent, %d not; want %d, %d", len(own), len(others), n, len(keys)-n)
		}
	})
}

func BenchmarkSentOnce(b *testing.B) {
	for _, n := range []int{50, 500, 5000} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = "user:" + strconv.Itoa(i)
		}
		slots := slotsOfKeys(keys)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				sentOnce(slots, func(i int) string { return keys[i] })
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/key")
		})
	}
}
