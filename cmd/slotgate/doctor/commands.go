package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A feature is what the gateway offers that not every server can do. Whether a node can is asked of it: vendors rename and remove
// commands, and name versions that are not Redis' own. Only options, which COMMAND INFO does not tell, are judged by the version.
type feature struct {
	what    string // what callers lack without it
	command string // in lower case; "" = an option, of which the version alone tells
	arity   int64  // the command has the option only with this one, as COMMAND INFO tells it; 0 = any
	since   version
}

// features are those of all the gateway sends that came after Redis 2.4, in the order of their age.
var features = []feature{
	{what: "changes under a condition (EVALSHA)", command: "evalsha", since: version{2, 6, 0}},
	{what: "deleting keys (UNLINK)", command: "unlink", since: version{4, 0, 0}},
	{what: "memory_bytes of a key (MEMORY USAGE)", command: "memory", since: version{4, 0, 0}},
	{what: "keep_ttl (SET KEEPTTL)", since: version{6, 0, 0}},
	{what: "listing keys of one type (SCAN TYPE)", since: version{6, 0, 0}},
	{what: "expires_at in a write (SET PXAT)", since: version{6, 2, 0}},
	{what: "reading a value and setting its TTL (GETEX)", command: "getex", since: version{6, 2, 0}},
	{what: "reading a value and deleting it (GETDEL)", command: "getdel", since: version{6, 2, 0}},
	{what: "when: nx, xx, gt, lt on a TTL (PEXPIRE with a condition)", command: "pexpire", arity: -3, since: version{7, 0, 0}},
	{what: "the same with a moment (PEXPIREAT with a condition)", command: "pexpireat", arity: -3, since: version{7, 0, 0}},
}

// commands looks at what the node can do of what the gateway offers. text is its version.
func commands(ctx context.Context, where string, node *redis.Client, text string) Finding {
	const check = "commands"
	arities, err := commandArities(ctx, node)
	v, known := parseVersion(text)
	if err != nil && !known {
		return warn(where, check, "let the user call COMMAND INFO: ACL SETUSER … +command|info", "%v", err)
	}
	lacking, since := lacks(arities, v, known)
	if len(lacking) > 0 {
		return fail(where, check, fmt.Sprintf("upgrade the node to Redis %d.%d or newer, or give the commands their names back (rename-command); "+
			"until then such requests fail on this node's keys", since[0], since[1]), "the node lacks what the gateway needs for: %s", strings.Join(lacking, "; "))
	}
	if err != nil {
		return ok(where, check, "all that the gateway uses, by its version (COMMAND INFO: %v)", err)
	}
	return ok(where, check, "all that the gateway uses")
}

// lacks names the features that a node does not have, and the version that has all of them. With arities nil everything is judged by
// the version; without a version what only it would tell is taken to be there.
func lacks(arities map[string]int64, v version, known bool) (what []string, since version) {
	for _, f := range features {
		there := !known || !v.before(f.since)
		if f.command != "" && arities != nil {
			arity, found := arities[f.command]
			there = found && (f.arity == 0 || f.arity == arity)
		}
		if there {
			continue
		}
		what = append(what, f.what)
		if since.before(f.since) {
			since = f.since
		}
	}
	return what, since
}

// commandArities asks for the arity of each command of features; those the node does not know are missing. nil with an error.
func commandArities(ctx context.Context, node *redis.Client) (map[string]int64, error) {
	args := []any{"command", "info"}
	for _, f := range features {
		if f.command != "" && !slices.Contains(args, any(f.command)) {
			args = append(args, f.command)
		}
	}
	reply, err := node.Do(ctx, args...).Slice()
	if err != nil {
		return nil, err
	}
	arities := map[string]int64{}
	for _, entry := range reply {
		if entry == nil {
			continue // not known
		}
		fields, _ := entry.([]any)
		if len(fields) < 2 {
			return nil, errors.New("the answer to COMMAND INFO is not understood")
		}
		name, isName := fields[0].(string)
		arity, isNumber := fields[1].(int64)
		if !isName || !isNumber {
			return nil, errors.New("the answer to COMMAND INFO is not understood")
		}
		arities[strings.ToLower(name)] = arity
	}
	return arities, nil
}
