package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/middleware"
)

func TestTheMeanWaitIsOfWhatCameSince(t *testing.T) {
	h := &metrics.Float64Histogram{Buckets: []float64{math.Inf(-1), 0, .001, .002, math.Inf(1)}, Counts: []uint64{0, 7, 5, 9}}
	for name, c := range map[string]struct {
		was  []uint64
		want time.Duration
	}{
		"nothing came":                    {[]uint64{0, 7, 5, 9}, 0},
		"all that there is":               {[]uint64{0, 0, 0, 0}, (5*time.Millisecond + 9*2*time.Millisecond) / 21},
		"one of 1 ms and one of 2 ms":     {[]uint64{0, 7, 4, 8}, 1500 * time.Microsecond},
		"one that did not wait":           {[]uint64{0, 6, 5, 9}, 0},
		"one that did not and one of 2":   {[]uint64{0, 6, 5, 8}, time.Millisecond},
		"the first bucket begins at -Inf": {[]uint64{0, 7, 5, 8}, 2 * time.Millisecond},
	} {
		if got := meanSince(c.was, h); got.Round(time.Nanosecond) != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestGarbageIsNotHeld(t *testing.T) {
	if got := held(100, 70, 30); got != 60 {
		t.Errorf("of 100 with 40 garbage %d are held", got)
	}
	if got := held(100, 30, 70); got != 100 {
		t.Errorf("objects that were freed since count twice: %d", got)
	}
}

var sink []byte

func TestTheRuntimeIsRead(t *testing.T) {
	p := newPressure()
	memory := func() int64 { runtime.GC(); return p.read().Memory }
	before := memory()
	sink = make([]byte, 256<<20) // so much that what other tests leave behind does not count
	with := memory()
	if with < before+200<<20 {
		t.Errorf("%d bytes before, %d with 256 MiB more", before, with)
	}
	sink = nil
	if without := memory(); without > with-200<<20 {
		t.Errorf("%d bytes with 256 MiB, %d without", with, without)
	}
	if p.cycles() < 2 {
		t.Errorf("%d garbage collections", p.cycles())
	}
	eventually(t, func() bool { // goroutines that wait for one another are seen
		ping := make(chan int)
		go func() { defer close(ping); time.Sleep(time.Microsecond) }()
		<-ping
		return p.read().CPUWait > 0
	})
}

func TestTheCeilingIsGosOwnUnlessItIsSet(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	short := func(cfg Overload, memory int64) bool {
		return newOverload(cfg).Feel(middleware.Pressure{Memory: memory})
	}
	on := defaultConfig().Overload
	if short(on, 1<<50) {
		t.Error("there is a ceiling without GOMEMLIMIT")
	}
	debug.SetMemoryLimit(1 << 40)
	if short(on, 700<<30) || !short(on, 900<<30) {
		t.Error("the ceiling is not GOMEMLIMIT")
	}
	on.MemoryMaxBytes = 1 << 30
	if short(on, 700<<20) || !short(on, 900<<20) {
		t.Error("the ceiling is not overload.memory_max_bytes")
	}
	on.Enabled = false
	if short(on, 1<<50) {
		t.Error("it is refused although overload.enabled is false")
	}
}

// A gateway without memory refuses calls, and nothing by which it is looked after; the switch is a reload. The process has more than the
// 64 KiB that it may hold here. With GOMEMLIMIT set, they are not given to Go, which would collect garbage all the time.
func TestAGatewayShortOfMemory(t *testing.T) {
	vars := append(clusterVars(t), "GOMEMLIMIT=1TiB")
	token := newToken(t, vars, "starving")
	c := &configured{file: filepath.Join(t.TempDir(), "slotgate.yaml")}
	write := func(enabled bool) {
		text := fmt.Sprintf("limits: {bytes_in_flight: 65536, request_max_bytes: 65536, response_max_bytes: 65536, value_max_bytes: 1024}\n"+
			"log: {failures_per_s: 2}\noverload: {memory_max_bytes: 65536, enabled: %v}\n", enabled)
		if err := os.WriteFile(c.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(true)
	c.running = startGateway(t, vars, "--config", c.file)
	c.waitReady(t)
	whoami := func() answer { return call(t, "GET", c.api+"/v1/whoami", token, "") }
	eventually(t, func() bool { return whoami().StatusCode == 503 }) // with the first reading
	for range 100 {
		expect(t, whoami(), 503, `"code":"overloaded"`)
	}
	for _, url := range []string{c.api + "/openapi.yaml", c.admin + "/livez", c.admin + "/readyz"} {
		expect(t, call(t, "GET", url, "", ""), 200)
	}
	expect(t, call(t, "GET", c.admin+"/metrics", "", ""), 200, "slotgate_overload_memory_max_bytes 65536\n",
		`slotgate_overload_shed_total{class="normal",reason="memory"} 1`)
	if lines := strings.Count(c.stderr.String(), `"code":"overloaded"`); lines > 50 {
		t.Errorf("%d lines about more than 100 refusals of a moment", lines)
	}
	write(false)
	if r := c.mustReload(t); strings.Join(r.Changed, " ") != "overload.enabled" {
		t.Errorf("the reload changed %v", r.Changed)
	}
	expect(t, whoami(), 200)
}

// Ten times a second.
func BenchmarkReadingOfTheProcess(b *testing.B) {
	p := newPressure()
	b.ReportAllocs()
	for b.Loop() {
		p.read()
	}
}
