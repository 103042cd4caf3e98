package store

import (
	"math"
	"testing"
)

func TestALengthThatCannotBeIsOverTheCap(t *testing.T) {
	b := newBudget(t.Context(), 100)
	if b.take(10) != granted || b.take(math.MaxInt64) != overCap || b.take(90) != granted || b.take(1) != overCap {
		t.Error("a node that lies about a length got more than the limit")
	}
}
