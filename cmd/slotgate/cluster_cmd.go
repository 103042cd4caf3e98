package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slotgate/slotgate/acl"
)

func newClusterCommand(e env) *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Add, list, change, check and remove clusters",
		Long: `Cluster keeps Redis Clusters in the control store, beside those of the configuration file, which go first and are
changed there. Every gateway knows a new one within a second and connects when the first request for one of its apps
comes. A password is never stored, only the path of a file with it, in control.password_dir, which every gateway reads.`,
		Example: `  slotgate cluster add eu-2 --addr 10.0.2.1:6379 --addr 10.0.2.2:6379 --password-file /etc/slotgate/passwords/eu-2
  slotgate app create shop --cluster eu-2 --permission 'strings:*'
  slotgate cluster list`,
	}
	flags.register(cmd, false)
	cmd.AddCommand(newClusterAddCommand(e, &flags), newClusterListCommand(e, &flags), newClusterSetCommand(e, &flags),
		newClusterCheckCommand(e, &flags), newClusterRemoveCommand(e, &flags))
	return asGroup(cmd)
}

// clusterFlags turns flags into edits of a cluster: only what was given changes.
type clusterFlags struct{ edits []func(*acl.Cluster) }

func (f *clusterFlags) edit(c *acl.Cluster) {
	for _, edit := range f.edits {
		edit(c)
	}
}

func (f *clusterFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	var addrs []string
	flags.Func("addr", "`host:port` of a node, comma-separated or again for more; one that lives is enough", func(text string) error {
		for addr := range strings.SplitSeq(text, ",") {
			addrs = append(addrs, strings.TrimSpace(addr))
		}
		all := append([]string{}, addrs...)
		f.edits = append(f.edits, func(c *acl.Cluster) { c.Addrs = all })
		return nil
	})
	flags.Func("username", "Redis `user` (ACL); default: the default user", func(text string) error {
		f.edits = append(f.edits, func(c *acl.Cluster) { c.Username = text })
		return nil
	})
	flags.Func("password-file", "`path` of a file with the password, in control.password_dir at every gateway; empty for none", func(text string) error {
		f.edits = append(f.edits, func(c *acl.Cluster) { c.PasswordFile = text })
		return nil
	})
}

func newClusterAddCommand(e env, flags *configFlags) *cobra.Command {
	var (
		out  output
		edit clusterFlags
	)
	cmd := &cobra.Command{
		Use:     "add NAME",
		Short:   "Add a cluster; every gateway knows it within a second",
		Long:    "Add a cluster. It is not asked whether it answers: see slotgate cluster check.",
		Example: "  slotgate cluster add eu-2 --addr 10.0.2.1:6379,10.0.2.2:6379\n  slotgate cluster add eu-3 --addr 10.0.3.1:6379 --username gateway --password-file /etc/slotgate/passwords/eu-3",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				cluster := acl.Cluster{Name: args[0]}
				edit.edit(&cluster)
				if err := c.passwordPlace(cluster.PasswordFile); err != nil {
					return err
				}
				added, err := c.AddCluster(ctx, cluster)
				return reportCluster(e, out, added, err, "is added; try it with: slotgate cluster check "+args[0])
			})
		},
	}
	out.register(cmd)
	edit.register(cmd)
	return cmd
}

func newClusterSetCommand(e env, flags *configFlags) *cobra.Command {
	var (
		out  output
		edit clusterFlags
	)
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change a stored cluster; only what is given changes",
		Long: `Set changes how a stored cluster is reached; only what is given changes, and --addr replaces all addresses. Gateways
connect anew. It must stay the same cluster: the apps' data does not move.`,
		Example: "  slotgate cluster set eu-2 --addr 10.0.2.5:6379,10.0.2.6:6379",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(edit.edits) == 0 {
				return usageError{errors.New("nothing to set was given")}
			}
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				var probe acl.Cluster
				edit.edit(&probe)
				if err := c.passwordPlace(probe.PasswordFile); err != nil {
					return err
				}
				changed, err := c.EditCluster(ctx, args[0], edit.edit)
				return reportCluster(e, out, changed, err, "is changed")
			})
		},
	}
	out.register(cmd)
	edit.register(cmd)
	return cmd
}

func newClusterRemoveCommand(e env, flags *configFlags) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Forget a stored cluster that no app uses",
		Long: `Remove forgets a stored cluster; what is in it stays. It is refused while an app is on it. Purge deleted apps first
(slotgate app delete --purge): their data is out of reach afterwards.`,
		Example: "  slotgate cluster remove eu-2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				removed, err := c.RemoveCluster(ctx, args[0])
				return reportCluster(e, out, removed, err, "is removed")
			})
		},
	}
	out.register(cmd)
	return cmd
}

func newClusterListCommand(e env, flags *configFlags) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List clusters, of the configuration and stored",
		Example: "  slotgate cluster list\n  slotgate cluster list -o json | jq -r .[].name",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				set, err := c.List(ctx)
				if err != nil {
					return err
				}
				known := c.cfg.knownClusters(set)
				if out == outputJSON {
					return writeJSON(e.Stdout, known)
				}
				rows := [][]string{{"NAME", "ORIGIN", "APPS", "USER", "PASSWORD FILE", "ADDRESSES"}}
				for _, k := range known {
					rows = append(rows, []string{
						k.Name, k.Origin, fmt.Sprint(len(k.Apps)), orDash(k.Username), orDash(k.PasswordFile), showList(k.Addrs),
					})
				}
				return writeTable(e.Stdout, rows)
			})
		},
	}
	out.register(cmd)
	return cmd
}

// passwordPlace refuses a file that no gateway with this configuration would read.
func (c *control) passwordPlace(path string) error {
	if path == "" {
		return nil
	}
	if _, err := c.cfg.passwordName(path); err != nil {
		return usageError{err}
	}
	return nil
}

// reportCluster says what became of a change of a cluster.
func reportCluster(e env, out output, cluster *acl.Cluster, err error, what string) error {
	if done, err := settled(e, err); done || err != nil {
		return err
	}
	if out == outputJSON {
		return writeJSON(e.Stdout, cluster)
	}
	_, err = fmt.Fprintf(e.Stdout, "Cluster %s %s.\n", cluster.Name, what)
	return err
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
