package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/localcluster"
)

// devApp is the app that dev makes; its namespace has the same name.
const devApp = "demo"

// devStart bounds everything before the first request can be answered.
const devStart = 30 * time.Second

// dev is one run of the command.
type dev struct {
	env      env
	keep     string
	embedded bool
	limits   string // limits.mode: an imitated cluster does not know the script of limits
	listen   string
	admin    string

	folder *localcluster.Folder
	config string // path of the configuration file
}

func newDevCommand(e env) *cobra.Command {
	d := dev{env: e}
	defaults := defaultConfig()
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster, a gateway and a demo app to play with",
		Long: `Dev starts a Redis Cluster of three primaries on loopback, a gateway before it and an app "demo" that may do everything,
and prints what to paste into another terminal. Without redis-server it imitates a cluster inside this program. Ctrl-C
stops everything and removes it, unless --keep names a folder. It takes no configuration from file or environment:
what is meant for a real cluster must not end up here.`,
		Example: "  slotgate dev\n  slotgate dev --keep ./playground --listen 127.0.0.1:9090",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&d.keep, "keep", "", "keep data, app and key in this `folder`, for the next run with it")
	flags.BoolVar(&d.embedded, "embedded", false, "imitate a cluster inside this program, also where redis-server is installed")
	flags.StringVar(&d.listen, "listen", defaults.Listen, "where the API answers, `host:port`")
	flags.StringVar(&d.admin, "admin-listen", defaults.AdminListen, "where health and metrics answer, `host:port`")
	return cmd
}

// run holds everything up until ctx ends, and leaves nothing behind.
func (d *dev) run(ctx context.Context) (err error) {
	if d.keep != "" && d.embedded {
		return usageError{errors.New("an embedded cluster keeps nothing: leave out --embedded or --keep")}
	}
	if err := d.checkPorts(); err != nil {
		return err
	}
	if err := localcluster.Sweep(); err != nil {
		return fmt.Errorf("clearing away what a killed run left: %w", err)
	}
	if d.folder, err = localcluster.NewFolder(d.keep); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.folder.Close()) }()
	begun := time.Now()
	starting, cancel := context.WithTimeout(ctx, devStart)
	defer cancel()
	nodes, err := d.startCluster(starting)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer func() { err = errors.Join(err, nodes.Close()) }()
	cfg, err := d.configure(nodes.Addrs())
	if err != nil {
		return err
	}
	log := newLogger(cfg.Log, d.env.Stderr)
	token, err := d.demoKey(starting, cfg, log)
	if err != nil {
		return unlessStopped(ctx, fmt.Errorf("making the demo app: %w", err))
	}
	return d.serve(ctx, cfg, log, func(api, admin net.Addr) {
		d.welcome(api, admin, token, nodes, time.Since(begun))
	})
}

// unlessStopped keeps quiet about what failed only because of Ctrl-C.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// checkPorts tells before anything is started which flag helps against a busy port.
func (d *dev) checkPorts() error {
	for _, l := range []struct{ flag, addr string }{{"--listen", d.listen}, {"--admin-listen", d.admin}} {
		listener, err := net.Listen("tcp", l.addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%s is in use; give another address with %s, for example %s 127.0.0.1:0 for a free one", l.addr, l.flag, l.flag)
		}
		if err != nil {
			return usageError{fmt.Errorf("%s %s: %w", l.flag, l.addr, err)}
		}
		_ = listener.Close()
	}
	return nil
}

// devCluster is either kind of cluster.
type devCluster interface {
	Addrs() []string
	Close() error
}

const installHint = "install it with `apt-get install redis-server` or `brew install redis`"

func (d *dev) startCluster(ctx context.Context) (devCluster, error) {
	binary := redisServer()
	switch {
	case d.embedded:
		d.say("Imitating a cluster inside this program.")
	case binary == "" && d.keep != "":
		return nil, fmt.Errorf("--keep needs redis-server, which is not on PATH; %s", installHint)
	case binary == "":
		d.say("redis-server is not on PATH: imitating a cluster inside this program. It is good for a first look, not for\n" +
			"measuring or failover. For a real one " + installHint + ".")
	default:
		d.limits = limitsShared
		d.say("Starting a Redis Cluster of three primaries with %s …", binary)
		o := localcluster.Options{Binary: binary, NodeTimeout: 5 * time.Second}
		if d.keep != "" {
			o.Dir = filepath.Join(d.folder.Path(), "cluster")
		}
		c, err := localcluster.Start(ctx, o)
		if err != nil { // not a nil *Cluster in the interface
			return nil, fmt.Errorf("%w\n(slotgate dev --embedded does without it)", err)
		}
		return c, nil
	}
	d.limits = limitsLocal
	return localcluster.StartEmbedded(ctx, 3)
}

// configure writes the configuration of this run and reads it back as any other.
func (d *dev) configure(addrs []string) (Config, error) {
	secretFile := filepath.Join(d.folder.Path(), "secret")
	if _, err := os.Stat(secretFile); errors.Is(err, fs.ErrNotExist) {
		secret := make([]byte, acl.MinSecretBytes)
		_, _ = rand.Read(secret) // never fails
		if err := os.WriteFile(secretFile, []byte(base64.StdEncoding.EncodeToString(secret)+"\n"), 0o600); err != nil {
			return Config{}, fmt.Errorf("writing the secret: %w", err)
		}
	}
	text, err := yaml.Marshal(map[string]any{
		"listen":        d.listen,
		"admin_listen":  d.admin,
		"readyz_on_api": true,
		"secret_file":   secretFile,
		"clusters":      map[string]any{defaultCluster: map[string]any{"addrs": addrs}},
		"control":       map[string]any{"cluster": defaultCluster},
		"limits":        map[string]any{"mode": d.limits},
		"log":           map[string]any{"level": "warn"},
		"http":          map[string]any{"drain_delay_ms": 0, "shutdown_timeout_ms": 5000}, // no load balancer looks here
	})
	if err != nil {
		return Config{}, err
	}
	d.config = filepath.Join(d.folder.Path(), "config.yaml")
	if err := os.WriteFile(d.config, append([]byte("# Written anew by each run of `slotgate dev`.\n"), text...), 0o600); err != nil {
		return Config{}, fmt.Errorf("writing the configuration: %w", err)
	}
	l := load(sources{File: d.config})
	return l.Config, l.check().orNil()
}

// demoKey makes the demo app and a key, unless a kept folder has them. It returns "" when its user has deleted the app.
func (d *dev) demoKey(ctx context.Context, cfg Config, log *slog.Logger) (token string, err error) {
	secret, err := acl.LoadSecret(cfg.SecretFile)
	if err != nil {
		return "", err
	}
	storage, closeStorage, err := openStorage(cfg, nil, log)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, closeStorage()) }()
	admin := acl.Admin{Storage: storage, Secret: secret, Clock: time.Now, By: "slotgate dev"}
	set, err := admin.List(ctx)
	if err != nil {
		return "", err
	}
	keyFile := filepath.Join(d.folder.Path(), "key")
	if app := set.Apps[devApp]; app == nil {
		everything := acl.App{ID: devApp, Name: "Demo", Namespace: devApp, Cluster: defaultCluster, Permissions: []string{"*"}}
		if _, err := admin.CreateApp(ctx, everything); err != nil {
			return "", err
		}
	} else if app.State == acl.Deleted {
		return "", nil
	} else if token := keptKey(keyFile, set); token != "" {
		return token, nil
	}
	if token, _, err = admin.CreateKey(ctx, devApp, acl.KeyOptions{}); err != nil {
		return "", err
	}
	return token, os.WriteFile(keyFile, []byte(token+"\n"), 0o600)
}

// keptKey returns the key of an earlier run, if it still opens the app.
func keptKey(file string, set *acl.Set) string {
	raw, _ := os.ReadFile(file)
	token := strings.TrimSpace(string(raw))
	parts := strings.Split(token, "_") // sg_<id>_<secret>
	if len(parts) != 3 {
		return ""
	}
	key := set.Keys[parts[1]]
	if key == nil || key.App != devApp || keyState(key) != keyActive {
		return ""
	}
	return token
}

// serve runs the gateway and says so once it is ready for requests.
func (d *dev) serve(ctx context.Context, cfg Config, log *slog.Logger, ready func(api, admin net.Addr)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type addrs struct{ api, admin net.Addr }
	listening, ended := make(chan addrs, 1), make(chan error, 1)
	go func() {
		ended <- serve(ctx, cfg, log, nil, func(api, admin net.Addr) { listening <- addrs{api, admin} })
	}()
	select {
	case err := <-ended:
		return err
	case at := <-listening:
		if err := awaitReady(ctx, at.admin); err != nil {
			cancel()
			return errors.Join(err, <-ended)
		}
		if ctx.Err() == nil {
			ready(at.api, at.admin)
		}
	}
	err := <-ended
	d.say("Stopped.")
	return err
}

// awaitReady asks the gateway until apps and keys are loaded. A ctx that ends first is no error.
func awaitReady(ctx context.Context, admin net.Addr) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(devStart); ; {
		response, err := client.Get("http://" + dialable(admin) + "/readyz")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(response.Status)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the gateway does not become ready: %w", err)
		}
		if wait(ctx, 5*time.Millisecond) != nil {
			return nil
		}
	}
}

// dialable is an address under which this machine reaches the listener.
func dialable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); err != nil || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// say tells the person what goes on; what is to be pasted goes to stdout instead.
func (d *dev) say(format string, args ...any) { fmt.Fprintf(d.env.Stderr, format+"\n", args...) }
