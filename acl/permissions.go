package acl

// Permissions is a compiled allow-list. It is immutable and safe to share; the zero value allows nothing.
type Permissions struct {
	rules []rule // every rule must allow: an intersection keeps both sides, so it is exact without knowing the class of a command
}

// A rule is one allow-list: anything any entry of it grants.
type rule struct {
	all      bool
	classes  [Write + 1]uint32 // by access, one bit for each class
	commands map[string]struct{}
}

// CompilePermissions reads an allow-list: `*`, `CLASS:read`, `CLASS:write`, `CLASS:*` and `commands:NAME`. The error names every bad
// entry and what would be right; the permissions returned with it hold the good entries.
func CompilePermissions(list []string) (Permissions, error) {
	return Permissions{}, nil
}

// Allows says whether the command, in upper case, of the class and with the access may run.
func (p Permissions) Allows(c Class, a Access, command string) bool {
	return false
}

// Intersect allows exactly what both allow.
func (p Permissions) Intersect(q Permissions) Permissions {
	return Permissions{}
}
