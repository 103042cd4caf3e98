//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the switches of one run; the zero value is never used, parseOptions fills every field.
type options struct {
	Gateways   []string      // gateway binaries, compared with each other when there are several; none leaves the gateway out
	Variants   []variant     // ways to run the gateway, compared with the first of them
	Env        []string      // KEY=VALUE for every gateway's process
	Set        []string      // path=value, given to every gateway as --set
	Again      bool          // the first variant once more, as the last: how much two equal ones differ
	Ladder     bool          // the steps of the ladder as doors of their own
	H2C        bool          // HTTP/2 without TLS to Gin hello and the gateway
	Streams    int           // callers on one HTTP/2 connection
	Ops        []string      // get, put, mix, mget, mset
	Only       []string      // measure only the rows whose name contains one of these; webdis always stays, as the base of the ratios
	Rounds     int           // shuffled rounds per row
	Round      time.Duration // length of one round of one row
	Warm       time.Duration // unmeasured load on each row before the first round
	Conns      []int         // connections of the single-key operations
	BatchConns []int         // connections of the batches
	Batches    []int         // keys in one batch
	Keys       int           // different keys in play
	Values     []int         // bytes per value
	Data       []string      // what values are made of: random, text
	Apps       []int         // apps that requests rotate over; several make variants
	Seed       uint64        // of the values, the picked keys and the order of the rows

	Idle       int           // this many idle connections to each door instead of a comparison
	Origin     bool          // the origin's own test instead of a comparison
	OriginRate float64       // requests per second of it; 0 finds the rate
	OriginTime time.Duration // its length

	Profile string // prefix of CPU profiles of the gateways, one per row; empty takes none
	Save    string // path of results.json; empty writes none
	Readme  string // Markdown file whose performance tables are replaced; empty touches none
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	o.registerGateway(f)
	ops := f.String("ops", "get,put,mget,mset", "operations to measure, comma-separated; mix is nine get to one put")
	only := f.String("only", "", "measure only rows whose name contains one of these `texts`, comma-separated (webdis always stays)")
	f.IntVar(&o.Rounds, "rounds", 10, "shuffled rounds per row")
	f.DurationVar(&o.Round, "round", time.Second, "length of a round")
	f.DurationVar(&o.Warm, "warm", 500*time.Millisecond, "unmeasured load on each row before its first round")
	conns := f.String("conns", "64", "connections for single keys, a `list`: 1,4,16,64,256,1024")
	batchConns := f.String("batch-conns", "32", "connections for batches, a `list`")
	batches := f.String("batch", "50", "keys in one mget or mset, a `list`: 50,500")
	f.IntVar(&o.Keys, "keys", 1000, "different keys (fewer where values are large)")
	values := f.String("value", "100", "bytes per value, a `list`: 100,10000,1000000")
	data := f.String("data", dataRandom, "what values are made of, a `list`: random letters, which no codec shrinks, or text")
	apps := f.String("apps", "1", "apps that the requests rotate over, 1 to 10000; a `list` makes a gateway for each")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of values, keys and the order of the rows")
	f.IntVar(&o.Idle, "idle", 0, "instead of a comparison: memory per connection with so many `connections` idle after one request each")
	f.BoolVar(&o.Origin, "origin", false, "instead of a comparison: the origin's own test, an open loop at half of the gateway's cores")
	f.Float64Var(&o.OriginRate, "origin-rate", 0, "requests per second of it; 0 finds the rate")
	f.DurationVar(&o.OriginTime, "origin-time", 20*time.Second, "its length")
	f.StringVar(&o.Profile, "pprof", "", "after the rounds, save a CPU profile of each gateway's row as `PREFIX`-ROW.pprof")
	f.StringVar(&o.Save, "save", "", "write the results as JSON to this `file` (schema: deploy/bench/README.md)")
	f.StringVar(&o.Readme, "readme", "", "replace the performance tables in this Markdown `file`")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.Ops, o.Only, o.Data = list(*ops), list(*only), list(*data)
	var errs [5]error
	o.Conns, errs[0] = numbers("conns", *conns)
	o.BatchConns, errs[1] = numbers("batch-conns", *batchConns)
	o.Batches, errs[2] = numbers("batch", *batches)
	o.Values, errs[3] = numbers("value", *values)
	o.Apps, errs[4] = numbers("apps", *apps)
	if err := errors.Join(append(errs[:], o.validate(f.Args()))...); err != nil {
		return o, err
	}
	return o, o.completeVariants()
}

func (o *options) registerGateway(f *flag.FlagSet) {
	collect := func(name string, into *[]string, usage string) {
		f.Func(name, usage, func(text string) error {
			*into = append(*into, text)
			return nil
		})
	}
	collect("gateway-bin", &o.Gateways, "gateway `binary` to measure; repeat it to compare builds in the same run")
	collect("gateway-env", &o.Env, "`KEY=VALUE` for the gateway's environment, such as GOMAXPROCS=1; repeatable")
	collect("gateway-set", &o.Set, "`path=value` setting of the gateway, as its --set; repeatable")
	f.Func("variant", "a way to run the gateway, to compare with the first: `NAME:KEY=VALUE,path=value,bin=FILE,apps=N,gateways=N`; repeatable",
		func(text string) error {
			v, err := parseVariant(text)
			o.Variants = append(o.Variants, v)
			return err
		})
	f.BoolVar(&o.Again, "aa", false, "measure the first gateway twice: how much two equal ones differ here")
	f.BoolVar(&o.Ladder, "ladder", false, "also measure mget and mset as one would write them first: goroutine per key, merged by node, capped")
	f.BoolVar(&o.H2C, "h2c", false, "speak HTTP/2 without TLS to Gin hello and the gateway (the load generator then costs more)")
	f.IntVar(&o.Streams, "streams", 16, "callers that share one HTTP/2 connection")
}

func (o *options) validate(rest []string) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(rest) > 0 {
		fault("unexpected argument %q", rest[0])
	}
	for _, op := range o.Ops {
		if !slices.Contains(allOps, op) {
			fault("-ops: unknown operation %q; known are %s", op, strings.Join(allOps, ", "))
		}
	}
	for _, d := range o.Data {
		if d != dataRandom && d != dataText {
			fault("-data: %q; known are %s, %s", d, dataRandom, dataText)
		}
	}
	for name, n := range map[string]int{"rounds": o.Rounds, "streams": o.Streams, "keys": o.Keys} {
		if n < 1 {
			fault("-%s must be at least 1", name)
		}
	}
	if most := slices.Max(append(o.Batches, 0)); slices.ContainsFunc(o.Ops, isBatch) && o.Keys < most {
		fault("-keys %d: a batch of %d needs at least as many", o.Keys, most)
	}
	if o.Round <= 0 || o.Warm < 0 || o.OriginTime <= 0 {
		fault("-round and -origin-time must be positive and -warm not negative")
	}
	if o.Idle < 0 || o.OriginRate < 0 {
		fault("-idle and -origin-rate must not be negative")
	}
	if slices.Max(append(o.Apps, 0)) > maxApps {
		fault("-apps: at most %d", maxApps)
	}
	return errors.Join(faults...)
}

// longest bounds the whole run: twice what the rounds of every possible row take, and some minutes to start, seed and stop.
func (o *options) longest() time.Duration {
	rows := len(o.scenarios()) * (6 + 2*max(1, len(o.Variants)))
	perRow := o.Warm + time.Duration(o.Rounds)*o.Round + 5*time.Second
	switch {
	case o.Idle > 0:
		return 10 * time.Minute
	case o.Origin:
		return 5*time.Minute + 2*o.OriginTime
	}
	return 2*time.Duration(rows)*perRow + 5*time.Minute
}

// cores is how many the gateway may use: GOMAXPROCS of its environment, or all.
func (v variant) cores() int {
	for _, kv := range slices.Backward(v.Env) {
		if n, ok := strings.CutPrefix(kv, "GOMAXPROCS="); ok {
			if n, err := strconv.Atoi(n); err == nil {
				return min(n, runtime.NumCPU())
			}
		}
	}
	return runtime.NumCPU()
}

// list splits at commas; nothing gives none.
func list(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
}

func numbers(flag, text string) ([]int, error) {
	var all []int
	for _, word := range list(text) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-%s: %q is not a number from 1 on", flag, word)
		}
		all = append(all, n)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("-%s: give at least one number", flag)
	}
	return all, nil
}
