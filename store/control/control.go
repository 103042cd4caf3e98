// Package control keeps apps and keys in Redis: the acl.Storage that all gateways share.
//
// It promises that a load is one moment's truth, that a change happens whole or not at all and never over somebody else's, that every
// gateway hears of a change at once and, should the message be lost, at its next poll, and that nothing is ever sent twice behind the
// caller's back. It refuses to decide anything: what a change must satisfy is said in acl.
//
// Everything is in one slot, so that one script or transaction can see it all:
//
//	slotgate:{acl}:apps        hash    app id → JSON of acl.App with a format version v
//	slotgate:{acl}:keys        hash    key id → JSON of acl.Key, the same way
//	slotgate:{acl}:clusters    hash    cluster name → JSON of acl.Cluster, the same way
//	slotgate:{acl}:namespaces  hash    namespace → app id; entries are never removed
//	slotgate:{acl}:version     string  COUNT-NONCE, new with every change
//	slotgate:{acl}:used        hash    key id → unix seconds of the last use; no part of the version
//	slotgate:{acl}:audit       list    JSON of acl.AuditEntry, the newest first, 10,000 of them
//	slotgate:{acl}:changes     channel the new version, with every change
//
// The nonce tells apart two changes that got the same count because a failover lost the first. A Redis user for this needs
// `~slotgate:{acl}:* &slotgate:{acl}:changes`.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
)

const (
	prefix         = "slotgate:{acl}:"
	appsKey        = prefix + "apps"
	keysKey        = prefix + "keys"
	namespacesKey  = prefix + "namespaces"
	versionKey     = prefix + "version"
	usedKey        = prefix + "used"
	clustersKey    = prefix + "clusters"
	auditKey       = prefix + "audit"
	changesChannel = prefix + "changes"

	defaultPoll = time.Second
	// callTimeout bounds a call whose caller set no deadline.
	callTimeout = 5 * time.Second
)

// ErrWiped says that the storage held a set before and holds nothing now. Nothing that slotgate does ends like this, so it is taken
// for a fault of Redis (a primary restarted without its data), not for everybody's wish to be logged out.
var ErrWiped = errors.New("the apps and keys loaded before are gone from Redis; restore them, or restart the gateways to begin anew")

// Config is what a Redis storage needs. The client is used, not owned: whoever made it closes it, after Watch has returned. It must
// read from primaries, and a pool of its own keeps a revoke from waiting behind the data of callers.
type Config struct {
	Client redis.UniversalClient
	Log    *slog.Logger
	// PollInterval is how often the version is looked at in case a message was lost; 0 is each second.
	PollInterval time.Duration
}

// Redis is the acl.Storage in Redis. Its methods are safe for concurrent use.
type Redis struct {
	client redis.UniversalClient
	log    *slog.Logger
	poll   time.Duration
	acl.Heard

	mu   sync.Mutex // guards last and is held while decoding
	last *loaded
}

var (
	_ acl.Storage = (*Redis)(nil)
	_ acl.Auditor = (*Redis)(nil)
)

// New makes a storage. It starts nothing and asks Redis nothing.
func New(c Config) *Redis {
	if c.PollInterval <= 0 {
		c.PollInterval = defaultPoll
	}
	return &Redis{client: c.Client, log: c.Log, poll: c.PollInterval, last: &loaded{set: &acl.Set{}}}
}

// Load reads everything in one transaction. Entries that did not change since the last load keep their pointers; a damaged entry is
// left out and logged.
func (r *Redis) Load(ctx context.Context) (*acl.Set, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var version *redis.StringCmd
	var apps, keys, used, clusters *redis.MapStringStringCmd
	_, err := r.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		version = p.Get(ctx, versionKey)
		apps = p.HGetAll(ctx, appsKey)
		keys = p.HGetAll(ctx, keysKey)
		used = p.HGetAll(ctx, usedKey)
		clusters = p.HGetAll(ctx, clustersKey)
		return nil
	})
	for _, err := range []error{err, version.Err(), apps.Err(), keys.Err(), used.Err(), clusters.Err()} {
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("loading apps and keys from Redis: %w", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if version.Val() == "" && r.last.version != "" {
		return nil, ErrWiped
	}
	next := &loaded{version: version.Val(), apps: apps.Val(), keys: keys.Val(), used: used.Val(), clusters: clusters.Val()}
	next.set = r.decode(ctx, next, r.last)
	r.last = next
	return next.set, nil
}

// bounded gives a call a deadline if its caller did not.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTimeout)
}
