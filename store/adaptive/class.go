package adaptive

import "github.com/slotgate/slotgate/acl"

// Class says who goes first when there is too much. The zero value is Normal, which is what an app is that says nothing.
type Class uint8

// The classes.
const (
	Normal Class = iota
	Critical
	Bulk
	classes
)

// Classes lists them, the last to be refused first.
func Classes() []Class { return []Class{Critical, Normal, Bulk} }

// classShare is the part of the limit that a class may fill, together with all others: there is always room for what is more
// important. The numbers are those that the simulation was made with (package tests); Stripe keeps 20 % for what is critical.
var classShare = [classes]float64{Critical: 1, Normal: .85, Bulk: .6}

// classSpare is how many places stay free for what is more important, at the least: of the eight places that a slow node has, the
// shares alone would leave one to what is critical.
var classSpare = [classes]float64{Normal: 3, Bulk: 5}

// rank orders the classes: what has a lower rank is more important.
var rank = [classes]uint8{Critical: 0, Normal: 1, Bulk: 2}

// ClassOf is the class of an app's priority. One that only a newer version knows is Normal.
func ClassOf(p acl.Priority) Class {
	switch p {
	case acl.Critical:
		return Critical
	case acl.Bulk:
		return Bulk
	}
	return Normal
}

// ParseClass finds a class by its name: critical, normal or bulk.
func ParseClass(name string) (c Class, ok bool) {
	switch name {
	case "critical":
		return Critical, true
	case "normal":
		return Normal, true
	case "bulk":
		return Bulk, true
	}
	return Normal, false
}

// String is the name.
func (c Class) String() string {
	switch c {
	case Critical:
		return "critical"
	case Bulk:
		return "bulk"
	}
	return "normal"
}

// Lower is the less important of two classes.
func (c Class) Lower(other Class) Class {
	if rank[other] > rank[c] {
		return other
	}
	return c
}

// Next is the class below; that of Bulk is Bulk.
func (c Class) Next() Class {
	if c == Critical {
		return Normal
	}
	return Bulk
}
