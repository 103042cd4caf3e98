package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/slotgate/slotgate/acl"
)

// configFlags are the flags that name and override settings, on every command that reads the configuration.
type configFlags struct {
	file  string
	sets  []string
	named []override // --listen and its like, filled while parsing
}

// shortcuts are flags for the settings most often changed by hand; every other has --set.
var shortcuts = []struct{ flag, path string }{
	{"listen", "listen"},
	{"admin-listen", "admin_listen"},
	{"secret-file", "secret_file"},
	{"addrs", "clusters.default.addrs"},
	{"log-level", "log.level"},
}

// register adds --config and --set to cmd and its sub-commands; the shortcuts when asked.
func (f *configFlags) register(cmd *cobra.Command, withShortcuts bool) {
	flags := cmd.PersistentFlags()
	flags.StringVarP(&f.file, "config", "c", "", "YAML configuration `file` ["+envFile+"]")
	flags.StringArrayVar(&f.sets, "set", nil, "override one setting, as `path=value`: --set redis.pool_size=64; again for more")
	if !withShortcuts {
		return
	}
	rows := map[string]docRow{}
	for _, r := range docRows() {
		rows[r.Path] = r
	}
	for _, s := range shortcuts {
		r := rows[s.path]
		flags.Func(s.flag, fmt.Sprintf("`value` of %s [%s, default %s]", r.Path, r.Env, r.Default), func(text string) error {
			f.named = append(f.named, override{Path: s.path, Text: text, Flag: "--" + s.flag})
			return nil
		})
	}
}

// load reads all layers. The error is a usageError for a malformed --set only; faults are in the result.
func (f *configFlags) load(e env) (loaded, error) {
	src := sources{File: f.file, Environ: e.environ(), Overrides: f.named}
	for _, text := range f.sets {
		path, value, ok := strings.Cut(text, "=")
		if !ok {
			return loaded{}, usageError{fmt.Errorf("--set %q: write path=value", text)}
		}
		src.Overrides = append(src.Overrides, override{Path: path, Text: value, Flag: "--set"})
	}
	return load(src), nil
}

// config is load for commands that need a configuration without faults.
func (f *configFlags) config(e env) (Config, error) {
	l, err := f.load(e)
	if err != nil {
		return Config{}, err
	}
	for _, f := range l.Strangers {
		fmt.Fprintln(e.Stderr, "slotgate: warning:", f)
	}
	return l.Config, l.check().orNil()
}

// check is everything that can be found wrong without a connection: the layers, the values and the files they name.
func (l *loaded) check() faults {
	all := l.Faults
	for _, f := range append(l.Config.faults(), l.Config.fileFaults()...) {
		f.Origin = l.origin(f.Field)
		all = append(all, f)
	}
	return all
}

func newConfigCommand(e env) *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Check, print and reload the configuration",
		Example: "  slotgate config check --config slotgate.yaml\n  SLOTGATE_REDIS_POOL_SIZE=64 slotgate config print",
	}
	flags.register(cmd, true)
	cmd.AddCommand(newConfigCheckCommand(e, &flags), newConfigPrintCommand(e, &flags), newConfigReloadCommand(e, &flags))
	return asGroup(cmd)
}

func newConfigCheckCommand(e env, flags *configFlags) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find everything wrong with the configuration; exits 3 if there is something",
		Long: `Check reads all layers and the files they name and lists every fault at once. It opens no connection: whether
the cluster answers is what /readyz says.`,
		Example: "  slotgate config check --config slotgate.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			l, err := flags.load(e)
			if err != nil {
				return err
			}
			return reportCheck(e.Stdout, out, append(l.check(), l.Strangers...))
		},
	}
	out.register(cmd)
	return cmd
}

func reportCheck(w io.Writer, out output, found faults) error {
	if out == outputJSON {
		report := struct {
			OK     bool   `json:"ok"`
			Faults faults `json:"faults"`
		}{len(found) == 0, found}
		if report.Faults == nil {
			report.Faults = faults{}
		}
		if err := writeJSON(w, report); err != nil {
			return err
		}
	}
	if len(found) > 0 {
		return checkError{found}
	}
	if out == outputTable {
		fmt.Fprintln(w, "The configuration is good.")
	}
	return nil
}

func newConfigPrintCommand(e env, flags *configFlags) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the configuration in force, secrets masked, each setting with its origin",
		Long: `Print writes what all layers together give, as a YAML file that can be read again (but for masked passwords). It
prints also when something is wrong; the faults then go to stderr and the exit code is 3.`,
		Example: "  slotgate config print --config slotgate.yaml\n  slotgate config print -o json | jq '.[] | select(.origin != \"default\")'",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			l, err := flags.load(e)
			if err != nil {
				return err
			}
			if err := l.print(e.Stdout, out); err != nil {
				return err
			}
			if found := append(l.Faults, l.Strangers...); len(found) > 0 {
				return checkError{found}
			}
			return nil
		},
	}
	out.register(cmd)
	return cmd
}

func (l *loaded) print(w io.Writer, out output) error {
	if out == outputTable {
		return l.printYAML(w)
	}
	type row struct {
		Path        string `json:"path"`
		Value       any    `json:"value"`
		Origin      string `json:"origin"`
		Environment string `json:"environment"`
	}
	var rows []row
	for _, s := range l.Config.settings() {
		rows = append(rows, row{s.Path, s.Value.Interface(), l.origin(s.Path), envName(s.Path)})
	}
	return writeJSON(w, rows)
}

// printYAML writes each setting with a line comment that says where it comes from.
func (l *loaded) printYAML(w io.Writer) error {
	var last []string
	for _, s := range l.Config.settings() {
		steps := strings.Split(s.Path, ".")
		groups, name := steps[:len(steps)-1], steps[len(steps)-1]
		for depth, g := range groups {
			if depth >= len(last) || last[depth] != g {
				fmt.Fprintf(w, "%s%s:\n", strings.Repeat("  ", depth), g)
				last = groups[:depth+1]
			}
		}
		last = groups
		value, err := yamlValue(s)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s%s: %s", strings.Repeat("  ", len(groups)), name, value)
		if _, err := fmt.Fprintf(w, "%-48s # %s\n", line, l.origin(s.Path)); err != nil {
			return err
		}
	}
	return nil
}

func yamlValue(s setting) (string, error) {
	if s.Value.Kind() == reflect.Float64 {
		return decimal(s.Value.Float()), nil
	}
	var node yaml.Node
	if err := node.Encode(s.Value.Interface()); err != nil {
		return "", err
	}
	node.Style |= yaml.FlowStyle
	text, err := yaml.Marshal(&node)
	return strings.TrimSpace(string(text)), err
}

// fileFaults looks at the files the settings name.
func (c Config) fileFaults() faults {
	var v validation
	if c.SecretFile != "" {
		if _, err := acl.LoadSecret(c.SecretFile); err != nil {
			v.fault("secret_file", "%v", err)
		}
	}
	for name, cluster := range c.Clusters {
		if _, err := cluster.password(); err != nil {
			v.fault("clusters."+name+".password_file", "%v", err)
		}
	}
	_, found := readTLS(c, time.Now())
	v = append(v, found...)
	if c.Control.File != "" && c.Control.Cluster == "" {
		if _, err := acl.NewFile(c.Control.File, 0).Load(context.Background()); err != nil {
			v.fault("control.file", "%v", err)
		}
	}
	v.jwksFaults(c.JWT)
	return faults(v)
}

// password is the cluster's password wherever it is kept.
func (c Cluster) password() (string, error) {
	if c.PasswordFile == "" {
		return string(c.Password), nil
	}
	data, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", err
	}
	return passwordOf(data)
}
