package store

import (
	"iter"

	"github.com/slotgate/slotgate/store/slot"
)

// sentItems says which items of a batch are sent: of a key that is named more than once only the last, which stands for the others.
type sentItems struct {
	items []int       // in order; nil = all
	twins map[int]int // an item that is not sent -> the one that stands for it
}

// sentOnce finds the keys that are named again. Equal keys have equal slots, so a bit for each slot shows that most keys are unique;
// only the others are compared.
func sentOnce(slots []uint16, key func(i int) string) sentItems {
	var seen, shared [slot.Count / 64]uint64
	repeated := false
	for _, n := range slots {
		word, bit := n/64, uint64(1)<<(n%64)
		if seen[word]&bit != 0 {
			shared[word] |= bit
			repeated = true
		}
		seen[word] |= bit
	}
	if !repeated {
		return sentItems{}
	}
	last, s := map[string]int{}, sentItems{twins: map[int]int{}}
	for i := len(slots) - 1; i >= 0; i-- {
		if n := slots[i]; shared[n/64]&(1<<(n%64)) == 0 {
			continue
		}
		if j, ok := last[key(i)]; ok {
			s.twins[i] = j
		} else {
			last[key(i)] = i
		}
	}
	if len(s.twins) == 0 {
		return sentItems{}
	}
	for i := range slots {
		if _, twin := s.twins[i]; !twin {
			s.items = append(s.items, i)
		}
	}
	return s
}

// item is the position in the batch of the n-th that is sent.
func (s *sentItems) item(n int) int {
	if s.items == nil {
		return n
	}
	return s.items[n]
}

// slots are those of the items that are sent.
func (s *sentItems) slots(all []uint16) []uint16 {
	if s.items == nil {
		return all
	}
	own := make([]uint16, len(s.items))
	for n, i := range s.items {
		own[n] = all[i]
	}
	return own
}

// others gives each item that is not sent, in order, with the one that stands for it.
func (s *sentItems) others() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		if s.items == nil {
			return
		}
		for i := range s.items[len(s.items)-1] { // the last of all is never a twin
			if last, twin := s.twins[i]; twin && !yield(i, last) {
				return
			}
		}
	}
}
