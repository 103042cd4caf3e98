package store

import (
	"errors"
	"io"
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

// go-redis tells every command of a pipeline that broke the same; what was answered before counts.
func TestAnAnswerCountsWhateverBrokeBehindIt(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  error
	}{
		"answered":                  {[]string{":1", "\r\n"}, nil},
		"answered as far as a line": {[]string{":1"}, io.EOF},
		"not answered":              {nil, io.EOF},
	} {
		var b reply
		for _, line := range c.lines {
			if _, err := b.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.result(io.EOF); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
