// Command mutants asks whether the tests would notice: it seeds the bugs of mutants.yaml into the code, one line each and one at a time, and
// expects the test that stands for the wall to fail. The tree is never touched: the compiler reads the changed file in place of the
// real one (go build -overlay). A bug that nobody notices is a missing test.
//
// It runs at the root of the module: "make mutants", or with -only 'name|name' for some.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "", "regular expression: only mutants with such a name")
	jobs := flag.Int("j", max(runtime.NumCPU()/2, 1), "how many at once; each needs a core to compile and another for its cluster")
	verbose := flag.Bool("v", false, "print what the test said")
	flag.Parse()
	if err := run(ctx, *only, *jobs, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, jobs int, verbose bool) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	list, err := load("deploy/mutants/mutants.yaml", ".")
	if err != nil {
		return err
	}
	list = matching(list, wanted)
	start := time.Now()
	if err := sound(ctx, list); err != nil {
		return err
	}
	fmt.Printf("without a mutant all tests pass (%v)\n", time.Since(start).Round(time.Second))
	verdicts := make([]verdict, len(list))
	var group errgroup.Group
	group.SetLimit(max(jobs, 1))
	for i, m := range list {
		group.Go(func() error {
			verdicts[i] = m.test(ctx, ".")
			fmt.Printf("%-12s %-34s %-48s %v\n", verdicts[i].kind, m.Name, m.Test, verdicts[i].took.Round(time.Second))
			if verbose || verdicts[i].kind != caught {
				fmt.Println(verdicts[i].said)
			}
			return nil
		})
	}
	_ = group.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	return summary(verdicts, time.Since(start))
}

func matching(list []mutant, wanted *regexp.Regexp) []mutant {
	var some []mutant
	for _, m := range list {
		if wanted.MatchString(m.Name) {
			some = append(some, m)
		}
	}
	return some
}

func summary(verdicts []verdict, took time.Duration) error {
	count := map[kind]int{}
	for _, v := range verdicts {
		count[v.kind]++
	}
	fmt.Printf("mutants: %d caught, %d missed, %d broken, in %v\n", count[caught], count[missed], count[broken], took.Round(time.Second))
	if len(verdicts) == 0 || count[caught] < len(verdicts) {
		return errors.New("not every mutant was caught")
	}
	return nil
}
