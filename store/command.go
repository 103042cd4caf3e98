package store

import "github.com/slotgate/slotgate/acl"

// Command tells the class and access of a command named in upper case, false when the table has no row for it. It is
// the acl.CommandTable of this gateway.
func Command(name string) (acl.Class, acl.Access, bool) {
	r := table[name]
	if r == nil {
		return 0, 0, false
	}
	return r.class, r.access, true
}
