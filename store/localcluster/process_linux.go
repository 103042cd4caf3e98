package localcluster

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// childAttributes lets a server die with this program, and keeps the terminal's Ctrl-C from it: the gateway drains first.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// stat returns the state letter and the start time (in clock ticks since boot) of a process.
func stat(pid int) (state, started string, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", "", err
	}
	// The second field is the program's name in brackets, which may hold anything; fields are counted after its end.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 {
		return "", "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields[0], fields[19], nil
}

// startTime tells two processes with the same number apart. It is empty if there is no such process.
func startTime(pid int) string {
	state, started, err := stat(pid)
	if err != nil || state == "Z" {
		return ""
	}
	return started
}

// commandLine returns how a process was started, or "" if there is none.
func commandLine(pid int) string {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(bytes.ReplaceAll(raw, []byte{0}, []byte{' '}))
}

// awaitStopped returns when SIGSTOP has taken effect; until then the process may still answer a request.
func awaitStopped(pid int) error {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if state, _, err := stat(pid); err != nil || state == "T" {
			return err
		}
	}
	return fmt.Errorf("process %d does not stop", pid)
}
