//go:build !linux

package faultproxy

import "time"

// sleepExactly sleeps for a short while, as exactly as the system can.
func sleepExactly(d time.Duration) { time.Sleep(d) }
