package slot_test

import (
	"testing"

	"github.com/slotgate/slotgate/store/slot"
)

// The first rows are the specification's own examples; the slots were read from CLUSTER KEYSLOT of Redis 7.0.15.
func TestOf(t *testing.T) {
	for _, row := range []struct {
		key  string
		want int
	}{
		{"123456789", 0x31C3},
		{"", 0},
		{"foo", 12182},
		{"{user1000}.following", 3443},
		{"{user1000}.followers", 3443},
		{"user1000", 3443},
		{"foo{}{bar}", 8363},
		{"foo{{bar}}zap", 4015},
		{"{bar", 4015},
		{"foo{bar}{zap}", 5061},
		{"bar", 5061},
		{"{}x", 10595},
		{"a}{b", 11640},
		{"}{a}", 15495},
		{"a", 15495},
	} {
		if got := slot.Of(row.key); got != row.want {
			t.Errorf("Of(%q) = %d, want %d", row.key, got, row.want)
		}
		if got := slot.Of([]byte(row.key)); got != row.want {
			t.Errorf("Of([]byte(%q)) = %d, want %d", row.key, got, row.want)
		}
	}
}

func TestTag(t *testing.T) {
	for key, want := range map[string]string{
		"plain": "plain", "{a}b": "a", "x{a}b{c}": "a", "a{}b": "a{}b", "a{}{b}": "a{}{b}", "a{{b}}": "{b", "a}{b": "a}{b", "{a": "{a", "": "",
	} {
		if got := slot.Tag(key); got != want {
			t.Errorf("Tag(%q) = %q, want %q", key, got, want)
		}
	}
}

func TestOfAllocatesNothing(t *testing.T) {
	text, bytes := "orders:{customer-17}:open", []byte("orders:{customer-17}:open")
	sum := 0
	if n := testing.AllocsPerRun(100, func() { sum += slot.Of(text) + slot.Of(bytes) }); n != 0 {
		t.Errorf("Of allocates %v times", n)
	}
}

func BenchmarkOf(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		slot.Of("orders:{customer-17}:open:2024-11-30")
	}
}
