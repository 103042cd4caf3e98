package middleware

import (
	"sync/atomic"

	"github.com/gin-gonic/gin"
)

var connectionClose = []string{"close"}

// Drain counts the requests that run and, once started, asks every client to open its next connection elsewhere. The zero value is
// ready. It refuses nothing: between "not ready" and the closed listener, requests that still arrive are served.
//
// A request that is already running when Start is called gets its Connection: close from net/http, whose server looks when it writes
// the headers: call SetKeepAlivesEnabled(false) beside Start.
type Drain struct {
	draining atomic.Bool
	running  atomic.Int64
}

// Start begins draining. There is no way back.
func (d *Drain) Start() { d.draining.Store(true) }

// Draining reports whether Start was called.
func (d *Drain) Draining() bool { return d.draining.Load() }

// InFlight is the number of requests that run now.
func (d *Drain) InFlight() int64 { return d.running.Load() }

// Handler is the guard.
func (d *Drain) Handler() gin.HandlerFunc {
	return func(c *gin.Context) {
		d.running.Add(1)
		defer d.running.Add(-1)
		if d.draining.Load() {
			c.Writer.Header()["Connection"] = connectionClose
		}
		c.Next()
	}
}
