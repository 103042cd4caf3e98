package doctor

import "testing"

func TestVersions(t *testing.T) {
	for _, row := range []struct {
		name, text string
		want       Status
	}{
		{"redis", "6.2.20", Fail},
		{"redis", "7.0.15", Warn},
		{"redis", "7.2.10", Warn},
		{"redis", "7.2.11", OK},
		{"redis", "7.4.6", OK},
		{"redis", "8.0.3", Warn},
		{"redis", "8.2.2", OK},
		{"redis", "8.4.0", OK},
		{"redis", "9.0", OK},
		{"valkey", "7.2.10", Warn},
		{"valkey", "8.1.4", OK},
		{"valkey", "9.0.0", OK},
		{"redis", "", Warn},
		{"redis", "unstable", Warn},
		{"redis", "7", Warn},
	} {
		if f := checkVersion("x", row.name, row.text); f.Status != row.want {
			t.Errorf("%s %q: %+v, want %s", row.name, row.text, f, row.want)
		}
	}
}
