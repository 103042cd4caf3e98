package faults

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

var (
	form     = flag.String("faults", "", "ci or long: run the scenarios in this form")
	built    = flag.String("gateway", "", "test this program instead of building one, with a path from the root of the file system")
	readme   = flag.Bool("readme", false, "write the table into README.md")
	results  = &table{} // of this run; the scenarios are tests, which have no other place in common
	longForm = func() bool { return *form == "long" }
)

func TestMain(m *testing.M) {
	flag.Parse()
	store.LogDriver(slog.New(slog.DiscardHandler)) // the direct clients' tries
	code := m.Run()
	if text := results.markdown(); text != "" {
		fmt.Print("\n", text, "\n")
		if *readme {
			if err := results.writeInto("README.md"); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	if code == 0 {
		// Cools down for 200 ms after a reload and cannot be stopped (go-redis v9.23.0, clusterStateHolder.LazyReload).
		if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*clusterStateHolder).LazyReload.func1")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// scenario begins every scenario: it skips the test unless the suite runs.
func scenario(t *testing.T) {
	t.Helper()
	switch *form {
	case "ci", "long":
	case "":
		t.Skip("a scenario of the fault suite: make faults")
	default:
		t.Fatalf("-faults=%s: it is ci or long", *form)
	}
}

// times is how often a scenario does its worst: in CI, and in the long form.
func times(ci, long int) int {
	if longForm() {
		return long
	}
	return ci
}

// nodeTimeout is that of the clusters under test, in which failovers happen: two seconds, so that a run has many.
const nodeTimeout = 2 * time.Second

// startCluster starts six processes for one scenario: three primaries, each with a replica.
func startCluster(t *testing.T, change ...func(*localcluster.Options)) *localcluster.Cluster {
	t.Helper()
	o := localcluster.Options{Primaries: 3, Replicas: 1, NodeTimeout: nodeTimeout}
	for _, f := range change {
		f(&o)
	}
	return clustertest.Run(t, o)
}

// partial has the healthy primaries serve while one is down; without it Redis refuses everybody's keys until the failover is over.
func partial(o *localcluster.Options) {
	o.Config = map[string]string{"cluster-require-full-coverage": "no"}
}

// within is a context for one step of a scenario. The figure is for a busy machine; nothing is measured by it.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls until ok, for at most 30 s.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}
