package middleware

import (
	"net/http"
	"time"
)

// pace ends the reading of a large body that comes too slowly. Such a body has reserved its length of what all requests may hold
// together; without this a caller could say "8 MiB" 32 times, send nothing, and turn everybody else away for as long as a body may take.
type pace struct {
	writer http.ResponseWriter // of the request, by which its connection is told
	begun  time.Time
	most   time.Duration // for the whole body, at any speed
	rate   int64         // bytes a second
	next   int64         // bytes at which the connection is told anew
}

const (
	// pacedFrom is the least length that is looked at: what smaller ones hold is no harm, and most of them come in one packet.
	pacedFrom = 64 << 10
	// paceGrace is what comes on top of the time that the rate allows, for a lost packet or two, which are sent again after some 200 ms
	// to a second.
	paceGrace = 2 * time.Second
	paceStep  = 16 << 10 // bytes between two settings of the deadline
)

// paced gives the request's body a pace if it is large and there is a least rate. It returns how long the first bytes may take.
func (b *body) paced(w http.ResponseWriter, begun time.Time, cfg *DeadlineConfig) time.Duration {
	if cfg.BodyRate <= 0 || b.declared >= 0 && b.declared < pacedFrom {
		return cfg.Body
	}
	b.pace = &pace{writer: w, begun: begun, most: cfg.Body, rate: cfg.BodyRate, next: paceStep}
	return b.pace.allowed(0)
}

// allowed is the time from the beginning to the end of the step behind these bytes.
func (p *pace) allowed(read int64) time.Duration {
	return min(p.most, paceGrace+time.Duration(float64(read+paceStep)/float64(p.rate)*float64(time.Second)))
}

// on is called after each read with the bytes so far.
func (p *pace) on(read int64) {
	if read < p.next {
		return
	}
	p.next = read + paceStep
	_ = http.NewResponseController(p.writer).SetReadDeadline(p.begun.Add(p.allowed(read))) // where it cannot be set there is ReadTimeout
}
