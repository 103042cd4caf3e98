package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

func newServeCommand(e env) *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway",
		Long: `Serve runs the gateway until SIGTERM or SIGINT: it then says not ready, goes on serving for http.drain_delay_ms, lets
what runs come to its end and exits 0. A second signal ends it at once. SIGHUP makes it read its configuration again, as
slotgate config reload does. Every setting can be given by --set, a variable
or the file; slotgate config print lists them.`,
		Example: `  slotgate serve --config slotgate.yaml
  slotgate serve --addrs 10.0.0.1:6379,10.0.0.2:6379 --secret-file slotgate.secret --listen :8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := flags.config(e)
			if err != nil {
				return err
			}
			if n := cfg.Overload.MemoryMaxBytes; n > 0 && cfg.Overload.Enabled && e.Getenv("GOMEMLIMIT") == "" {
				defer debug.SetMemoryLimit(debug.SetMemoryLimit(n))
			}
			if p := cfg.Runtime.GCPercent; p > 0 && e.Getenv("GOGC") == "" {
				defer collectAt(p)()
			}
			level := new(slog.LevelVar)
			level.Set(logLevel(cfg.Log))
			log := newLoggerAt(level, e.Stderr)
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP) // in serve alone: other commands end with their terminal
			defer signal.Stop(hangups)
			from := &origin{load: func() (Config, error) { return flags.config(e) }, level: level, hangups: hangups}
			manager := systemd{socket: e.Getenv("NOTIFY_SOCKET"), log: log}
			defer manager.stopping(cmd.Context())()
			return serve(cmd.Context(), cfg, log, from, func(_, _ net.Addr) { manager.ready() })
		},
	}
	flags.register(cmd, true)
	return cmd
}

// newLogger writes JSON lines.
func newLogger(cfg Log, w io.Writer) *slog.Logger { return newLoggerAt(logLevel(cfg), w) }

func newLoggerAt(level slog.Leveler, w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// logLevel is the level by its name. The configuration has been validated, so it is one.
func logLevel(cfg Log) slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Level))
	return level
}

// serve runs a gateway until ctx ends and everything it started has ended: nil after an orderly end. ready, which may
// be nil, is called once both listeners accept; apps and keys may not be loaded by then.
func serve(ctx context.Context, cfg Config, log *slog.Logger, from *origin, ready func(api, admin net.Addr)) error {
	g, err := newGateway(cfg, log)
	if err != nil {
		return err
	}
	g.reload.from = from
	api, admin, err := listen(cfg)
	if err != nil {
		return errors.Join(err, g.close())
	}
	logStart(log, cfg, api.Addr(), admin.Addr())
	if ready != nil {
		ready(api.Addr(), admin.Addr())
	}
	err = errors.Join(g.run(ctx, api, admin), g.close())
	log.Info("stopped", "error", err)
	return err
}

// listen takes both ports, or none.
func listen(cfg Config) (api, admin net.Listener, err error) {
	if api, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, nil, fmt.Errorf("listening on listen %s: %w", cfg.Listen, err)
	}
	if admin, err = net.Listen("tcp", cfg.AdminListen); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listening on admin_listen %s: %w", cfg.AdminListen, err), api.Close())
	}
	return api, admin, nil
}

// logStart leaves on record what a person asks first when something is odd.
func logStart(log *slog.Logger, cfg Config, api, admin net.Addr) {
	b := readBuildInfo()
	memory := "none"
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		memory = fmt.Sprint(limit)
	}
	control := "cluster " + cfg.controlCluster()
	if cfg.Control.File != "" {
		control = "file " + cfg.Control.File
	}
	log.Info("serving", "api", api.String(), "admin", admin.String(), "control", control, "clusters", len(cfg.Clusters), "tls", tlsPlaces(cfg),
		"version", b.Version, "revision", b.Revision, "go", b.Go, "gomaxprocs", runtime.GOMAXPROCS(0), "gomemlimit", memory)
}
