package acl_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
)

func TestFaultsOfAnApp(t *testing.T) {
	limit := func(change func(*acl.Limit)) func(*acl.App) {
		return func(a *acl.App) {
			l := acl.Limit{ID: "rps", Per: "app", Of: "requests", Limit: 10, PeriodMS: 1000}
			change(&l)
			a.Limits = []acl.Limit{l}
		}
	}
	for _, row := range []struct {
		name   string
		change func(*acl.App)
		field  string
		says   string
	}{
		{"an id in upper case", func(a *acl.App) { a.ID = "Shop" }, "id", "shop-eu"},
		{"an id of one character", func(a *acl.App) { a.ID = "s" }, "id", "2 to 63"},
		{"a name of two lines", func(a *acl.App) { a.Name = "a\nb" }, "name", "one line"},
		{"a name that is not UTF-8", func(a *acl.App) { a.Name = "\xff" }, "name", "printable"},
		{"a long name", func(a *acl.App) { a.Name = strings.Repeat("x", 201) }, "name", "200"},
		{"no namespace", func(a *acl.App) { a.Namespace = "" }, "namespace", "2 to 63"},
		{"a namespace of one character", func(a *acl.App) { a.Namespace = "a" }, "namespace", "2 to 63"},
		{"a namespace of 64 characters", func(a *acl.App) { a.Namespace = strings.Repeat("a", 64) }, "namespace", "2 to 63"},
		{"a namespace in upper case", func(a *acl.App) { a.Namespace = "Shop" }, "namespace", "a-z"},
		{"a namespace with a separator", func(a *acl.App) { a.Namespace = "a:b" }, "namespace", "a-z"},
		{"a namespace with a brace", func(a *acl.App) { a.Namespace = "na{me" }, "namespace", "a-z"},
		{"a namespace in braces", func(a *acl.App) { a.Namespace = "{ns}" }, "namespace", "a-z"},
		{"a namespace with a line end", func(a *acl.App) { a.Namespace = "shop\n" }, "namespace", "a-z"},
		{"a namespace beginning with a dash", func(a *acl.App) { a.Namespace = "-shop" }, "namespace", "letter or digit"},
		{"a namespace beyond ASCII", func(a *acl.App) { a.Namespace = "shöp" }, "namespace", "a-z"},
		{"the gateway's namespace", func(a *acl.App) { a.Namespace = "slotgate" }, "namespace", "gateway's own"},
		{"a namespace like the gateway's", func(a *acl.App) { a.Namespace = "slotgatex" }, "namespace", "app-slotgatex"},
		{"another layout", func(a *acl.App) { a.Layout = "wide" }, "layout", "spread"},
		{"a bad cluster", func(a *acl.App) { a.Cluster = "a b" }, "cluster", "default"},
		{"another state", func(a *acl.App) { a.State = "asleep" }, "state", "suspended"},
		{"a bad permission", func(a *acl.App) { a.Permissions = []string{"*", "string:read"} }, "permissions[1]", "strings:read"},
		{"too many permissions", func(a *acl.App) { a.Permissions = slices.Repeat([]string{"*"}, 257) }, "permissions", "256"},
		{"another priority", func(a *acl.App) { a.Priority = "high" }, "priority", "critical, normal or bulk"},
		{"another node to read from", func(a *acl.App) { a.Read = "any" }, "read", "primary or replica"},
		{"a bound below what can be kept", func(a *acl.App) { a.MaxStalenessMS = 1999 }, "max_staleness_ms", "2000 to 60000"},
		{"a bound beyond what is remembered", func(a *acl.App) { a.MaxStalenessMS = 60_001 }, "max_staleness_ms", "0 for the gateway's"},
		{"a negative bound", func(a *acl.App) { a.MaxStalenessMS = -1 }, "max_staleness_ms", "2000 to 60000"},
		{"another codec", func(a *acl.App) { a.Compression = "zip" }, "compression", "snappy or off"},
		{"negative compress_min_bytes", func(a *acl.App) { a.CompressMinBytes = -1 }, "compress_min_bytes", "0 for"},
		{"a negative TTL", func(a *acl.App) { a.DefaultTTLMS = -1 }, "default_ttl_ms", "0 for none"},
		{"a huge TTL", func(a *acl.App) { a.MaxTTLMS = 1<<53 + 1 }, "max_ttl_ms", "9007199254740992"},
		{"a default TTL over the maximum", func(a *acl.App) { a.DefaultTTLMS, a.MaxTTLMS = 11, 10 }, "default_ttl_ms", "at most 10"},
		{"a negative size", func(a *acl.App) { a.Sizes.ValueMaxBytes = -1 }, "sizes.value_max_bytes", "536870912"},
		{"a huge key", func(a *acl.App) { a.Sizes.KeyMaxBytes = 1 << 20 }, "sizes.key_max_bytes", "65536"},
		{"too many retries", func(a *acl.App) { a.Retries = &acl.Retries{Write: 11} }, "retries.write", "0 to 10"},
		{"negative retries", func(a *acl.App) { a.Retries = &acl.Retries{Read: -1} }, "retries.read", "0 to 10"},
		{"a limit without an id", limit(func(l *acl.Limit) { l.ID = "" }), "limits[0].id", "app-rps"},
		{"a limit per nothing", limit(func(l *acl.Limit) { l.Per = "" }), "limits[0].per", "must be app or key"},
		{"a limit per user", limit(func(l *acl.Limit) { l.Per = "user" }), "limits[0].per", `"user" must be app or key`},
		{"a limit of all apps", limit(func(l *acl.Limit) { l.Per = "total" }), "limits[0].per", "for operators, in the configuration (ceilings)"},
		{"a limit per cluster", limit(func(l *acl.Limit) { l.Per = "cluster" }), "limits[0].per", "for operators"},
		{"a limit of cats", limit(func(l *acl.Limit) { l.Of = "cats" }), "limits[0].of", "must be requests, bytes or concurrency"},
		{"a limit of a class that there is not", limit(func(l *acl.Limit) { l.Class = "string" }), "limits[0].class", "strings, hashes:write or *:read"},
		{"a limit of a class in upper case", limit(func(l *acl.Limit) { l.Class = "Strings" }), "limits[0].class", "is not a class"},
		{"a limit of an access that there is not", limit(func(l *acl.Limit) { l.Class = "strings:reed" }), "limits[0].class", "is not a class"},
		{"a limit of a class without a name", limit(func(l *acl.Limit) { l.Class = ":read" }), "limits[0].class", "is not a class"},
		{"a limit of all classes", limit(func(l *acl.Limit) { l.Class = "*" }), "limits[0].class", "or leave it out"},
		{"a limit of one command", limit(func(l *acl.Limit) { l.Class = "commands:GET" }), "limits[0].class", "is not a class"},
		{"a limit of a route in words", limit(func(l *acl.Limit) { l.Route = "mget" }), "limits[0].route", "/v1/strings/:key"},
		{"a limit of a route with its method", limit(func(l *acl.Limit) { l.Route = "POST /v1/mget" }), "limits[0].route", "is not the template"},
		{"a limit of one key's route", limit(func(l *acl.Limit) { l.Route = "/v1/strings/{key}" }), "limits[0].route", "/v1/strings/:key"},
		{"a limit by an algorithm that there is not", limit(func(l *acl.Limit) { l.Algorithm = "leaky_bucket" }), "limits[0].algorithm", "token_bucket, fixed_window or sliding_window"},
		{"a limit in a mode that there is not", limit(func(l *acl.Limit) { l.Mode = "fast" }), "limits[0].mode", "prepaid, exact or local"},
		{"a limit with another on_error", limit(func(l *acl.Limit) { l.OnError = "allow" }), "limits[0].on_error", "local, open or closed"},
		{"a window with a burst", limit(func(l *acl.Limit) { l.Algorithm, l.Burst = "fixed_window", 5 }), "limits[0].burst", "belongs to a token_bucket"},
		{"a window of each gateway alone", limit(func(l *acl.Limit) { l.Algorithm, l.Mode = "sliding_window", "local" }), "limits[0].algorithm", "with mode local only token_bucket"},
		{"on_error of what nobody is asked for", limit(func(l *acl.Limit) { l.Mode, l.OnError = "local", "open" }), "limits[0].on_error", "with mode local leave it out"},
		{"concurrency over a period", limit(func(l *acl.Limit) { l.Of = "concurrency" }), "limits[0].period_ms", "concurrency has no period"},
		{"concurrency with a burst", limit(func(l *acl.Limit) { l.Of, l.PeriodMS, l.Burst = "concurrency", 0, 5 }), "limits[0].burst", "leave it out"},
		{"concurrency by an algorithm", limit(func(l *acl.Limit) { l.Of, l.PeriodMS, l.Algorithm = "concurrency", 0, "token_bucket" }), "limits[0].algorithm", "each gateway counts its own"},
		{"concurrency in a mode", limit(func(l *acl.Limit) { l.Of, l.PeriodMS, l.Mode = "concurrency", 0, "exact" }), "limits[0].mode", "each gateway counts its own"},
		{"concurrency with on_error", limit(func(l *acl.Limit) { l.Of, l.PeriodMS, l.OnError = "concurrency", 0, "open" }), "limits[0].on_error", "each gateway counts its own"},
		{"concurrency of 0", limit(func(l *acl.Limit) { l.Of, l.PeriodMS, l.Limit = "concurrency", 0, 0 }), "limits[0].limit", "1 to"},
		{"a negative limit", limit(func(l *acl.Limit) { l.Limit = -1 }), "limits[0].limit", "1 to"},
		{"a limit of 0", limit(func(l *acl.Limit) { l.Limit = 0 }), "limits[0].limit", "1 to"},
		{"a huge limit", limit(func(l *acl.Limit) { l.Limit = 1<<53 + 1 }), "limits[0].limit", "9007199254740992"},
		{"a period of 0", limit(func(l *acl.Limit) { l.PeriodMS = 0 }), "limits[0].period_ms", "1 to 86400000"},
		{"a period over a day", limit(func(l *acl.Limit) { l.PeriodMS = 86400001 }), "limits[0].period_ms", "86400000"},
		{"a negative burst", limit(func(l *acl.Limit) { l.Burst = -1 }), "limits[0].burst", "0 for as much as limit"},
		{"one limit twice", func(a *acl.App) { limit(func(*acl.Limit) {})(a); a.Limits = append(a.Limits, a.Limits[0]) }, "limits[1].id", "twice"},
		{"eleven limits", func(a *acl.App) { a.Limits = make([]acl.Limit, 11) }, "limits", "at most 10"},
	} {
		err := app("shop", row.change).Validate()
		if fields := faultFields(err); len(fields) != 1 || fields[0] != row.field || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v; want one fault of %s that says %q", row.name, err, row.field, row.says)
		}
	}
}

func TestAllFaultsAreNamedAtOnce(t *testing.T) {
	a := acl.App{Permissions: []string{"x"}, Limits: []acl.Limit{{}}, MaxTTLMS: -1}
	want := []string{"id", "namespace", "layout", "cluster", "state", "permissions[0]", "limits[0].id", "limits[0].per",
		"limits[0].of", "limits[0].limit", "limits[0].period_ms", "compression", "max_ttl_ms"}
	if got := faultFields(a.Validate()); !slices.Equal(got, want) {
		t.Errorf("faults of %v, want %v", got, want)
	}
}

func TestGoodApps(t *testing.T) {
	for name, change := range map[string]func(*acl.App){
		"the least":                               nil,
		"the longest namespace":                   func(a *acl.App) { a.Namespace = strings.Repeat("z", 63) },
		"a namespace of two digits":               func(a *acl.App) { a.Namespace = "00" },
		"a name in any script":                    func(a *acl.App) { a.Name = "Лавка 店" },
		"no permissions":                          func(a *acl.App) { a.Permissions = nil },
		"a namespace that only contains slotgate": func(a *acl.App) { a.Namespace = "my-slotgate" },
		"ten limits": func(a *acl.App) {
			for i := range 10 {
				a.Limits = append(a.Limits, acl.Limit{ID: string(rune('a' + i)), Per: "app", Of: "requests", Limit: 1, PeriodMS: 1, Burst: 1 << 53})
			}
		},
	} {
		if err := app("shop", change).Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFaultsOfAKey(t *testing.T) {
	before := acltest.Start.Add(-time.Second)
	for name, row := range map[string]struct {
		change func(*acl.Key)
		field  string
	}{
		"a short id":          {func(k *acl.Key) { k.ID = k.ID[:11] }, "id"},
		"no app":              {func(k *acl.Key) { k.App = "" }, "app"},
		"an upper-case hash":  {func(k *acl.Key) { k.Hash = strings.Repeat("A", 64) }, "hash"},
		"a short hash":        {func(k *acl.Key) { k.Hash = k.Hash[:63] }, "hash"},
		"a long last4":        {func(k *acl.Key) { k.Last4 = "12345" }, "last4"},
		"expired when made":   {func(k *acl.Key) { k.ExpiresAt = &before }, "expires_at"},
		"a bad permission":    {func(k *acl.Key) { k.Permissions = []string{"strings"} }, "permissions[0]"},
		"an empty permission": {func(k *acl.Key) { k.Permissions = []string{} }, "permissions"},
	} {
		_, k := key(t, "shop", row.change)
		if fields := faultFields(k.Validate()); len(fields) != 1 || fields[0] != row.field {
			t.Errorf("%s: %v, want a fault of %s", name, k.Validate(), row.field)
		}
	}
}

func TestBurstOfALimit(t *testing.T) {
	if got := (acl.Limit{Limit: 7}).EffectiveBurst(); got != 7 {
		t.Errorf("without a burst: %d, want the limit", got)
	}
	if got := (acl.Limit{Limit: 7, Burst: 3}).EffectiveBurst(); got != 3 {
		t.Errorf("with a burst of 3: %d", got)
	}
}

// What a newer gateway beside this one has stored may say words that this one does not know.
func TestKnownLimits(t *testing.T) {
	for _, per := range []string{"app", "key"} {
		for _, of := range []string{"requests", "bytes", "concurrency"} {
			for _, class := range []string{"", "strings", "hashes:read", "keys:write", "zsets:*", "*:write"} {
				for _, mode := range []string{"", "prepaid", "exact", "local"} {
					if l := (acl.Limit{Per: per, Of: of, Class: class, Mode: mode, Route: "/v1/ratelimits/:name/take"}); !l.Known() {
						t.Errorf("%+v is not known", l)
					}
				}
			}
		}
	}
	for name, l := range map[string]acl.Limit{
		"per team":        {Per: "team", Of: "requests"},
		"of cats":         {Per: "app", Of: "cats"},
		"a new class":     {Per: "app", Of: "requests", Class: "vectors"},
		"a new algorithm": {Per: "app", Of: "requests", Algorithm: "adaptive"},
		"a new mode":      {Per: "app", Of: "requests", Mode: "gossip"},
		"a new version":   {Per: "app", Of: "requests", Route: "/v2/mget"},
	} {
		if l.Known() {
			t.Errorf("%s is known", name)
		}
	}
}

func TestDefaultsOfALimit(t *testing.T) {
	l := acl.Limit{}
	if l.EffectiveAlgorithm() != "token_bucket" || l.EffectiveMode() != "prepaid" || l.EffectiveOnError() != "local" {
		t.Errorf("%s, %s, %s", l.EffectiveAlgorithm(), l.EffectiveMode(), l.EffectiveOnError())
	}
	for class, want := range map[string]string{"": "none none", "strings": "strings none", "hashes:read": "hashes read", "*:write": "none write", "keys:*": "keys none"} {
		c, a, ok := acl.Limit{Class: class}.Concerns()
		if got := c.String() + " " + a.String(); !ok || got != want {
			t.Errorf("class %q concerns %s, %v, want %s", class, got, ok, want)
		}
	}
}
