package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
)

// applyTries bounds how often a change is planned anew because another one slipped in between reading and writing.
const applyTries = 5

// A step sets one field of one hash, provided that it still has the value it was planned on. An empty was means absent; an empty will
// leaves the field alone and only checks it, removed takes it away.
type step struct {
	hash             int // the position in scriptKeys
	field, was, will string
}

const (
	inApps = iota + 1
	inKeys
	inNamespaces
	_ // the version
	inClusters
)

// removed is no JSON, so nothing that is stored reads like it.
const removed = "-"

var scriptKeys = []string{appsKey, keysKey, namespacesKey, versionKey, clustersKey, auditKey}

// A plan is what a change does: all of its steps or none, and what the audit says of it. A version is the one that must still be
// stored, for a change that depends on more than its steps; "" leaves it open.
type plan struct {
	steps   []step
	audit   []string
	version string
}

// record adds what the audit says of a part of the change.
func (p *plan) record(c acl.Change, stored any, revoked int) error {
	entry, err := c.Record(stored)
	if err != nil {
		return err
	}
	entry.RevokedKeys = revoked
	line, err := json.Marshal(entry)
	p.audit = append(p.audit, string(line))
	return err
}

// Apply reads what the change depends on, checks it, and writes it in one script that does nothing if any of it changed meanwhile.
// The script is sent once. If its answer is lost, the entries are read again: the error is acl.ErrUnknown only if they do not show
// the change.
func (r *Redis) Apply(ctx context.Context, c acl.Change) error {
	if err := c.Validate(); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	for range applyTries {
		p, err := r.plan(ctx, c)
		if err != nil {
			return err
		}
		done, err := r.swap(ctx, p)
		if errors.Is(err, acl.ErrUnknown) && r.shows(ctx, p.steps[0]) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("changing apps and keys in Redis: %w", err)
		}
		if done {
			return nil
		}
	}
	return acl.ErrConflict
}

func (r *Redis) plan(ctx context.Context, c acl.Change) (*plan, error) {
	p := new(plan)
	switch {
	case c.Cluster != nil:
		return p, r.planCluster(ctx, c, p)
	case c.App != nil:
		return p, r.planApp(ctx, c, p)
	}
	for _, part := range c.Parts() {
		if err := r.planKey(ctx, part, p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (r *Redis) planApp(ctx context.Context, c acl.Change, p *plan) error {
	was, owner, err := r.readTwo(ctx, appsKey, c.App.ID, namespacesKey, c.App.Namespace)
	if err != nil {
		return err
	}
	stored, err := decodeStored(was, decodeApp)
	if err != nil {
		return fmt.Errorf("app %q: %w", c.App.ID, err)
	}
	if err := c.CheckApp(stored); err != nil {
		return err
	}
	will, err := encodeApp(*c.App, was)
	if err != nil {
		return fmt.Errorf("app %q: %w", c.App.ID, err)
	}
	p.steps = append(p.steps, step{inApps, c.App.ID, was, will})
	revoked := 0
	switch {
	case c.Op == acl.OpCreateApp && owner != "":
		return acl.NamespaceTaken(c.App.Namespace, owner)
	case c.Op == acl.OpCreateApp:
		p.steps = append(p.steps, step{inNamespaces, c.App.Namespace, "", c.App.ID})
		err = r.planStoredCluster(ctx, c, p)
	case c.Op == acl.OpDeleteApp:
		revoked, err = r.planRevokes(ctx, c, p)
	}
	return errors.Join(err, p.record(c, before(stored), revoked))
}

// planStoredCluster makes a new app depend on its cluster, so that the cluster is not removed at the same moment.
func (r *Redis) planStoredCluster(ctx context.Context, c acl.Change, p *plan) error {
	if !c.StoredCluster {
		return nil
	}
	cluster, err := r.client.HGet(ctx, clustersKey, c.App.Cluster).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return acl.NoCluster(c.App.Cluster)
	case err != nil:
		return fmt.Errorf("reading clusters from Redis: %w", err)
	}
	p.steps = append(p.steps, step{hash: inClusters, field: c.App.Cluster, was: cluster})
	return nil
}

// planCluster changes a cluster. Removing one depends on every app, and so on the version.
func (r *Redis) planCluster(ctx context.Context, c acl.Change, p *plan) error {
	name := c.Cluster.Name
	was, err := r.client.HGet(ctx, clustersKey, name).Result()
	if notNil(err) != nil {
		return fmt.Errorf("reading clusters from Redis: %w", err)
	}
	stored, err := decodeStored(was, decodeCluster)
	if err != nil {
		return fmt.Errorf("cluster %q: %w", name, err)
	}
	var users []string
	will := removed
	if c.Op == acl.OpDeleteCluster {
		set, err := r.Load(ctx)
		if err != nil {
			return err
		}
		p.version, users = set.Version, set.ClusterUsers(name)
	} else if will, err = encodeCluster(*c.Cluster, was); err != nil {
		return fmt.Errorf("cluster %q: %w", name, err)
	}
	if err := c.CheckCluster(stored, users); err != nil {
		return err
	}
	p.steps = append(p.steps, step{inClusters, name, was, will})
	return p.record(c, before(stored), 0)
}

// before keeps a missing entry from becoming a nil pointer with a type, which the audit would take for an entry.
func before[T any](stored *T) any {
	if stored == nil {
		return nil
	}
	return stored
}

// planRevokes closes the keys of a deleted app. A key that cannot be read or rewritten here is left as it is: with its app deleted it
// opens nothing.
func (r *Redis) planRevokes(ctx context.Context, c acl.Change, p *plan) (revoked int, err error) {
	keys, err := r.client.HGetAll(ctx, keysKey).Result()
	if err != nil {
		return 0, fmt.Errorf("reading keys from Redis: %w", err)
	}
	at := c.At.UTC()
	for id, was := range keys {
		key, err := decodeKey(was, "")
		if err != nil || key.App != c.App.ID || key.RevokedAt != nil {
			continue
		}
		key.RevokedAt = &at
		if will, err := encodeKey(*key, was); err == nil {
			p.steps = append(p.steps, step{inKeys, id, was, will})
			revoked++
		}
	}
	return revoked, nil
}

func (r *Redis) planKey(ctx context.Context, c acl.Change, p *plan) error {
	app, was, err := r.readTwo(ctx, appsKey, c.Key.App, keysKey, c.Key.ID)
	if err != nil {
		return err
	}
	// A damaged app matters to a new key only: revoking one must work whatever became of the app.
	owner, err := decodeStored(app, decodeApp)
	if err != nil && c.Op == acl.OpCreateKey {
		return fmt.Errorf("app %q: %w", c.Key.App, err)
	}
	stored, err := decodeStored(was, func(raw string) (*acl.Key, error) { return decodeKey(raw, "") })
	if err != nil {
		return fmt.Errorf("key %q: %w", c.Key.ID, err)
	}
	if err := c.CheckKey(owner, stored); err != nil {
		return err
	}
	will, err := encodeKey(*c.Key, was)
	if err != nil {
		return fmt.Errorf("key %q: %w", c.Key.ID, err)
	}
	p.steps = append(p.steps, step{inKeys, c.Key.ID, was, will})
	if c.Op == acl.OpCreateKey {
		p.steps = append(p.steps, step{hash: inApps, field: c.Key.App, was: app})
	}
	return p.record(c, before(stored), 0)
}

func decodeStored[T any](raw string, decode func(string) (*T, error)) (*T, error) {
	if raw == "" {
		return nil, nil
	}
	entry, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("the stored entry is damaged: %w", err)
	}
	return entry, nil
}

// readTwo reads two fields, "" for an absent one.
func (r *Redis) readTwo(ctx context.Context, hash1, field1, hash2, field2 string) (string, string, error) {
	var one, two *redis.StringCmd
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		one, two = p.HGet(ctx, hash1, field1), p.HGet(ctx, hash2, field2)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", "", fmt.Errorf("reading apps and keys from Redis: %w", err)
	}
	return one.Val(), two.Val(), errors.Join(notNil(one.Err()), notNil(two.Err()))
}

func notNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// swapSource checks every step before it writes the first, so it writes all or nothing. The audit comes first: should Redis refuse it,
// nothing else is written. A failing PUBLISH (a Redis user without the channel) must not turn a change that was made into an error: the
// polls bring it round.
var swapSource = `
local lines = tonumber(ARGV[4])
local first = 5 + lines
local old = redis.call('GET', KEYS[4]) or ''
if ARGV[3] ~= '' and ARGV[3] ~= old then return '' end
for i = first, #ARGV, 4 do
  local is = redis.call('HGET', KEYS[tonumber(ARGV[i])], ARGV[i + 1]) or ''
  if is ~= ARGV[i + 2] then return '' end
end
for i = 5, first - 1 do
  local answer = redis.pcall('LPUSH', KEYS[6], ARGV[i])
  if type(answer) == 'table' and answer.err then return redis.error_reply('` + auditRefused + ` ' .. answer.err) end
end
redis.call('LTRIM', KEYS[6], 0, ` + maxAudit + ` - 1)
for i = first, #ARGV, 4 do
  local key, field, will = KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 3]
  if will == '-' then
    redis.call('HDEL', key, field)
  elseif will ~= '' then
    redis.call('HSET', key, field, will)
  end
end
local count = string.match(old, '^%d+') or '0'
local version = string.format('%d', tonumber(count) + 1) .. '-' .. ARGV[2]
redis.call('SET', KEYS[4], version)
redis.pcall('PUBLISH', ARGV[1], version)
return version
`

// auditRefused begins the script's answer when it could not write the audit and therefore wrote nothing.
const auditRefused = "AUDITREFUSED"

var maxAudit = strconv.Itoa(acl.MaxAudit)

var swapHash = redis.NewScript(swapSource).Hash()

// swap says whether the steps were made; false is that something had changed and nothing was done.
func (r *Redis) swap(ctx context.Context, p *plan) (bool, error) {
	args := []any{changesChannel, rand.Text()[:8], storedVersion(p.version), len(p.audit)}
	for _, line := range p.audit {
		args = append(args, line)
	}
	for _, s := range p.steps {
		args = append(args, s.hash, s.field, s.was, s.will)
	}
	version, err := r.once(ctx, "evalsha", swapHash, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		version, err = r.once(ctx, "eval", swapSource, args)
	}
	if redis.HasErrorPrefix(err, auditRefused) {
		return false, fmt.Errorf("the audit cannot be written, so nothing is changed: %w", err)
	}
	if err != nil {
		return false, classify(err)
	}
	return version != "", nil
}

// onceCmd is sent once: go-redis repeats every command on every doubt, but for those that say no here.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

func (r *Redis) once(ctx context.Context, command, script string, args []any) (string, error) {
	all := make([]any, 0, 3+len(scriptKeys)+len(args))
	all = append(all, command, script, len(scriptKeys))
	for _, key := range scriptKeys {
		all = append(all, key)
	}
	cmd := onceCmd{redis.NewCmd(ctx, append(all, args...)...)}
	if err := r.client.Process(ctx, cmd); err != nil {
		return "", err
	}
	return cmd.Text()
}

// classify marks the errors that leave it open whether the script ran. Redis' own refusals come before it runs, except for an error
// raised inside it.
func classify(err error) error {
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &reply):
		if !strings.Contains(reply.Error(), "user_script") {
			return err
		}
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrClosed):
		return err
	}
	return errors.Join(acl.ErrUnknown, err)
}

// shows looks whether the entry is as the step leaves it.
func (r *Redis) shows(ctx context.Context, s step) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // the caller's time may have run out just now
	defer cancel()
	is, err := r.client.HGet(ctx, scriptKeys[s.hash-1], s.field).Result()
	if errors.Is(err, redis.Nil) {
		return s.will == removed
	}
	return err == nil && is == s.will
}
