package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slotgate/slotgate/acl"
)

// appFlags turns flags into edits of an app: only what was given changes. The same flags serve create, whose app is
// empty, and set.
type appFlags struct{ edits []func(*acl.App) }

// edit applies all flags in the order they were given.
func (f *appFlags) edit(app *acl.App) {
	for _, e := range f.edits {
		e(app)
	}
}

func (f *appFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.text(flags, "name", "a `text` for people", func(a *acl.App, s string) { a.Name = s })
	f.lists(flags)
	f.text(flags, "compression", "`codec` of large values: snappy or off", func(a *acl.App, s string) { a.Compression = acl.Compression(s) })
	f.bytes(flags, "compress-min-bytes", "least size of a value to compress", func(a *acl.App, n int64) { a.CompressMinBytes = int(n) })
	f.text(flags, "durability", "`who` has a write before it is answered, unless the request says otherwise: async, replica or fsync", func(a *acl.App, s string) { a.Durability = acl.Durability(s) })
	f.text(flags, "read", "`who` answers reads, unless the request says otherwise: primary or replica", func(a *acl.App, s string) { a.Read = acl.ReadFrom(s) })
	f.ttl(flags, "max-staleness", "how old what replicas answer may be, a `time` such as 5s; none for the gateway's", func(a *acl.App, ms int64) { a.MaxStalenessMS = ms })
	f.text(flags, "priority", "`rank` of the app when there is too much to do: critical, normal or bulk", func(a *acl.App, s string) { a.Priority = acl.Priority(s) })
	f.bytes(flags, "key-max-bytes", "longest key", func(a *acl.App, n int64) { a.Sizes.KeyMaxBytes = n })
	f.bytes(flags, "value-max-bytes", "largest value", func(a *acl.App, n int64) { a.Sizes.ValueMaxBytes = n })
	f.bytes(flags, "request-max-bytes", "largest request body", func(a *acl.App, n int64) { a.Sizes.RequestMaxBytes = n })
	f.bytes(flags, "response-max-bytes", "largest response", func(a *acl.App, n int64) { a.Sizes.ResponseMaxBytes = n })
	f.ttl(flags, "default-ttl", "`time` to live of keys written without one, such as 24h or 30d; none for none", func(a *acl.App, ms int64) { a.DefaultTTLMS = ms })
	f.ttl(flags, "max-ttl", "longest `time` to live; with it every key must have one; none for none", func(a *acl.App, ms int64) { a.MaxTTLMS = ms })
	flags.Func("retries", "`tries` after the first, as read=3,write=0; gateway for the gateway's", f.retries)
	flags.Func("expires", "`when` the app ends: an RFC 3339 time, or from now such as 90d; never for never", func(text string) error {
		at, err := parseExpiry(text, time.Now())
		f.edits = append(f.edits, func(a *acl.App) { a.ExpiresAt = at })
		return err
	})
}

// registerFixed adds what cannot change once keys are stored. create shows these flags; set hides them and lets acl
// say why they stay.
func (f *appFlags) registerFixed(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.text(flags, "namespace", "`prefix` of the app's keys in Redis; default: the id", func(a *acl.App, s string) { a.Namespace = s })
	f.text(flags, "layout", "spread: keys use all shards; together: all in one slot (`layout`, default spread)", func(a *acl.App, s string) { a.Layout = acl.Layout(s) })
	f.text(flags, "cluster", "`name` of the cluster that holds the data (default \"default\")", func(a *acl.App, s string) { a.Cluster = s })
}

// lists adds the repeatable flags. The first use replaces what the app has, the next ones add to that.
func (f *appFlags) lists(flags *pflag.FlagSet) {
	var permissions []string
	flags.Func("permission", "what the app may do: strings:read, pools:*, commands:POOL|ALLOCATE, * (`entry`; again for more; none for nothing)", func(text string) error {
		if text != "none" {
			permissions = append(permissions, text)
		}
		all := append([]string{}, permissions...)
		f.edits = append(f.edits, func(a *acl.App) { a.Permissions = all })
		return nil
	})
	var limits []acl.Limit
	flags.Func("limit", "a `limit` of the app: id=rps,limit=100,period_ms=1000,burst=200; also per=key, of=bytes or concurrency, class=strings:read, route=/v1/mget, algorithm=, mode=exact, on_error=; again for more; none for no limits", func(text string) error {
		if text != "none" {
			l, err := parseLimit(text)
			if err != nil {
				return err
			}
			limits = append(limits, l)
		}
		all := append([]acl.Limit{}, limits...)
		f.edits = append(f.edits, func(a *acl.App) { a.Limits = all })
		return nil
	})
}

func (f *appFlags) text(flags *pflag.FlagSet, name, usage string, set func(*acl.App, string)) {
	flags.Func(name, usage, func(text string) error {
		f.edits = append(f.edits, func(a *acl.App) { set(a, text) })
		return nil
	})
}

func (f *appFlags) bytes(flags *pflag.FlagSet, name, usage string, set func(*acl.App, int64)) {
	flags.Func(name, usage+", in `bytes`; 0 for the gateway's", func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("write a number of bytes")
		}
		f.edits = append(f.edits, func(a *acl.App) { set(a, n) })
		return nil
	})
}

func (f *appFlags) ttl(flags *pflag.FlagSet, name, usage string, set func(*acl.App, int64)) {
	flags.Func(name, usage, func(text string) error {
		var d time.Duration
		if text != "none" {
			var err error
			if d, err = parseDuration(text); err != nil || d < time.Millisecond {
				return fmt.Errorf("write a time such as 90s, 24h or 30d, or none")
			}
		}
		f.edits = append(f.edits, func(a *acl.App) { set(a, d.Milliseconds()) })
		return nil
	})
}

func (f *appFlags) retries(text string) error {
	if text == "gateway" {
		f.edits = append(f.edits, func(a *acl.App) { a.Retries = nil })
		return nil
	}
	pairs, err := parsePairs(text, "read", "write")
	read, err2 := strconv.Atoi(pairs["read"])
	write, err3 := strconv.Atoi(pairs["write"])
	if err != nil || err2 != nil || err3 != nil {
		return fmt.Errorf("write read=3,write=0, or gateway")
	}
	f.edits = append(f.edits, func(a *acl.App) { a.Retries = &acl.Retries{Read: read, Write: write} })
	return nil
}

// parseLimit reads id=…,limit=…,period_ms=…[,burst=…][,per=app][,of=requests][,class=…][,route=…][,algorithm=…][,mode=…][,on_error=…]; acl
// judges the values. Of concurrency has no period.
func parseLimit(text string) (acl.Limit, error) {
	pairs, err := parsePairs(text, "id", "per", "of", "class", "route", "limit", "period_ms", "burst", "algorithm", "mode", "on_error")
	if err != nil {
		return acl.Limit{}, err
	}
	l := acl.Limit{
		ID: pairs["id"], Per: cmp.Or(pairs["per"], acl.PerApp), Of: cmp.Or(pairs["of"], acl.OfRequests), Class: pairs["class"], Route: pairs["route"],
		Algorithm: pairs["algorithm"], Mode: pairs["mode"], OnError: pairs["on_error"],
	}
	if l.Route != "" && !knownRoute(l.Route) {
		return acl.Limit{}, fmt.Errorf("route=%s: there is no such route; write its template, such as /v1/mget or /v1/strings/:key", l.Route)
	}
	for name, field := range map[string]*int64{"limit": &l.Limit, "period_ms": &l.PeriodMS, "burst": &l.Burst} {
		value, given := pairs[name]
		if !given {
			continue
		}
		if *field, err = strconv.ParseInt(value, 10, 64); err != nil {
			return acl.Limit{}, fmt.Errorf("%s=%s: write a whole number", name, value)
		}
	}
	return l, nil
}

// parsePairs reads name=value,name=value, each of the known names at most once.
func parsePairs(text string, known ...string) (map[string]string, error) {
	pairs := map[string]string{}
	for item := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(item, "=")
		if !ok || !slices.Contains(known, name) {
			return nil, fmt.Errorf("%q: write name=value with one of %s", item, strings.Join(known, ", "))
		}
		if _, twice := pairs[name]; twice {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		pairs[name] = value
	}
	return pairs, nil
}
