package slot

import (
	"strconv"
	"sync"
)

// samples has one short tag for each slot, found by trying numbers in base 36: about 160,000 for the last one.
var samples = sync.OnceValue(func() *[Count]string {
	var tags [Count]string
	for found, n := 0, uint64(0); found < Count; n++ {
		tag := strconv.FormatUint(n, 36)
		if s := Of(tag); tags[s] == "" {
			tags[s] = tag
			found++
		}
	}
	return &tags
})

// Sample returns a short key of letters and digits in the slot number, from 0 to Count-1. It is the same in every
// process, so it may be part of stored keys as a hash tag.
func Sample(number int) string { return samples()[number] }
