//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// schemaVersion is written into results.json; it grows when a member changes its meaning. README.md describes the members.
const schemaVersion = 1

type results struct {
	Schema  int          `json:"schema"`
	Started time.Time    `json:"started"`
	CPUs    int          `json:"cpus"`
	Go      string       `json:"go"`
	Valid   bool         `json:"valid"`
	Options resultOption `json:"options"`
	Rows    []*rowResult `json:"rows"`
}

type resultOption struct {
	Gateways   []string `json:"gateways"`
	Rounds     int      `json:"rounds"`
	RoundMS    int64    `json:"round_ms"`
	Conns      int      `json:"conns"`
	BatchConns int      `json:"batch_conns"`
	Batch      int      `json:"batch"`
	Keys       int      `json:"keys"`
	ValueBytes int      `json:"value_bytes"`
	Seed       uint64   `json:"seed"`
}

type rowResult struct {
	Op         string        `json:"op"`
	Name       string        `json:"name"`
	CPURatio   spread        `json:"cpu_ratio"`             // to webdis, per round
	BuildRatio *spread       `json:"build_ratio,omitempty"` // to the first gateway build, per round; of the other builds only
	RPS        spread        `json:"requests_per_second"`
	CPUUS      spread        `json:"cpu_us"`
	BackendUS  spread        `json:"redis_cpu_us"`
	P50MS      float64       `json:"p50_ms"` // of all rounds together
	P99MS      float64       `json:"p99_ms"`
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

	latency    histogram
	firstError string
}

func newResults(o options) *results {
	return &results{
		Schema: schemaVersion, Started: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Go: runtime.Version(),
		Options: resultOption{
			Gateways: o.Gateways, Rounds: o.Rounds, RoundMS: o.Round.Milliseconds(), Conns: o.Conns, BatchConns: o.BatchConns,
			Batch: o.Batch, Keys: o.Keys, ValueBytes: o.ValueSize, Seed: o.Seed,
		},
	}
}

// newRound takes CPU times of server, Redis and load generator before and after.
func newRound(r report, before, after []time.Duration) roundResult {
	per := func(group int) float64 {
		if r.Requests == 0 {
			return 0
		}
		return float64((after[group] - before[group]).Nanoseconds()) / 1e3 / float64(r.Requests)
	}
	return roundResult{
		Requests: r.Requests, Errors: r.Errors, Seconds: r.Elapsed.Seconds(),
		CPUUS: per(0), BackendUS: per(1), LoadUS: per(2),
		P50MS: millis(r.Latency.quantile(0.5)), P99MS: millis(r.Latency.quantile(0.99)),
		latency: r.Latency, firstError: r.FirstError,
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// summarize fills every row from its rounds.
func (res *results) summarize() {
	res.Valid = true
	for _, row := range res.Rows {
		row.summarize()
		row.CPURatio = row.ratioTo(res.find(row.Op, baseDoor))
		if first := res.find(row.Op, firstBuild(row.Name)); first != nil && first != row {
			ratio := row.ratioTo(first)
			row.BuildRatio = &ratio
		}
		res.Valid = res.Valid && row.Errors == 0 && row.Requests > 0
	}
}

func (res *results) find(op, name string) *rowResult {
	i := slices.IndexFunc(res.Rows, func(r *rowResult) bool { return r.Op == op && r.Name == name })
	if i < 0 {
		return nil
	}
	return res.Rows[i]
}

// ratioTo compares rounds of the same number: they are neighbours in time, and whatever slowed the machine slowed both.
func (row *rowResult) ratioTo(base *rowResult) spread {
	var ratios []float64
	for i, r := range row.Rounds {
		if base != nil && i < len(base.Rounds) && base.Rounds[i].CPUUS > 0 {
			ratios = append(ratios, r.CPUUS/base.Rounds[i].CPUUS)
		}
	}
	return spreadOf(ratios)
}

func (row *rowResult) summarize() {
	var rps, cpu, backend []float64
	var latency histogram
	for _, r := range row.Rounds {
		row.Requests += r.Requests
		row.Errors += r.Errors
		if row.FirstError == "" {
			row.FirstError = r.firstError
		}
		latency.add(r.latency)
		rps, cpu, backend = append(rps, float64(r.Requests)/r.Seconds), append(cpu, r.CPUUS), append(backend, r.BackendUS)
	}
	row.RPS, row.CPUUS, row.BackendUS = spreadOf(rps), spreadOf(cpu), spreadOf(backend)
	row.P50MS, row.P99MS = millis(latency.quantile(0.5)), millis(latency.quantile(0.99))
}

// invalid returns an error that names the rows with failed requests.
func (res *results) invalid() error {
	var bad []string
	for _, row := range res.Rows {
		if row.Errors > 0 || row.Requests == 0 {
			bad = append(bad, fmt.Sprintf("%s %s: %d of %d failed (%s)", row.Op, row.Name, row.Errors, row.Requests, row.FirstError))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("the run is INVALID: %s", strings.Join(bad, "; "))
}

func (res *results) save(path string) error {
	text, err := json.MarshalIndent(res, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// print writes the ratios first, then the figures behind them.
func (res *results) print(out io.Writer) {
	o := res.Options
	if !res.Valid {
		fmt.Fprintln(out, "INVALID RUN: some requests failed")
	}
	fmt.Fprintf(out, "CPU of the HTTP server per request, as a multiple of webdis' in the same round; median (least–greatest) of %d rounds of %d ms\n\n",
		o.Rounds, o.RoundMS)
	res.printRatios(out, res.names(), func(row *rowResult) *spread { return &row.CPURatio })
	if builds := res.laterBuilds(); len(builds) > 0 {
		fmt.Fprintln(out, "\nThe same as a multiple of the first build's")
		res.printRatios(out, builds, func(row *rowResult) *spread { return row.BuildRatio })
	}
	for i, op := range res.ops() {
		fmt.Fprintf(out, "\n%s, values of %d bytes, %d connections\n", res.opTitles()[i], o.ValueBytes, res.conns(op))
		res.printOp(out, op)
	}
}

func (res *results) printRatios(out io.Writer, names []string, of func(*rowResult) *spread) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\t%s\n", strings.Join(res.opTitles(), "\t"))
	for _, name := range names {
		fmt.Fprint(t, name)
		for _, op := range res.ops() {
			cell := "–"
			if row := res.find(op, name); row != nil {
				ratio := of(row)
				cell = fmt.Sprintf("%.2f (%.2f–%.2f)", ratio.Median, ratio.Min, ratio.Max)
			}
			fmt.Fprint(t, "\t", cell)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

// laterBuilds are the names of rows with a BuildRatio.
func (res *results) laterBuilds() []string {
	return slices.DeleteFunc(res.names(), func(name string) bool {
		return !slices.ContainsFunc(res.Rows, func(r *rowResult) bool { return r.Name == name && r.BuildRatio != nil })
	})
}

func (res *results) printOp(out io.Writer, op string) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\trequests/s\tp50 ms\tp99 ms\tserver CPU us\tRedis CPU us\terrors\t")
	for _, name := range res.names() {
		if row := res.find(op, name); row != nil {
			fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%.2f\t%.1f\t%.1f\t%d\t\n",
				name, row.RPS.Median, row.P50MS, row.P99MS, row.CPUUS.Median, row.BackendUS.Median, row.Errors)
		}
	}
	t.Flush()
}

func (res *results) conns(op string) int {
	if op == opMGet || op == opMSet {
		return res.Options.BatchConns
	}
	return res.Options.Conns
}

func (res *results) ops() []string { return res.distinct(func(r *rowResult) string { return r.Op }) }

func (res *results) names() []string {
	return res.distinct(func(r *rowResult) string { return r.Name })
}

func (res *results) opTitles() []string {
	titles := res.ops()
	for i, op := range titles {
		if op == opMGet || op == opMSet {
			titles[i] = fmt.Sprintf("%s %d", op, res.Options.Batch)
		} else {
			titles[i] = strings.ToUpper(op)
		}
	}
	return titles
}

func (res *results) distinct(of func(*rowResult) string) []string {
	var all []string
	for _, row := range res.Rows {
		if !slices.Contains(all, of(row)) {
			all = append(all, of(row))
		}
	}
	return all
}
