package middleware

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/acl/tokens"
)

func basic(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }

func TestCredentials(t *testing.T) {
	for name, c := range map[string]struct {
		headers []string
		token   string
	}{
		"bearer":                           {[]string{"Bearer sg_a"}, "sg_a"},
		"the scheme has no case":           {[]string{"bEARER sg_a"}, "sg_a"},
		"curl -u :KEY":                     {[]string{basic(":sg_a")}, "sg_a"},
		"basic with any user":              {[]string{basic("slotgate:sg_a")}, "sg_a"},
		"the password may have colons":     {[]string{basic("u:a:b")}, "a:b"},
		"no header":                        {nil, ""},
		"an empty header":                  {[]string{""}, ""},
		"two headers":                      {[]string{"Bearer sg_a", "Bearer sg_a"}, ""},
		"only a scheme":                    {[]string{"Bearer"}, ""},
		"a scheme and a space":             {[]string{"Bearer "}, ""},
		"two spaces":                       {[]string{"Bearer  sg_a"}, ""},
		"two tokens":                       {[]string{"Bearer sg_a sg_b"}, ""},
		"a list":                           {[]string{"Bearer sg_a,Bearer sg_b"}, ""},
		"the bare token":                   {[]string{"sg_a"}, ""},
		"another scheme":                   {[]string{"Digest sg_a"}, ""},
		"basic that is not base64":         {[]string{"Basic sg_a!"}, ""},
		"basic in the URL alphabet":        {[]string{"Basic " + base64.URLEncoding.EncodeToString([]byte(":\xff\xfe\xfd"))}, ""},
		"basic without a colon":            {[]string{basic("sg_a")}, ""},
		"basic with an empty password":     {[]string{basic("sg_a:")}, ""},
		"a token as long as they get":      {[]string{"Bearer " + strings.Repeat("a", tokens.MaxBytes)}, strings.Repeat("a", tokens.MaxBytes)},
		"basic with a token":               {[]string{basic(":" + strings.Repeat("a", 3000))}, strings.Repeat("a", 3000)},
		"a megabyte of dots":               {[]string{"Bearer " + strings.Repeat(".", 1<<20)}, ""},
		"a header longer than any of ours": {[]string{"Bearer " + strings.Repeat("a", maxAuthorization)}, ""},
	} {
		token, ok := credentials(c.headers)
		if token != c.token && ok || ok != (c.token != "") {
			t.Errorf("%s: got %q, %v", name, token, ok)
		}
	}
}

func FuzzCredentials(f *testing.F) {
	for _, s := range []string{"Bearer sg_a", basic(":sg_a"), "Basic ====", "bearer \x00", "Basic Og==", "Bearer"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		token, ok := credentials([]string{header})
		if !ok {
			return
		}
		if token == "" {
			t.Fatalf("%q gives an empty token", header)
		}
		scheme, rest, _ := strings.Cut(header, " ")
		switch {
		case strings.EqualFold(scheme, "bearer"):
			if rest != token {
				t.Fatalf("%q gives %q", header, token)
			}
		default:
			// Decoding is undone by encoding, whatever the user was.
			raw, err := base64.StdEncoding.DecodeString(rest)
			if err != nil || !strings.HasSuffix(string(raw), ":"+token) {
				t.Fatalf("%q gives %q", header, token)
			}
		}
	})
}
