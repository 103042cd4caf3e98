package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/slotgate/slotgate/acl"
)

func newExportCommand(e env) *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write all clusters, apps and keys as YAML, for a backup or another storage",
		Long: `Export writes what the control store holds, deleted apps and revoked keys included, in the form that control.file has.
Keys are hashes: they open nothing without the secret they were made with, which is not in it. So keep both, apart.`,
		Example: "  slotgate export > apps.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withControl(cmd.Context(), e, &flags, func(ctx context.Context, c *control) error {
				set, err := c.List(ctx)
				if err != nil {
					return err
				}
				return acl.Export(e.Stdout, set)
			})
		},
	}
	flags.register(cmd, false)
	return cmd
}

func newImportCommand(e env) *cobra.Command {
	var (
		flags configFlags
		dry   bool
	)
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Take clusters, apps and keys from an export or a file storage",
		Long: `Import adds and changes what FILE names and leaves the rest alone, so that doing it again changes nothing. All of the file
is checked first, and nothing is written unless all of it can be. It never makes a deleted app or a revoked key live
again or a rotated key live longer, gives nobody a namespace that was another's, and deletes no app. Keys work under the secret of the export.`,
		Example: "  slotgate import apps.yaml --dry-run\n  slotgate export --config old.yaml | slotgate import - --config new.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := readExport(e, args[0])
			if err != nil {
				return usageError{fmt.Errorf("reading %s: %w", args[0], err)}
			}
			return withControl(cmd.Context(), e, &flags, func(ctx context.Context, c *control) error {
				plan, err := c.PlanImport(ctx, set)
				if err != nil {
					return checkError{fmt.Errorf("nothing was changed, because of:\n%w", err)}
				}
				w := e.Stdout
				if c.cfg.controlCluster() == "" && !dry {
					w = e.Stderr // stdout is for the new file
				}
				for _, change := range plan.Changes {
					fmt.Fprintln(w, change)
				}
				switch {
				case len(plan.Changes) == 0:
					_, err = fmt.Fprintln(e.Stdout, "Nothing to change.")
				case dry:
					_, err = fmt.Fprintf(e.Stdout, "%d changes would be made.\n", len(plan.Changes))
				default:
					err = c.Import(ctx, plan)
					if done, err := settled(e, err); done || err != nil {
						return err
					}
					_, err = fmt.Fprintf(e.Stdout, "%d changes made.\n", len(plan.Changes))
				}
				return err
			})
		},
	}
	flags.register(cmd, false)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would change")
	return cmd
}

// readExport reads a file, - for standard input.
func readExport(e env, path string) (*acl.Set, error) {
	if path == "-" {
		if e.Stdin == nil {
			return nil, errors.New("there is no standard input")
		}
		return acl.ParseExport(e.Stdin)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return acl.ParseExport(io.Reader(file))
}
