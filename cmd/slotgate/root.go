package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// env is what a command may see and touch of the process around it.
type env struct {
	Getenv  func(string) string
	Environ func() []string // nil: no variables
	Stdin   io.Reader       // nil: nothing
	Stdout  io.Writer       // data
	Stderr  io.Writer       // progress, notes, errors, logs
}

func (e env) environ() []string {
	if e.Environ == nil {
		return nil
	}
	return e.Environ()
}

// run is the whole program but for the process: it returns the exit code and leaves nothing behind.
func run(ctx context.Context, args []string, e env) int {
	root := newRootCommand(e)
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !started {
		err = usageError{err} // all that fails before a command runs is a matter of its arguments
	}
	code := exitCode(ctx, err)
	if err != nil {
		fmt.Fprintf(e.Stderr, "slotgate: %v\n", err)
	}
	if code == exitUsage {
		fmt.Fprintf(e.Stderr, "Run `%s --help` for what it takes.\n", cmd.CommandPath())
	}
	return code
}

const exitCodesHelp = `Exit codes:
  0 ok · 1 failure · 2 usage · 3 a check found problems · 4 cannot connect · 5 denied · 130 interrupted`

func newRootCommand(e env) *cobra.Command {
	root := &cobra.Command{
		Use:   "slotgate",
		Short: "REST gateway for Redis Cluster",
		Long: `slotgate is a REST gateway for Redis Cluster: applications get a key and a namespace, and talk plain HTTP.

Settings come from flags, then SLOTGATE_ variables, then a YAML file, then defaults; ` + "`slotgate config print`" + `
shows each with its origin.

` + exitCodesHelp,
		Example: `  slotgate dev                                        # a cluster, a gateway and a key to play with
  slotgate serve --config slotgate.yaml
  slotgate config check --config slotgate.yaml
  slotgate app create demo --permission 'strings:*'
  slotgate key create demo`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	root.SetHelpTemplate(helpTemplate)
	root.AddCommand(
		newDevCommand(e), newServeCommand(e), newConfigCommand(e), newAppCommand(e), newKeyCommand(e),
		newClusterCommand(e), newAuditCommand(e), newExportCommand(e), newDoctorCommand(e), newImportCommand(e), newCompletionCommand(e), newVersionCommand(e))
	completeNames(e, root)
	return asGroup(root)
}

// helpTemplate puts the examples first: most readers come for one line to copy.
const helpTemplate = `{{with .Example}}Examples:
{{.}}

{{end}}{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} [command]

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{else}}{{.UseLine}}
{{end}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableInheritedFlags}}
Common flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}`

// asGroup makes a command that only has sub-commands answer with its help, and refuse an unknown one. Cobra by
// itself prints the help of a nested group and exits 0 for a mistyped sub-command.
func asGroup(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		var names []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
		}
		if near := nearest(args[0], names); near != "" {
			text += "; did you mean " + near + "?"
		}
		return errors.New(text)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}
