package faultproxy

import (
	"syscall"
	"time"
)

// sleepExactly sleeps for a short while, right to a twentieth of a millisecond: Go's own timers may come a whole one too late.
func sleepExactly(d time.Duration) {
	pause := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&pause, nil) // who is woken too early looks at the time and sleeps again
}
