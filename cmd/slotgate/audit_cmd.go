package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/slotgate/slotgate/acl"
)

// maxActor bounds what SLOTGATE_ACTOR may say.
const maxActor = 100

// actor says who runs the command, for the audit: SLOTGATE_ACTOR, which a CI job or a shared account sets, or the user of the operating
// system. It is a record among operators, no proof: whoever can write the control store can write anything into it.
func actor(e env) string {
	if name := e.Getenv(envActor); name != "" {
		return strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, strings.ToValidUTF8(name[:min(len(name), maxActor)], ""))
	}
	name := fmt.Sprint("uid ", os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

func newAuditCommand(e env) *cobra.Command {
	var (
		flags configFlags
		out   output
		n     int
	)
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who changed which app, key or cluster",
		Long: fmt.Sprintf(`Audit shows the latest changes made with this program, the newest last: who, when, what, and each member before and
after. A change whose line cannot be written is not made. The last %d changes are kept in the control store. With
apps in a file the audit lies beside it, and tells what was prepared: whoever puts it into the file makes the change.
Who is the user of the operating system, or %s.`, acl.MaxAudit, envActor),
		Example: "  slotgate audit\n  slotgate audit -n 1000 -o json | jq '.[] | select(.target == \"app:shop\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 1 || n > acl.MaxAudit {
				return usageError{fmt.Errorf("-n %d: write 1 to %d", n, acl.MaxAudit)}
			}
			return withControl(cmd.Context(), e, &flags, func(ctx context.Context, c *control) error {
				entries, err := c.Audit(ctx, n)
				if err != nil {
					return err
				}
				if out == outputJSON {
					return writeJSON(e.Stdout, append([]acl.AuditEntry{}, entries...))
				}
				return writeTable(e.Stdout, auditRows(entries))
			})
		},
	}
	flags.register(cmd, false)
	out.register(cmd)
	cmd.Flags().IntVarP(&n, "number", "n", 50, "how many `changes`")
	return cmd
}

func auditRows(entries []acl.AuditEntry) [][]string {
	rows := [][]string{{"TIME", "WHO", "WHAT", "TARGET", "CHANGES"}}
	for _, e := range entries {
		what := string(e.Op)
		if e.Prepared {
			what += " (prepared)"
		}
		rows = append(rows, []string{showTime(&e.At), e.By, what, e.Target, auditChanges(e)})
	}
	return rows
}

// auditChanges writes what differs as name: before → after.
func auditChanges(e acl.AuditEntry) string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(e.Before)), maps.Keys(e.After))
	slices.Sort(names)
	var parts []string
	for _, name := range slices.Compact(names) {
		text := name + ": " + orDash(string(e.After[name]))
		if e.Before[name] != nil {
			text = name + ": " + string(e.Before[name]) + " → " + orDash(string(e.After[name]))
		}
		parts = append(parts, text)
	}
	if e.RevokedKeys > 0 {
		parts = append(parts, fmt.Sprintf("keys revoked: %d", e.RevokedKeys))
	}
	return strings.Join(parts, ", ")
}
