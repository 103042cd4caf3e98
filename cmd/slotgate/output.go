package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// output is the form of a command's answer, the flag -o.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
)

// register adds -o to a command.
func (o *output) register(cmd *cobra.Command) {
	*o = outputTable
	cmd.Flags().VarP(o, "output", "o", "form of the answer: table or json")
}

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "form" }

// Set implements pflag.Value.
func (o *output) Set(text string) error {
	switch output(text) {
	case outputTable, outputJSON:
		*o = output(text)
		return nil
	}
	return fmt.Errorf("write table or json")
}

// writeJSON writes v indented, for people and jq alike.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// writeTable writes rows in columns; the first row is the head.
func writeTable(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(tw, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}
