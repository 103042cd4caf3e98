package store

import (
	"hash/maphash"
	"sync/atomic"
)

// shares says whether the call may share a pipe: neither it nor, as far as is known, its reply is large.
func (c *cluster) shares(cl *call) bool {
	return cl.row.cost == constant && cl.size() <= pipedBytes && !c.large.has(cl)
}

// largeKeys remembers which keys had large values, so that only the first read of one is in the way of others. It is a
// small table that forgets and may take one key for another: then a command goes by itself, which is slower, not wrong.
type largeKeys struct {
	some   atomic.Bool // there was one: until then no key is looked up, and most clusters have none
	places [1 << 12]atomic.Uint64
}

var largeSeed = maphash.MakeSeed()

func (l *largeKeys) at(key string) (*atomic.Uint64, uint64) {
	h := maphash.String(largeSeed, key)
	return &l.places[h%uint64(len(l.places))], h | 1
}

// has says whether the call reads a value that was large.
func (l *largeKeys) has(cl *call) bool {
	if cl.out.budget == nil || !l.some.Load() {
		return false
	}
	place, h := l.at(cl.stored())
	return place.Load() == h
}

// note remembers the size of what the call has read.
func (l *largeKeys) note(cl *call) {
	large := cl.out.size > pipedBytes
	if !large && (cl.out.size == 0 || !l.some.Load()) {
		return
	}
	place, h := l.at(cl.stored())
	if large {
		l.some.Store(true)
		place.Store(h)
	} else if place.Load() == h {
		place.Store(0)
	}
}
