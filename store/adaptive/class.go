package adaptive

import (
	"math"

	"github.com/slotgate/slotgate/acl"
)

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

// spare is the share of the limit that a class leaves free for what is more important, whatever it is filled with, and the largest share
// that Settings.Spare may make of it. The first are those that the design's simulation was made with (package tests); Stripe keeps 20 %
// for what is critical.
var spare = [classes]struct{ share, most float64 }{Normal: {.15, .35}, Bulk: {.4, .6}}

// of is how many places of a limit the class may fill, when normal leaves so many free at the least.
func (c Class) of(limit, least float64) float64 {
	if c == Bulk {
		least *= bulkSpare
	}
	s := spare[c]
	if least = min(least, limit*s.most); least > limit*s.share {
		return max(math.Floor(limit-least), 1)
	}
	return limit - limit*s.share
}

// bulkSpare is how many times as many places as normal bulk leaves free of a low limit.
const bulkSpare = 5. / 3

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
