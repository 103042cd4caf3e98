package store

import (
	"errors"
	"testing"
)

// What all callers are told is the same error, so whoever has more to say says it in a copy.
func TestARefusalThatIsSharedStaysAsItIs(t *testing.T) {
	for _, own := range []*refusal{errShardFull, errShardHopeless} {
		read, write := own.problem(false, own), own.problem(true, own)
		if read != own.problem(false, own) || read.Outcome != NoOutcome || write.Outcome != NotApplied || read.RetryAfter == 0 || !errors.Is(write, own) {
			t.Errorf("%+v, %+v", read, write)
		}
		var e *Error
		if err := withOutcome(read, Applied); !errors.As(err, &e) || e.Outcome != Applied || read.Outcome != NoOutcome {
			t.Errorf("%+v, shared %+v", e, read)
		}
	}
}
