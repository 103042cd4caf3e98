package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/slotgate/slotgate/acl"
)

func newAppCommand(e env) *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "app",
		Short: "Create, show and change apps",
		Long: `App writes the control store directly, so it needs the configuration of the gateways, not a gateway. Every gateway
follows within a second. If apps are kept in a file, nothing is changed: what to paste into it goes to stdout.`,
		Example: `  slotgate app create shop --permission 'strings:*' --permission keys:read --limit id=rps,limit=500,period_ms=1000
  slotgate app set shop --max-ttl 30d --default-ttl 24h
  slotgate app list -o json`,
	}
	flags.register(cmd, false)
	cmd.AddCommand(
		newAppCreateCommand(e, &flags), newAppListCommand(e, &flags), newAppShowCommand(e, &flags), newAppSetCommand(e, &flags),
		newAppStateCommand(e, &flags, "suspend", "Refuse an app's callers (403 app_suspended) until it is resumed", (*acl.Admin).SuspendApp),
		newAppStateCommand(e, &flags, "resume", "End an app's suspension", (*acl.Admin).ResumeApp),
		newAppDeleteCommand(e, &flags),
	)
	return asGroup(cmd)
}

func newAppCreateCommand(e env, flags *configFlags) *cobra.Command {
	var (
		out  output
		edit appFlags
	)
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Create an app",
		Long: `Create an app. ID is a-z, 0-9, - and _, 2 to 63 of them. It may do nothing but what --permission says. Namespace,
layout and cluster are for ever, since stored keys depend on them.`,
		Example: `  slotgate app create shop --permission 'strings:*' --permission keys:read
  slotgate app create carts --layout together --permission '*' --default-ttl 24h --limit id=rps,limit=100,period_ms=1000`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				app := acl.App{ID: args[0], Namespace: args[0], Cluster: defaultCluster}
				edit.edit(&app)
				if err := c.knowsCluster(ctx, app.Cluster); err != nil {
					return err
				}
				created, err := c.CreateApp(ctx, app)
				return reportApp(e, out, created, err, "is created; make a key with: slotgate key create "+app.ID)
			})
		},
	}
	out.register(cmd)
	edit.registerFixed(cmd)
	edit.register(cmd)
	return cmd
}

func newAppSetCommand(e env, flags *configFlags) *cobra.Command {
	var (
		out  output
		edit appFlags
	)
	cmd := &cobra.Command{
		Use:   "set ID",
		Short: "Change an app; only what is given changes",
		Long: `Set changes an app; only what is given changes. A list (--permission, --limit) replaces the one before. Everything
can be changed but id, namespace, layout and cluster: stored keys depend on them.`,
		Example: `  slotgate app set shop --permission 'strings:*' --permission 'keys:*'
  slotgate app set shop --limit none --expires 2027-01-31T00:00:00Z`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(edit.edits) == 0 {
				return usageError{fmt.Errorf("nothing to set was given")}
			}
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				app, err := c.EditApp(ctx, args[0], edit.edit)
				return reportApp(e, out, app, err, "is changed")
			})
		},
	}
	out.register(cmd)
	edit.register(cmd)
	edit.registerFixed(cmd)
	edit.text(cmd.Flags(), "id", "", func(a *acl.App, s string) { a.ID = s })
	for _, fixed := range []string{"id", "namespace", "layout", "cluster"} {
		_ = cmd.Flags().MarkHidden(fixed) // fails only for a flag that does not exist
	}
	return cmd
}

func newAppStateCommand(e env, flags *configFlags, verb, short string,
	change func(*acl.Admin, context.Context, string) (*acl.App, error),
) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     verb + " ID",
		Short:   short,
		Example: "  slotgate app " + verb + " shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				app, err := change(c.Admin, ctx, args[0])
				if err != nil {
					return reportApp(e, out, app, err, "")
				}
				return reportApp(e, out, app, nil, "is "+string(app.State))
			})
		},
	}
	out.register(cmd)
	return cmd
}

func newAppListCommand(e env, flags *configFlags) *cobra.Command {
	var (
		out output
		all bool
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List apps",
		Example: "  slotgate app list\n  slotgate app list --all -o json | jq -r .[].id",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				set, err := c.List(ctx)
				if err != nil {
					return err
				}
				return printApps(e, out, set, all)
			})
		},
	}
	out.register(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "deleted ones too, whose id and namespace stay taken")
	return cmd
}

func printApps(e env, out output, set *acl.Set, all bool) error {
	apps := []*acl.App{}
	rows := [][]string{{"ID", "NAMESPACE", "LAYOUT", "CLUSTER", "STATE", "KEYS", "EXPIRES", "PERMISSIONS"}}
	for _, id := range slices.Sorted(maps.Keys(set.Apps)) {
		app := set.Apps[id]
		if app.State == acl.Deleted && !all {
			continue
		}
		apps = append(apps, app)
		rows = append(rows, []string{
			app.ID, app.Namespace, string(app.Layout), app.Cluster, string(app.State),
			fmt.Sprint(usableKeys(set, id)), showTime(app.ExpiresAt), showList(app.Permissions),
		})
	}
	if out == outputJSON {
		return writeJSON(e.Stdout, apps)
	}
	return writeTable(e.Stdout, rows)
}

// usableKeys counts the keys that open the app, as far as the keys go.
func usableKeys(set *acl.Set, app string) (n int) {
	for _, k := range set.Keys {
		if k.App == app && keyState(k) == keyActive {
			n++
		}
	}
	return n
}
