package handlers_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/pool"
)

var allocations = flag.Int("pool-allocations", 20_000, "allocations by the workers that share a pool")

// unprotected is a gateway that takes no node for overloaded and waits for a connection as long as it may: a machine that compiles meanwhile
// looks like an overloaded node, and what is refused then is not what is tested here.
func unprotected(cfg *store.Config) {
	cfg.Overload.Off = true
	cfg.Redis.PoolTimeout = 10 * time.Second
}

// crowd is an app's client for many goroutines at a time: it keeps its connections, compares nothing with the document, and fails no test.
type crowd struct {
	*app
	client   *http.Client
	gateways []string // their addresses; each request is sent to one of them
}

// crowd asks others, too, which are gateways of the same cluster.
func (a *app) crowd(t testing.TB, others ...*gateway) crowd {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	c := crowd{a, &http.Client{Transport: transport, Timeout: 30 * time.Second}, []string{a.URL}}
	for _, g := range others {
		g.people[a.token] = a.identity
		c.gateways = append(c.gateways, g.URL)
	}
	return c
}

// send sends a request with a body of JSON; 0 is no answer.
func (c crowd) send(ctx context.Context, method, path, body string) (status int, answer []byte) {
	req, err := http.NewRequestWithContext(ctx, method, c.gateways[rand.IntN(len(c.gateways))]+path, strings.NewReader(body))
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

// given is how often workers were told of what they allocated: a member with its number of allocations.
type given map[string]int

func nth(member string, n int64) string { return fmt.Sprint(member, " for the ", n, ". time") }

// fifty lets workers allocate until they have so many together.
func (c crowd) fifty(t *testing.T, total int) given {
	t.Helper()
	const workers = 50
	var mu sync.Mutex
	all := given{}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range total / workers {
				status, body := c.send(t.Context(), "POST", allocatePath, "{}")
				var got choice
				if status != 200 || json.Unmarshal(body, &got) != nil || got.Member == nil {
					t.Errorf("status %d: %s", status, body)
					return
				}
				mu.Lock()
				all[nth(*got.Member, got.Allocations)]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return all
}

// whole wants each allocation that Redis counts to have been told once, and that there are so many.
func (g given) whole(t *testing.T, o pool.Overview, total int) {
	t.Helper()
	for what, n := range g {
		if n > 1 {
			t.Errorf("%s: %d times", what, n)
		}
	}
	for _, m := range o.Members {
		for n := range m.Allocations {
			if g[nth(m.Member, n+1)] == 0 {
				t.Errorf("nobody was told of %s", nth(m.Member, n+1))
			}
		}
	}
	if n := counted(o); n != int64(total) || len(g) != total {
		t.Errorf("%d allocations are counted as %d, and %d were told", total, n, len(g))
	}
}

// Each worker takes what is next, as fast as it can, from one of two gateways: all of it is given once, and the members have the same.
func TestFiftyWorkersShareAPool(t *testing.T) {
	for policy, total := range map[string]int{"least_used": *allocations, "round_robin": *allocations / 10} {
		t.Run(policy, func(t *testing.T) {
			if testing.Short() {
				total /= 20
			}
			a := pooler(t, start(t, unprotected), `{"policy":"`+policy+`"}`, strings.Fields("a b c d e f g")...)
			all := a.crowd(t, start(t, unprotected)).fifty(t, total)
			o := shown(t, a)
			all.whole(t, o, total)
			least, most := o.Members[0].Allocations, o.Members[0].Allocations
			for _, m := range o.Members {
				least, most = min(least, m.Allocations), max(most, m.Allocations)
			}
			if most-least > 1 {
				t.Errorf("members have from %d to %d", least, most)
			}
		})
	}
}

// In whole periods each member has what its weight says, whoever asks whichever gateway: also where there are so many members that the
// order is computed ahead.
func TestFiftyWorkersShareByWeight(t *testing.T) {
	for _, variant := range []string{"smooth", "classic"} {
		for _, members := range []int{10, 100} {
			t.Run(fmt.Sprint(variant, " ", members), func(t *testing.T) {
				var list []string
				period := 0
				for i := range members {
					list = append(list, fmt.Sprintf(`{"member":"m%d","weight":%d}`, i, i%4+1))
					period += i%4 + 1
				}
				rounds := max(1000/period, 1)
				for period*rounds%50 > 0 { // all workers have the same
					rounds++
				}
				a := pooler(t, start(t, unprotected), `{"policy":"weighted_round_robin","variant":"`+variant+`"}`, list...)
				all := a.crowd(t, start(t, unprotected)).fifty(t, period*rounds)
				o := shown(t, a)
				all.whole(t, o, period*rounds)
				for _, m := range o.Members {
					if m.Allocations != m.Weight*int64(rounds) {
						t.Errorf("%s of weight %d has %d of %d rounds", m.Member, m.Weight, m.Allocations, rounds)
					}
				}
			})
		}
	}
}
