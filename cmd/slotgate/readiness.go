package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
)

const (
	// probeTimeout is below the 1 s after which Kubernetes gives up a probe.
	probeTimeout = 700 * time.Millisecond
	// probeEvery is how long a cluster's state is believed: whoever may call /readyz cannot make Redis work for it.
	probeEvery = time.Second
)

// readiness says whether requests should come here: apps and keys are loaded, the gateway is not draining, and at
// least one cluster can be reached. One dead cluster of several leaves the others' apps served, so it counts for
// nothing. Clusters are asked only when somebody asks here, and no more of them than needed, since a client that is
// asked is a client that stays open.
type readiness struct {
	directory *acl.Directory
	drain     *middleware.Drain
	clusters  func() []string // those there are at the moment
	routable  func(ctx context.Context, name string) error
	log       *slog.Logger

	mu     sync.Mutex // held while clusters are asked, so that callers share the answer
	asked  map[string]time.Time
	states map[string]error
	good   string // the cluster found good last
}

func newReadiness(d *acl.Directory, s *store.Store, drain *middleware.Drain, log *slog.Logger) *readiness {
	return &readiness{
		directory: d, drain: drain, routable: s.Routable, log: log,
		clusters: s.Clusters,
		asked:    map[string]time.Time{}, states: map[string]error{},
	}
}

// check is one line of the answer.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

func (c check) String() string {
	if c.OK {
		return "[+]" + c.Name + " ok"
	}
	return "[-]" + c.Name + " failed: " + c.Detail
}

func newCheck(name string, err error) check {
	if err != nil {
		return check{Name: name, Detail: err.Error()}
	}
	return check{Name: name, OK: true}
}

var (
	errDraining  = errors.New("the gateway is shutting down")
	errNotLoaded = errors.New("apps and keys are not loaded yet")
	errNoCluster = errors.New("no cluster can be reached")
)

// ready is check for those who only want to know whether.
func (r *readiness) ready(ctx context.Context) error {
	switch _, ok := r.check(ctx, false); {
	case ok:
		return nil
	case r.drain.Draining():
		return store.NewError(store.CodeDraining, errDraining.Error())
	case !r.directory.Ready():
		return errNotLoaded
	}
	return errNoCluster
}

// check looks at everything; at every cluster only with all.
func (r *readiness) check(ctx context.Context, all bool) (checks []check, ready bool) {
	var drain, loaded error
	if r.drain.Draining() {
		drain = errDraining
	}
	if !r.directory.Ready() {
		loaded = errNotLoaded
	}
	checks = []check{newCheck("drain", drain), newCheck("apps-and-keys", loaded), newCheck("control-store", r.contact())}
	clusters, anyGood := r.checkClusters(ctx, all)
	return append(checks, clusters...), drain == nil && loaded == nil && anyGood
}

// contact says whether the storage of apps and keys answers. It counts for nothing: the gateway serves those it knows, and others that
// are cut off from it as well would be no better.
func (r *readiness) contact() error {
	switch c := r.directory.Contact(); {
	case c.Err == nil:
		return nil
	case c.Last.IsZero():
		return errors.New("it has not answered yet")
	default:
		return fmt.Errorf("last heard of at %s; the apps and keys of then are served", c.Last.UTC().Format(time.RFC3339))
	}
}

func (r *readiness) checkClusters(ctx context.Context, all bool) (checks []check, anyGood bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clusters := r.clusters()
	if !all && slices.Contains(clusters, r.good) {
		r.ask(ctx, r.good)
		if r.states[r.good] == nil {
			return []check{newCheck("cluster-"+r.good, nil)}, true
		}
	}
	r.ask(ctx, clusters...)
	r.good = ""
	for _, name := range clusters {
		err := r.states[name]
		if err == nil && r.good == "" {
			r.good = name
		}
		checks = append(checks, newCheck("cluster-"+name, err))
	}
	return checks, r.good != ""
}

var errPanicked = errors.New("the gateway failed in a way it did not foresee, see its log")

// ask brings the states of clusters up to date, all at the same time. A caller that goes away does not spoil the answer
// for the others.
func (r *readiness) ask(ctx context.Context, names ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	now := time.Now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, name := range names {
		if now.Sub(r.asked[name]) < probeEvery {
			continue
		}
		r.asked[name] = now
		wg.Go(func() {
			err := errPanicked
			alive.Once(r.log, "looking whether a cluster serves", func() { err = r.routable(ctx, name) })
			mu.Lock()
			defer mu.Unlock()
			r.states[name] = err
		})
	}
	wg.Wait()
}
