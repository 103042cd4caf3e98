//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// answered is a phase of a second in which a mix got these answers, each within 10 ms.
func answered(load float64, kinds map[string]int64) *phase {
	p := &phase{seconds: 1, streams: mix(load)}
	for range p.streams {
		p.tallies = append(p.tallies, &tally{Lead: map[string]*fate{}, Rest: map[string]*fate{}})
	}
	for kind, n := range kinds {
		for i := range n {
			p.tallies[i%int64(len(p.tallies))].count(kind, false, 10*time.Millisecond, 0)
		}
	}
	return p
}

func TestALoadMissesItsTarget(t *testing.T) {
	const full = "503 overloaded not_applied"
	for name, c := range map[string]struct {
		load  float64
		kinds map[string]int64
		alter func(*phase)
		calm  time.Duration
		miss  string // empty: nothing is missed
	}{
		"when all is done":                           {load: 1, kinds: map[string]int64{"2xx": 2000}},
		"when what is too much is refused":           {load: 2, kinds: map[string]int64{"2xx": 2000, full: 2000}, alter: quickly},
		"when too little is done":                    {load: 2, kinds: map[string]int64{"2xx": 1700, full: 2300}, alter: quickly, miss: "goodput under 90 %"},
		"when critical is refused and there is room": {load: .8, kinds: map[string]int64{"2xx": 1590, full: 10}, alter: quickly, miss: "critical requests refused"},
		"when it answers with 500":                   {load: 2, kinds: map[string]int64{"2xx": 1990, "500 internal unknown": 1}, miss: "1 requests with 500"},
		"when a request gets no answer":              {load: 2, kinds: map[string]int64{"2xx": 1990, noReply: 1}, miss: "1 requests with 500 or without an answer"},
		"when it answers too late":                   {load: 2, kinds: map[string]int64{"2xx": 1990, "504 backend_timeout -": 3}, miss: "answers that are no refusal: 504 backend_timeout: 3"},
		"when a refusal does not say until when":     {load: 2, kinds: map[string]int64{"2xx": 1990, full + " without Retry-After": 3}, miss: "no refusal"},
		"when a refusal does not know what it did":   {load: 2, kinds: map[string]int64{"2xx": 1990, "503 overloaded unknown": 3}, miss: "no refusal"},
		"when a write is lost":                       {load: 1, kinds: map[string]int64{"2xx": 2000}, alter: func(p *phase) { p.lost = 1 }, miss: "1 acknowledged writes lost"},
		"when a refused write was done":              {load: 1, kinds: map[string]int64{"2xx": 2000}, alter: func(p *phase) { p.wrong = 1 }, miss: "1 refused writes applied"},
		"when it takes too much memory":              {load: 1, kinds: map[string]int64{"2xx": 2000}, alter: func(p *phase) { p.memory = ceiling + 1 }, miss: "memory over 256 MB"},
		"when what is done takes too long":           {load: 1, kinds: map[string]int64{"2xx": 2000}, calm: 4 * time.Millisecond, miss: "p99 over 2 times"},
		"when it refuses slowly":                     {load: 2, kinds: map[string]int64{"2xx": 2000, full: 2000}, miss: "refusals later than 5.0 ms"},
		"when bulk is served and critical is not": {load: 2, kinds: map[string]int64{"2xx": 4000}, alter: func(p *phase) {
			p.tallies[0].count(full, false, time.Millisecond, 0)
			p.tallies[0].Rest[full].Count = 1000
		}, miss: "a lower class is served better"},
	} {
		t.Run(name, func(t *testing.T) {
			p := answered(c.load, c.kinds)
			if c.alter != nil {
				c.alter(p)
			}
			if c.calm == 0 {
				c.calm = 10 * time.Millisecond
			}
			found := &overloadResults{Loads: []overloadLoad{loadRow(p, "on", c.load, c.calm, false)}}
			got := strings.Join(found.Loads[0].Missed, "; ")
			if c.miss == "" && got != "" || !strings.Contains(got, c.miss) {
				t.Errorf("missed: %q, want %q", got, c.miss)
			}
			if err := found.missed(); (err != nil) != (c.miss != "") || err != nil && !strings.Contains(err.Error(), c.miss) {
				t.Errorf("the suite ends with %v", err)
			}
		})
	}
}

// quickly has refusals take a millisecond.
func quickly(p *phase) {
	for _, t := range p.tallies {
		for kind, f := range t.Rest {
			if isRefusal(kind) {
				f.Latency = newHistogram()
				f.Latency.record(time.Millisecond)
			}
		}
	}
}

func TestWithoutProtectionNothingIsAsked(t *testing.T) {
	row := loadRow(answered(2, map[string]int64{"2xx": 3, unsent: 3000}), "off", 2, time.Millisecond, false)
	if len(row.Missed) > 0 || !strings.Contains(row.String(), "2 x, off") {
		t.Errorf("%v", row)
	}
}

func TestTimesDecideNothingInTheShortForm(t *testing.T) {
	row := loadRow(answered(2, map[string]int64{"2xx": 1500, "503 overloaded not_applied": 2500}), "on", 2, time.Millisecond, true)
	if len(row.Missed) > 0 {
		t.Errorf("missed: %v", row.Missed)
	}
	short, long := &site{o: overloadOptions{Short: true}}, &site{}
	if short.met(true, false) != "yes" || short.met(false, true) != "no" || long.met(true, false) != "no" || long.met(true, true) != "yes" {
		t.Error("counts and times are mixed up")
	}
}

func TestAMixHasItsRate(t *testing.T) {
	sum := 0.0
	for _, s := range mix(5) {
		sum += s.rate
	}
	if sum < 5*peak-1 || sum > 5*peak+1 {
		t.Errorf("%v requests a second of %v", sum, 5*peak)
	}
}

func TestOverloadTablesReplaceTheOldOnes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(path, []byte("before\n"+overloadBegin+"old\n"+overloadEnd+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	found := &overloadResults{Loads: []overloadLoad{{Protection: "on", Load: 2, Missed: []string{"too slow"}}}, Checks: []overloadCheck{{"a", "b", "c", "yes"}}}
	if err := found.writeReadme(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n" + overloadBegin, "| 2 x |", "no: too slow", "| a | b | c | yes |", "](overload.svg)", overloadEnd + "\nafter\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Error("the old table is still there")
	}
}

func TestOverloadOptionsAreChecked(t *testing.T) {
	for name, args := range map[string][]string{
		"no gateway": {}, "an argument": {"-gateway-bin", "x", "y"}, "an unknown scenario": {"-gateway-bin", "x", "-only", "lods"},
	} {
		if _, err := parseOverload(args, &strings.Builder{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	o, err := parseOverload([]string{"-gateway-bin", "x", "-short"}, &strings.Builder{})
	if err != nil || !o.runs(ofLoads) || !o.runs(ofShard) || o.runs(ofOff) {
		t.Errorf("the short form: %+v, %v", o, err)
	}
	if o, err := parseOverload([]string{"-gateway-bin", "x", "-only", "off"}, &strings.Builder{}); err != nil || o.runs(ofLoads) || !o.runs(ofOff) {
		t.Errorf("-only off: %+v, %v", o, err)
	}
}

func TestCoresAreSplit(t *testing.T) {
	gateway, others, apart, err := halves()
	if err != nil {
		t.Fatal(err)
	}
	for core := range 1024 {
		if apart && gateway.IsSet(core) && others.IsSet(core) {
			t.Errorf("core %d is both's", core)
		}
	}
	var inside unix.CPUSet
	if err := pinnedTo(gateway, func() error { return unix.SchedGetaffinity(0, &inside) }); err != nil || inside != gateway || gateway.Count() == 0 {
		t.Errorf("pinned to %v, want %v (%v)", inside, gateway, err)
	}
}

func TestRefusalsAreCountedByLayerAndReason(t *testing.T) {
	got, err := parseShed(strings.NewReader(`# HELP slotgate_redis_shed_total text
slotgate_redis_shed_total{class="bulk",cluster="default",node="127.0.0.1:1",reason="full"} 3
slotgate_redis_shed_total{class="normal",cluster="default",node="127.0.0.1:1",reason="full"} 1.2e+06
slotgate_overload_shed_total{class="normal",reason="memory"} 2
slotgate_http_requests_total{code="200"} 7
`))
	if err != nil || len(got) != 2 || got["redis full"] != 1_200_003 || got["overload memory"] != 2 {
		t.Errorf("%v, %v", got, err)
	}
}
