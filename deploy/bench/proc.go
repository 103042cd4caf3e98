//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// cpuTime is the user and system time of all threads of the processes so far. The scheduler's own count is exact to the microsecond;
// /proc/PID/stat, the fallback, counts in hundredths of a second.
func cpuTime(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		d, err := scheduled(pid)
		if err != nil {
			d, err = ticks(pid)
		}
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
		}
		sum += d
	}
	return sum, nil
}

func scheduled(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, errors.Join(err, os.ErrNotExist)
	}
	var sum time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		field, _, _ := bytes.Cut(text, []byte(" "))
		ns, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

func ticks(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in brackets and may hold anything; user and system time are the 14th and 15th.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, errors.New("a short line in stat")
	}
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2)
}

// residentBytes is the memory of the processes that is in RAM now.
func residentBytes(pids []int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			return 0, err
		}
		fields := bytes.Fields(text)
		if len(fields) < 2 {
			return 0, errors.New("a short line in statm")
		}
		pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
		if err != nil {
			return 0, err
		}
		sum += pages * int64(os.Getpagesize())
	}
	return sum, nil
}

// raiseFileLimit lets this program and what it starts open as many files as allowed: a thousand connections need more than the usual
// soft limit, which Go would otherwise restore for its children.
func raiseFileLimit() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = limit.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) // a run with few connections works without
	}
}
