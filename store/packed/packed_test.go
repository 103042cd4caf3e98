package packed_test

import (
	"errors"
	"math"
	"testing"

	"github.com/slotgate/slotgate/store/packed"
)

func FuzzReader(f *testing.F) {
	f.Add(string(packed.AppendText(packed.Append(nil, packed.Most, -packed.Most, 0), "text")))
	f.Add(string(packed.Append(nil, 5)) + "four")
	f.Add(string(packed.AppendFraction(nil, math.NaN())))
	f.Add("seven b")
	f.Fuzz(func(t *testing.T, text string) {
		for name, read := range map[string]func(*packed.Reader) []byte{
			"number":   func(r *packed.Reader) []byte { return packed.Append(nil, r.Number()) },
			"fraction": func(r *packed.Reader) []byte { return packed.AppendFraction(nil, r.Fraction()) },
			"text":     func(r *packed.Reader) []byte { return packed.AppendText(nil, r.Text()) },
		} {
			r := packed.Reader{Rest: text}
			again := read(&r)
			if r.Err != nil {
				if !errors.Is(r.Err, packed.ErrBad) {
					t.Errorf("%s of %q: %v", name, text, r.Err)
				}
				continue
			}
			// What was read is read again: packed anew it may differ in the sign of a zero alone.
			if second := (packed.Reader{Rest: string(again)}); string(read(&second)) != string(again) || second.Err != nil || second.Rest != "" {
				t.Errorf("%s of %q is packed as %q, which reads differently: %v", name, text, again, second.Err)
			}
		}
	})
}
