package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
)

// applyTries bounds how often a change is planned anew because another one slipped in between reading and writing.
const applyTries = 5

// A step sets one field of one hash, provided that it still has the value it was planned on. An empty was means absent; an empty will
// leaves the field alone and only checks it.
type step struct {
	hash             int // 1 apps, 2 keys, 3 namespaces: the position in scriptKeys
	field, was, will string
}

const (
	inApps = iota + 1
	inKeys
	inNamespaces
)

var scriptKeys = []string{appsKey, keysKey, namespacesKey, versionKey}

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
		steps, err := r.plan(ctx, c)
		if err != nil {
			return err
		}
		done, err := r.swap(ctx, steps)
		if errors.Is(err, acl.ErrUnknown) && r.shows(ctx, steps) {
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

func (r *Redis) plan(ctx context.Context, c acl.Change) ([]step, error) {
	if c.Key != nil {
		return r.planKey(ctx, c)
	}
	return r.planApp(ctx, c)
}

func (r *Redis) planApp(ctx context.Context, c acl.Change) ([]step, error) {
	was, owner, err := r.readTwo(ctx, appsKey, c.App.ID, namespacesKey, c.App.Namespace)
	if err != nil {
		return nil, err
	}
	stored, err := decodeStored(was, decodeApp)
	if err != nil {
		return nil, fmt.Errorf("app %q: %w", c.App.ID, err)
	}
	if err := c.CheckApp(stored); err != nil {
		return nil, err
	}
	will, err := encodeApp(*c.App, was)
	if err != nil {
		return nil, fmt.Errorf("app %q: %w", c.App.ID, err)
	}
	steps := []step{{inApps, c.App.ID, was, will}}
	switch {
	case c.Op == acl.OpCreateApp && owner != "":
		return nil, acl.NamespaceTaken(c.App.Namespace, owner)
	case c.Op == acl.OpCreateApp:
		return append(steps, step{inNamespaces, c.App.Namespace, "", c.App.ID}), nil
	case c.Op == acl.OpDeleteApp:
		return r.planRevokes(ctx, c, steps)
	}
	return steps, nil
}

// planRevokes closes the keys of a deleted app. A key that cannot be read or rewritten here is left as it is: with its app deleted it
// opens nothing.
func (r *Redis) planRevokes(ctx context.Context, c acl.Change, steps []step) ([]step, error) {
	keys, err := r.client.HGetAll(ctx, keysKey).Result()
	if err != nil {
		return nil, fmt.Errorf("reading keys from Redis: %w", err)
	}
	at := c.At.UTC()
	for id, was := range keys {
		key, err := decodeKey(was, "")
		if err != nil || key.App != c.App.ID || key.RevokedAt != nil {
			continue
		}
		key.RevokedAt = &at
		if will, err := encodeKey(*key, was); err == nil {
			steps = append(steps, step{inKeys, id, was, will})
		}
	}
	return steps, nil
}

func (r *Redis) planKey(ctx context.Context, c acl.Change) ([]step, error) {
	app, was, err := r.readTwo(ctx, appsKey, c.Key.App, keysKey, c.Key.ID)
	if err != nil {
		return nil, err
	}
	// A damaged app matters to a new key only: revoking one must work whatever became of the app.
	owner, err := decodeStored(app, decodeApp)
	if err != nil && c.Op == acl.OpCreateKey {
		return nil, fmt.Errorf("app %q: %w", c.Key.App, err)
	}
	stored, err := decodeStored(was, func(raw string) (*acl.Key, error) { return decodeKey(raw, "") })
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", c.Key.ID, err)
	}
	if err := c.CheckKey(owner, stored); err != nil {
		return nil, err
	}
	will, err := encodeKey(*c.Key, was)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", c.Key.ID, err)
	}
	steps := []step{{inKeys, c.Key.ID, was, will}}
	if c.Op == acl.OpCreateKey {
		steps = append(steps, step{hash: inApps, field: c.Key.App, was: app})
	}
	return steps, nil
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

// swapSource checks every step before it writes the first, so it writes all or nothing. A failing PUBLISH (a Redis user without the
// channel) must not turn a change that was made into an error: the polls bring it round.
const swapSource = `
local first = 3
for i = first, #ARGV, 4 do
  local is = redis.call('HGET', KEYS[tonumber(ARGV[i])], ARGV[i + 1]) or ''
  if is ~= ARGV[i + 2] then return '' end
end
for i = first, #ARGV, 4 do
  if ARGV[i + 3] ~= '' then redis.call('HSET', KEYS[tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 3]) end
end
local count = string.match(redis.call('GET', KEYS[4]) or '', '^%d+') or '0'
local version = string.format('%d', tonumber(count) + 1) .. '-' .. ARGV[2]
redis.call('SET', KEYS[4], version)
redis.pcall('PUBLISH', ARGV[1], version)
return version
`

var swapHash = redis.NewScript(swapSource).Hash()

// swap says whether the steps were made; false is that something had changed and nothing was done.
func (r *Redis) swap(ctx context.Context, steps []step) (bool, error) {
	args := []any{changesChannel, rand.Text()[:8]}
	for _, s := range steps {
		args = append(args, s.hash, s.field, s.was, s.will)
	}
	version, err := r.once(ctx, "evalsha", swapHash, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		version, err = r.once(ctx, "eval", swapSource, args)
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

// shows looks whether the entries are as the steps leave them.
func (r *Redis) shows(ctx context.Context, steps []step) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // the caller's time may have run out just now
	defer cancel()
	s := steps[0]
	is, err := r.client.HGet(ctx, scriptKeys[s.hash-1], s.field).Result()
	return err == nil && is == s.will
}
