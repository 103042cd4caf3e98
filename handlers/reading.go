package handlers

import (
	"fmt"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// The parameters of reads that replicas may answer.
const (
	paramRead      = "read"
	paramStaleness = "max_staleness_ms"
)

// reading is who may answer a read: as the query string says, or else the app.
func (r *request) reading() store.Reading {
	app := r.id.App
	if len(r.query) == 0 && app.Read != acl.ReadReplica {
		return store.Reading{}
	}
	word := r.word(paramRead, string(acl.ReadPrimary), string(acl.ReadReplica))
	if word == "" {
		word = string(app.Read)
	}
	ms := r.staleness(word)
	if word != string(acl.ReadReplica) {
		return store.Reading{}
	}
	if ms == 0 {
		ms = app.MaxStalenessMS
	}
	r.servers = new(store.Served)
	return store.Reading{Replicas: true, Within: time.Duration(ms) * time.Millisecond, Served: r.servers}
}

// staleness is the bound of the query string, in ms; 0 = none is given.
func (r *request) staleness(read string) int64 {
	if _, given := r.query.get(paramStaleness); !given {
		return 0
	}
	ms := r.integer(paramStaleness, 0)
	switch least, most := store.LeastStaleness.Milliseconds(), store.MostStaleness.Milliseconds(); {
	case r.bad != nil:
	case ms < least || ms > most:
		r.fail(store.Invalid(queryPointer(paramStaleness), fmt.Sprintf("must be %d to %d", least, most)))
	case read != string(acl.ReadReplica):
		r.fail(store.Invalid(queryPointer(paramStaleness), "is for read=replica"))
	}
	return ms
}

// readingUnless is reading of what is a write if it moves the expiry.
func (r *request) readingUnless(e store.Expiry) store.Reading {
	if e.Mode == store.NoExpiry {
		return r.reading()
	}
	for _, name := range [...]string{paramRead, paramStaleness} {
		if value, given := r.query.get(name); given && value != string(acl.ReadPrimary) {
			r.fail(store.Invalid(queryPointer(name), "a read that moves the expiry is a write, which the primary does"))
		}
	}
	return store.Reading{}
}

// told says who has answered, if replicas were allowed to.
func (r *request) told() {
	if r.servers == nil {
		return
	}
	if who := r.servers.String(); who != "" {
		r.Header("Gateway-Served-By", who)
	}
}
