package handlers_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
)

var allocations = flag.Int("pool-allocations", 20_000, "allocations by the workers that share a pool")

// unprotected is a gateway that takes no node for overloaded: a machine that compiles meanwhile looks like one, and what is refused then is
// not what is tested here.
func unprotected(cfg *store.Config) { cfg.Overload.Off = true }

// crowd is an app's client for many goroutines at a time: it keeps its connections, compares nothing with the document, and fails no test.
type crowd struct {
	*app
	client *http.Client
}

func (a *app) crowd(t testing.TB) crowd {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return crowd{a, &http.Client{Transport: transport, Timeout: 30 * time.Second}}
}

// send sends a request with a body of JSON; 0 is no answer.
func (c crowd) send(ctx context.Context, method, path, body string) (status int, answer []byte) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, []byte(err.Error())
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = resp.Body.Close() }()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		return 0, []byte(err.Error())
	}
	return resp.StatusCode, answer
}

// choice is the answer to an allocation, as far as workers read it.
type choice struct {
	Member      *string
	Reason      string
	Allocations int64
	Lease       *struct {
		ID          string
		Fence       int64
		ExpiresAtMS int64 `json:"expires_at_ms"`
	}
}

// Each worker takes what is next, as fast as it can: all of it is given once, and the members have the same.
func TestFiftyWorkersShareAPool(t *testing.T) {
	const workers = 50
	for policy, total := range map[string]int{"least_used": *allocations, "round_robin": *allocations / 10} {
		t.Run(policy, func(t *testing.T) {
			if testing.Short() {
				total /= 20
			}
			a := pooler(t, start(t, unprotected), `{"policy":"`+policy+`"}`, strings.Fields("a b c d e f g")...)
			var mu sync.Mutex
			given := map[string]int{} // a member with its number of allocations
			c, each := a.crowd(t), total/workers
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for range each {
						status, body := c.send(t.Context(), "POST", allocatePath, "{}")
						var got choice
						if status != 200 || json.Unmarshal(body, &got) != nil || got.Member == nil {
							t.Errorf("status %d: %s", status, body)
							return
						}
						mu.Lock()
						given[fmt.Sprint(*got.Member, " for the ", got.Allocations, ". time")]++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			for what, n := range given {
				if n > 1 {
					t.Errorf("%s: %d times", what, n)
				}
			}
			all := shown(t, a).Members
			sum, least, most := int64(0), all[0].Allocations, all[0].Allocations
			for _, m := range all {
				sum += m.Allocations
				least, most = min(least, m.Allocations), max(most, m.Allocations)
				for n := range m.Allocations {
					if what := fmt.Sprint(m.Member, " for the ", n+1, ". time"); given[what] == 0 {
						t.Errorf("nobody was told of %s", what)
					}
				}
			}
			if sum != int64(workers*each) || most-least > 1 || len(all) != 7 {
				t.Errorf("%d allocations by %d workers are counted as %d, from %d to %d", each, workers, sum, least, most)
			}
		})
	}
}
