package limits

import (
	"fmt"
	"testing"
	"time"
)

func TestWhatIsKnownIsBoundedAndNeverGoesBack(t *testing.T) {
	l := New(Config{Now: func() time.Time { return noon }})
	for i := range maxKnown + 10 {
		l.remember(fmt.Sprint(i), &Defined{Version: 2}, &question{})
	}
	if len(l.known) != maxKnown {
		t.Errorf("%d definitions are kept", len(l.known))
	}
	l.remember("api", &Defined{Version: 2}, &question{})
	l.remember("api", &Defined{Version: 1}, &question{}) // an answer that comes late
	if l.known["api"].Version != 2 || len(l.known) != maxKnown {
		t.Errorf("version %d", l.known["api"].Version)
	}
	l.remember("api", &Defined{Version: 3}, &question{})
	if l.known["api"].Version != 3 {
		t.Error("it does not follow")
	}
}
