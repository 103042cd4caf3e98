//go:build linux

package main

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// refusing answers one path with success and the others as a gateway that is full does.
func refusing(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, body := 200, `{"value":"v"}`
		switch r.URL.Path {
		case "/full":
			w.Header().Set("Retry-After", "2")
			status, body = 503, `{"status":503,"code":"overloaded","outcome":"not_applied"}`
		case "/rude":
			status, body = 503, `{"status":503,"code":"overloaded"}`
		case "/close":
			w.Header().Set("Connection", "close")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// runFor300ms opens a row of four connections for each path and lets flows of 1,000 requests a second run on them side by side.
func runFor300ms(t *testing.T, addr string, patience time.Duration, ledger bool, paths ...string) []*tally {
	t.Helper()
	rows := map[string]*crowd{}
	o := order{Do: "flows", Duration: 300 * time.Millisecond, Lead: 100 * time.Millisecond, Patience: patience}
	for i, path := range paths {
		var r report
		if err := carryOut(order{Do: "open", Row: path, Addrs: []string{addr}, Conns: 4, Requests: [][]byte{request("GET", path, "", "")}}, rows, &r); err != nil {
			t.Fatal(err)
		}
		defer rows[path].close()
		o.Flows = append(o.Flows, flow{Row: path, Rate: 1000, Seed: uint64(i), Ledger: ledger})
	}
	var r report
	if err := carryOut(o, rows, &r); err != nil {
		t.Fatal(err)
	}
	return r.Flows
}

func counts(fates map[string]*fate) map[string]int64 {
	all := map[string]int64{}
	for kind, f := range fates {
		all[kind] = f.Count
	}
	return all
}

func TestFlowsTellTheirAnswersApart(t *testing.T) {
	got := runFor300ms(t, refusing(t), time.Minute, true, "/good", "/full", "/rude", "/close")
	for i, want := range []string{"2xx", "503 overloaded not_applied", "503 overloaded - without Retry-After", "2xx"} {
		f := got[i]
		if kinds := slices.Sorted(maps.Keys(f.Rest)); !slices.Equal(kinds, []string{want}) || f.Rest[want].Count < 100 || f.Lead[want].Count < 50 {
			t.Errorf("%s: in the lead-in %v, then %v; want some 100 and 200 of %q", f.Row, counts(f.Lead), counts(f.Rest), want)
		}
	}
	if n := int64(len(got[0].Acked)); n != got[0].Lead["2xx"].Count+got[0].Rest["2xx"].Count || len(got[0].NotApplied) > 0 {
		t.Errorf("the ledger has %d of %v and %v", n, counts(got[0].Lead), counts(got[0].Rest))
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(got[1].NotApplied)))); n != len(got[1].NotApplied) || n < 200 || len(got[1].Acked) > 0 {
		t.Errorf("of the refused ones the ledger has %d, %d of them different", len(got[1].NotApplied), n)
	}
	if got[3].Redials < 200 {
		t.Errorf("%d redials to a server that closes each connection", got[3].Redials)
	}
}

// A server that never answers keeps its connections busy: what came when none was left was not sent, and is not forgotten.
func TestFlowsCountWhatCouldNotBeSent(t *testing.T) {
	hold := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer s.Close()
	defer close(hold)
	// The answers come when the load is over: the test need not wait for the grace.
	time.AfterFunc(600*time.Millisecond, func() {
		for range 4 {
			hold <- struct{}{}
		}
	})
	f := runFor300ms(t, s.Listener.Addr().String(), 100*time.Millisecond, false, "/")[0]
	sum := int64(0)
	for _, fates := range []map[string]*fate{f.Lead, f.Rest} {
		for _, one := range fates {
			sum += one.Count
		}
	}
	if n := counts(f.Lead)[unsent] + counts(f.Rest)[unsent]; n != sum-4 || sum < 200 {
		t.Errorf("%d of %d not sent with four connections", n, sum)
	}
}

func TestWhatIsDoneAfterThePatienceIsLate(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) }))
	defer s.Close()
	f := runFor300ms(t, s.Listener.Addr().String(), 10*time.Millisecond, true, "/")[0]
	if counts(f.Rest)[done] > 0 || counts(f.Rest)[late] == 0 || len(f.Acked) == 0 {
		t.Errorf("%v, %d acked", counts(f.Rest), len(f.Acked))
	}
}

func TestArrivalsByChanceHaveTheirRateAndTheirSeed(t *testing.T) {
	next, again, other := poisson(1000, 1), poisson(1000, 1), poisson(1000, 2)
	var last time.Duration
	same := 0
	for range 10_000 {
		last = next()
		if again() != last {
			t.Fatal("one seed, two schedules")
		}
		if other() == last {
			same++
		}
	}
	if last < 9500*time.Millisecond || last > 10500*time.Millisecond || same > 0 {
		t.Errorf("10,000 arrivals at 1,000/s took %v; %d of another seed came at the same time", last, same)
	}
}

func TestItemsOfBatchesAreCounted(t *testing.T) {
	for body, want := range map[string]int64{
		`{"written":1000}`: 1000,
		`{"items":[{"key":"a","found":true,"value":"written"},{"key":"b","found":false},{"key":"c","found":false,"problem":{"code":"overloaded"}}]}`:             2,
		`{"status":503,"code":"batch_incomplete","items":[{"key":"a","outcome":"applied"},{"key":"b","outcome":"not_applied"},{"key":"c","outcome":"unknown"}]}`: 1,
		`{"value":"v"}`: 0,
	} {
		if got := itemsDone(answer{Status: 200, Head: []byte(body)}); got != want {
			t.Errorf("%s: %d items, want %d", body, got, want)
		}
	}
}

func TestFlowsNeedARowAndARate(t *testing.T) {
	var out strings.Builder
	text, err := json.Marshal(order{Do: "flows", Flows: []flow{{Row: "none", Rate: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := serveLoad(strings.NewReader(string(text)), &out); err != nil || !strings.Contains(out.String(), "needs an open row") {
		t.Errorf("%v %s", err, out.String())
	}
}
