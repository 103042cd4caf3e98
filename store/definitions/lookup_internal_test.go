package definitions

import (
	"fmt"
	"testing"
	"time"
)

func TestWhatIsKnownIsBoundedAndNeverGoesBack(t *testing.T) {
	d := New(Config[string]{Now: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	at := func(version int64) known[string] { return known[string]{version: version} }
	for i := range maxKnown + 10 {
		d.remember(fmt.Sprint(i), at(2), &question{})
	}
	if len(d.known) != maxKnown {
		t.Errorf("%d definitions are kept", len(d.known))
	}
	d.remember("api", at(2), &question{})
	d.remember("api", at(1), &question{}) // an answer that comes late
	if d.known["api"].version != 2 || len(d.known) != maxKnown {
		t.Errorf("version %d", d.known["api"].version)
	}
	d.remember("api", at(3), &question{})
	if d.known["api"].version != 3 {
		t.Error("it does not follow")
	}
}
