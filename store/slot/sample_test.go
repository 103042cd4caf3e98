package slot_test

import (
	"testing"

	"github.com/slotgate/slotgate/store/slot"
)

func TestEverySampleIsInItsSlot(t *testing.T) {
	for n := range slot.Count {
		if tag := slot.Sample(n); slot.Of(tag) != n || slot.Of("x{"+tag+"}y") != n {
			t.Fatalf("the sample %q of slot %d is in slot %d", tag, n, slot.Of(tag))
		}
	}
}
