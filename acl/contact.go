package acl

import (
	"sync"
	"time"
)

// A Contact says when a storage was last heard of.
type Contact struct {
	Last time.Time // the last answer; zero = none yet
	Err  error     // what the latest try ended with; nil = it was answered, or there was none
}

// Heard notes how the tries of a storage end. The zero value has heard nothing. It is safe for concurrent use.
type Heard struct {
	mu sync.Mutex
	c  Contact
}

// Note takes down the end of a try, now.
func (h *Heard) Note(now time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.c.Err = err; err == nil {
		h.c.Last = now
	}
}

// Contact says when the storage was last heard of.
func (h *Heard) Contact() Contact {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.c
}

// Contact says when the storage was last heard of. A storage that is watched is asked each second; one that does not tell is taken to
// answer always.
func (d *Directory) Contact() Contact {
	if s, ok := d.storage.(interface{ Contact() Contact }); ok {
		return s.Contact()
	}
	return Contact{Last: d.now()}
}

// EachKey calls f for every key that is neither revoked nor of a deleted app, in no order. used is when it was last used, here or, as
// far as the storage knew when it was loaded, elsewhere; zero = never.
func (d *Directory) EachKey(f func(key *Key, used time.Time)) {
	t := d.current.Load()
	if t == nil {
		return
	}
	for _, e := range t.entries {
		if e.dead {
			continue
		}
		var used time.Time
		if at := e.identity.Key.LastUsedAt; at != nil {
			used = *at
		}
		if at := e.lastUsed.Load(); at > max(used.Unix(), 0) { // 0 = not here
			used = time.Unix(at, 0).UTC()
		}
		f(e.identity.Key, used)
	}
}
