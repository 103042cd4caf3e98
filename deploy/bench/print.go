//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// print writes the ratios first, then the figures behind them.
func (res *results) print(out io.Writer) {
	if !res.Valid {
		fmt.Fprintln(out, "INVALID RUN: some requests failed")
	}
	fmt.Fprintf(out, "CPU of the HTTP server per request, as a multiple of webdis' in the same round; median (least–greatest) of %d rounds of %d ms\n\n",
		res.Options.Rounds, res.Options.RoundMS)
	others := slices.DeleteFunc(res.names(), func(name string) bool { return name == baseDoor })
	res.printRatios(out, others, func(row *rowResult) *spread { return &row.CPURatio })
	fmt.Fprintln(out, "\np99 latency, the same way")
	res.printRatios(out, others, func(row *rowResult) *spread { return &row.P99Ratio })
	if builds := res.laterBuilds(); len(builds) > 0 {
		first := res.firstBuild(res.where(func(r *rowResult) bool { return r.BuildRatio != nil })).Build
		fmt.Fprintf(out, "\nCPU per request as a multiple of that of %s\n", first)
		res.printRatios(out, builds, func(row *rowResult) *spread { return row.BuildRatio })
		fmt.Fprintf(out, "\nRequests per second as a multiple of those of %s\n", first)
		res.printRatios(out, builds, func(row *rowResult) *spread { return row.BuildRPS })
		res.printAgain(out)
	}
	res.printPerKey(out)
	for _, s := range res.scenarios() {
		fmt.Fprintf(out, "\n%s\n", s)
		res.printScenario(out, s)
	}
	for _, note := range res.Notes {
		fmt.Fprintln(out, "\nnote:", note)
	}
}

func (res *results) printRatios(out io.Writer, names []string, of func(*rowResult) *spread) {
	all := res.scenarios()
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\t%s\n", strings.Join(names, "\t"))
	for _, s := range all {
		fmt.Fprint(t, s.title(all))
		for _, name := range names {
			cell := "–"
			if row := res.find(s, name); row != nil && of(row) != nil {
				cell = of(row).String()
			}
			fmt.Fprint(t, "\t", cell)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

func (s *spread) String() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Median, s.Min, s.Max) }

// printAgain puts into words what -aa measured.
func (res *results) printAgain(out io.Writer) {
	var off, widest float64
	found := false
	for _, row := range res.Rows {
		if strings.HasSuffix(row.Build, "-again") && row.BuildRatio != nil {
			found = true
			off = max(off, row.BuildRatio.Median-1, 1-row.BuildRatio.Median)
			widest = max(widest, row.BuildRatio.Max-1, 1-row.BuildRatio.Min)
		}
	}
	if found {
		fmt.Fprintf(out, "\nA/A: two equal gateways differ by up to %.0f %% in a median, by up to %.0f %% in a single round: believe nothing smaller\n", off*100, widest*100)
	}
}

// laterBuilds are the names of rows with a BuildRatio.
func (res *results) laterBuilds() []string {
	return slices.DeleteFunc(res.names(), func(name string) bool {
		return res.where(func(r *rowResult) bool { return r.Name == name && r.BuildRatio != nil }) == nil
	})
}

// printPerKey shows what a key more costs, which is free of a request's fixed cost: between a batch and the next smaller one.
func (res *results) printPerKey(out io.Writer) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	rows := 0
	for _, row := range res.Rows {
		smaller := res.nextSmaller(row)
		if smaller == nil {
			continue
		}
		if rows++; rows == 1 {
			fmt.Fprintln(out, "\nCPU per key of batches, and of each key more than the next smaller batch has (a request's fixed cost is not in it)")
			fmt.Fprintln(t, "\t\tus per key\tus per key more\t")
		}
		per, more := perKey(row, smaller)
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%.2f\t\n", row.Name, row.title(res.scenarios()), per, more)
	}
	t.Flush()
}

func perKey(row, smaller *rowResult) (per, more float64) {
	return row.CPUUS.Median / float64(row.Batch), (row.CPUUS.Median - smaller.CPUUS.Median) / float64(row.Batch-smaller.Batch)
}

// nextSmaller is the row of the same door that differs in nothing but its smaller batch.
func (res *results) nextSmaller(row *rowResult) (best *rowResult) {
	for _, r := range res.Rows {
		s := r.scenario
		s.Batch = row.Batch
		if r.Name == row.Name && s == row.scenario && r.Batch < row.Batch && (best == nil || r.Batch > best.Batch) {
			best = r
		}
	}
	return best
}

func (res *results) printScenario(out io.Writer, s scenario) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\trequests/s\tmean ms\tp50\tp99\tp99.9\tserver CPU us\tRedis CPU us\tRSS MB\tmallocs\tbytes\terrors\t")
	for _, name := range res.names() {
		row := res.find(s, name)
		if row == nil {
			continue
		}
		mallocs, bytes := "–", "–"
		if row.Mallocs != nil {
			mallocs, bytes = fmt.Sprintf("%.1f", row.Mallocs.Median), fmt.Sprintf("%.0f", row.Allocated.Median)
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.1f\t%.1f\t%.0f\t%s\t%s\t%d\t\n", name, row.RPS.Median, row.MeanMS, row.P50MS, row.P99MS,
			row.P999MS, row.CPUUS.Median, row.BackendUS.Median, row.Resident.Median, mallocs, bytes, row.Errors)
	}
	t.Flush()
}
