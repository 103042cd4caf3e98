package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

func number(t testing.TB, literal string) store.Number {
	t.Helper()
	return must[store.Number](t)(store.ParseNumber(literal))
}

func TestParseNumber(t *testing.T) {
	for literal, want := range map[string]string{
		"0": "int", "-0": "int", "1": "int", "-17": "int", "9223372036854775807": "int", "-9223372036854775808": "int",
		"1.0": "fraction", "1e3": "fraction", "-2.5E-3": "fraction", "0.1": "fraction",
		"9223372036854775808": "refused", "1e400": "refused", "": "refused", "-": "refused", "01": "refused", "1.": "refused", ".5": "refused",
		"+1": "refused", " 1": "refused", "1 ": "refused", "0x1": "refused", "inf": "refused", "NaN": "refused", "1e": "refused", "1e+": "refused", "1_0": "refused",
	} {
		n, err := store.ParseNumber(literal)
		got := "refused"
		if err == nil {
			got = "fraction"
			if n.IsInteger() {
				got = "int"
			}
		}
		if got != want {
			t.Errorf("%q is %s, want %s", literal, got, want)
		}
	}
	if s := number(t, "-0").String(); s != "0" {
		t.Errorf("-0 is %q, which Redis takes for no integer", s)
	}
}

func TestCounterAdd(t *testing.T) {
	c := clustertest.Shared(t)
	s, raw, ctx := newStore(t, c), foreign(t, c), testContext(t)
	num := func(literal string) *store.Number {
		n := number(t, literal)
		return &n
	}
	for _, c := range []struct {
		name, stored string
		o            store.AddOptions
		want         string // the value, or the code
	}{
		{"an absent counter starts at 0", "", store.AddOptions{Delta: *num("5")}, "5"},
		{"an integer is added", "40", store.AddOptions{Delta: *num("-2")}, "38"},
		{"no digit is lost beyond 2^53", "9007199254740993", store.AddOptions{Delta: *num("2")}, "9007199254740995"},
		{"nor with bounds, which need the script", "9007199254740993", store.AddOptions{Delta: *num("2"), Max: num("9223372036854775807")}, "9007199254740995"},
		{"an overflow is refused", "9223372036854775807", store.AddOptions{Delta: *num("1")}, "out_of_range"},
		{"an overflow is refused with bounds too", "9223372036854775807", store.AddOptions{Delta: *num("1"), Min: num("0")}, "out_of_range"},
		{"a step past max is refused", "8", store.AddOptions{Delta: *num("3"), Max: num("10")}, "out_of_range"},
		{"a step to max is taken", "8", store.AddOptions{Delta: *num("2"), Max: num("10")}, "10"},
		{"a step below min is refused", "-8", store.AddOptions{Delta: *num("-3"), Min: num("-10")}, "out_of_range"},
		{"bounds differ in their last digit", "9007199254740992", store.AddOptions{Delta: *num("1"), Max: num("9007199254740992")}, "out_of_range"},
		{"a negative minimum is not above", "-5", store.AddOptions{Delta: *num("-4"), Min: num("-10")}, "-9"},
		{"a new counter out of bounds is not created", "", store.AddOptions{Delta: *num("11"), Max: num("10")}, "out_of_range"},
		{"a fraction on an absent counter", "", store.AddOptions{Delta: *num("1.5")}, "1.5"},
		{"a fraction on a fraction", "1.25", store.AddOptions{Delta: *num("1.5")}, "2.75"},
		{"a fractional counter stays one", "1.5", store.AddOptions{Delta: *num("0.5")}, "2.0"},
		{"an integer on a fraction", "1.5", store.AddOptions{Delta: *num("1")}, "2.5"},
		{"a fraction on an integer is refused", "1", store.AddOptions{Delta: *num("0.5")}, "not_a_number"},
		{"a fraction with bounds", "1.5", store.AddOptions{Delta: *num("1.0"), Max: num("2.4")}, "out_of_range"},
		{"a text is not a number", "abc", store.AddOptions{Delta: *num("1")}, "not_a_number"},
		{"nor is an integer of more than 64 bits", "92233720368547758070", store.AddOptions{Delta: *num("1")}, "not_a_number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := newApp(t)
			if c.stored != "" {
				raw.Set(ctx, id.Prefix+"n", c.stored, time.Minute)
			}
			got, err := s.CounterAdd(ctx, id, "n", c.o)
			text := got.String()
			if err != nil {
				text = string(wantCode(t, err, store.Code(c.want)).Code)
				if after := raw.Get(ctx, id.Prefix+"n").Val(); after != c.stored {
					t.Errorf("the refused step left %q", after)
				}
			}
			if text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
			if ttl := raw.PTTL(ctx, id.Prefix+"n").Val(); c.stored != "" && ttl <= 0 {
				t.Errorf("the expiry was lost: %v", ttl)
			}
		})
	}
	t.Run("a TTL is set when the counter is created and not moved afterwards", func(t *testing.T) {
		id := newApp(t)
		o := store.AddOptions{Delta: store.Int(1), Expiry: in(50_000)}
		must[store.Number](t)(s.CounterAdd(ctx, id, "n", o))
		o.Expiry = in(500_000)
		must[store.Number](t)(s.CounterAdd(ctx, id, "n", o))
		if ttl := raw.PTTL(ctx, id.Prefix+"n").Val(); ttl <= 0 || ttl > 50*time.Second {
			t.Error(ttl)
		}
		o.TTLAlways = true
		must[store.Number](t)(s.CounterAdd(ctx, id, "n", o))
		if ttl := raw.PTTL(ctx, id.Prefix+"n").Val(); ttl <= 50*time.Second {
			t.Error(ttl)
		}
	})
	t.Run("concurrent steps are all counted", func(t *testing.T) {
		id := newApp(t)
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				o := store.AddOptions{Delta: store.Int(1)}
				if w%2 == 0 {
					o.Min = num("0")
				}
				for range 50 {
					if _, err := s.CounterAdd(ctx, id, "n", o); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n := must[store.Number](t)(s.CounterGet(ctx, id, "n", store.Reading{})); n.String() != "400" {
			t.Error(n)
		}
	})
}

func TestCounterSet(t *testing.T) {
	s, ctx := newStore(t, clustertest.Shared(t)), testContext(t)
	id := newApp(t)
	previous, _, err := s.CounterSet(ctx, id, "n", store.Int(7), store.SetOptions{})
	if err != nil || previous != nil {
		t.Fatal(previous, err)
	}
	previous, _, err = s.CounterSet(ctx, id, "n", number(t, "9223372036854775807"), store.SetOptions{})
	if err != nil || previous.String() != "7" {
		t.Fatal(previous, err)
	}
	if n := must[store.Number](t)(s.CounterGet(ctx, id, "n", store.Reading{})); n.String() != "9223372036854775807" {
		t.Error(n)
	}
}
