//go:build linux

// Command bench measures the gateway beside webdis, nginx+Lua and a bare Gin hello, in one alternating run on this machine.
//
// It promises: loopback only; bounded in time; every answer checked before anything is measured; a run with a failed request is
// marked invalid; everything it starts is stopped by pid, also on Ctrl-C. It refuses to compare figures of different runs: what
// counts is the median of per-round ratios to webdis, because two runs on shared cores differ by 15 %.
//
// One binary plays three parts: "bench" starts the servers and measures, "bench load" is the load generator (a process of its own, so
// that its work is never counted as a server's), "bench hello" is the bare Gin server. Linux only: CPU times come from /proc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // "bench | head" must still stop its servers
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		switch {
		case errors.Is(err, flag.ErrHelp):
			return
		case ctx.Err() != nil:
			fmt.Fprintln(os.Stderr, "bench: interrupted; what it had started is stopped")
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "load":
			return serveLoad(os.Stdin, stdout)
		case "hello":
			return serveHello(ctx, args[1:])
		}
	}
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.longest(), errors.New("the run took far longer than its rounds; stopped"))
	defer cancel()
	return compare(ctx, o, stdout, stderr)
}

// options are the switches of one run; the zero value is never used, parseOptions fills every field.
type options struct {
	Gateways   []string      // gateway binaries, compared with each other when there are several; none leaves the gateway out
	Ops        []string      // get, put, mget, mset
	Only       string        // measure only the rows whose name contains this; webdis always stays, as the base of the ratios
	Rounds     int           // shuffled rounds per row
	Round      time.Duration // length of one round of one row
	Warm       time.Duration // unmeasured load on each row before the first round
	Conns      int           // connections of the single-key operations
	BatchConns int           // connections of the batches
	Batch      int           // keys in one batch
	Keys       int           // different keys in play
	ValueSize  int           // bytes per value
	Seed       uint64        // of the values, the picked keys and the order of the rows
	Save       string        // path of results.json; empty writes none
	Readme     string        // Markdown file whose performance tables are replaced; empty touches none
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var ops string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Func("gateway-bin", "gateway `binary` to measure; repeat it to compare builds in the same run", func(path string) error {
		o.Gateways = append(o.Gateways, path)
		return nil
	})
	f.StringVar(&ops, "ops", "get,put,mget,mset", "operations to measure, comma-separated")
	f.StringVar(&o.Only, "only", "", "measure only rows whose name contains this `text` (webdis always stays)")
	f.IntVar(&o.Rounds, "rounds", 10, "shuffled rounds per row")
	f.DurationVar(&o.Round, "round", time.Second, "length of a round")
	f.DurationVar(&o.Warm, "warm", 500*time.Millisecond, "unmeasured load on each row before its first round")
	f.IntVar(&o.Conns, "conns", 64, "connections for get and put")
	f.IntVar(&o.BatchConns, "batch-conns", 32, "connections for mget and mset")
	f.IntVar(&o.Batch, "batch", 50, "keys in one mget or mset")
	f.IntVar(&o.Keys, "keys", 1000, "different keys")
	f.IntVar(&o.ValueSize, "value", 100, "bytes per value")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of values, keys and the order of the rows")
	f.StringVar(&o.Save, "save", "", "write the results as JSON to this `file` (schema: deploy/bench/README.md)")
	f.StringVar(&o.Readme, "readme", "", "replace the performance tables in this Markdown `file`")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.Ops = strings.Split(ops, ",")
	return o, o.validate(f.Args())
}

func (o options) validate(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	for _, op := range o.Ops {
		if !isOp(op) {
			return fmt.Errorf("-ops: unknown operation %q; known are %s", op, strings.Join(allOps, ", "))
		}
	}
	for name, n := range map[string]int{"rounds": o.Rounds, "conns": o.Conns, "batch-conns": o.BatchConns, "batch": o.Batch, "value": o.ValueSize} {
		if n < 1 {
			return fmt.Errorf("-%s must be at least 1", name)
		}
	}
	if o.Keys < o.Batch {
		return fmt.Errorf("-keys %d: a batch of %d needs at least as many", o.Keys, o.Batch)
	}
	if o.Round <= 0 || o.Warm < 0 {
		return errors.New("-round must be positive and -warm not negative")
	}
	return nil
}

// longest bounds the whole run: twice what the rounds of every possible row take, and a minute to start and stop the servers.
func (o options) longest() time.Duration {
	rows := len(o.Ops) * (3 + 2*max(1, len(o.Gateways)))
	return 2*time.Duration(rows)*(o.Warm+time.Duration(o.Rounds)*o.Round) + time.Minute
}
