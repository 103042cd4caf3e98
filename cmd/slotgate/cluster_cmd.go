package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slotgate/slotgate/acl"
)

func newClusterCommand(e env) *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Add, list, change, check and remove clusters",
		Long: `Cluster keeps Redis Clusters in the control store, beside those of the configuration file, which go first and are
changed there. Every gateway knows a new one within a second and connects when the first request for one of its apps
comes. Passwords, certificates and keys are never stored, only the paths of files with them, in control.password_dir,
which every gateway reads.`,
		Example: `  slotgate cluster add eu-2 --addr 10.0.2.1:6379 --addr 10.0.2.2:6379 --password-file /etc/slotgate/passwords/eu-2
  slotgate cluster add eu-3 --addr 10.0.3.1:6379 --tls-ca /etc/slotgate/passwords/eu-3-ca.pem
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
	f.registerTLS(flags)
}

// registerTLS adds the flags of TLS. Each that names something switches it on, as it would do nothing otherwise.
func (f *clusterFlags) registerTLS(flags *pflag.FlagSet) {
	flags.BoolFunc("tls", "speak TLS to the nodes; =false: without, and forget what the other flags of TLS have set", func(text string) error {
		on, err := strconv.ParseBool(text)
		f.edits = append(f.edits, func(c *acl.Cluster) {
			if c.TLS.Enabled = on; !on {
				c.TLS = acl.ClusterTLS{}
			}
		})
		return err
	})
	set := func(name, usage string, field func(*acl.ClusterTLS) *string) {
		flags.Func(name, usage, func(text string) error {
			f.edits = append(f.edits, func(c *acl.Cluster) {
				*field(&c.TLS) = text
				c.TLS.Enabled = c.TLS.Enabled || text != ""
			})
			return nil
		})
	}
	set("tls-ca", "`path` of the authorities of the nodes, in PEM, in control.password_dir; empty for the system's",
		func(t *acl.ClusterTLS) *string { return &t.CAFile })
	set("tls-cert", "`path` of the certificate to show to the nodes, in PEM, in control.password_dir; empty for none",
		func(t *acl.ClusterTLS) *string { return &t.CertFile })
	set("tls-key", "`path` of its private key, in PEM, in control.password_dir", func(t *acl.ClusterTLS) *string { return &t.KeyFile })
	set("tls-server-name", "`name` that the certificate of every node must have; empty for that under which it is reached",
		func(t *acl.ClusterTLS) *string { return &t.ServerName })
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
				if err := c.filePlaces(cluster); err != nil {
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
				if err := c.filePlaces(probe); err != nil {
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
				rows := [][]string{{"NAME", "ORIGIN", "APPS", "USER", "PASSWORD FILE", "TLS", "ADDRESSES"}}
				for _, k := range known {
					rows = append(rows, []string{
						k.Name, k.Origin, fmt.Sprint(len(k.Apps)), orDash(k.Username), orDash(k.PasswordFile), yesOrDash(k.TLS.Enabled), showList(k.Addrs),
					})
				}
				return writeTable(e.Stdout, rows)
			})
		},
	}
	out.register(cmd)
	return cmd
}

// filePlaces refuses files that no gateway with this configuration would read.
func (c *control) filePlaces(cluster acl.Cluster) error {
	var all []error
	for _, file := range []struct{ field, path string }{
		{"password_file", cluster.PasswordFile}, {"tls.ca_file", cluster.TLS.CAFile}, {"tls.cert_file", cluster.TLS.CertFile}, {"tls.key_file", cluster.TLS.KeyFile},
	} {
		if file.path == "" {
			continue
		}
		if _, err := c.cfg.storedName(file.path); err != nil {
			all = append(all, fmt.Errorf("%s: %w", file.field, err))
		}
	}
	if len(all) > 0 {
		return usageError{errors.Join(all...)}
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

func yesOrDash(yes bool) string {
	if yes {
		return "yes"
	}
	return "-"
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
