package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotgate/slotgate/acl"
)

// completionTime is how long a person waits for a name after pressing Tab; then there is none.
const completionTime = time.Second

func newCompletionCommand(e env) *cobra.Command {
	shells := map[string]func(*cobra.Command) error{
		"bash":       func(root *cobra.Command) error { return root.GenBashCompletionV2(e.Stdout, true) },
		"zsh":        func(root *cobra.Command) error { return root.GenZshCompletion(e.Stdout) },
		"fish":       func(root *cobra.Command) error { return root.GenFishCompletion(e.Stdout, true) },
		"powershell": func(root *cobra.Command) error { return root.GenPowerShellCompletionWithDesc(e.Stdout) },
	}
	names := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion " + strings.Join(names, "|"),
		Short: "Write the script with which a shell completes commands, flags and names",
		Long: `Completion writes a script for one shell. With it the shell also completes the names of apps, keys and clusters, which it
asks the control store for; if that does not answer within a second, there are none.`,
		Example: `  source <(slotgate completion bash)
  slotgate completion zsh > "${fpath[1]}/_slotgate"
  slotgate completion fish > ~/.config/fish/completions/slotgate.fish`,
		ValidArgs: names,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || shells[args[0]] == nil {
				return fmt.Errorf("write one of %s", strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return shells[args[0]](cmd.Root()) },
	}
}

// completeNames gives the commands that take a name the names there are.
func completeNames(e env, root *cobra.Command) {
	for path, names := range map[string]func(Config, *acl.Set) []string{
		"app show": appNames, "app set": appNames, "app suspend": appNames, "app resume": appNames, "app delete": appNames,
		"key create": appNames, "key list": appNames, "key rotate": keyNames, "key revoke": keyNames,
		"cluster set": storedClusterNames, "cluster remove": storedClusterNames, "cluster check": clusterNames,
	} {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil {
			panic("no command " + path) // the table is wrong
		}
		cmd.ValidArgsFunction = completer(e, names)
	}
	create, _, err := root.Find([]string{"app", "create"})
	if err == nil {
		err = create.RegisterFlagCompletionFunc("cluster", func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
			return completer(e, clusterNames)(cmd, nil, text) // whatever arguments there are already
		})
	}
	if err != nil {
		panic(err) // the table is wrong
	}
}

// completer asks the control store, quietly: whatever goes wrong, there is nothing to complete.
func completer(e env, names func(Config, *acl.Set) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var flags configFlags
		flags.file, _ = cmd.Flags().GetString("config")
		flags.sets, _ = cmd.Flags().GetStringArray("set")
		quiet := e
		quiet.Stderr = io.Discard
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), completionTime)
		defer cancel()
		var found []string
		_ = withControl(ctx, quiet, &flags, func(ctx context.Context, c *control) error {
			set, err := c.List(ctx)
			if err == nil {
				found = names(c.cfg, set)
			}
			return err
		})
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

func appNames(_ Config, set *acl.Set) (names []string) {
	for _, id := range slices.Sorted(maps.Keys(set.Apps)) {
		if app := set.Apps[id]; app.State != acl.Deleted {
			names = append(names, id+"\t"+app.Name)
		}
	}
	return names
}

func keyNames(_ Config, set *acl.Set) (names []string) {
	for _, k := range keysOf(set, "") {
		if keyState(k) == keyActive {
			names = append(names, k.ID+"\t"+k.App+", ends …"+k.Last4)
		}
	}
	return names
}

func storedClusterNames(_ Config, set *acl.Set) []string {
	return slices.Sorted(maps.Keys(set.Clusters))
}

func clusterNames(cfg Config, set *acl.Set) (names []string) {
	for _, k := range cfg.knownClusters(set) {
		names = append(names, k.Name)
	}
	return slices.Compact(names)
}
