//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// overloadOptions are the switches of "bench overload".
type overloadOptions struct {
	Gateway string   // the binary
	Env     []string // KEY=VALUE for its process
	Set     []string // path=value, as its --set
	Short   bool     // the form of CI: counts alone decide
	Only    []string // scenarios; none: all
	Seed    uint64
	Save    string // path of the results as JSON; empty writes none
	Readme  string // Markdown file whose tables are replaced; empty touches none
}

// overloadLongest bounds the whole suite, at thrice what it takes.
const overloadLongest = 15 * time.Minute

// The scenarios, in the order in which they run.
const (
	ofLoads   = "loads"
	ofQuota   = "quota"
	ofShard   = "shard"
	ofBatches = "batches"
	ofOff     = "off"
)

var scenarios = []string{ofLoads, ofQuota, ofShard, ofBatches, ofOff}

func parseOverload(args []string, stderr io.Writer) (overloadOptions, error) {
	var o overloadOptions
	f := flag.NewFlagSet("bench overload", flag.ContinueOnError)
	f.SetOutput(stderr)
	collect := func(into *[]string) func(string) error {
		return func(text string) error {
			*into = append(*into, text)
			return nil
		}
	}
	f.StringVar(&o.Gateway, "gateway-bin", "", "gateway `binary`; required")
	f.Func("gateway-env", "`KEY=VALUE` for the gateway's environment; repeatable", collect(&o.Env))
	f.Func("gateway-set", "`path=value` setting of the gateway, as its --set; repeatable", collect(&o.Set))
	f.BoolVar(&o.Short, "short", false, "the form of CI: shorter phases, without the comparison; counts alone decide")
	only := f.String("only", "", "run these of "+strings.Join(scenarios, ","))
	f.Uint64Var(&o.Seed, "seed", 1, "seed of arrivals and keys")
	f.StringVar(&o.Save, "save", "", "write the results as JSON to this `file` (schema: deploy/bench/README.md)")
	f.StringVar(&o.Readme, "readme", "", "replace the overload tables in this Markdown `file`")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.Only = list(*only)
	for _, name := range o.Only {
		if !slices.Contains(scenarios, name) {
			return o, fmt.Errorf("-only: unknown scenario %q; known are %s", name, strings.Join(scenarios, ", "))
		}
	}
	if o.Gateway == "" || f.NArg() > 0 {
		return o, errors.New("overload needs -gateway-bin, and no arguments")
	}
	return o, nil
}

func (o overloadOptions) runs(scenario string) bool {
	if len(o.Only) == 0 {
		return scenario != ofOff || !o.Short
	}
	return slices.Contains(o.Only, scenario)
}

// runOverload runs the suite. The error names each row that missed its target.
func runOverload(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseOverload(args, stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, overloadLongest, errors.New("the suite took far longer than its phases; stopped"))
	defer cancel()
	raiseFileLimit()
	runtime.LockOSThread() // as in run: children end with the thread that started them
	s, err := openStage()
	if err != nil {
		return err
	}
	defer s.close()
	t, err := openSite(ctx, s, o, stderr)
	if err != nil {
		return err
	}
	found, err := t.runScenarios(ctx)
	if err != nil {
		return err
	}
	found.print(stdout)
	if o.Save != "" {
		if err := found.save(o.Save); err != nil {
			return err
		}
	}
	if o.Readme != "" {
		if err := found.writeReadme(o.Readme); err != nil {
			return err
		}
	}
	return found.missed()
}

func (t *site) runScenarios(ctx context.Context) (*overloadResults, error) {
	found := &overloadResults{Started: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Short: t.o.Short, Apart: t.apart, PeakPerS: peak}
	for _, scenario := range []struct {
		name string
		set  []string // of the gateway
		run  func(context.Context, *overloadResults) error
	}{
		{ofLoads, nil, t.loads},
		{ofQuota, nil, t.quota},
		{ofShard, nil, t.slowShard},
		{ofBatches, nil, t.batches},
		{ofOff, []string{offSwitch}, t.unprotected},
	} {
		if !t.o.runs(scenario.name) {
			continue
		}
		if err := t.useGateway(ctx, scenario.set); err != nil {
			return nil, err
		}
		if err := scenario.run(ctx, found); err != nil {
			return nil, fmt.Errorf("%s: %w", scenario.name, err)
		}
	}
	return found, nil
}

// say tells how far the suite is.
func (t *site) say(format string, args ...any) { fmt.Fprintf(t.stderr, format+"\n", args...) }

// offSwitch turns all of the overload protection off.
const offSwitch = "overload.enabled=false"
