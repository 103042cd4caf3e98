package middleware

import "sync/atomic"

// Settings are those of the guards that may change while requests run.
type Settings struct {
	AccessLog LogConfig
	Deadline  DeadlineConfig
}

// Live holds Settings. A guard reads them once a request, by one atomic load, so no request sees two versions in one guard. Set it
// before the first request.
type Live struct{ current atomic.Pointer[Settings] }

// NewLive makes a Live that has been set.
func NewLive(s Settings) *Live {
	l := &Live{}
	l.Set(s)
	return l
}

// Set changes the settings, for requests that begin (or, for the log, end) from now on.
func (l *Live) Set(s Settings) {
	s.Deadline = s.Deadline.withDefaults()
	l.current.Store(&s)
}
