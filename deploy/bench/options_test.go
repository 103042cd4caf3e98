//go:build linux

package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

func TestOptionsRefuseNonsense(t *testing.T) {
	for _, line := range []string{
		"-ops get,del", "-rounds 0", "-keys 10", "-conns -1", "-conns ,", "-conns 1,x", "-round 0s", "extra", "-data zeros", "-apps 10001",
		"-gateway-bin a -variant :x=y", "-gateway-bin a -variant n:x", "-gateway-bin a -variant n:apps=0", "-gateway-bin a -variant n -variant n",
		"-gateway-bin a -gateway-bin b -variant n",
	} {
		if _, err := parseOptions(strings.Fields(line), io.Discard); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}

func TestVariantsComeFromFlags(t *testing.T) {
	for line, want := range map[string]string{
		"":                                  "",
		"-gateway-bin a":                    "slotgate:a:1",
		"-gateway-bin a -gateway-bin b":     "slotgate-A:a:1 slotgate-B:b:1",
		"-gateway-bin a -apps 1,10000":      "slotgate-1apps:a:1 slotgate-10000apps:a:10000",
		"-gateway-bin a -aa":                "slotgate:a:1 slotgate-again:a:1",
		"-gateway-bin a -variant on -aa":    "slotgate-on:a:1 slotgate-again:a:1",
		"-gateway-bin a -variant x:bin=b":   "slotgate-x:b:1",
		"-gateway-bin a -apps 7 -variant x": "slotgate-x:a:7",
	} {
		o, err := parseOptions(strings.Fields(line), io.Discard)
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		var got []string
		for _, v := range o.Variants {
			got = append(got, v.Name+":"+v.Binary+":"+string(rune('0'+v.Apps%10000%10)))
			if v.Apps == 10_000 {
				got[len(got)-1] = v.Name + ":" + v.Binary + ":10000"
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q makes %q, want %q", line, text, want)
		}
	}
	o, err := parseOptions(strings.Fields("-gateway-bin a -gateway-env GOGC=50 -gateway-set log.level=warn -variant two:GOMAXPROCS=1,gateways=2,coalesce.off=true"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	v := o.Variants[0]
	if !slices.Equal(v.Env, []string{"GOGC=50", "GOMAXPROCS=1"}) || !slices.Equal(v.Set, []string{"log.level=warn", "coalesce.off=true"}) || v.Gateways != 2 || v.cores() != 1 {
		t.Errorf("got %+v", v)
	}
}

func TestScenariosAreNamedByWhatDiffers(t *testing.T) {
	for line, want := range map[string]string{
		"-ops get,mget":                              "GET|mget 50",
		"-ops get -conns 1,64":                       "GET, 1 connection|GET, 64 connections",
		"-ops mget -batch 1,50":                      "mget 1|mget 50",
		"-ops get -value 100,1000000 -data text":     "GET, 100 B text|GET, 1 MB text",
		"-ops mset -batch 1,50 -value 1000000":       "mset 1", // fifty would be no request
		"-ops put,mset -conns 1,4 -value 2500 -aa":   "PUT, 1 connection|PUT, 4 connections|mset 50",
		"-ops get -data random,text -value 512 -aa ": "GET, 512 B random|GET, 512 B text",
	} {
		o, err := parseOptions(strings.Fields(line), io.Discard)
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		var got []string
		all := o.scenarios()
		for _, s := range all {
			got = append(got, s.title(all))
		}
		if text := strings.Join(got, "|"); text != want {
			t.Errorf("%q gives %q, want %q", line, text, want)
		}
	}
}

func TestTargetsVisitEveryKeyAndApp(t *testing.T) {
	w := newWorkload(options{Keys: 100, Batches: []int{50}}, 100, dataRandom)
	for _, op := range []string{opGet, opMGet} {
		for _, apps := range []int{1, 7, 1000} {
			seen, keys := map[int]bool{}, map[int]bool{}
			s := scenario{Op: op, Batch: 1}
			if isBatch(op) {
				s.Batch = 50
			}
			for _, target := range w.targets(s, apps) {
				seen[target.app] = true
				own := map[int]bool{}
				for _, k := range target.keys {
					keys[k], own[k] = true, true
				}
				if len(own) != s.Batch {
					t.Fatalf("a request of %s has %d different keys, want %d", op, len(own), s.Batch)
				}
			}
			if len(seen) != apps || len(keys) != 100 {
				t.Errorf("%s with %d apps: %d apps and %d keys are asked for", op, apps, len(seen), len(keys))
			}
		}
	}
}

func TestLargeValuesBoundTheWork(t *testing.T) {
	w := newWorkload(options{Keys: 1000, Batches: []int{50}}, 1_000_000, dataText)
	if total := len(w.values) * w.size; total > maxWorkBytes {
		t.Errorf("%d bytes of values", total)
	}
	if n := len(w.targets(scenario{Op: opPut, Batch: 1}, 10_000)); n*w.size > maxWorkBytes {
		t.Errorf("%d requests of a megabyte", n)
	}
}

func TestHeapIsReadFromMetrics(t *testing.T) {
	text := `# HELP go_memstats_mallocs_total …
go_memstats_mallocs_total 1.5e+06
go_memstats_alloc_bytes_total 3e+08
go_memstats_heap_inuse_bytes 1000
go_memstats_stack_inuse_bytes 24
`
	h, err := parseHeap(strings.NewReader(text))
	if want := (heap{1.5e6, 3e8, 1000, 24}); err != nil || h != want {
		t.Errorf("got %+v, %v", h, err)
	}
	for _, bad := range []string{"", strings.Replace(text, "1000", "many", 1)} {
		if _, err := parseHeap(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
