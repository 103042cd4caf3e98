// Package clustertest gives tests real Redis Clusters: one of their own (Run), or one shared by a package's tests (Shared).
// A machine without redis-server fails the tests, so that none passes by testing nothing, unless SLOTGATE_TEST_ALLOW_SKIP is
// set; then they are skipped, and so are those for which the server was built without TLS.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
)

// allowSkip is the variable that turns a missing redis-server, or missing TLS in it, from a failure into a skipped test.
const allowSkip = "SLOTGATE_TEST_ALLOW_SKIP"

// startTimeout is for a busy machine; an idle one needs 2 s, the time a new primary waits before it accepts writes.
const startTimeout = 60 * time.Second

// Run starts a cluster for one test and closes it afterwards.
func Run(t testing.TB, o localcluster.Options) *localcluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	c, err := localcluster.Start(ctx, o)
	failOrSkip(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func failOrSkip(t testing.TB, err error) {
	t.Helper()
	switch {
	case (errors.Is(err, localcluster.ErrNoServer) || errors.Is(err, localcluster.ErrNoTLS)) && os.Getenv(allowSkip) != "":
		t.Skipf("NOTHING IS TESTED HERE: %v (skipped because %s is set)", err, allowSkip)
	case errors.Is(err, localcluster.ErrNoServer):
		t.Fatalf("%v: install it (apt-get install redis-server), or set %s=1 to skip this test", err, allowSkip)
	case err != nil:
		t.Fatal(err)
	}
}

// shared is the cluster of this test program. A package variable, because tests have nothing else in common: Main, the only
// other user, cannot hand it to them.
var shared struct {
	mu      sync.Mutex
	cluster *localcluster.Cluster
}

// Main runs a package's tests, closes the shared cluster, reports left-over goroutines and ends the program. Call it from
// TestMain.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	shared.mu.Lock()
	c := shared.cluster
	shared.mu.Unlock()
	if c != nil {
		if err := c.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "closing the shared cluster:", err)
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Shared returns the cluster of three primaries with a replica each that all tests of the package share, started by the first
// of them. It is well when it is returned: what an earlier test has killed, paused or stalled runs again. Keys of earlier
// tests are still there, and the nodes may have changed their roles. The package's TestMain must call Main.
func Shared(t testing.TB) *localcluster.Cluster {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if shared.cluster == nil {
		c, err := localcluster.Start(ctx, localcluster.Options{Primaries: 3, Replicas: 1})
		failOrSkip(t, err)
		shared.cluster = c
		return c
	}
	if err := shared.cluster.Repair(ctx); err != nil {
		t.Fatal(err)
	}
	return shared.cluster
}

// Proxied puts a fault proxy in front of every node; give its Dial to the client under test.
func Proxied(t testing.TB, c *localcluster.Cluster) *faultproxy.Network {
	t.Helper()
	n, err := faultproxy.NewNetwork(c.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}
