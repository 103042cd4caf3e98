package acl

import "fmt"

// Class is a group of commands that permissions are granted by, after Redis' own categories. The zero class is no class: a command
// in it is granted only by `*` or by its own name.
type Class uint8

// The classes. The list is closed: a new one is added here, never by configuration, and a number is never given to another class
// because compiled permissions are bit sets of them.
const (
	Strings Class = iota + 1
	Hashes
	Lists
	Sets
	ZSets
	Streams
	Keys
	Bitmaps
	HyperLogLogs
	Geo
	PubSub
	Scripts
	RateLimits
	Pools
	Transactions
	Connection
	classEnd
)

var classNames = [classEnd]string{
	Strings:      "strings",
	Hashes:       "hashes",
	Lists:        "lists",
	Sets:         "sets",
	ZSets:        "zsets",
	Streams:      "streams",
	Keys:         "keys",
	Bitmaps:      "bitmaps",
	HyperLogLogs: "hyperloglogs",
	Geo:          "geo",
	PubSub:       "pubsub",
	Scripts:      "scripts",
	RateLimits:   "ratelimits",
	Pools:        "pools",
	Transactions: "transactions",
	Connection:   "connection",
}

// Classes lists every class in its fixed order.
func Classes() []Class {
	all := make([]Class, 0, classEnd-1)
	for c := Strings; c < classEnd; c++ {
		all = append(all, c)
	}
	return all
}

// ParseClass finds a class by the name used in permissions.
func ParseClass(name string) (Class, error) {
	for c := Strings; c < classEnd; c++ {
		if classNames[c] == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("no class %q", name)
}

func (c Class) String() string {
	if c == 0 || c >= classEnd {
		return "none"
	}
	return classNames[c]
}

// Access is what a command does to the data of its class. The zero access is neither, so that a forgotten one is denied.
type Access uint8

// The two kinds of access.
const (
	Read Access = iota + 1
	Write
)

func (a Access) String() string {
	switch a {
	case Read:
		return "read"
	case Write:
		return "write"
	}
	return "none"
}
