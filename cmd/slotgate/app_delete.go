package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/purge"
)

// defaultSettle is how long gateways may go on writing for a deleted app: 5 s until they look for lost pushes, and one
// request's second.
const defaultSettle = 6 * time.Second

type deletion struct {
	id      string
	confirm string
	purge   bool
	settle  time.Duration
	out     output
}

func newAppDeleteCommand(e env, flags *configFlags) *cobra.Command {
	var d deletion
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete an app for ever; with --purge its data too",
		Long: `Delete an app: its keys stop working at once, its id and namespace stay taken for ever. Its data stays where it is
unless --purge is given, which then deletes every key of the app, the gateway's own keys about it included, on every
primary of its cluster. A purge can be stopped with Ctrl-C; the same command again goes on with what is left.`,
		Example: "  slotgate app delete shop --confirm=shop\n  slotgate app delete shop --confirm=shop --purge",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.id = args[0]
			if d.confirm != d.id {
				return usageError{fmt.Errorf("deleting app %[1]s is for ever; say so with --confirm=%[1]s", d.id)}
			}
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				return d.run(ctx, e, c)
			})
		},
	}
	d.out.register(cmd)
	cmd.Flags().StringVar(&d.confirm, "confirm", "", "the `ID` once more")
	cmd.Flags().BoolVar(&d.purge, "purge", false, "delete the app's data")
	cmd.Flags().DurationVar(&d.settle, "settle", defaultSettle, "`time` between deletion and purge, for requests under way at gateways that learn of it late")
	return cmd
}

func (d *deletion) run(ctx context.Context, e env, c *control) error {
	app, err := c.App(ctx, d.id)
	if err != nil {
		return err
	}
	if app.State != acl.Deleted {
		deleted, err := c.DeleteApp(ctx, d.id)
		if done, err := settled(e, err); done || err != nil {
			d.noteFilePurge(e, done)
			return err
		}
		app = deleted
		if d.purge {
			fmt.Fprintf(e.Stderr, "App %s is deleted. Waiting %v for requests under way.\n", app.ID, d.settle)
			if err := wait(ctx, d.settle); err != nil {
				return d.stopped(err)
			}
		}
	} else if !d.purge {
		return fmt.Errorf("app %q was deleted before; delete its data with --purge: %w", d.id, acl.ErrNotFound)
	}
	if !d.purge {
		return reportApp(e, d.out, app, nil, "is deleted; its data is kept, delete it with --purge")
	}
	return d.purgeData(ctx, e, c, app)
}

// noteFilePurge says how a purge goes on when apps are in a file.
func (d *deletion) noteFilePurge(e env, readOnly bool) {
	if readOnly && d.purge {
		fmt.Fprintf(e.Stderr, "\nNo data was deleted. Once the file says so and the gateways have read it, run this again.\n")
	}
}

func (d *deletion) stopped(err error) error {
	return fmt.Errorf("stopped; the same command goes on with what is left: %w", err)
}

func (d *deletion) purgeData(ctx context.Context, e env, c *control, app *acl.App) error {
	cluster, err := c.cluster(ctx, app.Cluster)
	if err != nil {
		return err
	}
	client := newClusterClient(c.cfg, cluster)
	defer client.Close()
	meter := newMeter(e.Stderr, time.Now)
	done, err := purge.Run(ctx, client, app, func(p purge.Progress) { meter.report(purgeLine(p)) })
	meter.finish(purgeLine(done))
	if err != nil {
		return d.stopped(err)
	}
	if d.out == outputJSON {
		return writeJSON(e.Stdout, struct {
			App     string `json:"app"`
			Deleted int64  `json:"deleted_keys"`
		}{app.ID, done.Deleted})
	}
	_, err = fmt.Fprintf(e.Stdout, "App %s is deleted, and %d keys with it.\n", app.ID, done.Deleted)
	return err
}

func purgeLine(p purge.Progress) string {
	return fmt.Sprintf("purge: pass %d, %d of %d primaries done, %d keys deleted", p.Pass, p.Done, p.Primaries, p.Deleted)
}

// wait lets d pass, or returns why ctx ended before.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// meter shows progress on stderr: one line that changes on a terminal, a plain line each 2 s elsewhere.
type meter struct {
	w     io.Writer
	now   func() time.Time
	tty   bool
	every time.Duration
	next  time.Time
}

func newMeter(w io.Writer, now func() time.Time) *meter {
	m := &meter{w: w, now: now, every: 2 * time.Second}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			m.tty, m.every = true, 100*time.Millisecond
		}
	}
	m.next = now().Add(m.every)
	return m
}

func (m *meter) report(line string) {
	if now := m.now(); !now.Before(m.next) {
		m.next = now.Add(m.every)
		m.write(line)
	}
}

func (m *meter) write(line string) {
	if m.tty {
		fmt.Fprintf(m.w, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(m.w, line)
}

// finish leaves the last line standing.
func (m *meter) finish(line string) {
	m.write(line)
	if m.tty {
		fmt.Fprintln(m.w)
	}
}
