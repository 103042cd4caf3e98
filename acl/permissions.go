package acl

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Permissions is a compiled allow-list. It is immutable and safe to share; the zero value allows nothing.
type Permissions struct {
	// Every rule must allow. An intersection keeps both sides, because whether `strings:read` and `commands:GET` meet depends on the
	// class of GET, which only the command table knows; so it is exact without the table.
	rules []rule
}

// A rule is one allow-list: anything any entry of it grants.
type rule struct {
	all      bool
	classes  [Write + 1]uint32 // by access, one bit for each class
	commands map[string]struct{}
}

const (
	grantAll      = "*"
	commandPrefix = "commands"
)

// Redis names are letters, digits and a few marks; a sub-command follows its command after a bar, as in Redis' own ACL.
var commandPattern = regexp.MustCompile(`^[A-Z][A-Z0-9_.-]*(\|[A-Z][A-Z0-9_-]*)?$`)

// CompilePermissions reads an allow-list: `*`, `CLASS:read`, `CLASS:write`, `CLASS:*` and `commands:NAME`. The error names every bad
// entry and what would be right; the permissions returned with it hold the good entries.
func CompilePermissions(list []string) (Permissions, error) {
	var r rule
	var f faults
	for i, entry := range list {
		if err := r.grant(entry); err != nil {
			f.add(fmt.Sprintf("permissions[%d]", i), "%v", err)
		}
	}
	if r.empty() {
		return Permissions{}, f.join()
	}
	return Permissions{rules: []rule{r}}, f.join()
}

func (r *rule) grant(entry string) error {
	if entry == grantAll {
		r.all = true
		return nil
	}
	name, what, found := strings.Cut(entry, ":")
	if !found {
		return fmt.Errorf("%q is not a permission; use %s", entry, suggestion(name, "read"))
	}
	if name == commandPrefix {
		return r.grantCommand(entry, what)
	}
	class, err := ParseClass(name)
	if err != nil {
		return fmt.Errorf("%q names no class; use %s", entry, suggestion(name, what))
	}
	bit := uint32(1) << class
	switch what {
	case "read":
		r.classes[Read] |= bit
	case "write":
		r.classes[Write] |= bit
	case "*":
		r.classes[Read] |= bit
		r.classes[Write] |= bit
	default:
		return fmt.Errorf("%q names no access; use %s:read, %s:write or %s:*", entry, name, name, name)
	}
	return nil
}

func (r *rule) grantCommand(entry, name string) error {
	if !commandPattern.MatchString(name) {
		if upper := strings.ToUpper(name); commandPattern.MatchString(upper) {
			return fmt.Errorf("%q must name the command in upper case; use commands:%s", entry, upper)
		}
		return fmt.Errorf("%q names no command; use one exact name, such as commands:ZADD", entry)
	}
	if r.commands == nil {
		r.commands = map[string]struct{}{}
	}
	r.commands[name] = struct{}{}
	return nil
}

// suggestion finds the class most likely meant, and otherwise lists them all.
func suggestion(name, what string) string {
	if what != "read" && what != "write" {
		what = "*"
	}
	name = strings.ToLower(strings.TrimSpace(name))
	names := make([]string, 0, classEnd)
	for _, c := range Classes() {
		if name != "" && strings.HasPrefix(c.String(), strings.TrimSuffix(name, "s")) {
			return c.String() + ":" + what
		}
		names = append(names, c.String())
	}
	return "*, commands:NAME, or CLASS:read, CLASS:write, CLASS:* with CLASS one of " + strings.Join(names, ", ")
}

func (r *rule) empty() bool {
	return !r.all && r.classes == [Write + 1]uint32{} && len(r.commands) == 0
}

func (r *rule) allows(c Class, a Access, command string) bool {
	if r.all || r.allowsClass(c, a) {
		return true
	}
	_, named := r.commands[command]
	return named
}

func (r *rule) allowsClass(c Class, a Access) bool {
	return a <= Write && r.classes[a]&(1<<c) != 0
}

// Allows says whether the command, named in upper case, of the class and with the access may run. It does not allocate.
func (p Permissions) Allows(c Class, a Access, command string) bool {
	for i := range p.rules {
		if !p.rules[i].allows(c, a, command) {
			return false
		}
	}
	return len(p.rules) > 0
}

// Intersect allows exactly what both allow.
func (p Permissions) Intersect(q Permissions) Permissions {
	if len(p.rules) == 0 || len(q.rules) == 0 {
		return Permissions{}
	}
	return Permissions{rules: slices.Concat(p.rules, q.rules)}
}

// MayRunScripts says whether any script can be run. Values of such an app are never compressed, because a script sees them as stored.
func (p Permissions) MayRunScripts() bool {
	for _, name := range []string{"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"} {
		if p.Allows(Scripts, Read, name) || p.Allows(Scripts, Write, name) {
			return true
		}
	}
	return false
}

// A CommandTable tells the class and access of a command named in upper case; false when there is no such command.
type CommandTable func(name string) (Class, Access, bool)

// Excess lists the entries of list that p does not grant in full. Without a table the class of a named command is unknown, so the
// command must be named in p as well.
func (p Permissions) Excess(list []string, table CommandTable) []string {
	var over []string
	for _, entry := range list {
		if !p.covers(entry, table) {
			over = append(over, entry)
		}
	}
	return over
}

func (p Permissions) covers(entry string, table CommandTable) bool {
	var want rule
	if want.grant(entry) != nil || len(p.rules) == 0 {
		return false
	}
	for i := range p.rules {
		if !p.rules[i].covers(&want, table) {
			return false
		}
	}
	return true
}

func (r *rule) covers(want *rule, table CommandTable) bool {
	if r.all {
		return true
	}
	if want.all || want.classes[Read]&^r.classes[Read] != 0 || want.classes[Write]&^r.classes[Write] != 0 {
		return false
	}
	for name := range want.commands {
		if _, named := r.commands[name]; named {
			continue
		}
		if table == nil {
			return false
		}
		if c, a, known := table(name); !known || !r.allowsClass(c, a) {
			return false
		}
	}
	return true
}

// Entries lists what is granted, in the notation of the allow-list and in a fixed order. Of an intersection, a command named on one
// side alone is listed only with a table to tell its class.
func (p Permissions) Entries(table CommandTable) []string {
	if len(p.rules) == 0 {
		return []string{}
	}
	all, classes, names := true, [Write + 1]uint32{^uint32(0), ^uint32(0), ^uint32(0)}, map[string]struct{}{}
	for i := range p.rules {
		r := &p.rules[i]
		maps.Copy(names, r.commands)
		if r.all {
			continue
		}
		all = false
		for a := range classes {
			classes[a] &= r.classes[a]
		}
	}
	if all {
		return []string{grantAll}
	}
	list := []string{}
	for _, c := range Classes() {
		read, write := classes[Read]&(1<<c) != 0, classes[Write]&(1<<c) != 0
		switch {
		case read && write:
			list = append(list, c.String()+":*")
		case read:
			list = append(list, c.String()+":read")
		case write:
			list = append(list, c.String()+":write")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if entry := commandPrefix + ":" + name; p.covers(entry, table) {
			list = append(list, entry)
		}
	}
	return list
}
