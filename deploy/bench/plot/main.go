// Command plot draws what the benchmark saved: results.json as charts, CPU profiles as flame graphs, all as SVG.
//
// It is a module of its own, so that what draws is no dependency of the gateway.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	out := flag.String("o", ".", "`folder` for the SVG files")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: plot [-o FOLDER] results.json|PROFILE.pprof…")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(out string, paths []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, path := range paths {
		name := filepath.Join(out, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
		var err error
		if filepath.Ext(path) == ".pprof" {
			err = flame(path, name+".svg")
		} else {
			err = charts(path, name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// results is the part of results.json that is drawn; deploy/bench/README.md has the schema.
type results struct {
	Schema int   `json:"schema"`
	Rows   []row `json:"rows"`

	Overload *overload `json:"overload"` // of the overload suite, instead of rows
}

type row struct {
	Op       string  `json:"op"`
	Batch    int     `json:"batch"`
	Conns    int     `json:"conns"`
	Value    int     `json:"value_bytes"`
	Data     string  `json:"data"`
	Name     string  `json:"name"`
	CPURatio spread  `json:"cpu_ratio"`
	CPU      spread  `json:"cpu_us"`
	RPS      spread  `json:"requests_per_second"`
	P99      float64 `json:"p99_ms"`
}

type spread struct{ Median, Min, Max float64 }

// schema is what this program understands.
const schema = 2

func load(path string) (results, error) {
	var r results
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	if r.Schema != schema {
		return r, fmt.Errorf("schema %d; this program draws %d", r.Schema, schema)
	}
	return r, nil
}
