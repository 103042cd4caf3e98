package store

import (
	"fmt"
	"strings"

	"github.com/slotgate/slotgate/acl"
)

// row is what the gateway knows about one Redis command. Routing, prefixing, permission, "may be repeated" and the
// handling of values all come from here and nowhere else.
type row struct {
	name   string     // upper case
	word   any        // the name as go-redis takes it, made once
	number int        // of the row: the place of its figures
	arity  int        // Redis' convention, the name counted: n exactly, -n at least
	key    int        // position of the key in the arguments, the name being 0; 0 = no key
	class  acl.Class  // the permission class, as Redis' own categories group it
	also   acl.Class  // a second class that grants it as well; 0 = none
	access acl.Access // Write = changes data (or its expiry): never repeated once it may have been sent
	cost   cost
	says   kind // what it replies; anything where this package does not read the reply itself
}

// cost says how the work of a command grows.
type cost uint8

const (
	constant cost = iota // does not grow
	linear               // grows with the value: kept off shared pipes
)

// table has one row for each command. A command without a row cannot be built, so it is refused everywhere.
var table = makeTable([]row{
	{name: "GET", arity: 2, key: 1, class: acl.Strings, access: acl.Read, says: stringOrNone},
	{name: "GETEX", arity: -2, key: 1, class: acl.Strings, access: acl.Write, says: stringOrNone},
	{name: "GETRANGE", arity: 4, key: 1, class: acl.Strings, access: acl.Read, cost: linear, says: stringOrNone},
	{name: "STRLEN", arity: 2, key: 1, class: acl.Strings, access: acl.Read, says: integer},
	{name: "SET", arity: -3, key: 1, class: acl.Strings, access: acl.Write, says: status},
	{name: "SETRANGE", arity: 4, key: 1, class: acl.Strings, access: acl.Write, cost: linear, says: integer},
	{name: "APPEND", arity: 3, key: 1, class: acl.Strings, access: acl.Write, cost: linear, says: integer},
	{name: "GETDEL", arity: 2, key: 1, class: acl.Strings, access: acl.Write, says: stringOrNone},
	{name: "INCRBY", arity: 3, key: 1, class: acl.Strings, access: acl.Write, says: integer},
	{name: "INCRBYFLOAT", arity: 3, key: 1, class: acl.Strings, access: acl.Write, says: stringOrNone},
	// SET can replace a key of any type, so a writer of strings may remove one too.
	{name: "UNLINK", arity: 2, key: 1, class: acl.Keys, also: acl.Strings, access: acl.Write, says: integer},
	{name: "EXISTS", arity: 2, key: 1, class: acl.Keys, access: acl.Read, says: integer},
	{name: "TYPE", arity: 2, key: 1, class: acl.Keys, access: acl.Read, says: status},
	{name: "PTTL", arity: 2, key: 1, class: acl.Keys, access: acl.Read, says: integer},
	{name: "PEXPIRE", arity: -3, key: 1, class: acl.Keys, access: acl.Write, says: integer},
	{name: "PEXPIREAT", arity: -3, key: 1, class: acl.Keys, access: acl.Write, says: integer},
	{name: "PERSIST", arity: 2, key: 1, class: acl.Keys, access: acl.Write, says: integer},
	{name: "OBJECT", arity: 3, key: 2, class: acl.Keys, access: acl.Read},
	{name: "MEMORY", arity: -3, key: 2, class: acl.Keys, access: acl.Read, cost: linear},
	{name: "SCAN", arity: -2, class: acl.Keys, access: acl.Read},
	// Scripts of the gateway's own on rate limits and pools, see RunScript: no commands of Redis, but granted like them.
	{name: "RATELIMIT|SHOW", arity: -1, class: acl.RateLimits, access: acl.Read},
	{name: "RATELIMIT|PEEK", arity: -1, class: acl.RateLimits, access: acl.Read},
	{name: "RATELIMIT|TAKE", arity: -1, class: acl.RateLimits, access: acl.Write},
	{name: "RATELIMIT|REFUND", arity: -1, class: acl.RateLimits, access: acl.Write},
	{name: "RATELIMIT|RESET", arity: -1, class: acl.RateLimits, access: acl.Write},
	{name: "RATELIMIT|DEFINE", arity: -1, class: acl.RateLimits, access: acl.Write},
	{name: "POOL|SHOW", arity: -1, class: acl.Pools, access: acl.Read},
	{name: "POOL|ALLOCATE", arity: -1, class: acl.Pools, access: acl.Write},
	{name: "POOL|LEASE", arity: -1, class: acl.Pools, access: acl.Write},
	{name: "POOL|REPORT", arity: -1, class: acl.Pools, access: acl.Write},
	{name: "POOL|DEFINE", arity: -1, class: acl.Pools, access: acl.Write},
})

// The rows that the methods of Store use.
var (
	rowGet         = mustRow("GET")
	rowGetEx       = mustRow("GETEX")
	rowGetRange    = mustRow("GETRANGE")
	rowStrlen      = mustRow("STRLEN")
	rowSet         = mustRow("SET")
	rowSetRange    = mustRow("SETRANGE")
	rowAppend      = mustRow("APPEND")
	rowGetDel      = mustRow("GETDEL")
	rowIncrBy      = mustRow("INCRBY")
	rowIncrByFloat = mustRow("INCRBYFLOAT")
	rowUnlink      = mustRow("UNLINK")
	rowExists      = mustRow("EXISTS")
	rowType        = mustRow("TYPE")
	rowPTTL        = mustRow("PTTL")
	rowPExpire     = mustRow("PEXPIRE")
	rowPExpireAt   = mustRow("PEXPIREAT")
	rowPersist     = mustRow("PERSIST")
	rowObject      = mustRow("OBJECT")
	rowMemory      = mustRow("MEMORY")
	rowScan        = mustRow("SCAN")
	rowTake        = mustRow("RATELIMIT|TAKE")
)

func makeTable(rows []row) map[string]*row {
	t := make(map[string]*row, len(rows))
	for i := range rows {
		if t[rows[i].name] != nil {
			panic("store: two rows for " + rows[i].name)
		}
		rows[i].word, rows[i].number = rows[i].name, i
		t[rows[i].name] = &rows[i]
	}
	return t
}

func mustRow(name string) *row {
	r, err := lookup(name)
	if err != nil {
		panic("store: no row for " + name)
	}
	return r
}

// lookup finds the row of a command, in any case. Error: command_not_allowed.
func lookup(name string) (*row, *Error) {
	if r := table[name]; r != nil {
		return r, nil
	}
	if r := table[strings.ToUpper(name)]; r != nil {
		return r, nil
	}
	return nil, NewError(CodeCommandNotAllowed, fmt.Sprintf("the command %.32q is not offered by the gateway", name))
}

// allow says whether id may run the command. It is the only check of permissions, and comes before everything else.
func (r *row) allow(id *acl.Identity) *Error {
	p := id.Permissions
	if p.Allows(r.class, r.access, r.name) || r.also != 0 && p.Allows(r.also, r.access, r.name) {
		return nil
	}
	return NewError(CodeForbidden, fmt.Sprintf("the app key has no permission %s:%s (or commands:%s)", r.class, r.access, r.name))
}

// writes says whether the command changes data, so that it is sent once.
func (r *row) writes() bool { return r.access == acl.Write }
