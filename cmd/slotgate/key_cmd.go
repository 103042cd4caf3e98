package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotgate/slotgate/acl"
)

func newKeyCommand(e env) *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:     "key",
		Short:   "Create, list, rotate and revoke keys",
		Long:    "Key writes the control store directly, as app does; see slotgate app --help.",
		Example: "  slotgate key create shop\n  slotgate key list shop --expiring 7d\n  slotgate key rotate 4fTq0aXw9LmZ --overlap 24h\n  slotgate key revoke 4fTq0aXw9LmZ",
	}
	flags.register(cmd, false)
	cmd.AddCommand(newKeyCreateCommand(e, &flags), newKeyListCommand(e, &flags), newKeyRotateCommand(e, &flags), newKeyRevokeCommand(e, &flags))
	return asGroup(cmd)
}

func newKeyCreateCommand(e env, flags *configFlags) *cobra.Command {
	var (
		out     output
		options acl.KeyOptions
	)
	cmd := &cobra.Command{
		Use:   "create APP",
		Short: "Create a key of an app and print it, once",
		Long: `Create a key. It is printed now and never again: only a hash of it is stored. With --permission it may do less than
its app, never more.`,
		Example: "  slotgate key create shop\n  slotgate key create shop --permission strings:read --expires 90d",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				token, key, err := c.CreateKey(ctx, args[0], options)
				done, err := settled(e, err)
				switch {
				case err != nil:
					return err
				case done: // stdout holds what to paste, and nothing else
					fmt.Fprintln(e.Stderr)
					return printToken(e.Stderr, c.cfg, token)
				case out == outputJSON:
					return writeJSON(e.Stdout, struct {
						Token string    `json:"token"`
						Key   publicKey `json:"key"`
					}{token, publicKey{key}})
				}
				return printToken(e.Stdout, c.cfg, token)
			})
		},
	}
	out.register(cmd)
	cmd.Flags().StringArrayVar(&options.Permissions, "permission", nil, "what the key may do, part of what its app may (`entry`; again for more; default: all of it)")
	cmd.Flags().Func("expires", "`when` the key ends: an RFC 3339 time, or from now such as 90d; default never", func(text string) (err error) {
		options.ExpiresAt, err = parseExpiry(text, time.Now())
		return err
	})
	return cmd
}

// printToken shows a new key as what people do with it next: try it, and put it into a file.
func printToken(w io.Writer, cfg Config, token string) error {
	_, err := fmt.Fprintf(w, `Key %[1]s

This is the only time it is shown. Try it:

  curl -H "Authorization: Bearer %[1]s" %[2]s/v1/whoami

For a .env file:

  GW=%[2]s
  KEY=%[1]s
`, token, baseURL(cfg.Listen))
	return err
}

// baseURL is where a caller on this machine finds the API.
func baseURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "http://" + listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

func newKeyListCommand(e env, flags *configFlags) *cobra.Command {
	var (
		out      output
		expiring time.Duration
	)
	cmd := &cobra.Command{
		Use:     "list [APP]",
		Short:   "List the keys of an app, or of all",
		Long:    "List keys, the oldest first. LAST USED is exact to the minute and, on a file, not kept.",
		Example: "  slotgate key list shop\n  slotgate key list --expiring 7d\n  slotgate key list -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				set, err := c.List(ctx)
				if err != nil {
					return err
				}
				app := strings.Join(args, "")
				if app != "" && set.Apps[app] == nil {
					return fmt.Errorf("app %q: %w", app, acl.ErrNotFound)
				}
				keys := keysOf(set, app)
				if expiring > 0 {
					keys = expiringBefore(keys, time.Now().Add(expiring))
				}
				if out == outputJSON {
					return writeJSON(e.Stdout, publicKeys(keys))
				}
				return writeTable(e.Stdout, keyRows(keys, c.Secret))
			})
		},
	}
	out.register(cmd)
	cmd.Flags().Func("expiring", "only keys in use that expire within this `time`, such as 7d", func(text string) (err error) {
		if expiring, err = parseDuration(text); err != nil || expiring <= 0 {
			return fmt.Errorf("write a time such as 12h or 7d")
		}
		return nil
	})
	return cmd
}

func newKeyRevokeCommand(e env, flags *configFlags) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "revoke KEY-ID",
		Short:   "Revoke a key for ever; every gateway refuses it within a second",
		Long:    "Revoke a key for ever. KEY-ID is the first part of the key after sg_, as key list shows it.",
		Example: "  slotgate key revoke 4fTq0aXw9LmZ",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				key, err := c.RevokeKey(ctx, keyID(args[0]))
				if done, err := settled(e, err); done || err != nil {
					return err
				}
				if out == outputJSON {
					return writeJSON(e.Stdout, publicKey{key})
				}
				_, err = fmt.Fprintf(e.Stdout, "Key %s of app %s is revoked.\n", key.ID, key.App)
				return err
			})
		},
	}
	out.register(cmd)
	return cmd
}

// keyID takes the id out of what was given: somebody in a hurry pastes the whole key.
func keyID(text string) string {
	rest, ok := strings.CutPrefix(text, "sg_")
	if !ok {
		return text
	}
	id, _, _ := strings.Cut(rest, "_")
	return id
}
