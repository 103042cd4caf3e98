//go:build linux

package main

import (
	"errors"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// halves splits the cores this program may use between the gateway and everything else. A single core both have; apart is false then.
func halves() (gateway, others unix.CPUSet, apart bool, err error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return gateway, others, false, err
	}
	n := all.Count()
	if n < 2 {
		return all, all, false, nil
	}
	for core := 0; others.Count() < n-n/2; core++ {
		switch {
		case !all.IsSet(core):
		case gateway.Count() < n/2:
			gateway.Set(core)
		default:
			others.Set(core)
		}
	}
	return gateway, others, true, nil
}

// pinSelf keeps all threads of this program, and what it starts from now on, to these cores.
func pinSelf(to unix.CPUSet) error {
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(filepath.Base(t))
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &to); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
			return err
		}
	}
	runtime.GOMAXPROCS(to.Count())
	return nil
}

// pinnedTo runs f with the calling thread kept to these cores, which a program that f starts inherits.
func pinnedTo(to unix.CPUSet, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &to)); err != nil {
		return err
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &before))
}
