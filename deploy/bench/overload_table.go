//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// overloadResults is what the overload suite found.
type overloadResults struct {
	Started  time.Time       `json:"started"`
	CPUs     int             `json:"cpus"`
	Short    bool            `json:"short"`
	Apart    bool            `json:"apart"` // gateway and generator had different cores
	PeakPerS float64         `json:"peak_per_s"`
	Loads    []overloadLoad  `json:"loads,omitempty"`
	Checks   []overloadCheck `json:"checks,omitempty"`
}

// overloadLoad is one load, with the protection or without it.
type overloadLoad struct {
	Protection   string   `json:"protection"` // on, off
	Load         float64  `json:"load"`       // times peak
	OfferedPerS  float64  `json:"offered_per_s"`
	GoodputPerS  float64  `json:"goodput_per_s"`
	OfPeak       float64  `json:"of_peak"`
	Critical     float64  `json:"critical"` // shares that were done
	Normal       float64  `json:"normal"`
	Bulk         float64  `json:"bulk"`
	P50MS        float64  `json:"p50_ms"` // of what was done
	P99MS        float64  `json:"p99_ms"`
	OfReference  float64  `json:"p99_ratio"` // to that at 80 %
	Refused      int64    `json:"refused"`
	RefusedP99MS float64  `json:"refused_p99_ms"`
	Others       string   `json:"others"` // neither done nor refused
	MemoryMB     float64  `json:"memory_mb"`
	Cores        float64  `json:"cores"`       // that the gateway used
	OtherCores   float64  `json:"other_cores"` // that generator, proxies and shards used together
	LateP99MS    float64  `json:"late_p99_ms"`
	Acked        int      `json:"acked"`
	Lost         int      `json:"lost"`
	Wrong        int      `json:"wrong"`
	Missed       []string `json:"missed,omitempty"` // targets; of protection "on" only
}

// overloadCheck is one of the other scenarios, in words.
type overloadCheck struct {
	Done    string `json:"done"`
	Counted string `json:"counted"`
	Target  string `json:"target"`
	Met     string `json:"met"`
}

const loadHead = "| load | goodput/s | critical / normal / bulk done | p50 / p99 of what is done | refused, p99 | neither | writes acked, lost | memory | targets met |\n|---|---|---|---|---|---|---|---|---|\n"

func (l overloadLoad) String() string {
	name, met := fmt.Sprintf("%g x", l.Load), "yes"
	switch {
	case l.Protection != "on":
		name, met = name+", off", ""
	case len(l.Missed) > 0:
		met = "no: " + strings.Join(l.Missed, "; ")
	}
	return fmt.Sprintf("| %s | %.0f (%.0f %%) | %.1f / %.1f / %.1f %% | %.1f / %.1f ms (%.1fx) | %d, %.1f ms | %s | %d, %d | %.0f MB | %s |\n",
		name, l.GoodputPerS, l.OfPeak*100, l.Critical*100, l.Normal*100, l.Bulk*100, l.P50MS, l.P99MS, l.OfReference, l.Refused, l.RefusedP99MS,
		l.Others, l.Acked, l.Lost, l.MemoryMB, met)
}

func (c overloadCheck) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s |\n", c.Done, c.Counted, c.Target, c.Met)
}

func (r *overloadResults) markdown() string {
	var b strings.Builder
	if len(r.Loads) > 0 {
		b.WriteString(loadHead)
		for _, l := range r.Loads {
			b.WriteString(l.String())
		}
		b.WriteString("\n")
	}
	if len(r.Checks) > 0 {
		b.WriteString("| what was done | counted, measured | target | met |\n|---|---|---|---|\n")
		for _, c := range r.Checks {
			b.WriteString(c.String())
		}
		b.WriteString("\n")
	}
	apart := "the gateway on half of them, generator, shards and proxies on the others"
	if !r.Apart {
		apart = "shared by all"
	}
	fmt.Fprintf(&b, "%s, %d cores, %s.\n", r.Started.Format("2006-01-02"), r.CPUs, apart)
	return b.String()
}

func (r *overloadResults) print(out io.Writer) { fmt.Fprintf(out, "\n%s", r.markdown()) }

func (r *overloadResults) save(path string) error {
	text, err := json.MarshalIndent(map[string]any{"schema": schemaVersion, "overload": r}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// The tables of the overload suite stand between these lines.
const (
	overloadBegin = "<!-- overload:begin -->\n"
	overloadEnd   = "<!-- overload:end -->"
)

// overloadPlot shows what deploy/bench/overload draws beside the tables.
const overloadPlot = "\n![what is done, how long it takes, and the share of each class, by the load](overload.svg)\n"

// writeReadme replaces the tables in a Markdown file, also where targets are missed: the table says so.
func (r *overloadResults) writeReadme(path string) error {
	return replaceBetween(path, overloadBegin, overloadEnd, r.markdown()+overloadPlot)
}

// missed returns an error that names the rows whose targets were missed.
func (r *overloadResults) missed() error {
	var all []string
	for _, l := range r.Loads {
		if len(l.Missed) > 0 {
			all = append(all, strings.TrimSpace(l.String()))
		}
	}
	for _, c := range r.Checks {
		if c.Met == "no" {
			all = append(all, strings.TrimSpace(c.String()))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%d targets are missed:\n%s", len(all), strings.Join(all, "\n"))
}
