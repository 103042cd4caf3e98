//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// schemaVersion is written into results.json; it grows when a member changes its meaning. README.md describes the members.
const schemaVersion = 2

type results struct {
	Schema  int            `json:"schema"`
	Started time.Time      `json:"started"`
	CPUs    int            `json:"cpus"`
	Go      string         `json:"go"`
	Valid   bool           `json:"valid"`
	Notes   []string       `json:"notes,omitempty"`
	Options resultOption   `json:"options"`
	Rows    []*rowResult   `json:"rows,omitempty"`
	Idle    []idleResult   `json:"idle,omitempty"`
	Origin  []originResult `json:"origin,omitempty"`
}

type resultOption struct {
	Variants []variant `json:"variants"`
	Rounds   int       `json:"rounds"`
	RoundMS  int64     `json:"round_ms"`
	Keys     int       `json:"keys"`
	H2C      bool      `json:"h2c"`
	Streams  int       `json:"streams"`
	Seed     uint64    `json:"seed"`
}

type rowResult struct {
	scenario
	Name       string        `json:"name"`
	Build      string        `json:"build,omitempty"`           // variant of the gateway, or step of the ladder
	Kind       string        `json:"kind,omitempty"`            // JSON or raw
	CPURatio   spread        `json:"cpu_ratio"`                 // to webdis, per round
	P99Ratio   spread        `json:"p99_ratio"`                 // the same of the p99
	BuildRatio *spread       `json:"build_ratio,omitempty"`     // CPU to the first gateway's, per round; of the others only
	BuildRPS   *spread       `json:"build_rps_ratio,omitempty"` // the same of requests per second
	RPS        spread        `json:"requests_per_second"`
	CPUUS      spread        `json:"cpu_us"`
	BackendUS  spread        `json:"redis_cpu_us"`
	Resident   spread        `json:"rss_mb"`
	Mallocs    *spread       `json:"mallocs,omitempty"`         // per request, of gateways only
	Allocated  *spread       `json:"allocated_bytes,omitempty"` // the same
	P50MS      float64       `json:"p50_ms"`                    // of all rounds together
	P99MS      float64       `json:"p99_ms"`
	P999MS     float64       `json:"p999_ms"`
	MeanMS     float64       `json:"mean_ms"`
	Requests   int64         `json:"requests"`
	Errors     int64         `json:"errors"`
	FirstError string        `json:"first_error,omitempty"`
	Rounds     []roundResult `json:"rounds"`
}

// roundResult is one round of one row; CPU times are microseconds per request.
type roundResult struct {
	Requests  int64   `json:"requests"`
	Errors    int64   `json:"errors"`
	Seconds   float64 `json:"seconds"`
	CPUUS     float64 `json:"cpu_us"`
	BackendUS float64 `json:"redis_cpu_us"`
	LoadUS    float64 `json:"load_cpu_us"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
	P999MS    float64 `json:"p999_ms"`
	Resident  float64 `json:"rss_mb"`
	Mallocs   float64 `json:"mallocs,omitempty"`         // objects per request
	Allocated float64 `json:"allocated_bytes,omitempty"` // bytes per request

	latency    histogram
	total      time.Duration
	firstError string
}

func newResults(o options) *results {
	return &results{
		Schema: schemaVersion, Started: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Go: runtime.Version(),
		Options: resultOption{
			Variants: o.Variants, Rounds: o.Rounds, RoundMS: o.Round.Milliseconds(), Keys: o.Keys, H2C: o.H2C, Streams: o.Streams, Seed: o.Seed,
		},
	}
}

// newRound takes CPU times of server, Redis and load generator before and after, and what a gateway allocated in between.
func newRound(r report, before, after []time.Duration, grown heap, resident int64) roundResult {
	per := func(n float64) float64 {
		if r.Requests == 0 {
			return 0
		}
		return n / float64(r.Requests)
	}
	us := func(group int) float64 { return per(float64((after[group] - before[group]).Nanoseconds()) / 1e3) }
	return roundResult{
		Requests: r.Requests, Errors: r.Errors, Seconds: r.Elapsed.Seconds(),
		CPUUS: us(0), BackendUS: us(1), LoadUS: us(2),
		P50MS: millis(r.Latency.quantile(0.5)), P99MS: millis(r.Latency.quantile(0.99)), P999MS: millis(r.Latency.quantile(0.999)),
		Resident: mega(resident), Mallocs: per(max(grown.mallocs, 0)), Allocated: per(max(grown.allocated, 0)),
		latency: r.Latency, total: r.Total, firstError: r.FirstError,
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// summarize fills every row from its rounds.
func (res *results) summarize() {
	res.Valid = true
	for _, row := range res.Rows {
		row.summarize()
		base := res.find(row.scenario, baseDoor)
		row.CPURatio, row.P99Ratio = row.ratioTo(base, cpuOf), row.ratioTo(base, p99Of)
		if first := res.firstBuild(row); first != nil && first != row {
			cpu, rps := row.ratioTo(first, cpuOf), row.ratioTo(first, rpsOf)
			row.BuildRatio, row.BuildRPS = &cpu, &rps
		}
		res.Valid = res.Valid && row.Errors == 0 && row.Requests > 0
	}
}

func (res *results) find(s scenario, name string) *rowResult {
	return res.where(func(r *rowResult) bool { return r.scenario == s && r.Name == name })
}

// firstBuild is the row of the first gateway that a gateway's row, or a step of the ladder, is compared with.
func (res *results) firstBuild(row *rowResult) *rowResult {
	if row.Kind == "" {
		return nil
	}
	return res.where(func(r *rowResult) bool { return r.scenario == row.scenario && r.Kind == row.Kind })
}

func (res *results) where(is func(*rowResult) bool) *rowResult {
	i := slices.IndexFunc(res.Rows, is)
	if i < 0 {
		return nil
	}
	return res.Rows[i]
}

func cpuOf(r roundResult) float64 { return r.CPUUS }
func p99Of(r roundResult) float64 { return r.P99MS }
func rpsOf(r roundResult) float64 { return float64(r.Requests) / r.Seconds }

// ratioTo compares rounds of the same number: they are neighbours in time, and whatever slowed the machine slowed both.
func (row *rowResult) ratioTo(base *rowResult, of func(roundResult) float64) spread {
	var ratios []float64
	for i, r := range row.Rounds {
		if base != nil && i < len(base.Rounds) && of(base.Rounds[i]) > 0 {
			ratios = append(ratios, of(r)/of(base.Rounds[i]))
		}
	}
	return spreadOf(ratios)
}

func (row *rowResult) summarize() {
	var latency histogram
	var total time.Duration
	for _, r := range row.Rounds {
		row.Requests += r.Requests
		row.Errors += r.Errors
		total += r.total
		if row.FirstError == "" {
			row.FirstError = r.firstError
		}
		latency.add(r.latency)
	}
	row.RPS, row.CPUUS, row.BackendUS = row.spread(rpsOf), row.spread(cpuOf), row.spread(func(r roundResult) float64 { return r.BackendUS })
	row.Resident = row.spread(func(r roundResult) float64 { return r.Resident })
	if mallocs := row.spread(func(r roundResult) float64 { return r.Mallocs }); mallocs.Max > 0 {
		allocated := row.spread(func(r roundResult) float64 { return r.Allocated })
		row.Mallocs, row.Allocated = &mallocs, &allocated
	}
	row.P50MS, row.P99MS, row.P999MS = millis(latency.quantile(0.5)), millis(latency.quantile(0.99)), millis(latency.quantile(0.999))
	if row.Requests > 0 {
		row.MeanMS = float64(total.Microseconds()) / 1e3 / float64(row.Requests)
	}
}

func (row *rowResult) spread(of func(roundResult) float64) spread {
	figures := make([]float64, len(row.Rounds))
	for i, r := range row.Rounds {
		figures[i] = of(r)
	}
	return spreadOf(figures)
}

// invalid returns an error that names the rows with failed requests.
func (res *results) invalid() error {
	var bad []string
	for _, row := range res.Rows {
		if row.Errors > 0 || row.Requests == 0 {
			bad = append(bad, fmt.Sprintf("%s, %s: %d of %d failed (%s)", row.scenario, row.Name, row.Errors, row.Requests, row.FirstError))
		}
	}
	for _, o := range res.Origin {
		if o.Errors > 0 {
			bad = append(bad, fmt.Sprintf("the origin's test, %s: %d of %d failed (%s)", o.Name, o.Errors, o.Requests, o.Explanation))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("the run is INVALID: %s", strings.Join(bad, "; "))
}

// publish writes the files that were asked for; the error says when the run is invalid.
func (res *results) publish(o options) error {
	if o.Save != "" {
		text, err := json.MarshalIndent(res, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.Save, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if o.Readme != "" {
		return res.writeReadme(o.Readme)
	}
	return res.invalid()
}

// scenarios and names are in the order of the run.
func (res *results) scenarios() []scenario {
	return distinct(res.Rows, func(r *rowResult) scenario { return r.scenario })
}

func (res *results) names() []string {
	return distinct(res.Rows, func(r *rowResult) string { return r.Name })
}

func distinct[T comparable](rows []*rowResult, of func(*rowResult) T) []T {
	var all []T
	for _, row := range rows {
		if !slices.Contains(all, of(row)) {
			all = append(all, of(row))
		}
	}
	return all
}
