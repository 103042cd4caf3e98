package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	redisacl "github.com/slotgate/slotgate/store/control"
	"github.com/slotgate/slotgate/store/wire"
)

// control is the control store as the command line uses it: opened for one command, closed at its end.
type control struct {
	*acl.Admin
	cfg Config
}

// withControl opens the control store, runs do and closes it.
func withControl(ctx context.Context, e env, flags *configFlags, do func(context.Context, *control) error) error {
	cfg, err := flags.config(e)
	if err != nil {
		return err
	}
	secret, err := acl.LoadSecret(cfg.SecretFile)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(e.Stderr, nil))
	storage, closeStorage, err := openStorage(cfg, nil, log)
	if err != nil {
		return err
	}
	c := &control{
		Admin: &acl.Admin{
			Storage: storage, Secret: secret, Clock: time.Now, Commands: store.Command,
			By: actor(e), Clusters: slices.Sorted(maps.Keys(cfg.Clusters)),
		},
		cfg: cfg,
	}
	return errors.Join(do(ctx, c), closeStorage())
}

// openStorage makes the storage of apps and keys, a file or a cluster. close ends its connections. certs as for newToolClient.
func openStorage(cfg Config, certs *certificates, log *slog.Logger) (storage acl.Storage, close func() error, err error) {
	name := cfg.controlCluster()
	if name == "" {
		return acl.NewFile(cfg.Control.File, 0), func() error { return nil }, nil
	}
	client, err := newToolClient(cfg, name, certs)
	if err != nil {
		return nil, nil, err
	}
	return redisacl.New(redisacl.Config{Client: client, Log: log}), client.Close, nil
}

// toolPool is how many connections per node the control store and the command line get. They have a client of their
// own, so that a revoked key is heard of while callers exhaust the pools of their data.
const toolPool = 4

// controlReply is the most that a reply of the control store may hold, in bytes: all keys come in one, of about 300 bytes each.
const controlReply = 256 << 20

// newToolClient makes a client of a configured cluster. It connects on first use; whoever made it closes it. With certs its TLS is
// what they hold at each connect; nil = what the files say now.
func newToolClient(cfg Config, name string, certs *certificates) (*redis.ClusterClient, error) {
	if _, ok := cfg.Clusters[name]; !ok {
		return nil, fmt.Errorf("no cluster %q is configured", name)
	}
	var cluster store.ClusterConfig
	var err error
	if certs == nil {
		cluster, err = cfg.currentCluster(name)
	} else {
		cluster, err = cfg.configuredCluster(name, certs)
	}
	if err != nil {
		return nil, err
	}
	return newClusterClient(cfg, cluster), nil
}

// newClusterClient is newToolClient for a cluster that was found before.
func newClusterClient(cfg Config, cluster store.ClusterConfig) *redis.ClusterClient {
	dialTimeout, limit := milliseconds(cfg.Redis.DialTimeoutMS), new(wire.Limit)
	limit.Allow(controlReply)
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs, Username: cluster.Username, Password: cluster.Password,
		Dialer:                     wire.Dialer(cluster.Dialer, dialTimeout, limit),
		Protocol:                   2,
		ContextTimeoutEnabled:      true,
		MaxRedirects:               3,
		DialTimeout:                dialTimeout,
		DialerRetries:              1,
		ReadTimeout:                milliseconds(cfg.Redis.ReadTimeoutMS),
		WriteTimeout:               milliseconds(cfg.Redis.WriteTimeoutMS),
		PoolSize:                   toolPool,
		ClusterStateReloadInterval: milliseconds(cfg.Redis.TopologyReloadMS),
		DisableIdentity:            true,
		MaintNotificationsConfig:   &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// settled takes the error of a change. A control store that is a file is not an error here: the YAML to paste goes to
// stdout, what to do with it to stderr, and done is true since there is nothing more to say.
func settled(e env, err error) (done bool, _ error) {
	var readOnly *acl.ReadOnlyError
	if !errors.As(err, &readOnly) {
		return false, argumentError(err)
	}
	fmt.Fprintf(e.Stderr, "Apps and keys are kept in %s, which slotgate only reads: nothing was changed. Put this into it:\n\n", readOnly.Path)
	_, err = io.WriteString(e.Stdout, readOnly.YAML)
	return true, err
}

// argumentError makes a value that acl refuses a mistake of usage: it came from a flag.
func argumentError(err error) error {
	var f *acl.Fault
	if errors.As(err, &f) {
		return usageError{err}
	}
	return err
}
