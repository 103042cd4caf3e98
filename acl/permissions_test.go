package acl_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/slotgate/slotgate/acl"
)

// commands is a table of some commands, as store has one of all.
var commands = map[string]struct {
	class  acl.Class
	access acl.Access
}{
	"GET": {acl.Strings, acl.Read}, "SET": {acl.Strings, acl.Write}, "INCRBY": {acl.Strings, acl.Write},
	"HGET": {acl.Hashes, acl.Read}, "HSET": {acl.Hashes, acl.Write}, "ZADD": {acl.ZSets, acl.Write}, "ZRANGE": {acl.ZSets, acl.Read},
	"SCAN": {acl.Keys, acl.Read}, "UNLINK": {acl.Keys, acl.Write}, "EVAL": {acl.Scripts, acl.Write}, "PING": {},
}

func table(name string) (acl.Class, acl.Access, bool) {
	c, ok := commands[name]
	return c.class, c.access, ok
}

func compile(t testing.TB, list ...string) acl.Permissions {
	t.Helper()
	p, err := acl.CompilePermissions(list)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func allows(p acl.Permissions, command string) bool {
	c := commands[command]
	return p.Allows(c.class, c.access, command)
}

func TestPermissionPolicy(t *testing.T) {
	words := strings.Fields
	for _, row := range []struct {
		list, allowed, denied []string
	}{
		{nil, nil, words("GET SET HGET ZADD SCAN EVAL PING")},
		{words("*"), words("GET SET HGET HSET ZADD SCAN UNLINK EVAL PING"), nil},
		{words("strings:read"), words("GET"), words("SET INCRBY HGET SCAN PING")},
		{words("strings:write"), words("SET INCRBY"), words("GET HSET UNLINK")},
		{words("strings:*"), words("GET SET INCRBY"), words("HGET SCAN UNLINK EVAL")},
		{words("strings:read strings:write"), words("GET SET"), words("HGET")},
		{words("strings:read hashes:write"), words("GET HSET"), words("SET HGET")},
		{words("commands:ZADD"), words("ZADD"), words("ZRANGE GET SET")},
		{words("commands:ZADD keys:*"), words("ZADD SCAN UNLINK"), words("ZRANGE GET")},
		{words("commands:PING"), words("PING"), words("GET")},
	} {
		p := compile(t, row.list...)
		for _, command := range row.allowed {
			if !allows(p, command) {
				t.Errorf("%v denies %s", row.list, command)
			}
		}
		for _, command := range row.denied {
			if allows(p, command) {
				t.Errorf("%v allows %s", row.list, command)
			}
		}
	}
}

func TestPermissionsOfNoKnownKindAreDenied(t *testing.T) {
	for _, list := range [][]string{{"strings:*"}, {"strings:read", "pools:*", "connection:write"}} {
		p := compile(t, list...)
		for c := range 256 {
			for a := range 256 {
				class, access := acl.Class(c), acl.Access(a)
				known := class.String() != "none" && (access == acl.Read || access == acl.Write)
				if !known && p.Allows(class, access, "X") {
					t.Fatalf("%v allows class %d, access %d", list, c, a)
				}
			}
		}
	}
}

func TestEveryClassHasItsName(t *testing.T) {
	for _, c := range acl.Classes() {
		if got, err := acl.ParseClass(c.String()); err != nil || got != c {
			t.Errorf("class %d is named %q, which is class %d (%v)", c, c, got, err)
		}
		p := compile(t, c.String()+":read")
		for _, other := range acl.Classes() {
			if p.Allows(other, acl.Read, "X") != (other == c) || p.Allows(other, acl.Write, "X") {
				t.Errorf("%v:read mistakes %v", c, other)
			}
		}
	}
}

func TestBadPermissionsAreNamedWithARightOne(t *testing.T) {
	for bad, right := range map[string]string{
		"":                  "CLASS:read",
		"strings":           "strings:read",
		"string:read":       "strings:read",
		"Strings:write":     "strings:write",
		"strings:admin":     "strings:write",
		"strings:":          "strings:*",
		" strings:read":     "strings:read",
		"strings:read ":     "strings:read",
		"cats:read":         "one of strings, hashes",
		"*:read":            "CLASS:read",
		"**":                "CLASS:read",
		"commands":          "commands:NAME",
		"commands:":         "commands:ZADD",
		"commands:*":        "commands:ZADD",
		"commands:zadd":     "commands:ZADD",
		"commands:Z*":       "commands:ZADD",
		"commands:GET,SET":  "commands:ZADD",
		"commands:GET\nSET": "commands:ZADD",
	} {
		p, err := acl.CompilePermissions([]string{"hashes:read", bad})
		if err == nil || !strings.Contains(err.Error(), "permissions[1]") || !strings.Contains(err.Error(), right) {
			t.Errorf("%q gives %v, which should name permissions[1] and %s", bad, err, right)
		}
		if !allows(p, "HGET") || allows(p, "GET") || allows(p, "ZADD") {
			t.Errorf("beside %q, hashes:read does not mean what it says", bad)
		}
	}
}

var entries = []string{
	"*", "strings:read", "strings:write", "strings:*", "hashes:read", "hashes:*", "zsets:write", "keys:*", "scripts:*",
	"commands:GET", "commands:SET", "commands:ZADD", "commands:HGET", "commands:PING", "commands:NOSUCH",
}

func lists() *rapid.Generator[[]string] { return rapid.SliceOfN(rapid.SampledFrom(entries), 0, 4) }

func TestIntersectionIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := lists().Draw(t, "a"), lists().Draw(t, "b"), lists().Draw(t, "c")
		pa, _ := acl.CompilePermissions(a)
		pb, _ := acl.CompilePermissions(b)
		pc, _ := acl.CompilePermissions(c)
		both, three := pa.Intersect(pb), pa.Intersect(pb).Intersect(pc)
		for name := range commands {
			if got, want := allows(both, name), allows(pa, name) && allows(pb, name); got != want {
				t.Fatalf("%v and %v: %s is %v, want %v", a, b, name, got, want)
			}
			if got, want := allows(three, name), allows(pa, name) && allows(pb, name) && allows(pc, name); got != want {
				t.Fatalf("%v, %v and %v: %s is %v, want %v", a, b, c, name, got, want)
			}
		}
		if before, _ := acl.CompilePermissions(a); !slices.Equal(before.Entries(table), pa.Entries(table)) {
			t.Fatalf("intersecting changed %v", a)
		}
	})
}

func TestEntriesGrantWhatTheyAreEntriesOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := lists().Draw(t, "a"), lists().Draw(t, "b")
		pa, _ := acl.CompilePermissions(a)
		pb, _ := acl.CompilePermissions(b)
		both := pa.Intersect(pb)
		again, err := acl.CompilePermissions(both.Entries(table))
		if err != nil {
			t.Fatal(err)
		}
		for name := range commands {
			if allows(again, name) != allows(both, name) {
				t.Fatalf("%v and %v: entries %v mistake %s", a, b, both.Entries(table), name)
			}
		}
		narrow, _ := acl.CompilePermissions(both.Entries(nil)) // without a table: nothing too much
		for name := range commands {
			if allows(narrow, name) && !allows(both, name) {
				t.Fatalf("%v and %v: entries %v grant %s", a, b, both.Entries(nil), name)
			}
		}
	})
}

func TestWhoMayRunScripts(t *testing.T) {
	for list, want := range map[string]bool{
		"*": true, "scripts:*": true, "scripts:read": true, "commands:EVAL": true, "commands:FCALL_RO": true,
		"strings:*": false, "commands:SCRIPT|LOAD": false, "keys:*": false,
	} {
		if got := compile(t, list).MayRunScripts(); got != want {
			t.Errorf("%s: may run scripts %v, want %v", list, got, want)
		}
	}
	if compile(t, "*").Intersect(compile(t, "strings:*")).MayRunScripts() {
		t.Error("a key narrowed to strings may run scripts")
	}
}

func BenchmarkAllows(b *testing.B) {
	app := compile(b, "strings:*", "hashes:read", "commands:ZADD", "commands:ZRANGE")
	for name, p := range map[string]acl.Permissions{"class": app, "narrowed": app.Intersect(compile(b, "strings:read", "commands:ZADD"))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !p.Allows(acl.Strings, acl.Read, "GET") || !p.Allows(acl.ZSets, acl.Write, "ZADD") || p.Allows(acl.Hashes, acl.Write, "HSET") {
					b.Fatal("wrong")
				}
			}
		})
	}
}
