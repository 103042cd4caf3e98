package store

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slotgate/slotgate/store/balance"
)

// Reading says who may answer a read. The zero value is the primaries alone: what is read then is the latest.
type Reading struct {
	// Replicas says that a replica may answer which held Within ago all that its primary had then. Nothing is promised beyond that: not
	// even that the caller sees what it has just written.
	Replicas bool
	Within   time.Duration // LeastStaleness or more; 0 = ReplicaReadsConfig.Within
	// Served is told who has answered; nil = nobody wants to know.
	Served *Served
}

// Bounds of Reading.Within. The least is what polls each second can keep; what is older than the most is not remembered.
const (
	LeastStaleness = balance.LeastWithin
	MostStaleness  = time.Minute
)

// ReplicaReadsConfig is about reads whose caller lets replicas answer. Zero fields mean the defaults beside them.
type ReplicaReadsConfig struct {
	// Off lets the primaries answer all the same, and asks no replica for anything.
	Off bool
	// Within is the bound of a Reading without one; 0 = 5 s: so far a replica that is well never is behind, and one look that failed costs it
	// nothing.
	Within time.Duration
}

// Served is who has answered a read, or the items of a batch. The zero value is ready; it must not be copied.
type Served struct {
	mu                  sync.Mutex
	batch               bool
	replicas, primaries int
	node                string // of one read: the beginning of the node's id; "" = not known
}

// nodeDigits of a node's id of 40 tell it from the others of a cluster, and no address.
const nodeDigits = 8

// one notes who has answered a read of one key; id "" = not known.
func (s *Served) one(replica bool, id string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas, s.primaries, s.node = 0, 1, shortID(id)
	if replica {
		s.replicas, s.primaries = 1, 0
	}
}

// some notes who has answered so many items of a batch.
func (s *Served) some(replica bool, items int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batch = true
	if replica {
		s.replicas += items
	} else {
		s.primaries += items
	}
}

// shortID is the beginning of an id as Redis makes them, "" of anything else: where a node has no id, its address stands for it.
func shortID(id string) string {
	if len(id) != 40 || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id[:nodeDigits]
}

// String is a list of RFC 9651: for one read `replica;node="0123abcd"` or the same with primary, where node may be left out; for a batch
// `replica;items=3, primary;items=1`. "" = nobody has answered.
func (s *Served) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, role := range [...]struct {
		name  string
		count int
	}{{"replica", s.replicas}, {"primary", s.primaries}} {
		switch {
		case role.count == 0:
		case s.batch:
			list = append(list, role.name+";items="+strconv.Itoa(role.count))
		case s.node != "":
			list = append(list, role.name+`;node="`+s.node+`"`)
		default:
			list = append(list, role.name)
		}
	}
	return strings.Join(list, ", ")
}
