package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotgate/slotgate/acl"
)

// defaultOverlap lets a day's deployments pass.
const defaultOverlap = 24 * time.Hour

func newKeyRotateCommand(e env, flags *configFlags) *cobra.Command {
	var (
		out     output
		options acl.RotateOptions
	)
	cmd := &cobra.Command{
		Use:   "rotate KEY-ID",
		Short: "Make a key in the place of another, which goes on for a while",
		Long: `Rotate makes a key with the permissions of another one and prints it, once. The other one still opens for the overlap,
then no more; with --overlap 0 it is revoked at once. The new key lives as long as the old one was made to live, from now,
unless --expires says otherwise. Whether callers still use the old key is in LAST USED of key list.`,
		Example: "  slotgate key rotate 4fTq0aXw9LmZ\n  slotgate key rotate 4fTq0aXw9LmZ --overlap 7d --expires 90d",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				token, key, old, err := c.RotateKey(ctx, keyID(args[0]), options)
				done, err := settled(e, err)
				switch {
				case err != nil:
					return err
				case done: // stdout holds what to paste, and nothing else
					fmt.Fprintln(e.Stderr)
					return printRotated(e.Stderr, c.cfg, token, old)
				case out == outputJSON:
					return writeJSON(e.Stdout, struct {
						Token string    `json:"token"`
						Key   publicKey `json:"key"`
						Old   publicKey `json:"old"`
					}{token, publicKey{key}, publicKey{old}})
				}
				return printRotated(e.Stdout, c.cfg, token, old)
			})
		},
	}
	out.register(cmd)
	options.Overlap = defaultOverlap
	cmd.Flags().Func("overlap", "`time` the old key goes on beside the new one, 0 to 30d (default 24h)", func(text string) (err error) {
		if options.Overlap, err = parseDuration(text); err != nil {
			return fmt.Errorf("write a time such as 1h, 24h or 7d, or 0")
		}
		return nil
	})
	cmd.Flags().Func("expires", "`when` the new key ends: an RFC 3339 time, or from now such as 90d", func(text string) (err error) {
		options.ExpiresAt, err = parseExpiry(text, time.Now())
		return err
	})
	return cmd
}

func printRotated(w io.Writer, cfg Config, token string, old *acl.Key) error {
	if err := printToken(w, cfg, token); err != nil {
		return err
	}
	text := "is revoked"
	if old.RevokedAt == nil {
		text = "opens until " + showTime(old.ExpiresAt)
	}
	_, err := fmt.Fprintf(w, "\nThe old key %s %s.\n", old.ID, text)
	return err
}
