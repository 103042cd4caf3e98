package store

import (
	"errors"
	"testing"
)

// A connection that was closed because of one reply answers nobody behind it, and must not look as if it had.
func TestAConnectionClosedForAnother(t *testing.T) {
	var b reply
	err := b.result(errOverCap)
	if err == nil || errors.Is(err, errOverCap) {
		t.Fatalf("got %v: the value of another is over the cap, not this one", err)
	}
	if v := classify(err); v.notExecuted || !v.mayRepeat(false) {
		t.Errorf("got %+v: a read goes again, a write is unknown", v)
	}
}
