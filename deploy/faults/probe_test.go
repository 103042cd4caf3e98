package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/slot"
)

// probeEvery is how often a probe tries: a twentieth of what is to be told apart, which is a second.
const probeEvery = 5 * time.Millisecond

// maxOutstanding bounds the tries of one probe that have no answer yet. A try that hangs must not hide that the next one would succeed.
const maxOutstanding = 64

// firstSuccess tries again and again, each try in a goroutine of its own, and returns when the first one has succeeded. It returns the zero
// time when ctx ends before.
func firstSuccess(ctx context.Context, try func(ctx context.Context) error) time.Time {
	ctx, cancel := context.WithCancel(ctx)
	var trying sync.WaitGroup
	defer trying.Wait()
	defer cancel()
	done := make(chan time.Time, maxOutstanding)
	outstanding := make(chan struct{}, maxOutstanding)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case outstanding <- struct{}{}:
			trying.Go(func() {
				if try(ctx) == nil {
					done <- time.Now()
				}
				<-outstanding
			})
		default:
		}
		select {
		case at := <-done:
			return at
		case <-tick.C:
		case <-ctx.Done():
			return time.Time{}
		}
	}
}

// keyOn returns a caller's key in the slots of a node, which must serve some.
func keyOn(t *testing.T, n *localcluster.Node, prefix string) string {
	t.Helper()
	of := bySlot(t, n)
	for i := 0; ; i++ {
		if key := prefix + strconv.Itoa(i); of(key) == "hit" {
			return key
		}
	}
}

// setAt writes a key at one node, which follows nobody's redirections: it succeeds when the node is the slot's primary and the cluster well.
func setAt(n *localcluster.Node, key string) func(context.Context) error {
	return func(ctx context.Context) error { return n.Client().Set(ctx, namespace+":"+key, "probe", 0).Err() }
}

// setBy writes a key as a direct client does.
func setBy(c *redis.ClusterClient, key string) func(context.Context) error {
	return func(ctx context.Context) error { return c.Set(ctx, namespace+":"+key, "probe", 0).Err() }
}

// setThrough writes a key through a gateway.
func (in *installation) setThrough(g *gateway, client *http.Client, key string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, "PUT", "http://"+g.api+"/v1/strings/"+key, strings.NewReader(`{"value":"probe"}`))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+in.token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			return errors.New(resp.Status)
		}
		return nil
	}
}

// httpClient is one for probes.
func httpClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: maxOutstanding}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: clientTimeout}
}

// durations are what the same thing took each time. A failed one counts as longer than all.
type durations []time.Duration

const never = time.Duration(1<<63 - 1)

// String is the median and the longest.
func (d durations) String() string {
	if len(d) == 0 {
		return "nothing measured"
	}
	s := slices.Sorted(slices.Values(d))
	word := func(d time.Duration) string {
		if d == never {
			return "never"
		}
		return ms(d).String()
	}
	return fmt.Sprintf("median %s, longest %s", word(s[len(s)/2]), word(s[len(s)-1]))
}

// slotOf is the slot of a caller's key.
func slotOf(key string) int { return slot.Of(namespace + ":" + key) }

// found tells how many succeeded at all, and the longest of those.
func (d durations) found() string {
	all := slices.DeleteFunc(slices.Clone(d), func(d time.Duration) bool { return d == never })
	if len(all) == 0 {
		return fmt.Sprintf("0 of %d", len(d))
	}
	return fmt.Sprintf("%d of %d, longest %v", len(all), len(d), ms(slices.Max(all)))
}

// within says whether the median and the longest are within bounds.
func (d durations) within(median, longest time.Duration) bool {
	s := slices.Sorted(slices.Values(d))
	return len(s) > 0 && s[len(s)/2] <= median && s[len(s)-1] <= longest
}
