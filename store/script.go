package store

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1
	"embed"
	"encoding/hex"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/pipe"
	"github.com/slotgate/slotgate/store/slot"
)

// script is a Lua script of the gateway's own, on one key. Apps never see or change them.
type script struct {
	source, sha string
	recorded    *script // the same in the frame for a write with an Idempotency-Key
}

//go:embed scripts/*.lua
var scriptFiles embed.FS

var (
	scriptSet      = loadScript("set")
	scriptAppend   = loadScript("append")
	scriptSetRange = loadScript("setrange")
	scriptRange    = loadScript("range")
	scriptDelete   = loadScript("delete")
	scriptExpire   = loadScript("expire")
	scriptAdd      = loadScript("add")
	scriptNothing  = loadScript("nothing")
)

// loadScript joins the shared TTL policy and a script's own file.
func loadScript(name string) script {
	source := scriptFile("ttl") + scriptFile(name)
	sc := newScript(source)
	recorded := newScript("local function operation(KEYS, ARGV)\n" + source + "end\n" + scriptFile("once"))
	sc.recorded = &recorded
	return sc
}

func scriptFile(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("store: no script " + name)
	}
	return string(text)
}

func newScript(source string) script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

// scriptReply is the array that every script returns: a status, then what belongs to it.
type scriptReply []any

// mostParts is more than any script of ours returns.
const mostParts = 8

// sound says whether it is what a script of ours returns: a status, then integers, strings and nothings.
func (r scriptReply) sound() bool {
	for _, v := range r {
		switch v.(type) {
		case int64, string, nil:
		default:
			return false
		}
	}
	if len(r) == 0 || len(r) > mostParts {
		return false
	}
	_, ok := r[0].(int64)
	return ok
}

func (r scriptReply) status() int64 { return r.integer(0) }
func (r scriptReply) integer(i int) int64 {
	if i < len(r) {
		if n, ok := r[i].(int64); ok {
			return n
		}
	}
	return 0
}
func (r scriptReply) text(i int) string {
	if i < len(r) {
		if s, ok := r[i].(string); ok {
			return s
		}
	}
	return ""
}

// Statuses that scripts share.
const (
	statusUnmet       = 0
	statusDone        = 1
	statusTTLRequired = -1
	statusTTLTooLong  = -2
	statusTooLarge    = -3
	statusFraction    = -4
	statusRewrite     = -10
)

// errNoReply is what a broken node earns: every script returns a status.
var errNoReply = errors.New("store: a script returned something else than it does")

// run runs a script on the caller's key in place of the command r, whose permission and sizes it needs. EVALSHA is sent
// once; NOSCRIPT means that it was not executed, and EVAL follows on the same node, which then knows the script.
func (s *Store) run(ctx context.Context, id *acl.Identity, d Delivery, r *row, sc script, key string, argv ...any) (scriptReply, error) {
	if err := r.allow(id); err != nil {
		return nil, err
	}
	return s.runStep(ctx, id, d, r, sc, key, argv...)
}

// runStep is run without the permission, for a step of an operation that was allowed as a whole.
func (s *Store) runStep(ctx context.Context, id *acl.Identity, d Delivery, r *row, sc script, key string, argv ...any) (scriptReply, error) {
	stored, err := storedKey(id, key)
	if err != nil {
		return nil, err
	}
	c, err := s.clusters.get(id.App.Cluster)
	if err != nil {
		return nil, err
	}
	var args []any
	if d.keyed() {
		var problem error
		if args, problem = s.recorded(id, &d, stored, argv); problem != nil {
			return nil, problem
		}
		sc = *sc.recorded
	} else {
		args = append(make([]any, 0, len(argv)+4), "EVALSHA", "", "1", stored)
		args = append(args, argv...)
	}
	args[1] = sc.sha
	if d.Durability != Async {
		w := durableWrite{level: d.Durability, row: r, stored: stored, args: args, script: &sc, wrote: scriptWrote(r)}
		if d.keyed() {
			w.wrote = frameWrote
		}
		v, err := s.durably(ctx, id, w, d.Receipt)
		reply, _ := v.([]any)
		if err == nil && d.keyed() {
			return d.settle(reply)
		}
		return reply, err
	}
	c.replies.Allow(decodeLimit(id))
	reply, fail := c.runScript(ctx, id, r, s.retries(id, r.writes()), slot.Of(stored), sc, args, scriptReply.sound)
	if fail == nil && d.keyed() {
		return d.settle(reply)
	}
	return reply, fail
}

// runScript sends EVALSHA, whose arguments args are, to the primary of a slot until its reply is final, and EVAL where the node does not know
// the script. sound says whether a reply is one that the script has.
func (c *cluster) runScript(ctx context.Context, id *acl.Identity, r *row, retries, number int, sc script, args []any, sound func(scriptReply) bool) (scriptReply, error) {
	return c.runScriptBy(ctx, id, c.evaluate, r, retries, number, sc, args, sound)
}

// sender sends a script to a node, once, and follows redirects.
type sender func(ctx context.Context, id *acl.Identity, w *way, args []any) (any, error)

func (c *cluster) runScriptBy(ctx context.Context, id *acl.Identity, send sender, r *row, retries, number int, sc script, args []any, sound func(scriptReply) bool) (reply scriptReply, err error) {
	err = c.try(ctx, r, retries, func() (*way, error) {
		w, e := c.wayTo(ctx, number)
		if e != nil {
			return nil, e
		}
		place, e := w.admitOne(ctx, id)
		if e != nil {
			return w, e
		}
		defer place.Release(false)
		val, e := send(ctx, id, w, args)
		if redis.HasErrorPrefix(e, "NOSCRIPT") {
			args[0], args[1] = "EVAL", sc.source
			val, e = send(ctx, id, w, args)
		}
		if e != nil {
			c.doubt(number)
			return w, e
		}
		if reply = asReply(val); !sound(reply) {
			return w, errNoReply
		}
		return w, nil
	})
	return reply, err
}

// asReply takes a string alone for an array of one: Redis takes longer to return an array than most scripts to find what is in it.
func asReply(val any) scriptReply {
	if text, ok := val.(string); ok {
		return scriptReply{text}
	}
	reply, _ := val.([]any)
	return reply
}

// evaluate is a sender for scripts of callers, whose work may grow with their values. It does not leave all to the client that follows them: that one
// (go-redis v9.23.0, ClusterClient.process) also repeats READONLY, without a pause and whatever NoRetry says.
func (c *cluster) evaluate(ctx context.Context, id *acl.Identity, w *way, args []any) (any, error) {
	cmd := onceCmd{redis.NewCmd(ctx, args...)}
	w.exec(ctx, []redis.Cmder{cmd})
	err := cmd.Err()
	if redirected(err) {
		c.reload(ctx)
		place, full := c.admitRedirected(ctx, id, err)
		if full != nil {
			return nil, full
		}
		defer place.Release(false)
		cmd = onceCmd{redis.NewCmd(ctx, args...)}
		err = c.client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}

// evaluateShared is a sender for scripts that are short: they go with the commands of others.
func (c *cluster) evaluateShared(ctx context.Context, id *acl.Identity, w *way, args []any) (any, error) {
	cmd := onceCmd{redis.NewCmd(ctx, args...)}
	e := pipe.NewEntry()
	e.Cmds = append(e.Cmds, cmd)
	if err := w.do(ctx, e, true); err != nil {
		return nil, err
	}
	err := cmd.Err()
	if redirected(err) {
		c.reload(ctx)
		place, full := c.admitRedirected(ctx, id, err)
		if full != nil {
			return nil, full
		}
		defer place.Release(false)
		cmd = onceCmd{redis.NewCmd(ctx, args...)}
		err = c.client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}
