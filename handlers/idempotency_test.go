package handlers

import (
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store"
)

func TestIdempotencyKeys(t *testing.T) {
	long := strings.Repeat("x", 255)
	for text, want := range map[string]string{
		`"a"`:                                    "a",
		`a`:                                      "a",
		` "a"	`:                                  "a",
		`"8e03978e-40d5-43dd-bc93-6894a57f9324"`: "8e03978e-40d5-43dd-bc93-6894a57f9324",
		`8e03978e-40d5-43dd-bc93-6894a57f9324`:   "8e03978e-40d5-43dd-bc93-6894a57f9324",
		`"with spaces, and commas"`:              "with spaces, and commas",
		`"a \"quoted\" word"`:                    `a "quoted" word`,
		`"back\\slash"`:                          `back\slash`,
		`a=b;c/d+e==`:                            `a=b;c/d+e==`,
		long:                                     long,
		`"` + long + `"`:                         long,
		`"` + strings.Repeat(`\"`, 255) + `"`:    strings.Repeat(`"`, 255),
	} {
		if got, err := parseIdempotencyKey([]string{text}); err != nil || got != want {
			t.Errorf("%s is read as %q, %v", text, got, err)
		}
	}
}

func TestBadIdempotencyKeysAreRefused(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, lines := range map[string][]string{
		"two headers":                   {`"a"`, `"a"`},
		"two headers in one":            {`"a", "a"`},
		"two bare ones in one":          {`a,a`},
		"nothing":                       {""},
		"blanks":                        {" \t"},
		"an empty string":               {`""`},
		"256 characters":                {long},
		"256 characters in quotes":      {`"` + long + `"`},
		"no quote at the end":           {`"a`},
		"a quote alone":                 {`"`},
		"an escaped quote at the end":   {`"a\"`},
		"a quote inside":                {`a"b`},
		"more after the string":         {`"a"b`},
		"a parameter":                   {`"a";b=1`},
		"an escape of something else":   {`"\n"`},
		"a backslash in a bare one":     {`a\b`},
		"a space in a bare one":         {`a b`},
		"a control character":           {"a\x01"},
		"a control character in quotes": {"\"a\x01\""},
		"a tab in quotes":               {"\"a\tb\""},
		"a byte that is not ASCII":      {"ä"},
		"the same in quotes":            {`"ä"`},
		"DEL":                           {"\"\x7f\""},
	} {
		_, err := parseIdempotencyKey(lines)
		t.Run(name, func(t *testing.T) { wantFault(t, err, store.CodeInvalidRequest, "header:Idempotency-Key") })
	}
}

func FuzzParseIdempotencyKey(f *testing.F) {
	for _, seed := range []string{`"a"`, `a`, `"\""`, `"\\"`, `""`, `"a`, `a,b`, " x "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := parseIdempotencyKey([]string{text})
		if err != nil {
			return
		}
		if key == "" || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%q is read as %q", text, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := parseIdempotencyKey([]string{quoted}); err != nil || again != key {
			t.Fatalf("%q is read as %q, and %q as %q, %v", text, key, quoted, again, err)
		}
	})
}
